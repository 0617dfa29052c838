"""Run a command with power or clock limits on the GPUs of this machine; everything is put back at its end.

PLAN is what `charllm caps --json` printed (its knee is applied), what `charllm plan --json` printed (the limits of its
best strategy), or a stored run. The tokens a second that it promises are watched; a job that falls out of that band
gets its limits back at once. A guard process puts limits back also where charllm dies.
Setting limits needs the rights of root; --dry-run prints the commands, and sets nothing.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from charllm.errors import SpecError, Words
from charllm.units import MEGA

if TYPE_CHECKING:
    from charllm.measure.limits.boards import Limits

EXAMPLES = (
    "charllm apply --power 550 --dry-run",
    "charllm apply --clock 1500 --gpus 0,1 --out runs/slow -- torchrun train.py",
    "charllm apply --within 0.03 caps.json -- torchrun train.py",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("--power", type=float, metavar="W", help="power limit of each GPU")
    parser.add_argument("--clock", type=float, metavar="MHZ", help="highest clock of each GPU")
    parser.add_argument("--gpus", default="", metavar="N,N", help="numbers of GPUs (default: all of this machine)")
    parser.add_argument("--tokens-per-s", type=float, metavar="X", help="throughput that the job must keep")
    add_job_flags(parser)
    parser.add_argument(
        "plan", nargs="*", metavar="[PLAN]", help="output of charllm caps --json or plan --json, or a stored run"
    )


def add_job_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that runs under limits; it stands behind --."""
    group = parser.add_argument_group("the job under limits")
    group.add_argument("--knee", default="knee", metavar="NAME", help="point of the table to apply (default knee)")
    group.add_argument(
        "--within", type=float, default=0.05, metavar="F",
        help="how far throughput may fall below what is promised (default 0.05)",
    )  # fmt: skip
    group.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder of the measured run (default charllm-runs/TIME)"
    )
    group.add_argument("--dry-run", action="store_true", help="print the commands that set and put back limits")
    parser.set_defaults(behind=[])


def run(arguments: argparse.Namespace) -> int:
    """Apply, run and put back; returns the command's own exit code."""
    limits, promised = _limits(arguments, arguments.plan)
    numbers = _numbers(arguments.gpus)
    check_job(arguments)
    return run_job(arguments, limits, promised, numbers)


def check_job(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be run under limits, whatever the limits are."""
    if not 0 <= arguments.within < 1:
        raise SpecError("--within", arguments.within, "a fraction from 0 to below 1")
    if not (arguments.behind or arguments.dry_run):
        raise SpecError("COMMAND", Words("nothing"), "a command behind --, or --dry-run")


def run_job(
    arguments: argparse.Namespace, limits: "Limits", promised: float | None, numbers: Sequence[int] = ()
) -> int:
    """Run the command behind -- under limits, or print what would be done; returns its exit code."""
    from charllm.api.limits import describe, plan_commands, run_limited
    from charllm.api.measurement import run_folder

    if arguments.dry_run:
        print("\n".join(plan_commands(limits, numbers)))
        return 0
    out = run_folder(arguments.out)
    result = run_limited(arguments.behind, out, limits, numbers, promised, arguments.within)
    failure = result.provenance["measurement"].get("failure")
    print(f"{describe(limits)}: measured in {out}; limits are as they were")
    return int(failure["code"]) if failure else 0


def _limits(arguments: argparse.Namespace, before: Sequence[str]) -> "tuple[Limits, float | None]":
    """Return what is to be applied: of a plan, or of the flags."""
    from charllm.api.limits import read_caps
    from charllm.measure.limits.boards import Limits

    if len(before) > 1:
        raise SpecError("PLAN", " ".join(before), "one file, and the command behind --")
    for flag, value in (("--power", arguments.power), ("--clock", arguments.clock),
                        ("--tokens-per-s", arguments.tokens_per_s)):  # fmt: skip
        if value is not None and not 0 < value < math.inf:
            raise SpecError(flag, value, "a number above 0")
    if before:
        if arguments.power is not None or arguments.clock is not None:
            raise SpecError("PLAN", before[0], "a plan, or --power and --clock, not both")
        limits, promised = read_caps(Path(before[0]), arguments.knee)
        return limits, arguments.tokens_per_s or promised
    if arguments.power is None and arguments.clock is None:
        raise SpecError("--power", None, "a plan, --power W or --clock MHZ")
    clock_hz = None if arguments.clock is None else arguments.clock * MEGA
    return Limits(arguments.power, clock_hz), arguments.tokens_per_s


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise SpecError("--gpus", text, "numbers of GPUs, such as 0,1") from None
