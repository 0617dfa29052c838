"""A run as the arguments, the configuration file or the batch job that trains it."""

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, Unpack

from charllm import __version__
from charllm.api.keywords import RunKeywords, Spec, as_file, build_request
from charllm.api.signature import public
from charllm.catalog.export import PLACEMENT, SWITCH_REDUCTION, LeftOut, export_run
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError, unknown_name
from charllm.measure.adapters.adapter import DEFAULT_STEPS, Program, Request
from charllm.measure.adapters.programs import prepare_program, with_program
from charllm.result.answers import describe_spec
from charllm.result.store import write_text
from charllm.spec.programs import PROFILES, SBATCH, TARGETS, program_of
from charllm.spec.run import RunSpec
from charllm.spec.writers.launch import Launch, write_launch
from charllm.spec.writers.sbatch import write_sbatch

SCRIPTS = {"megatron": "pretrain_gpt.py", "nemo": "megatron_gpt_pretraining.py", "torchtitan": None}
"""Program: its training script; torchtitan is a module."""
HYBRID_SCRIPT, TUNING_SCRIPT = "pretrain_mamba.py", "megatron_gpt_finetuning.py"
SCRIPT_SAYS = (PLACEMENT, SWITCH_REDUCTION)
"""Fields outside a program that the script around it sets."""
NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
RUN_ON_EACH = "Run on each node, with NODE_RANK (0 to {last}) and MASTER_ADDR (the address of node {master}) set."
COMPOSE = (
    "Laid over NeMo's own file: save as charllm/run.yaml; --config-dir=. +charllm=run on the command line of {script}."
)


@dataclass(frozen=True, slots=True)
class Export:
    """A run as text for another program."""

    text: str
    warnings: tuple[str, ...]
    """Settings that are not in the text: field, value and how to set it, one sentence each."""
    program: str
    """The program that trains it: megatron, nemo or torchtitan."""

    def __str__(self) -> str:
        return self.text


@public
def export(
    spec: Spec | None = None,
    *,
    to: str,
    out: str | PathLike[str] | None = None,
    script: str | None = None,
    steps: int | None = None,
    measure: bool = False,
    **words: Unpack[RunKeywords],
) -> Export:
    """Write a run as Megatron-LM's launch script, NeMo's YAML, torchtitan's TOML, or a batch job of Slurm around one.

    `to` is megatron, nemo, torchtitan or sbatch; `out` a file to write to. A batch job runs the program of the run's
    framework with `script` for `steps` steps, and records it if `measure` is true. ``charllm.simulate(from_=out)``
    reads the same run back. A setting for which the program has no argument raises `SpecError`; conditions outside
    the program (power limits; with a YAML or TOML file also the placement) are listed in the text and in `.warnings`.

    >>> import charllm
    >>> found = charllm.export(to="megatron", model="llama3-70b", cluster="h200x32", tp=4, pp=4, gbs=128)
    >>> "--pipeline-model-parallel-size 4" in found.text
    True
    """
    if to not in TARGETS:
        raise unknown_name("--to", to, TARGETS)
    run = resolve_run(_with_profile(to, build_request(spec, words)))
    return run_export(run, to, out=out, script=script, steps=steps, measured=measure)


def _with_profile(to: str, request: dict[str, Any]) -> dict[str, Any]:
    """Take the profile of the program that was named, unless the request names one."""
    return request if to == SBATCH else with_program(to, request)


def run_export(
    run: RunSpec,
    to: str,
    *,
    out: str | PathLike[str] | None = None,
    script: str | None = None,
    steps: int | None = None,
    measured: bool = False,
) -> Export:
    """Export a resolved run, and write it to a file where one is named."""
    path = None if out is None else as_file(out, "--out")
    if measured and to != SBATCH:
        raise SpecError("--measure", f"with --to {to}", "--to sbatch, whose job can be recorded")
    if steps is not None and steps < 1:
        raise SpecError("--steps", steps, "at least 1")
    program = to if to != SBATCH else _program_of(run)
    said = SCRIPT_SAYS if to in ("megatron", SBATCH) else ()
    left_out = [one for one in export_run(run, program).left_out if one.field not in said]
    trained = steps or run.conditions.steps or DEFAULT_STEPS
    text = _write(run, to, program, _comments(run, left_out), script, trained, measured)
    if path is not None:
        write_text(text, path)
    return Export(text, tuple(f"not in the export: {one}" for one in left_out), program)


def _program_of(run: RunSpec) -> str:
    if (program := program_of(run)) is not None:
        return program
    known = ", ".join(profiles[0] for profiles in PROFILES.values())
    raise SpecError("framework", run.framework.name, f"the profile of a program that can be exported to: {known}")


def _comments(run: RunSpec, left_out: list[LeftOut]) -> list[str]:
    lines = [f"{describe_spec(run.as_table())}.", f"Written by charllm {__version__}."]
    return [*lines, *(["Not in this file:"] if left_out else []), *(f"  {one}" for one in left_out)]


def _write(
    run: RunSpec, to: str, program: str, comments: list[str], script: str | None, steps: int, measured: bool
) -> str:
    if to in ("nemo", "torchtitan"):
        more = [COMPOSE.format(script=_script(run, program, script))] if to == "nemo" else []
        return _commented(export_run(run, to, steps).text, [*comments, *more])
    folder = PurePath(f"charllm-{NO_FILE_NAME.sub('-', run.model.name)}")
    prepared = prepare_program(program, Request(
        run=run,
        script=_script(run, program, script),
        steps=steps,
        config=Path(folder / "config"),
    ))  # fmt: skip
    launch = _launch(run, prepared)
    if to == "megatron":
        where = RUN_ON_EACH.format(last=launch.nodes - 1, master=launch.master_node)
        return write_launch(launch, [*comments, *([where] if launch.nodes > 1 else [])])
    files = {PurePath(path): text for path, text in prepared.files.items()}
    return write_sbatch(launch, folder, comments, files, measured=measured)


def _commented(text: str, comments: list[str]) -> str:
    """Put comments below the first line where that is one for the program, as Hydra's package line is."""
    first, rest = text.split("\n", 1) if text.startswith("# @") else ("", text)
    above = [first] if first else []
    return "\n".join([*above, *(f"# {line}" for line in comments), rest])


def _script(run: RunSpec, program: str, given: str | None) -> str | None:
    if given is not None:
        return given
    if program == "megatron" and run.model.pattern:
        return HYBRID_SCRIPT
    return TUNING_SCRIPT if program == "nemo" and run.training.lora_rank else SCRIPTS[program]


def _launch(run: RunSpec, program: Program) -> Launch:
    cluster, placed = run.cluster, run.conditions.gpu_of_rank
    in_order = placed == tuple(range(len(placed)))
    return Launch(program.command, program.environment, cluster.nodes, cluster.node.gpus, () if in_order else placed)
