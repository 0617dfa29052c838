"""Train the model of a spec with the reference trainer: on this GPU, or under torchrun on one GPU for each rank."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.catalog.tables import find_name
from charllm.cli.flags import add_flags, given
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import SpecError
from charllm.mark import FOLDER_VARIABLE
from charllm.measure.command_settings import TRAINED_STEPS, TrainSettings
from charllm.profile import PROFILE_VARIABLE, parse_profile
from charllm.result.store import write_text
from charllm.spec.flags import read_keywords
from charllm.spec.request import Table, merge

if TYPE_CHECKING:
    from charllm.measure.trainer.place import Launch
    from charllm.spec.run import RunSpec

SPEC_FILE = "spec.json"
EXAMPLES = (
    "charllm train --model llama3-8b --set model.layers=8 --seq 4096 --mbs 2 --gbs 8 --seconds 60",
    "charllm measure -- charllm train --model gpt2 --gbs 32 --steps 50",
    "torchrun --nproc-per-node=8 -m charllm train --model llama3-8b --tp 2 --pp 2 --gbs 64 --steps 20",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    add_flags(parser, TrainSettings)


def run(arguments: argparse.Namespace) -> int:
    """Train; the first rank prints one JSON line a step."""
    from charllm.catalog.resolve import resolve_run
    from charllm.measure.device import require_device

    settings = read_keywords(TrainSettings, given(arguments, TrainSettings))
    require_device(settings.device)
    from charllm.measure.trainer.place import leave_place, read_launch
    from charllm.measure.trainer.train import train

    launch = read_launch(os.environ)
    spec = resolve_run(with_gpus_at_hand(request_from(arguments), settings.device, launch))
    if settings.profile is not None:
        _ask_profile(settings.profile, settings.profile_out)
    _leave_spec(spec, settings.execution_trace)
    steps = train(
        spec, settings.device, settings.steps or (None if settings.seconds_s else TRAINED_STEPS), settings.seconds_s,
        settings.data, launch=launch, timeout_s=settings.timeout_s, trace=settings.execution_trace, zbv=settings.zbv,
    )  # fmt: skip
    for step in steps:
        if _first_process():
            print(json.dumps({**step._asdict(), "tokens_per_s": step.tokens / step.seconds_s}), flush=True)
    leave_place()
    return 0


def _ask_profile(text: str, folder: Path) -> None:
    """Have the marks of this process drive a profiler, which leaves its trace with them."""
    os.environ[PROFILE_VARIABLE] = str(parse_profile(text))
    if FOLDER_VARIABLE not in os.environ:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise SpecError("--profile-out", str(folder), f"a folder that can be written ({reason})") from None
        os.environ[FOLDER_VARIABLE] = str(folder)


def _first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def with_gpus_at_hand(request: Table, device: str, launch: Launch) -> Table:
    """Fill what the GPUs here imply where nothing was asked: their cluster, and this trainer as the framework."""
    filled: Table = merge({"framework": "reference"}, request)
    if "cluster" not in filled:
        filled["cluster"] = _cluster_at_hand(device, launch.processes, launch.node_processes)
    return filled


def _cluster_at_hand(device: str, processes: int, on_node: int) -> Any:
    """Return as many GPUs of the kind here as torchrun started processes; on a CPU, H200 stand for them."""
    if processes == 1 and device == "cpu":
        return "h200x1"
    name = "h200"
    if device != "cpu":
        import torch

        name = find_name("gpus", torch.cuda.get_device_name()) or name
    node = {"gpu": name, "gpus": on_node} if processes > 1 else {"gpu": name}
    base = "h200x1" if processes == on_node else "h200-superpod"
    return {"base": base, "name": f"{name}x{processes}", "nodes": processes // on_node, "node": node}


def _leave_spec(spec: RunSpec, traces: Path | None) -> None:
    """Leave the spec with the record of `charllm measure`, and with the execution traces."""
    text = json.dumps(spec.as_table())
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and os.environ.get("LOCAL_RANK", "0") == "0":
        try:
            write_text(text, Path(folder) / SPEC_FILE)
        except OSError as error:
            print(f"charllm: the spec could not be stored with the recording ({error})", file=sys.stderr)
    if traces is not None and _first_process():
        try:
            traces.mkdir(parents=True, exist_ok=True)
            write_text(text, traces / SPEC_FILE)
        except OSError as error:
            reason = error.strerror or error
            raise SpecError("--execution-trace", str(traces), f"a folder that can be written ({reason})") from None
