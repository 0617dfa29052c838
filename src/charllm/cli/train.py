"""Train the model of a spec with the reference trainer: on this GPU, or under torchrun on one GPU for each rank."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.catalog.tables import find_name
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import SpecError
from charllm.mark import FOLDER_VARIABLE
from charllm.profile import DEFAULT_FIRST, PROFILE_VARIABLE, parse_profile
from charllm.spec.request import Table, merge

if TYPE_CHECKING:
    from charllm.measure.trainer.place import Launch
    from charllm.spec.run import RunSpec

SPEC_FILE = "spec.json"
DEFAULT_STEPS, DEFAULT_TIMEOUT_S = 10, 600.0
EXAMPLES = (
    "charllm train --model llama3-8b --set model.layers=8 --seq 4096 --mbs 2 --gbs 8 --seconds 60",
    "charllm measure -- charllm train --model gpt2 --gbs 32 --steps 50",
    "torchrun --nproc-per-node=8 -m charllm train --model llama3-8b --tp 2 --pp 2 --gbs 64 --steps 20",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    parser.add_argument("--steps", type=int, metavar="N", help=f"steps to train (default {DEFAULT_STEPS})")
    parser.add_argument("--seconds", type=float, metavar="S", help="train for this many seconds instead")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="memory-mapped 16-bit tokens instead of synthetic ones"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="device to train on")
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="longest wait for another rank, in seconds (default 600)",
    )
    parser.add_argument(
        "--execution-trace",
        type=Path,
        metavar="DIR",
        help="write PyTorch execution traces of steps 2 and 3, one file per rank, for `charllm messages`",
    )
    parser.add_argument(
        "--profile",
        metavar="STEPS[@FIRST]",
        help=f"record a Kineto trace of this many steps, after the first FIRST (default {DEFAULT_FIRST})",
    )
    parser.add_argument(
        "--profile-out",
        type=Path,
        default=Path("charllm-traces"),
        metavar="DIR",
        help="folder for traces and marks (default charllm-traces; under charllm measure, the run's folder)",
    )
    parser.add_argument(
        "--zbv", action="store_true", help="with --schedule zero-bubble: use the V-shaped schedule, ZB-V"
    )


def run(arguments: argparse.Namespace) -> int:
    """Train; the first rank prints one JSON line a step."""
    from charllm.catalog.resolve import resolve_run
    from charllm.measure.device import require_device

    require_device(arguments.device)
    from charllm.measure.trainer.place import leave_place, read_launch
    from charllm.measure.trainer.train import train

    limits = {"--steps": arguments.steps, "--seconds": arguments.seconds, "--timeout": arguments.timeout}
    for flag, limit in limits.items():
        if limit is not None and not 0 < limit < float("inf"):
            raise SpecError(flag, limit, "more than 0")
    launch = read_launch(os.environ)
    spec = resolve_run(with_gpus_at_hand(request_from(arguments), arguments.device, launch))
    if arguments.profile is not None:
        _ask_profile(arguments.profile, arguments.profile_out)
    _leave_spec(spec, arguments.execution_trace)
    count = arguments.steps if arguments.steps or arguments.seconds else DEFAULT_STEPS
    steps = train(
        spec,
        arguments.device,
        count,
        arguments.seconds,
        arguments.data,
        launch=launch,
        timeout_s=arguments.timeout,
        trace=arguments.execution_trace,
        zbv=arguments.zbv,
    )
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
            (Path(folder) / SPEC_FILE).write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"charllm: the spec could not be stored with the recording ({error})", file=sys.stderr)
    if traces is not None and _first_process():
        try:
            traces.mkdir(parents=True, exist_ok=True)
            (traces / SPEC_FILE).write_text(text, encoding="utf-8")
        except OSError as error:
            reason = error.strerror or error
            raise SpecError("--execution-trace", str(traces), f"a folder that can be written ({reason})") from None
