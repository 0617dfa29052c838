"""Tables of collectives: fitted for `charllm calibrate`, scored for `charllm validate`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from charllm.cli.output import print_as
from charllm.errors import SpecError
from charllm.units import format_percent


def calibrate_network(arguments: argparse.Namespace) -> int:
    """Fit the constants that tables of collectives identify, print residuals, and write the cluster file."""
    from charllm.calibrate.network import describe_network, fit_network
    from charllm.calibrate.network_report import render_fit
    from charllm.calibrate.write import cluster_toml, write_file
    from charllm.catalog.cluster_parts import written_parts
    from charllm.catalog.resolve import resolve_cluster
    from charllm.evaluate.collectives import gather
    from charllm.measure.bench.nccl_table import read_rows

    base = _cluster_of(arguments.cluster, arguments.runs[0])
    cluster = resolve_cluster(base)
    under = written_parts(base, ("node", "fabric"))
    measured = [each for run in arguments.runs for each in gather(read_rows(Path(run)), cluster)]
    print(f"charllm: fitting {len(measured)} collectives, then again 4 times", file=sys.stderr)
    found = fit_network(measured, cluster)
    report = {"runs": len(arguments.runs), **describe_network(found, measured, cluster)}
    parts = {part: found.identified(part) for part in ("node", "fabric")}
    source = f"charllm calibrate {' '.join(Path(run).name for run in arguments.runs)}"
    residual = report["in_sample"]["overall"]["median_abs_error_fraction"]
    comments = [f"median residual of {len(measured)} collectives: {format_percent(residual)}"]
    comments += [f"{row['parameter']}: not identified; {row['run']}" for row in report["not_identified"]]
    text = cluster_toml(base, Path(arguments.out).stem, under, parts, source, comments)
    write_file(arguments.out, text)
    print_as(arguments, report, lambda: render_fit(report), lambda: report["parameters"])
    print(f"charllm: wrote {arguments.out}", file=sys.stderr)
    return 0


def score_network(arguments: argparse.Namespace) -> dict[str, Any]:
    """Predict every collective of a table."""
    from charllm.catalog.resolve import resolve_cluster
    from charllm.evaluate.collectives import score_collectives
    from charllm.measure.bench.nccl_table import is_table, read_rows

    path = Path(arguments.file)
    if not is_table(path):
        raise SpecError("FILE", arguments.file, "a folder or table that `charllm bench nccl` has written")
    return score_collectives(read_rows(path), resolve_cluster(_cluster_of(arguments.cluster, arguments.file)))


def _cluster_of(asked: str | None, run: str) -> str:
    """Return the cluster that was asked for, or the one that the benchmark was told of."""
    from charllm.measure.bench.nccl_table import HEADER_FILE, read_header

    header = Path(run) / HEADER_FILE
    told = read_header(Path(run)).get("cluster") if asked is None and header.is_file() else None
    if asked is None and not isinstance(told, str):
        raise SpecError(
            "--cluster", None, "the cluster that was measured: a name of `charllm catalog clusters`, or a file"
        )
    return str(asked or told)


def render_network(table: dict[str, Any]) -> str:
    """Render the scores of collectives."""
    from charllm.calibrate.network_report import render_scores

    return render_scores(table)
