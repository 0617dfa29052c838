"""A run in the format of another program, read back by that format's own reader: what got lost is named.

A field of a run is one of three kinds. A setting is written into the file; where the format has no word for it, the
program would train another run, and the field is refused. What lies outside a program (placement, power limits,
environment) and what only describes it (constants of its software, skew of its data) is left out and listed.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from charllm.catalog.foreign import complete_request
from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, MissingExtra, SpecError, unknown_name
from charllm.spec.programs import PROFILES, check_program, program_of
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.readers.nemo import read_nemo
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.torchtitan import read_torchtitan
from charllm.spec.request import dotted_fields, merge
from charllm.spec.run import Conditions, RunSpec
from charllm.spec.writers.megatron import write_megatron
from charllm.spec.writers.nemo import write_nemo
from charllm.spec.writers.torchtitan import write_torchtitan
from charllm.units import MEGA


class Format(NamedTuple):
    """A foreign format: its writer and its reader."""

    write: Callable[[RunSpec, int], str]
    """Takes the steps to train, too."""
    read: Callable[[str, str], Reading]
    suffix: str


def _start_megatron(run: RunSpec, _steps: int) -> str:
    """Return a command line: how many ranks there are decides what some arguments mean."""
    ranks = f"--nnodes={run.cluster.nodes} --nproc-per-node={run.cluster.node.gpus}"
    return f"torchrun {ranks} pretrain_gpt.py {shlex.join(write_megatron(run))}"


FORMATS = {
    "megatron": Format(_start_megatron, read_megatron, ".sh"),
    "nemo": Format(write_nemo, read_nemo, ".yaml"),
    "torchtitan": Format(write_torchtitan, read_torchtitan, ".toml"),
}
"""Program: the format that starts it."""
NOT_WRITTEN = {"model.name", "model.stated_params", "model.stated_active_params", "framework.name"}
"""Fields that describe a run and change nothing of it."""
USED_UP = "framework.default_"
"""Beginning of fields that a run has already been filled from."""
DESCRIPTIONS = {
    "framework.launch_s", "framework.library_fraction", "framework.undescribed_fraction", "framework.reserve_fraction",
    "framework.kernel_bytes", "training.routing_skew", "training.document_tokens",
}  # fmt: skip
"""Fields that say how software and data behave; no setting makes them so."""
SWITCH_REDUCTION, PLACEMENT = "framework.in_switch_reduction", "conditions.gpu_of_rank"
REMEDIES: dict[str, Callable[[Any], str]] = {
    SWITCH_REDUCTION: lambda _: "NCCL_NVLS_ENABLE=0 in the environment of every process",
    "framework.fused_gradients": lambda _: (
        "NeMo turns it off with FSDP, and where neither optimizer nor layers are sharded"
    ),
    "framework.blocking_launches": lambda _: "CUDA_LAUNCH_BLOCKING=1 in the environment of every process",
    PLACEMENT: lambda _: "`charllm export --to sbatch`, whose script starts each rank on its GPU",
    "conditions.power_cap_w": lambda cap_w: f"`nvidia-smi --power-limit={cap_w:g}` (or rocm-smi) on every node",
    "conditions.clock_cap_hz": lambda cap_hz: f"`nvidia-smi --lock-gpu-clocks=0,{cap_hz / MEGA:.0f}` on every node",
}
"""Field outside a program, or that it decides by itself: what sets it."""
DESCRIBED = "describes the machine, the software or the data: no setting makes it so"


class LeftOut(NamedTuple):
    """A field of a run that its file does not hold."""

    field: str
    value: Any
    remedy: str
    """What sets it, or why nothing does."""

    def __str__(self) -> str:
        value = "as given" if isinstance(self.value, tuple) and len(self.value) > 8 else self.value
        return f"{self.field} {value}: {self.remedy}"


class Exported(NamedTuple):
    """A run as text for a program."""

    text: str
    left_out: tuple[LeftOut, ...]


def export_run(run: RunSpec, program: str, steps: int = 10) -> Exported:
    """Return a run as the arguments or the file of a program; SpecError where the program would train another run."""
    if program not in FORMATS:
        raise unknown_name("program", program, FORMATS)
    format_ = FORMATS[program]
    if program != program_of(run):
        raise SpecError("framework", run.framework.name, f"{' or '.join(PROFILES[program])} for {program}")
    check_program(run, program)
    text = format_.write(run, steps)
    try:
        reading = format_.read(text, f"{run.model.name}{format_.suffix}")
    except MissingExtra as error:
        raise MissingExtra(
            f"what {program} would train is found by reading it back; {error.need}", error.extra
        ) from None
    lost = lost_fields(run, reading)
    outside = {name: lost.pop(name)[0] for name in tuple(lost) if name in DESCRIPTIONS or name in REMEDIES}
    _refuse(lost, program)
    return Exported(text, tuple(_left_out(*item) for item in {**outside, **_conditions(run)}.items()))


def _left_out(field: str, value: Any) -> LeftOut:
    return LeftOut(field, value, REMEDIES[field](value) if field in REMEDIES else DESCRIBED)


def _refuse(lost: Mapping[str, tuple[Any, Any]], program: str) -> None:
    if lost:
        field, (asked, kept) = next(iter(lost.items()))
        more = f" (as well as {', '.join(list(lost)[1:6])})" if len(lost) > 1 else ""
        raise SpecError(field, asked, f"{kept}, as the settings of {program} that charllm writes say it{more}")


def _conditions(run: RunSpec) -> dict[str, Any]:
    """Return the conditions that were asked for; the placement by its ranks, not by the file they came from."""
    usual = Conditions()
    names = [field.name for field in fields(Conditions) if field.name not in ("placement", "steps")]
    values = {name: getattr(run.conditions, name) for name in names}
    return {f"conditions.{name}": value for name, value in values.items() if value != getattr(usual, name)}


def lost_fields(run: RunSpec, reading: Reading) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which a run differs from the one that a reading of it makes: asked, and read back."""
    table = run.as_table()
    request = merge(reading.request, {"cluster": table["cluster"], "conditions": table["conditions"]})
    try:
        back = resolve_run(complete_request(reading, request))
    except CharllmError as error:
        return {"settings": ("this run", f"settings that can be read back ({error})")}
    ours, theirs = _effective(run), _effective(back)
    free = NOT_WRITTEN if run.model.position == "learned" else NOT_WRITTEN | {"model.seq_length"}
    names = [name for name in {**ours, **theirs} if name not in free and not name.startswith(USED_UP)]
    return {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}


def _effective(run: RunSpec) -> dict[str, Any]:
    """Return the fields of a run with what its framework supplies, and without what has no effect on it."""
    parts = {name: part for name, part in run.as_table().items() if name not in ("cluster", "conditions")}
    found = dotted_fields(parts)
    for name in ("reduce_precision", "grouped_gemm"):
        found.setdefault(f"training.{name}", getattr(run.framework, name))
    found["parallelism.overlap"] = sorted(run.parallelism.effective_overlap)
    idle = {
        "framework.fused_rope": run.model.position != "rope",
        "framework.fused_permute": not run.model.experts,
        "framework.dispatcher": run.parallelism.ep == 1,
        "training.lora_targets": not run.training.lora_rank,
        "training.lora_dropout_fraction": not run.training.lora_rank,
        "parallelism.cp_kind": run.parallelism.cp == 1,
    }
    return {name: value for name, value in found.items() if not idle.get(name)}
