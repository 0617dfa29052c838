"""Write a run, a study, a plan or several runs side by side as one HTML file that opens without a network.

The report of a run begins with a summary. Figures follow: breakdown of the step time, one step as a timeline, power,
temperature, clocks, memory, links, the gain of single changes, and every assumption with its source.
"""

import argparse
from pathlib import Path

from charllm.cli.progress import track

EXAMPLES = (
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --out runs/page",
    "charllm report runs/page -o page.html",
    "charllm simulate runs/page --tp 4 --out runs/other",
    "charllm report runs/page runs/other -o compared.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN|STUDY|PLAN",
        help="folder of a run, study or plan, or the JSON file of a plan; several runs are compared",
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE.html", help="the file to write")


def run(arguments: argparse.Namespace) -> int:
    """Compute the page, write it and print its path."""
    from charllm.api.keywords import as_file
    from charllm.api.report import page_of, write_page

    what = arguments.runs[0] if len(arguments.runs) == 1 else arguments.runs
    path = as_file(arguments.out, "--out")
    print(write_page(page_of(what, track), path))
    return 0
