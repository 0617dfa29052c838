"""Traced runs: how fast their host launches kernels, for `charllm calibrate`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from charllm.cli.output import print_as
from charllm.profile import TRACE_FILES
from charllm.report.tables import render_table
from charllm.units import MICRO

NAME = "node.host_speed_fraction"
LEAST_ERROR = 0.1
"""Measured: the profiler adds 7 to 14 % to each launch (evaluate/h200/readings/host_steps.csv)."""


def is_traced(run: Path) -> bool:
    """Tell whether a run has profiler traces and the spec of what was run."""
    from charllm.measure.record import SPEC_FILE

    return run.is_dir() and (run / SPEC_FILE).is_file() and any(run.rglob(TRACE_FILES))


def calibrate_host(arguments: argparse.Namespace) -> int:
    """Compare what launching took each traced host with what is assumed, and write the cluster file."""
    from charllm.api.ops_comparison import measure_host, own_run
    from charllm.calibrate.least_squares import Found
    from charllm.calibrate.write import cluster_toml, write_file
    from charllm.catalog.cluster_parts import written_parts

    rows = [measure_host(run) for run in arguments.runs]
    base = arguments.cluster or own_run(Path(arguments.runs[0])).cluster.name
    speeds = [row["host_speed_fraction"] for row in rows]
    speed = sum(speeds) / len(speeds)
    error = max(LEAST_ERROR, (max(speeds) - min(speeds)) / (2 * speed))
    found = Found(NAME, speed, error, 1.0, 0.0, identified=True)
    source = f"charllm calibrate {' '.join(Path(run).name for run in arguments.runs)}"
    comments = [f"host time of a launch read in {len(rows)} traced runs; the profiler's own cost is in it"]
    parts = written_parts(base, ("node",))
    write_file(arguments.out, cluster_toml(base, Path(arguments.out).stem, parts, {"node": [found]}, source, comments))
    report = {"cluster": base, NAME: speed, "error_fraction": error, "runs": rows}
    print_as(arguments, report, lambda: _render(report), lambda: rows)
    print(f"charllm: wrote {arguments.out}", file=sys.stderr)
    return 0


def _render(report: dict[str, Any]) -> str:
    cells = [
        [row["run"], f"{row['launch_s'] / MICRO:.1f}", f"{row['assumed_launch_s'] / MICRO:.1f}",
         f"{row['launches']:,.0f}", f"{row['assumed_launches']:,.0f}", f"{row['host_speed_fraction']:.2f}"]
        for row in report["runs"]
    ]  # fmt: skip
    title = f"Hosts of {report['cluster']}: speed {report[NAME]:.2f} of a tuned host, +- {report['error_fraction']:.2f}"
    columns = ["run", "us a launch", "us assumed", "launches", "launches assumed", "speed"]
    return render_table(title, columns, cells)
