"""charllm trace against Holistic Trace Analysis: the same figures, and how fast and large each is.

    python -m benchmarks.trace_hta TRACES [--megabytes 520] [--venv FOLDER] [--only-figures]

TRACES is a folder of Kineto traces, searched with all below it (HTA's tests/data, TraceLens's tests/traces). HTA is
installed from PyPI into a virtual environment in a temporary folder, unless --venv has it. Exit code 1 where a figure
differs and no kernel is classed differently.

HTA divides by the time from the first to the last kernel, and drops the last step: so does this comparison. Timestamps
are not rounded (HTA_DISABLE_NS_ROUNDING). The repeated trace has shifted times, correlations and steps.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.trace.activity import Activity
from charllm.trace.analyses.breakdown import label_window
from charllm.trace.classes import COMMUNICATION, COMPUTE, MEMORY, read_classes
from charllm.trace.events import NONE, RANGE
from charllm.trace.kineto import read_kineto
from charllm.trace.run import TracedRank, build_run
from charllm.trace.steps import Window

HTA = "HolisticTraceAnalysis==0.5.0"
FAMILIES = {COMPUTE: "COMPUTATION", COMMUNICATION: "COMMUNICATION", MEMORY: "MEMORY"}
LARGEST_MB = 100.0
"""Traces that are compared; the repeated one is measured for itself."""
SCRIPT = """
import json, sys, warnings, logging
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
from hta.utils.utils import get_kernel_type
found = {}
for path in sys.argv[1:]:
    try:
        analysis = TraceAnalysis(trace_files={0: path})
        row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
        names = analysis.t.symbol_table.get_sym_table()
        found[path] = {
            "idle": float(row["idle_time_pctg"]), "compute": float(row["compute_time_pctg"]),
            "non_compute": float(row["non_compute_time_pctg"]),
            "overlap": None if overlap != overlap else float(overlap),
            "types": {name: get_kernel_type(name) for name in names},
        }
    except Exception as error:
        found[path] = {"error": f"{type(error).__name__}: {str(error)[:80]}"}
print("RESULT" + json.dumps(found))
"""


class Figures(NamedTuple):
    """Percentages of the time from the first to the last kernel, as HTA prints them; overlap is of communication."""

    idle: float
    compute: float
    non_compute: float
    overlap: float | None


class Cost(NamedTuple):
    """What a program took."""

    cpu_s: float
    wall_s: float
    peak_bytes: int


def figures_of(rank: TracedRank) -> tuple[Figures, Activity] | None:
    """Return charllm's figures by HTA's definitions, and the events that they are of."""
    kept = _without_last_step(rank)
    if not len(kept.row):
        return None
    window = Window(None, float(kept.start_s.min()), float(kept.end_s.max()))
    labels = label_window(kept, window)
    length_s = labels.segments.length_s

    def seconds(marked: Any) -> float:
        return float(length_s[marked].sum())

    whole = window.seconds or 1.0
    exposed, hidden = (sum(map(seconds, each.values())) for each in (labels.exposed, labels.hidden))
    idle, compute = seconds(labels.idle) / whole, seconds(labels.compute) / whole
    rest = 1 - idle - compute
    overlap = hidden / (hidden + exposed) if hidden + exposed else None
    return Figures(*(None if part is None else round(100 * part, 2) for part in (idle, compute, rest, overlap))), kept  # type: ignore[arg-type]


def _without_last_step(rank: TracedRank) -> Activity:
    """Keep what was launched before the last marked step, where several are marked."""
    events, names = rank.trace.events, rank.trace.names
    steps = np.array(["ProfilerStep" in name for name in names] or [False])
    rows = np.flatnonzero(rank.trace.matches(RANGE) & steps[events.name])
    activity = rank.activity
    if len({names[events.name[row]] for row in rows}) < 2:
        return activity
    called_s = np.where(activity.call == NONE, np.inf, events.start_s[activity.call])
    return activity.take(called_s < events.start_s[rows].max())


def compare(folder: Path, python: Path) -> int:
    """Compare the figures of every trace; returns how many differ without a kernel that is classed differently."""
    paths = [str(path) for path in sorted(folder.rglob("*.json*")) if path.stat().st_size < LARGEST_MB * 1e6]
    theirs = _hta(python, paths)
    unexplained = equal = 0
    for path in paths:
        trace = read_kineto(Path(path))
        if not trace.has_device_events:
            continue
        (rank,) = build_run([trace], read_classes()).ranks
        unknown = float(rank.activity.seconds[rank.activity.unknown].sum() / rank.activity.seconds.sum())
        mine, found = figures_of(rank), theirs[path]
        name = str(Path(path).relative_to(folder))
        head = f"{name}: {len(rank.activity.row):,} kernels, unknown {100 * unknown:.2f} %"
        if mine is None or "error" in found:
            print(f"{head}; HTA: {found.get('error', 'no kernels')}")
            continue
        wanted = Figures(*(found[key] for key in Figures._fields))
        if all(_close(one, other) for one, other in zip(mine[0], wanted, strict=True)):
            equal += 1
            print(f"{head}; equal: {_write(mine[0])}")
            continue
        reasons = list(_differences(rank, mine[1], found["types"]))
        unexplained += not reasons
        print(f"{head}; charllm {_write(mine[0])}; HTA {_write(wanted)}; {'; '.join(reasons) or 'NOT EXPLAINED'}")
    print(f"equal on {equal} traces, {unexplained} differences not explained by the class of a kernel")
    return unexplained


def _close(one: float | None, other: float | None) -> bool:
    """Tell whether two figures are equal as printed; half of the last place may be rounded either way."""
    return one == other if one is None or other is None else abs(one - other) < 0.0101


def _write(figures: Figures) -> str:
    overlap = "-" if figures.overlap is None else f"{figures.overlap:.2f}"
    return f"idle {figures.idle:.2f} compute {figures.compute:.2f} other {figures.non_compute:.2f} overlap {overlap}"


def _differences(rank: TracedRank, kept: Activity, types: dict[str, str]) -> Iterator[str]:
    """Name the kernels that HTA classes differently, the largest first."""
    found: dict[str, float] = {}
    for row, work, seconds in zip(kept.row.tolist(), kept.work.tolist(), kept.seconds.tolist(), strict=True):
        name, mine = rank.trace.names[rank.trace.events.name[row]], FAMILIES[kept.works[work].family]
        if types.get(name, mine) != mine:
            key = f"{name[:60]} is {mine.lower()}, HTA: {types[name].lower()}"
            found[key] = found.get(key, 0.0) + seconds
    yield from sorted(found, key=lambda key: -found[key])[:3]
    if not found and "gpu_user_annotation" in types:
        yield "HTA counts ranges of the user on the device (gpu_user_annotation) as kernels"
    if not found and "cuda_sync" in types:
        yield "HTA counts waits of a stream (cuda_sync) as kernels"
    if rank.trace.has_device_events and (kept.call == NONE).any():
        yield "some kernels have no launch in the trace"


def _hta(python: Path, paths: list[str]) -> dict[str, Any]:
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
    done = subprocess.run([python, "-c", SCRIPT, *paths], capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.split("RESULT", 1)[1])
    return found


def repeat_trace(source: Path, target: Path, size_bytes: float) -> None:
    """Write a trace again and again, each time later and with other ids, until it is large enough."""
    with (gzip.open if source.suffix == ".gz" else open)(source, "rt") as file:
        trace = json.load(file)
    events = trace.pop("traceEvents")
    timed = [event for event in events if event.get("ph") == "X"]
    first, last = (
        pick(event["ts"] + more * event.get("dur", 0) for event in timed) for pick, more in ((min, 0), (max, 1))
    )
    ids = 1 + max(value for event in events for value in map(_number, _ids_of(event).values()))
    numbers = [
        int(event["name"].split("#")[1]) for event in events if event.get("name", "").startswith("ProfilerStep#")
    ]
    steps = max(numbers) - min(numbers) + 1 if numbers else 1
    with target.open("w") as out:
        out.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        times = 0
        while out.tell() < size_bytes:
            texts = (json.dumps(_shifted(event, times, last - first + 10, ids, steps)) for event in events)
            out.write((",\n" if times else "") + ",\n".join(texts))
            times += 1
        out.write("\n]}\n")


def _ids_of(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return {key: args[key] for key in ("correlation", "External id") if key in args} if isinstance(args, dict) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _shifted(event: dict[str, Any], times: int, period_us: float, ids: int, steps: int) -> dict[str, Any]:
    moved = dict(event)
    if isinstance(event.get("ts"), int | float):
        moved["ts"] = round(event["ts"] + times * period_us, 3)
    if str(event.get("name", "")).startswith("ProfilerStep#"):
        moved["name"] = f"ProfilerStep#{int(event['name'].split('#')[1]) + times * steps}"
    shifted = {key: value + times * ids for key, value in _ids_of(event).items() if _number(value) > 0}
    return {**moved, "args": {**event["args"], **shifted}} if shifted else moved


def measure(command: list[str]) -> Cost:
    """Run a program and return its processor time, wall time and largest memory."""
    start_s = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _pid, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} ended with {status}")
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - start_s, usage.ru_maxrss * 1024)


def race(folder: Path, python: Path, megabytes: float) -> None:
    """Compare cost on a large trace made by repeating the largest one that has steps and collectives."""
    sources = [path for path in folder.rglob("*.json.gz") if path.stat().st_size < LARGEST_MB * 1e6]
    for source in sorted(sources, key=lambda path: -path.stat().st_size):
        rank = build_run([read_kineto(source)], read_classes()).ranks
        if rank and rank[0].windows and rank[0].windows[0].number is not None and rank[0].trace.backend == "nccl":
            break
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "rank-0.json"
        repeat_trace(source, target, megabytes * 1e6)
        print(f"{source.name} repeated: {target.stat().st_size / 1e6:.0f} MB")
        mine = measure([sys.executable, "-m", "charllm", "trace", str(target), "--json"])
        theirs = measure([str(python), "-c", SCRIPT, str(target)])
    for name, cost in (("charllm trace --json", mine), ("HTA, breakdown and overlap", theirs)):
        print(f"  {name}: {cost.cpu_s:.1f} s processor, {cost.wall_s:.1f} s wall, {cost.peak_bytes / 2**20:.0f} MiB")
    print(
        f"  ratio: {theirs.cpu_s / mine.cpu_s:.1f}x processor time, {theirs.peak_bytes / mine.peak_bytes:.1f}x memory"
    )


def install(folder: Path) -> Path:
    """Build a virtual environment with HTA and return its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", HTA], check=True)
    return python


def main() -> int:
    """Compare figures, then cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--megabytes", type=float, default=520.0)
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--only-figures", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        python = install(arguments.venv or Path(scratch) / "hta")
        unexplained = compare(arguments.traces.resolve(), python)
        if not arguments.only_figures:
            race(arguments.traces, python, arguments.megabytes)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
