"""Find the best strategy of a job under limits: degrees, sharding, microbatch, recomputation, overlap, schedule, caps.

A strategy flag (--tp 4) pins that setting, --axis lists values to try, and all other settings are searched. The
strategy of a file (SPEC, --from) pins nothing: it is compared with the best, and the flags to change are listed. All
strategies are ranked at one solved clock; the best --top strategies are simulated in full, and the simulation
decides.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from charllm.api.plan import run_plan
from charllm.cli.economics_flags import read_pairs
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, keywords_from
from charllm.plan.objectives import OBJECTIVES
from charllm.plan.plan import Plan
from charllm.plan.search import TOP
from charllm.report.plan import render_plan
from charllm.result.memory_verdict import RISK

EXAMPLES = (
    "charllm plan --model llama3-8b --cluster h200x8 --gbs 64 --cp 1 --mbs 1 --top 5",
    "charllm plan --model llama3-8b --cluster h200x8 --gbs 64 --cp 1 --mbs 1 --zero 1 --pp 1 "
    "--limit 'temperature_peak_c<70' --top 5 --report plan.html",
    "charllm plan --model llama3-8b --cluster h100x8 --gbs 64 --axis tp=1,2 --axis mbs=1,2 --pp 1 --cp 1 --zero 1 "
    "--objective tokens-per-joule --top 5 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    group = parser.add_argument_group("the search")
    group.add_argument("--objective", default="throughput", metavar="NAME|min:METRIC|max:METRIC",
                       help=f"metric to optimise: {', '.join(OBJECTIVES)} (default throughput)")  # fmt: skip
    group.add_argument("--limit", action="append", default=[], metavar="'METRIC<VALUE'",
                       help="a limit on any metric, e.g. 'memory_peak_gib<130'; may be repeated")  # fmt: skip
    group.add_argument("--axis", action="append", default=[], metavar="NAME=VALUE,...",
                       help="values to try of one setting, e.g. tp=4,8 or overlap=none,tp+dp; repeatable")  # fmt: skip
    group.add_argument(
        "--top", type=int, default=TOP, metavar="N", help=f"strategies listed, each simulated in full (default {TOP})"
    )
    group.add_argument("--pareto", action="store_true", help="also list strategies that no other beats in all of "
                       "tokens/s, tokens/J, temperature and peak power")  # fmt: skip
    group.add_argument("--sensitivity", action="store_true", help="also tell whether the first stays the best when the "
                       "machine changes")  # fmt: skip
    group.add_argument("--risk", type=float, default=RISK, metavar="FRACTION", help="highest probability of not "
                       f"fitting in memory that a strategy may have (default {RISK:g})")  # fmt: skip
    group.add_argument("--tariff", action="append", default=[], metavar="NAME=VALUE",
                       help="a price, e.g. electricity_per_kwh=0.1; may be repeated")  # fmt: skip
    group.add_argument("--whole-run", action="append", default=[], metavar="NAME=VALUE",
                       help="a setting of the whole run, e.g. tokens=15e12; may be repeated")  # fmt: skip
    group.add_argument("--allow-long", action="store_true", help="simulate strategies that take minutes or hours")
    add_format_flags(parser, table="a row for each of the best strategies")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write everything as one HTML file")


def run(arguments: argparse.Namespace) -> int:
    """Search and print."""
    names = ("objective", "limit", "axis", "top", "pareto", "sensitivity", "risk", "allow_long", "report")
    asked = {name: getattr(arguments, name) for name in names}
    found = run_plan(
        arguments.spec,
        track,
        **asked,
        tariff=read_pairs(arguments.tariff, "--tariff"),
        whole_run=read_pairs(arguments.whole_run, "--whole-run"),
        **keywords_from(arguments),
    )
    table = found.as_table()
    print_as(arguments, table, lambda: render_plan(table, command(arguments, found)), lambda: rows(table))
    sys.stdout.flush()
    for warning in found.warnings:
        print(f"charllm: {warning}", file=sys.stderr)
    return 0


def command(arguments: argparse.Namespace, found: Plan) -> str:
    """Return the command that simulates the winner: its flags over the job's own words."""
    words = ["charllm", "simulate"]
    for flag in ("model", "cluster", "framework", "precision", "lora", "inlet", "seed", "seq_length", "placement"):
        value = getattr(arguments, flag, None)
        words += [f"--{flag.replace('_', '-')}", str(value)] if value is not None else []
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
