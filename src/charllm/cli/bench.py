"""Benchmark this machine.

`ops` runs single ops on one GPU: time, power, clock and temperature of each. `nccl` runs collectives between GPUs:
latency and bandwidth of each by message size, on the groups of a layout. `charllm calibrate` reads what both write.
"""

import argparse
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from charllm.cli import bench_nccl, bench_ops
from charllm.cli.parser import CommandParser, HelpFormatter

EXAMPLES = (
    "charllm bench ops --out runs/ops",
    "charllm bench ops --only attention,fp8 --out runs/some_ops",
    "charllm bench nccl --out runs/nccl",
    "charllm bench nccl --ranks 4 --tp 2 --device cpu --sizes 1KiB:64KiB --out runs/gloo",
)
BENCHES: dict[str, ModuleType] = {"ops": bench_ops, "nccl": bench_nccl}
"""Name: the file that declares its flags and runs it."""


class _KeepWords(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Keeps the words of a benchmark beside what they mean: ranks that it starts are given the same."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        words: Sequence[str] = values
        namespace.words = ["bench", *words]
        super().__call__(parser, namespace, values, option_string)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmarks and the flags of each."""
    kinds = parser.add_subparsers(
        dest="what", required=True, metavar="|".join(BENCHES), parser_class=CommandParser, action=_KeepWords
    )
    for name, bench in BENCHES.items():
        own = kinds.add_parser(
            name,
            prog=f"charllm bench {name}",
            description=bench.__doc__,
            help=(bench.__doc__ or "").partition(".")[0],
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        bench.add_arguments(own)


def run(arguments: argparse.Namespace) -> int:
    """Run one benchmark."""
    code: int = BENCHES[arguments.what].run(arguments)
    return code
