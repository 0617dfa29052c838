"""The flags that say which training program a command starts, and for which run."""

import argparse
from typing import Any

from charllm.cli.spec_flags import add_spec_flags, given_keywords
from charllm.measure.adapters import ADAPTERS
from charllm.measure.adapters.adapter import DEFAULT_STEPS
from charllm.measure.logs import KINDS

KEYWORDS = ("adapter", "script", "steps", "log_kind", "log_pattern")


def add_program_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the program and of the run that it trains."""
    group = parser.add_argument_group("the program")
    programs = "; ".join(f"{name}: {adapter.about}" for name, adapter in ADAPTERS.items())
    group.add_argument(
        "--adapter",
        choices=list(ADAPTERS),
        metavar="NAME",
        help=f"program that trains the run described below (default command). {programs}",
    )
    group.add_argument("--script", metavar="FILE", help="the program's training script")
    group.add_argument(
        "--steps", type=int, metavar="N", help=f"steps that the program trains (default {DEFAULT_STEPS})"
    )
    kinds = ", ".join(("auto", *KINDS))
    group.add_argument("--log-kind", metavar="KIND", help=f"program that writes the log: {kinds}")
    group.add_argument(
        "--log-pattern",
        metavar="REGEX",
        help="regular expression for the step lines of another program's log, with named groups: number, and any of "
        "loss, seconds, ms, tokens, tokens_per_s ...",
    )
    add_spec_flags(parser, spec_flag=True)


def program_keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags say of the program and its run, as keywords of the Python API."""
    named = {name: getattr(arguments, name) for name in KEYWORDS}
    return {**named, "spec": arguments.spec, "run": given_keywords(arguments)}
