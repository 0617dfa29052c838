"""Query stored runs and studies in SQL (DuckDB).

STORE is a folder of runs and studies, or of a single run or study. Its tables are runs (settings, outcome and metrics
of each run or case), gpus, nodes, ops, memory, links, breakdown and, where they were stored, signals, timeline and
cluster; each has the column `run`, the folder of the run. Without SQL, every table is listed with its columns. The
store is never changed.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from charllm.cli.output import show
from charllm.cli.progress import track
from charllm.report.tables import render_table, to_csv
from charllm.units import GIB

if TYPE_CHECKING:
    from charllm.database import Answer

EXAMPLES = (
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --out runs/a",
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 4 --out runs/b",
    "charllm query runs",
    "charllm query runs 'SELECT run, tp, step_time_s FROM runs ORDER BY 3'",
    "charllm query runs 'SELECT run, max(power_w) FROM signals GROUP BY 1' --csv",
)
MORE_BYTES = int(8 * GIB)
"""Address space that a query may add: texts that it builds are outside of DuckDB's own limit of memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument(
        "store", type=Path, metavar="STORE", help="folder of runs and studies, or of a single run or study"
    )
    parser.add_argument("sql", nargs="?", metavar="SQL", help="one SELECT over the tables of the store")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the rows as JSON, one per line")
    form.add_argument("--csv", action="store_true", help="print the rows as CSV")


def run(arguments: argparse.Namespace) -> int:
    """Answer and print."""
    from charllm.database import list_columns, query_store

    store = arguments.store
    with _limited_memory():
        answer = list_columns(store) if arguments.sql is None else query_store(store, arguments.sql, track)
    for name, why in answer.skipped.items():
        print(f"charllm: {name} is left out: {shorten(why, 300, placeholder=' ...')}", file=sys.stderr)
    if arguments.json:
        print("\n".join(json.dumps(row, default=str) for row in answer.as_dicts()))
    elif arguments.csv:
        print(to_csv(answer.as_dicts()) if answer.rows else ",".join(answer.columns))
    else:
        show(_render(answer, f"{len(answer.rows):,} rows"))
    return 0


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Limit how much address space this process may add, where the system tells what it has."""
    before, statm = resource.getrlimit(resource.RLIMIT_AS), Path("/proc/self/statm")
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        most = now + MORE_BYTES if before[1] == resource.RLIM_INFINITY else min(now + MORE_BYTES, before[1])
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _render(answer: Answer, title: str) -> str:
    rows = [[_cell(value) for value in row] for row in answer.rows]
    return render_table(title, answer.columns, rows, where="--csv")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
