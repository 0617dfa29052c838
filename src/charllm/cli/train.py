"""Train the model of a spec on this GPU with the reference trainer, on synthetic tokens or a file of tokens."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import find_name
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import SpecError
from charllm.mark import FOLDER_VARIABLE
from charllm.measure.device import require_device
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec

DEFAULT_STEPS = 10
EXAMPLES = (
    "charllm train --model llama3-8b --set model.layers=8 --seq 4096 --mbs 2 --gbs 8 --seconds 60",
    "charllm measure -- charllm train --model gpt2 --gbs 32 --steps 50",
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


def run(arguments: argparse.Namespace) -> int:
    """Train, printing one JSON line a step."""
    require_device(arguments.device)
    from charllm.measure.trainer.train import train

    for flag, limit in (("--steps", arguments.steps), ("--seconds", arguments.seconds)):
        if limit is not None and not 0 < limit < float("inf"):
            raise SpecError(flag, limit, "more than 0")
    spec = resolve_run(with_gpu_at_hand(request_from(arguments), arguments.device))
    _leave_spec(spec)
    steps = arguments.steps if arguments.steps or arguments.seconds else DEFAULT_STEPS
    for step in train(spec, arguments.device, steps, arguments.seconds, arguments.data):
        print(json.dumps(step._asdict()), flush=True)
    return 0


def with_gpu_at_hand(request: Table, device: str) -> Table:
    """Fill what one GPU here implies where nothing was asked: its cluster, and plain PyTorch as the framework."""
    filled: Table = merge({"framework": "pytorch-eager"}, request)
    if "cluster" not in filled:
        filled["cluster"] = _cluster_at_hand(device)
    return filled


def _cluster_at_hand(device: str) -> Any:
    if device == "cpu":
        return "h200x1"
    import torch

    name = find_name("gpus", torch.cuda.get_device_name()) or "h200"
    return {"base": "h200x1", "name": f"{name}x1", "node": {"gpu": name}}


def _leave_spec(spec: RunSpec) -> None:
    """Under `charllm measure`, leave the spec with the record."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        try:
            (Path(folder) / "spec.json").write_text(json.dumps(spec.as_table()), encoding="utf-8")
        except OSError as error:
            print(f"charllm: the spec could not be stored with the recording ({error})", file=sys.stderr)
