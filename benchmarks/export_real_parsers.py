"""Give exported runs to the programs' own argument parsers: Megatron-LM's, torchtitan's, NeMo's.

    python -m benchmarks.export_real_parsers --python VENV/bin/python --megatron CHECKOUT --torchtitan CHECKOUT \
        --nemo CHECKOUT MEGATRON-CHECKOUT

Runs are every distinct strategy of the paper's studies, and others that cover what those leave out: experts in a
pipeline, latent attention, LoRA, context parallelism, FSDP, uneven stages, 8 and 4 bits. VENV needs torch, triton,
tyro, hydra-core and tensorboard; no GPU. Every export is also read back by charllm's own reader.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from charllm.api.keywords import build_request
from charllm.catalog.export import FORMATS, SWITCH_REDUCTION, export_run, lost_fields
from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.measure.adapters.adapter import Request
from charllm.measure.adapters.programs import prepare_program, with_program
from charllm.spec.programs import PROFILES
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec
from charllm.sweep.study import load_study

HERE = Path(__file__).parent
PPT_H100, PPT_H200 = "charllm-ppt-h100", "charllm-ppt-h200"
MORE: dict[str, dict[str, Any]] = {
    "dense tp": {"model": "llama3-8b", "cluster": "h100x8", "tp": 2},
    "dense cp": {"model": "llama3-8b", "cluster": "h100x8", "cp": 2, "seq": 16384},
    "cp all-to-all": {"model": "llama3-8b", "cluster": "h100x8", "cp": 4, "parallelism": {"cp_kind": "all-to-all"}},
    "fp8": {"model": "llama3-8b", "cluster": "h100x8", "tp": 2, "precision": "fp8"},
    "mxfp8": {"model": "llama3-8b", "cluster": "b200x8", "tp": 2, "precision": "mxfp8"},
    "nvfp4": {"model": "llama3-8b", "cluster": "b200x8", "tp": 2, "precision": "nvfp4"},
    "fp16": {"model": "llama3-8b", "cluster": "h100x8", "tp": 2, "precision": "fp16"},
    "no zero": {"model": "llama3-8b", "cluster": "h100x8", "tp": 2, "zero": 0},
    "zero 2": {"model": "llama3-8b", "cluster": "h100x8", "zero": 2, "overlap": "dp,pp"},
    "fsdp": {"model": "llama3-8b", "cluster": "h100x8", "zero": 3, "overlap": "dp,pp"},
    "fsdp tp": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "zero": 3, "overlap": "dp,pp"},
    "hybrid sharding": {"model": "llama3-8b", "cluster": PPT_H200, "zero": 3, "shard_size": 8, "overlap": "dp,pp"},
    "sharded optimizer in groups": {"model": "llama3-8b", "cluster": PPT_H200, "zero": 1, "shard_size": 8},
    "pipeline": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 4},
    "interleaved": {"model": "llama3-70b", "cluster": PPT_H100, "tp": 8, "pp": 4, "vpp": 5},
    "uneven": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 4, "layers_per_stage": "19,21,21,19"},
    "uneven interleaved": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 4, "vpp": 2,
                           "layers_per_stage": "9,10x6,11"},
    "uneven 126": {"model": "llama3-405b", "cluster": {"base": PPT_H100, "nodes": 16}, "tp": 8, "pp": 16,
                   "layers_per_stage": "7,8x14,7"},
    "recompute some layers": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 4, "recompute": "full:10"},
    "recompute selective": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 8, "recompute": "selective"},
    "overlap": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 4, "vpp": 2, "overlap": "tp,dp,pp"},
    "gpt2": {"model": "gpt2", "cluster": "h200x1"},
    "gpt3": {"model": "gpt3-175b", "cluster": PPT_H200, "tp": 8, "pp": 4, "recompute": "full"},
    "experts": {"model": "qwen3-30b-a3b", "cluster": PPT_H100, "ep": 8, "overlap": "dp,pp"},
    "experts in a pipeline": {"model": "mixtral-8x22b", "cluster": PPT_H200, "tp": 2, "ep": 4, "pp": 4},
    "the paper's fsdp, overlapped": {"model": "gpt3-175b", "cluster": PPT_H200, "tp": 8, "zero": 3, "sp": False,
                                     "overlap": "dp"},
    "the paper's fsdp of llama, overlapped": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 8, "zero": 3,
                                              "sp": False, "overlap": "dp"},
    "fsdp in a pipeline": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 2, "zero": 3,
                           "overlap": "dp,pp"},
    "fsdp with experts": {"model": "qwen3-30b-a3b", "cluster": PPT_H100, "ep": 8, "zero": 3, "overlap": "dp"},
    "experts' exchange overlapped": {"model": "qwen3-30b-a3b", "cluster": PPT_H100, "ep": 8, "overlap": "dp,ep"},
    "experts' exchange overlapped in a pipeline": {"model": "qwen3-30b-a3b", "cluster": PPT_H100, "ep": 8, "pp": 4,
                                                   "vpp": 2, "overlap": "dp,ep,pp"},
    "experts' exchange overlapped, not interleaved": {"model": "qwen3-30b-a3b", "cluster": PPT_H100, "ep": 8, "pp": 4,
                                                      "vpp": 1, "overlap": "dp,ep"},
    "experts' exchange overlapped, recomputed": {"model": "qwen3-30b-a3b", "cluster": PPT_H100, "ep": 8,
                                                 "overlap": "dp,ep", "recompute": "full"},
    "optimizer offloaded": {"model": "llama3-8b", "cluster": "h100x8",
                            "set": {"training.optimizer_offload_fraction": 0.5}},
    "narrow optimizer": {"model": "llama3-8b", "cluster": "h100x8", "set": {
        "training.first_moment_precision": "16bit", "training.second_moment_precision": "16bit",
        "training.main_gradient_precision": "16bit"}},
    "replicas inside stages": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 4,
                               "set": {"parallelism.order": "tp-cp-ep-pp-dp"}},
    "modules recomputed": {"model": "qwen3-30b-a3b", "cluster": PPT_H100, "ep": 8,
                           "recompute": "selective:layernorm,moe_act"},
    "experts drop tokens": {"model": "mixtral-8x7b", "cluster": PPT_H200, "ep": 8,
                            "set": {"training.capacity_factor": 1.0}},
    "experts folded": {"model": "mixtral-8x7b", "cluster": PPT_H200, "tp": 4, "ep": 8, "etp": 1},
    "latent attention": {"model": "deepseek-v3", "cluster": PPT_H100, "ep": 64},
    "latent attention in a pipeline": {"model": "deepseek-v3", "cluster": {"base": PPT_H100, "nodes": 32}, "ep": 16,
                                       "pp": 16, "layers_per_stage": "3,4x14,2"},
    "lora": {"model": "llama3-70b", "cluster": PPT_H200, "tp": 4, "pp": 2, "lora": 16},
    "sliding window": {"model": "gpt-oss-20b", "cluster": "h100x8", "ep": 8},
    "hybrid": {"model": "nemotron3-nano-4b", "cluster": "h100x8", "tp": 2},
    "hybrid with experts": {"model": "nemotron3-nano-30b-a3b", "cluster": PPT_H100, "ep": 8},
    "groups of experts": {"model": "kimi-k2", "cluster": {"base": PPT_H100, "nodes": 32}, "ep": 32, "pp": 1},
    "large experts": {"model": "grok-1", "cluster": PPT_H100, "tp": 4, "pp": 4, "ep": 4},
}  # fmt: skip
"""Runs beside the paper's."""
OUTSIDE = {SWITCH_REDUCTION, "framework.fused_gradients"}
"""Fields of these runs that an export leaves out with a warning."""


def requests() -> Iterator[tuple[str, Table]]:
    """Yield the paper's runs and the others."""
    for study in entries("studies"):
        if study.startswith("charllm-ppt"):
            for case in load_study(study).cases:
                yield f"{study} / {case.name}", case.request
    for name, words in MORE.items():
        yield name, build_request(None, {"gbs": 128, **words})


def runs(program: str) -> Iterator[tuple[str, RunSpec]]:
    """Yield distinct runs under the profile of a program; what is no valid run under it is left out."""
    seen = set()
    for name, request in requests():
        own = dict(request)
        changes = own.pop("framework", {})
        profile = PROFILES[program][0]
        framework = {**(changes if isinstance(changes, dict) else {}), "base": profile}
        try:
            run = resolve_run(with_program(program, merge(own, {"framework": framework})))
        except SpecError:
            continue
        key = json.dumps(run.as_table(), sort_keys=True)
        if key not in seen:
            seen.add(key)
            yield name, run


def build_case(name: str, run: RunSpec, program: str) -> dict[str, Any]:
    """Return what a program is given, after charllm's own reader has read it back."""
    text = export_run(run, program).text
    lost = lost_fields(run, FORMATS[program].read(text, f"run{FORMATS[program].suffix}"))
    assert set(lost) <= OUTSIDE, (name, lost)
    prepared = prepare_program(program, Request(run=run, script="train.py"))
    return {
        "name": name,
        "words": list(prepared.command[2:]),
        "environment": dict(prepared.environment),
        "file": text,
        "world": run.cluster.gpus,
        "tunes": run.training.lora_rank > 0,
    }


def ask(program: str, cases: list[dict[str, Any]], python: str, places: list[Path]) -> dict[str, Any]:
    """Run a program's own parser on all cases."""
    path = os.pathsep.join(map(str, places))
    environment = {**os.environ, "PYTHONPATH": path, "CHECKOUT": str(places[0])}
    done = subprocess.run(
        [python, str(HERE / "export_drivers" / f"ask_{program}.py")],
        input=json.dumps(cases), capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{program}: {done.stderr[-2000:]}")
    # Some programs print while they are imported.
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def judge(answer: Any, run: RunSpec, program: str) -> str | None:
    """Return what is wrong: the program's refusal, or a field in which its composed settings are another run."""
    if not isinstance(answer, list):
        return None if answer is None else str(answer)
    refusal, composed = answer
    if refusal is not None:
        return str(refusal)
    lost = lost_fields(run, FORMATS[program].read(composed, f"run{FORMATS[program].suffix}"))
    return ", ".join(f"{name}: {pair}" for name, pair in lost.items() if name not in OUTSIDE) or None


def report(program: str, python: str, places: list[Path]) -> bool:
    """Print how many runs a program accepts, which charllm does not export and why, and what fails."""
    cases, refused, exported = [], Counter[str](), {}
    for name, run in runs(program):
        try:
            cases.append(build_case(name, run, program))
            exported[name] = run
        except SpecError as error:
            refused[f"{error.field}: {error.got if error.field != 'model' else 'not among its models'}"] += 1
    answers = {
        name: judge(answer, exported[name], program) for name, answer in ask(program, cases, python, places).items()
    }
    failed = {name: error for name, error in answers.items() if error is not None}
    print(f"{program}: {len(answers) - len(failed)} of {len(answers)} exported runs accepted by its own parser")
    for reason, count in refused.most_common():
        print(f"    not exported, {count}: {reason}")
    for reason, count in Counter(failed.values()).most_common():
        first = next(name for name, error in failed.items() if error == reason)
        print(f"    FAILED, {count}: {reason} (first: {first})")
    return not failed


def main() -> int:
    """Ask every program whose checkout is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter that has what the programs import")
    for program in FORMATS:
        parser.add_argument(f"--{program}", type=Path, nargs="+", metavar="CHECKOUT")
    arguments = parser.parse_args()
    asked = {program: getattr(arguments, program) for program in FORMATS}
    accepted = [report(program, arguments.python, places) for program, places in asked.items() if places]
    return 0 if all(accepted) else 1


if __name__ == "__main__":
    sys.exit(main())
