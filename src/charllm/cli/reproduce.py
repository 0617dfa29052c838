"""Repeat a publication: all runs, figures, and a verdict on each finding, in one resumable command.

    charllm-ppt     "Characterizing the Efficiency of Distributed Training" (MICRO'25): 188 training and 84 LoRA
                    configurations on H200 and H100, MI250, and projections

Writes findings.json, recommendations.json, findings.md, report.html and figures/*.svg into --out. The same
command continues after an interruption. --intervals samples the conditions that the publication does not state; --maps
shows under which conditions each finding would hold; --full does both (16,000 further runs, about 20 minutes on two
cores).
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.cli import INTERRUPTED
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.progress import track
from charllm.report.tables import render_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from charllm.reproduce.run import Reproduced

EXAMPLES = (
    "charllm reproduce charllm-ppt --out charllm-ppt",
    "charllm reproduce charllm-ppt --full --out charllm-ppt",
    "charllm reproduce charllm-ppt --only thermal-placement --workers 1 --out some",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.reproduce.findings import FINDINGS
    from charllm.reproduce.settings import PUBLICATIONS, WORKERS

    parser.add_argument("publication", choices=PUBLICATIONS, metavar="NAME", help=f"one of: {', '.join(PUBLICATIONS)}")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write or to continue (default: NAME)")
    parser.add_argument("--intervals", action="store_true", help="add an interval to every effect")
    parser.add_argument("--maps", action="store_true", help="add a condition map to every finding")
    parser.add_argument("--full", action="store_true", help="--intervals and --maps")
    parser.add_argument(
        "--only", metavar="NAMES", default="", help=f"judge only these findings, without studies: {', '.join(FINDINGS)}"
    )
    parser.add_argument("--png", action="store_true", help="write figures as PNG too (needs Chromium or Chrome)")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help="processes (default %(default)s)")
    add_format_flags(parser, table="a row for each finding")


def run(arguments: argparse.Namespace) -> int:
    """Run, judge, write, and print the verdicts."""
    from charllm.report.svg.png import find_browser, write_png
    from charllm.reproduce.run import run_reproduction

    # A batch system ends a job by SIGTERM: the same as an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    browser = find_browser("--png") if arguments.png else None
    folder = arguments.out or Path(arguments.publication)
    try:
        found = run_reproduction(
            folder,
            intervals=arguments.intervals or arguments.full,
            maps=arguments.maps or arguments.full,
            only=[name for name in arguments.only.split(",") if name],
            workers=arguments.workers,
            track=track,
            study_track=track,
        )
        if browser is not None:
            pictures = sorted((folder / "figures").glob("*.svg"))
            for _ in track((write_png(svg, browser) for svg in pictures), len(pictures), "figures as PNG"):
                pass
    except KeyboardInterrupt:
        print(
            f"charllm: interrupted; finished runs are stored in {folder}; start the same command again to continue",
            file=sys.stderr,
        )
        return INTERRUPTED
    print_as(arguments, as_table(found), lambda: f"{render(found)}\n{found.report}", lambda: rows_of(found))
    return 0


def as_table(found: Reproduced) -> dict[str, Any]:
    """Return what findings.json and recommendations.json hold, and where the report is."""
    return {"findings": found.findings, "recommendations": found.recommendations,
            "one_setting": found.one_setting, "report": str(found.report)}  # fmt: skip


def rows_of(found: Reproduced) -> list[dict[str, Any]]:
    """Return a row for each finding."""
    names = ("name", "verdict", "effect", "unit", "claim")
    bounds = [one["interval"] or (None, None) for one in found.findings]
    return [{**{name: one[name] for name in names}, "interval_low": low, "interval_high": high}
            for one, (low, high) in zip(found.findings, bounds, strict=True)]  # fmt: skip


def render(found: Reproduced) -> str:
    """Return verdicts and recommendations as tables."""
    from charllm.reproduce.words import LEVEL_WORDS, ends, number, reach

    def cells(one: Mapping[str, Any], name: str) -> list[str]:
        error = reach(one["error_interval"] or one["interval"])
        return [one["name"], one["verdict"], number(one[name], error), ends(one["interval"], error) or "-", one["unit"]]

    rows = [cells(one, "effect") for one in found.findings]
    tables = [render_table("Findings", ("finding", "verdict", "effect", LEVEL_WORDS, "unit"), rows)]
    if found.recommendations:
        rows = [[*cells(one, "gain"), one["reverses_when"]] for one in found.recommendations]
        head = ("recommendation", "verdict", "median gain", LEVEL_WORDS, "unit", "no gain")
        tables.append(render_table("Recommendations", head, rows))
    return "\n\n".join(tables)
