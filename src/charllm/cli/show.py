"""Print what is stored in a folder: a simulated, emulated or measured run, a study, an op benchmark.

A recording whose job or sampler was killed is completed first: the readings up to then are summarised and stored.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.cli.output import add_full_flag, cut, print_result, show
from charllm.cli.plots import add_plot_flags, draw_stored, wants_plots
from charllm.errors import SpecError

if TYPE_CHECKING:
    from charllm.analysis.characterize import Character
    from charllm.result.result import RunResult
    from charllm.sweep.outcome import StudyResult

EXAMPLES = (
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --out runs/stored",
    "charllm show runs/stored",
    "charllm show runs/stored --csv",
)
MOST_PRICE = 1e6
OPS_COLUMNS = ("name", "s_per_call", "tflops_or_tbps", "mean_w", "sm_mhz", "temp_end_c", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("path", type=Path, metavar="PATH", help="folder of a run or of a study, or a result.json")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the result as JSON; of a study, one case per line")
    form.add_argument("--csv", action="store_true", help="print a row per GPU of a run, per case of a study, per op")
    parser.add_argument("--price-per-kwh", type=float, metavar="X", help="price of a kWh, for the energy of a job")
    parser.add_argument(
        "--co2-kg-per-kwh", type=float, metavar="X", help="kg of carbon dioxide for a kWh, for the energy of a job"
    )
    add_full_flag(parser)
    add_plot_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Open the folder and print it."""
    from charllm.result.result import RunResult
    from charllm.stored import OpsResult, load

    found = load(arguments.path)
    if isinstance(found, RunResult):
        _print_run(found, arguments)
    elif isinstance(found, OpsResult):
        _print_rows(found.rows, arguments)
    else:
        _print_study(found, arguments)
    return 0


def _print_study(study: StudyResult, arguments: argparse.Namespace) -> None:
    from charllm.cli.sweep import print_outcomes

    print_outcomes(study, arguments, arguments.path)
    stored, cases = len(study.outcomes), len(study.study.cases)
    said = f"{stored} of {cases} cases are stored" + ("" if stored == cases else "; continue with sweep --resume")
    print(f"charllm: {said}", file=sys.stderr)


def _print_run(result: RunResult, arguments: argparse.Namespace) -> None:
    from charllm.report.character import with_character
    from charllm.result.answers import notable_warnings
    from charllm.stored import read_character

    found = read_character(arguments.path) if result.origin == "measured" and not arguments.csv else None
    whole = result if found is None else with_character(result, found.as_table())
    warnings = cut(*notable_warnings(result))
    print_result(arguments, whole, lambda: "\n\n".join(_parts(result, found, arguments)), warnings)


def _parts(result: RunResult, found: Character | None, arguments: argparse.Namespace) -> list[str]:
    """Return a run as text: its answers, then tables or the figures that were asked for."""
    from charllm.report.character import render_character
    from charllm.report.energy import Prices
    from charllm.report.run import render_answer, render_run

    if wants_plots(arguments):
        return [render_answer(result), draw_stored(arguments, result, arguments.path)]
    prices = Prices(arguments.price_per_kwh, arguments.co2_kg_per_kwh)
    for flag, price in (("--price-per-kwh", prices.per_kwh), ("--co2-kg-per-kwh", prices.co2_kg_per_kwh)):
        if price is not None and not 0 <= price < MOST_PRICE:
            raise SpecError(flag, price, f"a number from 0 to {MOST_PRICE:g}")
    return [
        render_run(result, full=arguments.full, prices=prices),
        *([render_character(found.as_table())] if found else []),
    ]


def _print_rows(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    from charllm.report.tables import render_table, to_csv

    if arguments.json:
        print(json.dumps(rows, indent=2))
    elif arguments.csv:
        print(to_csv(rows))
    else:
        cells = [[str(row.get(name, "")) for name in OPS_COLUMNS] for row in rows]
        show(render_table("Op benchmark", OPS_COLUMNS, cells, where="--csv"))
