"""List every collective and send of each rank in one step: group, kind, bytes and calls.

`charllm simulate` uses the same messages. With --execution-trace FOLDER they are compared with PyTorch execution
traces of the same run, one file per rank, as `charllm train --execution-trace FOLDER` writes them; the run is that of
the spec in the folder unless flags describe it. The bytes of a message are those of the larger buffer of a rank: the
output of an all-gather, the input of a reduce-scatter, the send buffer of an all-to-all. Exit codes: 0 done, 1
simulated and traced messages differ, 2 the request is wrong.
"""

import argparse
from pathlib import Path

from charllm.cli.output import add_format_flags, print_as
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, request_from

DIFFERENT = 1
EXAMPLES = (
    "charllm messages --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128",
    "charllm messages --model mixtral-8x7b --cluster h200x8 --ep 8 --gbs 8 --rank 3 --csv",
    "charllm messages --execution-trace runs/traced",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    parser.add_argument(
        "--execution-trace",
        type=Path,
        metavar="FOLDER",
        help="compare with the execution traces in this folder, one file per rank",
    )
    parser.add_argument(
        "--rank", type=int, metavar="N", help="only this rank (default: rank 0 in the table, all ranks in CSV and JSON)"
    )
    add_format_flags(parser, table="a row for each rank and message")


def run(arguments: argparse.Namespace) -> int:
    """List or compare, and print; exit 1 where simulated and traced messages differ."""
    from charllm.api.messages import as_table, run_messages
    from charllm.report.messages import render_comparison, render_messages

    rank = arguments.rank
    everything = arguments.execution_trace or arguments.json or arguments.csv
    rows = run_messages(
        request_from(arguments), rank if rank is not None or everything else 0, arguments.execution_trace, track
    ).rows
    tables = [as_table(row) for row in rows]
    print_as(
        arguments,
        {"messages": tables},
        lambda: render_comparison(rows) if arguments.execution_trace else render_messages(rows, rank or 0),
        lambda: [{**table, "ranks": " ".join(map(str, table["ranks"]))} for table in tables],
    )
    return 0 if all(row.equal for row in rows) else DIFFERENT
