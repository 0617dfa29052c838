"""Query stored runs and studies in SQL (DuckDB).

STORE is a folder of runs and studies, or of a single run or study. Its tables are runs (settings, outcome and metrics
of each run or case), gpus, nodes, ops, memory, links, breakdown and, where they were stored, signals, timeline and
cluster; each has the column `run`, the folder of the run. Without SQL, every table is listed with its columns. The
store is never changed.
"""

import argparse
import json
from pathlib import Path

from charllm.cli.output import show
from charllm.cli.progress import track
from charllm.database import Answer, list_columns, query_store
from charllm.report.tables import render_table, to_csv

EXAMPLES = (
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --out runs/a",
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 4 --out runs/b",
    "charllm query runs",
    "charllm query runs 'SELECT run, tp, step_time_s FROM runs ORDER BY 3'",
    "charllm query runs 'SELECT run, max(power_w) FROM signals GROUP BY 1' --csv",
)


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
    store = arguments.store
    answer = list_columns(store) if arguments.sql is None else query_store(store, arguments.sql, track)
    if arguments.json:
        print("\n".join(json.dumps(row, default=str) for row in answer.as_dicts()))
    elif arguments.csv:
        print(to_csv(answer.as_dicts()) if answer.rows else ",".join(answer.columns))
    else:
        show(_render(answer, f"{len(answer.rows):,} rows"))
    return 0


def _render(answer: Answer, title: str) -> str:
    rows = [[_cell(value) for value in row] for row in answer.rows]
    return render_table(title, answer.columns, rows, where="--csv")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
