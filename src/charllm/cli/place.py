"""Decide which rank sits on which slot, how many layers each stage has, and how power limits are shifted in a node.

Each decision is solved (OR-tools CP-SAT) in a model derived from simulations of the run, then simulated in full and
compared with the unchanged run. The table shows the gain in the model (promised), its largest possible distance from
the optimum (gap), and an upper bound of the gain (bound). -o writes the fastest placement as a file that
--placement reads. Exit codes: 0 done, 2 the request is wrong, 3 the run does not fit in memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.spec.flags import read_keywords

if TYPE_CHECKING:
    from charllm.plan.placement import Judged

EXAMPLES = (
    "charllm place --model llama3-8b --cluster h200x8 --tp 2 --pp 4 --gbs 32 --decide ranks,layers --work 0.1"
    " --set conditions.weak_gpus=[5] -o placement.toml",
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --pp 4 --gbs 32 --set conditions.weak_gpus=[5]"
    " --placement placement.toml",
    "charllm place --model llama3-8b --cluster h200x8 --tp 4 --gbs 32 --decide caps --node-budget 4400 --work 0.1"
    " --set conditions.silicon_spread_fraction=0.05 --csv",
    "charllm place --model llama3-8b --cluster h200x8 --tp 4 --gbs 32 --decide caps --dephase --work 0.1 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.plan.settings import PlaceSettings

    add_spec_flags(parser)
    add_flags(parser, PlaceSettings)
    add_format_flags(parser, table="a row for each decision")


def run(arguments: argparse.Namespace) -> int:
    """Decide, print, write."""
    from charllm.api.place import run_placement
    from charllm.plan.settings import PlaceSettings

    settings = read_keywords(PlaceSettings, given(arguments, PlaceSettings))
    found = run_placement(request_from(arguments), settings, _tell)
    print_as(arguments, found.as_table(), lambda: str(found), lambda: found.rows)
    return 0


def _tell(judged: Iterator[Judged]) -> Iterator[Judged]:
    """Say what has been judged so far, where someone is watching."""
    for one in judged:
        if sys.stderr.isatty():
            print(f"charllm: {one.name}: {one.metrics['tokens_per_s'] or 0.0:,.0f} tokens/s", file=sys.stderr)
        yield one
