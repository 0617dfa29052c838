"""What every command prints with: tables for people, `--json` and `--csv` for programs."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import shorten
from typing import Any

from charllm.report.colour import paint
from charllm.report.tables import to_csv
from charllm.result.result import RunResult

LONGEST_WARNING = 400
"""Characters."""


def add_format_flags(parser: argparse.ArgumentParser, *, table: str = "") -> None:
    """Add --json, and --csv where the command has one table to write: `table` says what a row of it is."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print everything as JSON")
    if table:
        formats.add_argument("--csv", action="store_true", help=f"print {table} as CSV")


def add_full_flag(parser: argparse.ArgumentParser) -> None:
    """Add --full, which prints what the first screen leaves out."""
    parser.add_argument("--full", action="store_true", help="print all tables of the run, not only the main ones")


def has_colour() -> bool:
    """Tell whether standard output is a terminal of someone who has not set NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def show(text: str) -> None:
    """Print a report, in colour where someone is watching."""
    print(paint(text) if has_colour() else text)


def print_as(
    arguments: argparse.Namespace,
    value: Any,
    render: Callable[[], str],
    rows: Callable[[], Sequence[Mapping[str, Any]]] | None = None,
) -> None:
    """Print a value in the format that was asked for."""
    if arguments.json:
        print(json.dumps(value, indent=2, allow_nan=False))
    elif rows is not None and arguments.csv:
        print(to_csv(rows()))
    else:
        show(render())


def cut(*warnings: str) -> list[str]:
    """Shorten warnings to what a terminal shows in a few lines."""
    return [shorten(warning, LONGEST_WARNING, placeholder=" ...") for warning in warnings]


def print_result(
    arguments: argparse.Namespace, result: RunResult, render: Callable[[], str], warnings: Iterable[str]
) -> None:
    """Print a run in the format that was asked for, then warnings to stderr."""
    if arguments.json:
        print(result.to_json())
    elif arguments.csv:
        print(to_csv(result.gpus))
    else:
        show(render())
    sys.stdout.flush()
    for warning in warnings:
        print(f"charllm: {warning}", file=sys.stderr)
