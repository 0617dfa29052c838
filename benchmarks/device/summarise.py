"""Make small tables of what a device campaign recorded.

    PYTHONPATH=src python3 benchmarks/device/summarise.py TAKES -o src/charllm/evaluate/h200/readings

TAKES holds the folders that `charllm bench ops` (ops*) and `campaign.py` (training-*, ranks-*, overhead-*) left.
"""

import argparse
import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from charllm.measure.marks import Step, find_steps, read_marks
from charllm.measure.recording import Recording, read_recording
from charllm.measure.steady import interval, settled_from
from charllm.measure.window import highest, look
from charllm.units import GIB, MEGA

WARM_UP_S = 5.0
"""Left out at the start of each training run: compiling, choosing algorithms, the first degrees."""
REFRESH_S = 0.1
TRACE = ("power_instant_w", "temperature_c", "clock_hz")


def summarise_runs(folder: Path) -> list[dict[str, Any]]:
    """Describe each configuration of one take by its steps after the warm-up."""
    recording = read_recording(folder)
    steps = [step for marks in read_marks(folder).values() for step in find_steps(marks)]
    windows = [json.loads(line) for line in (folder / "windows.jsonl").read_text().splitlines()]
    return [describe(window, recording, list(inside(steps, window))) for window in windows if not window["error"]]


def inside(steps: Iterable[Step], window: dict[str, Any]) -> Iterator[Step]:
    """List the steps of one configuration; the warm-up is left out where enough steps remain."""
    slack_s = 0.01
    own = [
        step
        for step in steps
        if window["start_s"] - slack_s <= step.start_s and step.end_s <= window["end_s"] + slack_s
    ]
    warm = [step for step in own if step.start_s >= own[0].start_s + WARM_UP_S]
    return iter(warm if len(warm) >= 4 else own)


def describe(window: dict[str, Any], recording: Recording, steps: list[Step]) -> dict[str, Any]:
    start_s, end_s = steps[0].start_s, steps[-1].end_s
    seen = look(recording, 0, start_s, end_s)
    lengths = np.array([step.end_s - step.start_s for step in steps])
    settled_s = when_settled(recording, start_s, end_s)
    energy_j = seen.energy_j.value if seen.energy_j else float("nan")
    return {
        "name": window["name"],
        "take": window["take"],
        "steps": len(steps),
        "window_s": end_s - start_s,
        "step_time_s": float(np.mean(lengths)),
        "tokens_per_s": sum(step.tokens or 0 for step in steps) / (end_s - start_s),
        "power_mean_w": seen.power_mean_w,
        "power_error_w": seen.energy_j.error / (end_s - start_s) if seen.energy_j else None,
        "instant_over_counter": (seen.instant_energy_j or float("nan")) / energy_j,
        "power_peak_sensor_w": seen.power_peak_sensor_w,
        "temperature_mean_c": seen.temperature_mean_c,
        "temperature_peak_c": seen.temperature_peak_c,
        "clock_mean_mhz": (seen.clock_mean_hz or float("nan")) / MEGA,
        "clock_std_fraction": seen.clock_std_fraction,
        "power_limited_fraction": (seen.limited_fraction or {}).get("power"),
        "memory_used_gib": (highest(recording, 0, "memory_used_bytes", start_s, end_s) or float("nan")) / GIB,
        "settled_after_s": settled_s,
        "loss_first": window.get("loss_first"),
        "loss_last": window.get("loss_last"),
    }


def when_settled(recording: Recording, start_s: float, end_s: float) -> float | None:
    times, temperature = recording.known(0, "temperature_c")
    chosen = (times >= start_s) & (times <= end_s)
    settled_s = settled_from(times[chosen], temperature[chosen])
    return None if settled_s is None else settled_s - start_s


def repeatability(first: list[dict[str, str]], second: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Put the ops that were run twice side by side."""
    before = {row["name"]: row for row in first}
    return [
        {"name": row["name"], "group": row["group"]}
        | {
            f"{column}_difference_fraction": float(row[column]) / float(before[row["name"]][column]) - 1
            if row[column] and before[row["name"]][column]
            else None
            for column in ("s_per_call", "mean_w", "sm_mhz")
        }
        for row in second
    ]


def overhead(turns: list[tuple[bool, list[float]]]) -> dict[str, Any]:
    """Compare steps beside the sampler with those of the turn before and after, which had none."""
    means = [float(np.mean(times)) for _, times in turns]
    costs = [means[turn] / np.mean([means[other] for other in (turn - 1, turn + 1) if other < len(means)]) - 1
             for turn, (sampled, _) in enumerate(turns) if sampled]  # fmt: skip
    alike = [means[turn + 2] / means[turn] - 1 for turn in range(len(turns) - 2)]
    found = interval(np.array(costs))
    return {
        "cost_fraction": found.mean,
        "interval_95": [found.low, found.high],
        "turns": len(turns),
        "steps_a_turn": len(turns[0][1]),
        "same_against_same_fraction": float(np.median(np.abs(alike))),
    }


def trace_rows(folder: Path) -> list[str]:
    """List power, temperature and clock at the board's own pace, and the memory's temperature each second."""
    recording = read_recording(folder)
    series = recording.fast(0)
    times_s = np.arange(series.times_s[0], series.times_s[-1], REFRESH_S)
    place = np.searchsorted(series.times_s, times_s)
    watts, degrees, hertz = (series.columns[name][place] for name in TRACE)
    return ["t_s,power_w,temperature_c,sm_mhz"] + [
        f"{t:.2f},{w:.1f},{c:.0f},{f / MEGA:.0f}" for t, w, c, f in zip(times_s, watts, degrees, hertz, strict=True)
    ]


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()})
    return out.getvalue()


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_trace(rows: list[str], path: Path) -> None:
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(("\n".join(rows) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("takes", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    takes, out = arguments.takes, arguments.out
    out.mkdir(parents=True, exist_ok=True)
    ops = [row | {"take": folder} for folder in ("opsA", "opsB") for row in read_csv(takes / folder / "ops.csv")]
    (out / "ops.csv").write_text(to_csv(ops))
    twice = repeatability(ops, read_csv(takes / "opsR" / "ops.csv"))
    (out / "ops_repeated.csv").write_text(to_csv(twice))
    for part in ("training", "ranks"):
        folders = sorted(takes.glob(f"{part}-*"))
        (out / f"{part}.csv").write_text(to_csv([row for folder in folders for row in summarise_runs(folder)]))
    turns = [(bool(sampled), times) for sampled, times in json.loads((takes / "overhead-A.json").read_text())]
    costs = [json.loads(path.read_text()) for path in sorted(takes.glob("*/sampler.json"))]
    summary = {
        "sampling": overhead(turns)
        | {
            "cpu_fraction": float(np.average([cost["cpu_fraction"] for cost in costs],
                                             weights=[cost["elapsed_s"] for cost in costs])),
            "rate_hz_lowest": min(cost["rate_hz"] for cost in costs),
        },
        "repeatability": {
            column: float(np.median([abs(row[column]) for row in twice if row[column] is not None]))
            for column in twice[0] if column.endswith("_fraction")
        },
    }  # fmt: skip
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    for folder in ("opsA", "opsB", "training-A", "ranks-A", "ranks-B"):
        write_trace(trace_rows(takes / folder), out / f"trace_{folder}.csv.gz")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
