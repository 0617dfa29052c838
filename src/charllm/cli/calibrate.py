"""Fit the constants of a GPU, or of the network of a cluster, to your measurements.

RUN is a folder of `charllm bench ops`, a table of ops, or a recording of power and temperature: a run of `measure` or
`convert`, or a table (t_s, power_w, temperature_c, or NVML's counters). Tables of ops identify the constants of power
and kernels, recordings those of heat; the ambient temperature of each GPU is fitted with them. The file written names
the GPU it is based on, and can be used wherever a GPU's name is expected: `--set cluster.node.gpu=FILE.toml`,
`validate ops --gpu FILE.toml`.

If every RUN is a folder or table of `charllm bench nccl`, the constants of links, NICs and collectives are fitted
instead, starting from --cluster. The file written can be used wherever a cluster's name is expected: `simulate
--cluster FILE.toml`, `validate nccl RUN --cluster FILE.toml`.

If every RUN is a run with profiler traces (`train --profile`, `measure --profile`), the host time of kernel launches
is determined instead, and a cluster file with this host speed is written.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from charllm.cli.calibrate_network import calibrate_network
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.progress import track
from charllm.errors import SpecError
from charllm.profile import TRACE_FILES
from charllm.report.tables import render_table
from charllm.units import MICRO

EXAMPLES = (
    "charllm calibrate runs/ops -o my_gpu.toml",
    "charllm calibrate heat.csv --gpu h100 -o my_h100.toml",
    "charllm validate ops runs/ops/ops.csv --gpu my_gpu.toml",
    "charllm calibrate runs/nccl --cluster h200x32 -o my_cluster.toml",
    "charllm calibrate runs/profiled -o my_host.toml",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of `bench`, a run, ops CSV or heat CSV")
    parser.add_argument("-o", "--out", required=True, metavar="FILE.toml", help="the GPU or cluster file to write")
    parser.add_argument("--gpu", default="h200", metavar="NAME|FILE", help="the GPU to start from (default h200)")
    parser.add_argument(
        "--cluster", metavar="NAME|FILE", help="collectives: the cluster to start from (default the benchmark's own)"
    )
    add_format_flags(parser, table="a row for each constant")


def run(arguments: argparse.Namespace) -> int:
    """Fit the constants that the runs identify, print their errors, and write the file."""
    from charllm.measure.bench.nccl_table import is_table

    traced = [is_traced(Path(run)) for run in arguments.runs]
    if all(traced):
        return calibrate_host(arguments)
    of_collectives = [is_table(Path(run)) for run in arguments.runs]
    if all(of_collectives):
        return calibrate_network(arguments)
    if any(of_collectives):
        possible = "tables of collectives alone: constants of a GPU and of a network go into two files"
        raise SpecError("RUN", arguments.runs[of_collectives.index(True)], possible)
    return _calibrate_gpu(arguments)


def _calibrate_gpu(arguments: argparse.Namespace) -> int:
    from charllm.calibrate.heat import fit_heat
    from charllm.calibrate.ops import errors_of, fit_identified, gather, held_out
    from charllm.calibrate.report import advice_for, describe_fit, render_fit
    from charllm.calibrate.runs import read_runs
    from charllm.calibrate.write import as_toml, write_file
    from charllm.catalog.resolve import is_file
    from charllm.evaluate.ops import bench_machine

    cluster = bench_machine(arguments.gpu)
    tables, traces = read_runs(arguments.runs)
    report: dict[str, Any] = {"gpu": cluster.gpu.name, "runs": len(arguments.runs)}
    parts = {}
    if tables:
        bench = gather([table.rows for table in tables], cluster)
        print(f"charllm: fitting {len(bench.rows)} ops of {len(tables)} tables, then again 4 times", file=sys.stderr)
        found = fit_identified(bench, cluster.gpu)
        inside, outside = errors_of(bench, cluster.gpu, found.values()), held_out(bench, cluster.gpu, track=track)
        report["ops"] = describe_fit(found, inside, outside, [table.name for table in tables])
        parts["power"] = [each for each in found.found if each.name.startswith("power.") and each.identified]
        parts["kernels"] = [each for each in found.found if each.name.startswith("kernels.") and each.identified]
        report["not_identified"] = advice_for(found)
    if traces:
        heat = fit_heat([trace.trace for trace in traces], cluster)
        report["heat"] = heat.describe()
        parts["heat"] = [each for each in heat.fit.found if each.identified]
        report.setdefault("not_identified", []).extend(advice_for(heat.fit))
    base = arguments.gpu if is_file(arguments.gpu) else cluster.gpu.name
    source = f"charllm calibrate {' '.join(Path(run).name for run in arguments.runs)}"
    comments = [f"{row['parameter']}: not identified; {row['run']}" for row in report["not_identified"]]
    write_file(arguments.out, as_toml(base, Path(arguments.out).stem, parts, source, comments))
    print_as(arguments, report, lambda: render_fit(report), lambda: _constants(report))
    print(f"charllm: wrote {arguments.out}", file=sys.stderr)
    return 0


def _constants(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for part in ("ops", "heat") if part in report for row in report[part]["parameters"]]


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
