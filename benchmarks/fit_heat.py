"""Fit the heat network and score it: ``python -m benchmarks.fit_heat [FITTED.csv OTHER.csv ...]``.

An H200's poles are fitted on one take of evaluate/h200/readings whose memory traffic is known from its ops; the other
takes are scored from power and clock alone. Recordings of 8-GPU nodes (timestamp, gpu_index, temperature_C, power_W)
are not part of this repository: the first one given is fitted, the others are scored. Public ones lie in forks of
karpathy/nanoGPT, commits f4f827dd (fitted), b443a1c3, 32fcbd7a, 16a680b7. What is printed as fitted is what the catalog
holds.
"""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.calibrate.least_squares import load_optimize
from charllm.catalog.resolve import single_node
from charllm.evaluate.h200.tables import READINGS
from charllm.evaluate.heat import (
    assumed_traffic_bytes_per_s,
    centred_power_w,
    first_readings,
    predict,
    score_heat,
)
from charllm.evaluate.heat_trace import Trace, read_trace
from charllm.gpu.heat import POLE_NAMES, network, steady_temperature_c
from charllm.report.tables import render_table
from charllm.units import PICO, TERA

FITTED_TAKE = "opsA"
TAKES = ("opsA", "opsB", "ranks-A", "ranks-B", "training-A")
PRODUCT_BYTES_PER_FLOP = 1.1e-3
"""Least memory traffic of products over their arithmetic (catalog/scale.py)."""
ATTENTION_BYTES_PER_S = 0.15e12
ODD_K = 10.0
SINK_TIME_S = 10.0
"""Read off the 18 s of cool-down in take opsB: 1.5 K are left after 2 s, 0.5 K after 10 s. Ops alone do not tell it."""
COLUMNS = [
    "",
    "RMSE K",
    "with offset",
    "of 1 s means",
    "mean error",
    "steady |error|",
    "rear - front",
    "warmth",
    "no lag",
]


def lag(times_s: Floats, driver: Floats, time_s: float, before: Floats | float) -> Floats:
    """Return a driver behind one first-order pole."""
    kept = np.exp(-np.diff(times_s) / time_s)
    shown = np.empty_like(driver)
    shown[0] = before
    for index, share in enumerate(kept, start=1):
        shown[index] = driver[index] + (shown[index - 1] - driver[index]) * share
    return shown


def centred(values: Floats) -> Floats:
    """Return values less their mean."""
    return np.asarray(values - values.mean())


def search(residuals: Callable[[Floats], Floats], start: Floats) -> Floats:
    """Return the place of the least sum of squares, within a factor of 10 of the start."""
    reach = np.log(10.0)
    found = load_optimize().least_squares(residuals, start, bounds=(start - reach, start + reach), diff_step=1e-3)
    return np.asarray(found.x)


def known_traffic(take: str, times_s: Floats) -> Floats:
    """Return the memory traffic of the ops of a take: their operands once, or what products are known to read."""
    traffic = np.zeros(len(times_s))
    with (READINGS / "ops.csv").open() as file:
        for row in csv.DictReader(file):
            if row["take"] == take and row["tflops_or_tbps"]:
                during = (times_s >= float(row["t0"])) & (times_s <= float(row["t1"]))
                traffic[during] = _op_traffic(row) * float(row["busy_fraction"] or 1)
    return traffic


def _op_traffic(row: dict[str, str]) -> float:
    rate = float(row["tflops_or_tbps"]) * TERA
    if row["kind"].startswith("attention"):
        return ATTENTION_BYTES_PER_S
    if "gemm" not in row["kind"]:
        return rate
    groups, m, n, k = (float(size) for size in row["dims"].split("x"))
    width = 1 if row["dtype"].startswith("fp8") else 2
    operands = groups * (width * (m * k + k * n) + 2 * m * n)
    return max(operands / float(row["s_per_call"]), PRODUCT_BYTES_PER_FLOP * rate)


def fit_gpu() -> None:
    """Fit three poles and the heat of traffic to one take of the H200."""
    trace = read_trace(str(READINGS / f"trace_{FITTED_TAKE}.csv.gz"))
    times, power, shown = trace.times_s, trace.power_w[:, 0], trace.temperature_c[:, 0]
    traffic = known_traffic(FITTED_TAKE, times)
    rise = shown - shown[first_readings(trace)].mean()

    def times_s(place: Floats) -> list[float]:
        return [*np.exp(place[:2]), SINK_TIME_S]

    def columns(place: Floats) -> Floats:
        on_die = power - np.exp(place[2]) * PICO * traffic
        drivers = zip((on_die, on_die, power), times_s(place), strict=True)
        return np.stack([lag(times, driver, time_s, power[0]) - power[0] for driver, time_s in drivers], axis=1)

    def left(place: Floats) -> Floats:
        table = columns(place)
        return centred(rise - table @ np.linalg.lstsq(table, rise, rcond=None)[0])

    place = search(left, np.log([0.18, 1.4, 45.0]))
    resistances = np.linalg.lstsq(columns(place), rise, rcond=None)[0]
    found = zip(POLE_NAMES, resistances, times_s(place), strict=True)
    rows = [[name, f"{resistance:.4f}", f"{time_s:.2f}"] for name, resistance, time_s in found]
    rows.append(["all", f"{resistances.sum():.4f}", ""])
    print(render_table(f"H200, fitted on {FITTED_TAKE} (RMSE {np.std(left(place)):.2f} K)", ["", "K/W", "s"], rows))
    print(f"heat of traffic that misses the die's sensor: {np.exp(place[2]):.0f} pJ a byte\n")


def fit_node(path: str) -> None:
    """Fit poles common to all GPUs of a node, with one sink resistance for front and one for rear slots."""
    trace = read_trace(path)
    cluster = single_node("h100", len(trace.gpus))
    power = centred_power_w(trace)
    on_die = power - cluster.gpu.heat.memory_byte_heat_j * assumed_traffic_bytes_per_s(trace, power, cluster.gpu)
    rear = np.array([bool(cluster.node.upstream_slots(slot)) for slot in range(cluster.node.gpus)])
    # One GPU of that node reads 20 K more than the others even at rest: its sensor or its contact is odd.
    alike = np.abs(trace.temperature_c[0] - np.median(trace.temperature_c[0])) < ODD_K
    power, on_die, rear = power[:, alike], on_die[:, alike], rear[alike]
    start = power[0]

    def columns(place: Floats) -> Floats:
        die, base, sink = (
            lag(trace.times_s, d, t, start) for d, t in zip((on_die, on_die, power), np.exp(place), strict=True)
        )
        offsets = np.broadcast_to(np.eye(len(rear)), (len(power), len(rear), len(rear)))
        parts = [die[..., None], base[..., None], (sink * ~rear)[..., None], (sink * rear)[..., None], offsets]
        return np.concatenate(parts, axis=2).reshape(power.size, -1)

    shown = trace.temperature_c[:, alike].reshape(-1)

    def left(place: Floats) -> Floats:
        table = columns(place)
        return centred(shown - table @ np.linalg.lstsq(table, shown, rcond=None)[0])

    place = search(left, np.log([0.3, 9.8, 44.0]))
    found = np.linalg.lstsq(columns(place), shown, rcond=None)[0]
    times = np.exp(place)
    names = ("die", "base", "sink, front", "sink, rear with its preheat")
    rows = [[name, f"{r:.4f}", f"{t:.2f}"] for name, r, t in zip(names, found, times[[0, 1, 2, 2]], strict=False)]
    print(
        render_table(
            f"8-GPU node, fitted on {Path(path).name} (RMSE {np.std(left(place)):.2f} K)", ["", "K/W", "s"], rows
        )
    )
    print("ambients: " + ", ".join(f"{value:.1f}" for value in found[4:]) + " C\n")


def score_row(name: str, trace: Trace, gpu: str) -> list[str]:
    """Return a trace's scores as cells."""
    score: dict[str, Any] = score_heat(trace, gpu)
    names = ("rmse_k", "rmse_with_offset_k", "rmse_1s_k", "mean_error_k", "steady_error_k", "gap_error_k")
    cells = ["-" if score[key] is None else f"{score[key]:.2f}" for key in names]
    return [name, *cells, f"{score['start_warmth_fraction']:.2f}", f"{score['baseline']['rmse_k']:.2f}"]


def known_traffic_row(take: str) -> list[str]:
    """Return the scores of a take when its memory traffic is known instead of assumed."""
    trace = read_trace(str(READINGS / f"trace_{take}.csv.gz"))
    cluster = single_node("h200", 1)
    traffic = known_traffic(take, trace.times_s)[:, None]
    shown, _ = predict(trace, network(cluster.node, cluster.cooling), cluster.gpu, traffic)
    error = shown - trace.temperature_c
    return [f"{take}, traffic known", f"{np.sqrt(np.mean(error**2)):.2f}", f"{error.std():.2f}", *["-"] * 6]


def show_preheat() -> None:
    """Print what rests on the choice of preheat: a hot slot while its neighbour ahead works, and while it rests."""
    cluster = single_node("h100", 8)
    excess = cluster.node.preheat_k_per_w + (cluster.node.rear_sink_fraction - 1) * float(
        cluster.node.sink_resistance_k_per_w or 0.0
    )
    rear = np.array([bool(cluster.node.upstream_slots(slot)) for slot in range(8)])
    rows = []
    for preheat in (0.0, 0.0066, cluster.node.preheat_k_per_w, excess):
        sink = float(cluster.node.sink_resistance_k_per_w or 1.0)
        node = replace(cluster.node, preheat_k_per_w=preheat, rear_sink_fraction=1 + (excess - preheat) / sink)
        net = network(node, cluster.cooling)
        both = steady_temperature_c(np.full(8, 690.0), net, 25.0)
        resting = steady_temperature_c(np.where(rear, 690.0, 120.0), net, 25.0)
        rows.append(
            [f"{preheat:.4f}", *(f"{value:.1f}" for value in (both[~rear][0], both[rear][0], resting[rear][0]))]
        )
    columns = ["preheat K/W", "front at 690 W", "rear at 690 W", "rear at 690 W, front at 120 W"]
    print("\n" + render_table("What no trace decides: preheat against slot, C at an inlet of 25 C", columns, rows))


def main(paths: list[str]) -> None:
    """Fit, then score with what the catalog holds."""
    fit_gpu()
    if paths:
        fit_node(paths[0])
    rows = [score_row(take, read_trace(str(READINGS / f"trace_{take}.csv.gz")), "h200") for take in TAKES]
    rows += [known_traffic_row(take) for take in ("opsA", "opsB")]
    rows += [score_row(Path(path).stem, read_trace(path), "h100") for path in paths]
    print(render_table("Temperature from power alone, K", COLUMNS, rows))
    show_preheat()


if __name__ == "__main__":
    main(sys.argv[1:])
