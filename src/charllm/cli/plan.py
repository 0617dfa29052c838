"""Find the best strategy of a job under limits: degrees, sharding, microbatch, recomputation, overlap, schedule, caps.

A strategy flag (--tp 4) pins that setting, --axis lists values to try, and all other settings are searched. The
strategy of a file (SPEC, --from) pins nothing: it is compared with the best, and the flags to change are listed. All
strategies are ranked at one solved clock; the best --top strategies are simulated in full, and the simulation
decides.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any

from charllm.catalog.command import write_command
from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, add_full_flag, print_as
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, keywords_from
from charllm.spec.flags import read_keywords

if TYPE_CHECKING:
    from charllm.plan.plan import Plan

EXAMPLES = (
    "charllm plan --model llama3-8b --cluster h200x8 --gbs 64 --cp 1 --mbs 1 --top 5",
    "charllm plan --model llama3-8b --cluster h200x8 --gbs 64 --cp 1 --mbs 1 --zero 1 --pp 1 "
    "--limit 'temperature_peak_c<70' --top 5 --report plan.html",
    "charllm plan --model llama3-8b --cluster h100x8 --gbs 64 --axis tp=1,2 --axis mbs=1,2 --pp 1 --cp 1 --zero 1 "
    "--objective tokens-per-joule --top 5 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.plan.settings import PlanSettings

    add_spec_flags(parser, several=("cluster",))
    add_flags(parser.add_argument_group("the search"), PlanSettings)
    add_format_flags(parser, table="a row for each of the best strategies")
    add_full_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search and print."""
    from charllm.api.plan import is_budget, run_budget, run_plan
    from charllm.plan.settings import PlanSettings
    from charllm.report.budget import render_budget
    from charllm.report.plan import render_plan

    settings = read_keywords(PlanSettings, given(arguments, PlanSettings))
    if is_budget(words := keywords_from(arguments)):
        spent = run_budget(arguments.spec, track, settings, words).as_table()
        print_as(arguments, spent, lambda: render_budget(spent), lambda: spent["rows"])
        return 0
    found = run_plan(arguments.spec, track, settings, words)
    table = found.as_table()
    print_as(
        arguments,
        table,
        lambda: render_plan(table, command(arguments, found), full=arguments.full),
        lambda: rows(table),
    )
    sys.stdout.flush()
    for warning in found.warnings:
        print(f"charllm: {warning}", file=sys.stderr)
    return 0


def command(arguments: argparse.Namespace, found: Plan) -> str:
    """Return the command that simulates the winner: the shortest, or its flags over the job's own words."""
    if shortest := write_command(found.best[0].run):
        return shortest
    words = ["charllm", "simulate"]
    for flag in ("model", "cluster", "framework", "precision", "lora", "inlet", "seed", "seq_length", "placement"):
        value = getattr(arguments, flag, None)
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{flag.replace('_', '-')}", str(one)] if one is not None else []
    words += [arguments.spec] if arguments.spec else []
    words += ["--from", arguments.from_] if arguments.from_ else []
    words += [f"--args={arguments.args}"] if arguments.args else []
    words += ["--allow-unmodelled"] if arguments.allow_unmodelled else []
    for flag, entries in (("--set", arguments.set), ("--env", arguments.env)):
        words += [word for entry in entries for word in (flag, entry)]
    return f"{shlex.join(words)} {found.as_table()['best'][0]['flags']}"


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row of plain numbers for each of the best strategies."""
    return [
        {"rank": place, "strategy": one["strategy"], "flags": one["flags"], "probability_best": one["probability_best"],
         **{name: value for name, value in one["metrics"].items() if isinstance(value, int | float | bool)}}
        for place, one in enumerate(table["best"], 1)
    ]  # fmt: skip
