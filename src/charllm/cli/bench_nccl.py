"""Measure collectives between GPUs: latency and bandwidth by message size, on each group of a layout.

Under torchrun (on several nodes: srun and torchrun) every rank takes part; otherwise the command starts its own
ranks, one for each GPU of this machine. The layout comes from the flags of a run (--tp, --pp, a spec, a launch
script); by default, tp is the GPUs of a node and dp the nodes. Each kind of group is measured with all its groups at
once, as in training, and with a single group.

Rows are appended to nccl.csv as they are measured; the same command continues an earlier measurement.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import CharllmError, SpecError
from charllm.measure.command_settings import NcclSettings
from charllm.spec.fields import read
from charllm.spec.flags import read_keywords
from charllm.spec.parallelism import Parallelism
from charllm.spec.request import Table

if TYPE_CHECKING:
    from charllm.measure.bench.nccl_table import CollectiveRow

MOST_RANKS = 64
"""Ranks that a plain command starts."""
AGENT = """
import runpy, sys
from charllm.sweep.worker import end_with
end_with(int(sys.argv.pop(1)))
runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
"""
"""Torchrun that ends with the process given first: ranks left behind would write into the table of the next run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this benchmark."""
    add_spec_flags(parser)
    add_flags(parser, NcclSettings)
    add_format_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Take part as one rank, or start the ranks."""
    from charllm.measure.bench.nccl_suite import parse_collectives, parse_sizes

    settings = read_keywords(NcclSettings, given(arguments, NcclSettings))
    parse_sizes(settings.sizes)
    parse_collectives(settings.collectives)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _take_part(arguments, settings)
    return _start_ranks(arguments, settings)


def _start_ranks(arguments: argparse.Namespace, settings: NcclSettings) -> int:
    """Start this command on several ranks of this machine, once all that can be wrong has been looked at."""
    from charllm.measure.bench.nccl_suite import build_suite, groups_of, parse_collectives
    from charllm.measure.device import require_device
    from charllm.measure.launch import run_command

    if settings.device == "cuda" or not find_spec("torch"):
        # Importing torch takes seconds: ranks on the CPU do that themselves.
        require_device(settings.device)
    ranks = settings.ranks or _devices(settings.device)
    if not 2 <= ranks <= MOST_RANKS:
        raise SpecError("--ranks", ranks, f"2 to {MOST_RANKS}; torchrun starts more, on several nodes too")
    if settings.device == "cuda" and ranks > _devices("cuda"):
        raise SpecError("--ranks", ranks, f"at most {_devices('cuda')}, the GPUs that torch finds here")
    layout, _cluster = _layout(arguments, ranks, ranks)
    build_suite(groups_of(layout, settings.groups), parse_collectives(settings.collectives), [2])
    folder = settings.out or Path("charllm-runs") / time.strftime("nccl-%Y%m%d-%H%M%S")
    words = arguments.words if settings.out else [*arguments.words, "--out", str(folder)]
    command = [sys.executable, "-c", AGENT, str(os.getpid()), "--standalone", f"--nproc-per-node={ranks}"]
    command += ["-m", "charllm", *words]
    # What the ranks print is shown, and not kept beside the table.
    with TemporaryDirectory() as aside:
        return run_command(command, Path(aside), {"OMP_NUM_THREADS": "1", **os.environ}).exit_code


def _devices(device: str) -> int:
    """Return how many ranks there are by default."""
    if device == "cpu":
        return 2
    import torch

    return int(torch.cuda.device_count())


def _layout(arguments: argparse.Namespace, ranks: int, ranks_per_node: int) -> tuple[Parallelism, Table | None]:
    """Return the layout that was asked for, and the cluster where one was named."""
    from charllm.catalog.resolve import resolve_cluster, resolve_run
    from charllm.measure.bench.nccl_suite import check_layout, fill_layout

    request = request_from(arguments)
    cluster = request.get("cluster")
    if "model" in request and cluster is not None:
        run = resolve_run(request)
        parallelism = run.parallelism
    else:
        degrees = fill_layout(request.get("parallelism", {}), ranks, ranks_per_node)
        parallelism = read(Parallelism, degrees, "parallelism")
    if cluster is not None:
        resolve_cluster(cluster)
    check_layout(parallelism, ranks)
    return parallelism, cluster


def _take_part(arguments: argparse.Namespace, settings: NcclSettings) -> int:
    """Measure as one of several ranks; the first one talks."""
    from charllm.measure.bench.nccl_suite import groups_of
    from charllm.measure.device import require_device
    from charllm.measure.redaction import describe_environment
    from charllm.sweep.worker import end_with

    # The agent that has started the ranks is where they meet: without it they would wait for minutes.
    end_with(os.getppid())
    require_device(settings.device)
    from charllm.measure.bench import nccl

    node = os.environ.get("SLURMD_NODENAME") or platform.node()
    peers = nccl.join(settings.device, node, int(os.environ.get("LOCAL_RANK", "0")))
    ranks = len(peers.nodes)
    try:
        if settings.ranks not in (None, ranks):
            raise SpecError("--ranks", settings.ranks, f"{ranks}, the ranks that were started, or no --ranks")
        layout, cluster = _layout(arguments, ranks, peers.ranks_per_node)
        groups = groups_of(layout, settings.groups)
        folder = nccl.agreed(lambda: settings.out or Path("charllm-runs") / time.strftime("nccl-%Y%m%d-%H%M%S"))
        header = {"cluster": cluster, "environment": describe_environment(os.environ)}
        count, rows = nccl.measure_collectives(settings, folder, layout, groups, peers, header)
    except CharllmError as error:
        if nccl.is_first():
            raise
        # Every rank fails alike: one message is enough.
        return error.exit_code
    measured = list(track(rows, count, "collectives")) if nccl.is_first() else list(rows)
    if nccl.is_first():
        _conclude(arguments, folder, measured)
    nccl.leave()
    return 0


def _conclude(arguments: argparse.Namespace, folder: Path, measured: list[CollectiveRow | None]) -> None:
    """Print the whole table, rows of an earlier command included."""
    from charllm.measure.bench.nccl_table import read_header, read_rows
    from charllm.report.collectives import render_collectives

    rows = read_rows(folder)
    table = {"folder": str(folder), **read_header(folder), "rows": [row._asdict() for row in rows]}
    print_as(arguments, table, lambda: render_collectives(table["rows"]))
    new = sum(row is not None for row in measured)
    left = len(measured) - sum(not row.error for row in rows)
    print(f"charllm: {new} cases measured now, {len(rows)} in {folder}", file=sys.stderr)
    if left > 0:
        print(f"charllm: {left} cases are not measured; the same command with --out {folder} goes on", file=sys.stderr)
