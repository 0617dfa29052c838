"""Predict seconds a call, watts and clock of single ops from their shapes, and score them against what was read.

An op is called on and on for its window, from its start temperature: how far that is above the surroundings tells the
pause before it, hence how long the governor still allows a burst (gpu/steady.py), and the heat network carries the
temperature through the window. Bursts are simulated tick by tick (simulate/one_gpu.py). Predictions read no measured
figure.
Ignores: order of the rows, the gap before each.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.catalog.resolve import find_entry, is_file, resolve_cluster
from charllm.catalog.tables import entries
from charllm.evaluate.ops_table import OpRow, SkippedOp
from charllm.evaluate.scores import describe_errors
from charllm.gpu.formats import NARROW
from charllm.gpu.heat import Network, network, steady_state_k
from charllm.gpu.kernels import Shapes, read_shapes, time_kernels
from charllm.gpu.memory_bound import STREAMS
from charllm.gpu.physics import board_of, idle_w
from charllm.gpu.shape import GROUPED, PRODUCTS, KernelShape, work
from charllm.gpu.steady import Held, hold_window
from charllm.simulate.one_gpu import simulate_burst
from charllm.spec.hardware import Cluster, Gpu
from charllm.spec.request import read_toml

QUANTITIES = ("seconds", "watts", "clock")
CLASSES = ("gemm", "small gemm", "grouped", "fp8", "attention", "memory", "host-bound", "burst")
SMALL_ROWS, SMALL_COLUMNS, SMALL_DEPTH, SMALL_PRODUCTS = 1024, 512, 256, 2e10
"""A product counts as small or skinny up to these sizes, or below this many multiplications."""
ALONE = {"link_bandwidth_bytes_per_s": 0.0, "pcie_bandwidth_bytes_per_s": 64e9}
"""Links of a GPU that no node of the catalog has: none to others, PCIe gen 5 to its host."""
WARMING_ROUNDS = 2
PAUSES_S = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 400)])
LEAST_PEAK_ON_S = 0.05
"""Bursts shorter than this are blurred by the sensor's box of 25 ms, wherever the phase falls."""


class Start(NamedTuple):
    """What a start temperature tells of each op."""

    mean_w: Floats
    """Mean over the last second, as the governor sees it."""
    state_k: Floats
    """Rises [op, pole]."""
    ambient_c: Floats


class OpPrediction(NamedTuple):
    """What the model says of one op, and which class that makes it."""

    op: OpRow
    kind: str
    seconds_s: float
    power_w: float
    clock_hz: float
    peak_w: float | None
    """Highest reading of the sensor; only bursts."""

    def pairs(self) -> dict[str, tuple[float, float | None]]:
        """Return predicted and measured figures by quantity."""
        measured = self.op.measured
        return {
            "seconds": (self.seconds_s, measured.seconds_s),
            "watts": (self.power_w, measured.power_w),
            "clock": (self.clock_hz, measured.clock_hz),
            **({"peak": (self.peak_w, measured.peak_w)} if self.peak_w is not None else {}),
        }


def bench_machine(gpu: str) -> Cluster:
    """Return one GPU alone, by its name in the catalog or by a file; one that no node has gets a node of its own."""
    entry = find_entry("gpus", gpu, "--gpu")
    name = entry.name
    if is_file(gpu):
        name = str(read_toml(gpu, "--gpu").get("base", ""))
    nodes = {node.name: node.values["gpus"] for node in entries("nodes").values() if node.values["gpu"] == name}
    if not nodes:
        count = entry.values.get("package_gpus", 1)
        single = {"name": "single", "gpu": gpu, "gpus": count, **ALONE}
        return resolve_cluster({"name": f"{entry.name}x{count}", "nodes": 1, "fabric": "none", "node": single})
    node = min(nodes, key=lambda each: nodes[each])
    alone = [each.name for each in entries("clusters").values() if each.values["node"] == node]
    under: dict[str, Any] = {"base": alone[0]} if alone else {"fabric": "none"}
    return resolve_cluster(
        {**under, "nodes": 1, "node": {"base": node, "gpu": entry.name if name == entry.name else gpu}}
    )


def predict_ops(rows: Sequence[OpRow], cluster: Cluster, silicon: float = 1.0) -> list[OpPrediction]:
    """Predict every op of a table; `silicon` is the die's power over the typical one's."""
    gpu, net = cluster.gpu, network(cluster.node, cluster.cooling)
    steady = [row for row in rows if not row.on_s]
    found: dict[int, OpPrediction] = {}
    if steady:
        shapes = read_shapes([row.shape for row in steady], gpu)
        held = predict_steady(steady, shapes, gpu, net, cluster.cooling.inlet_of(0), silicon)
        kinds = classes_of(shapes, gpu, held)
        for place, row in enumerate(steady):
            figures = (float(held.seconds[place]), float(held.power_w[place]), float(held.clock_hz[place]))
            found[id(row)] = OpPrediction(row, kinds[place], *figures, None)
    for row in rows:
        if row.on_s:
            found[id(row)] = _predict_burst(row, gpu, net, cluster.cooling.inlet_of(0), silicon)
    return [found[id(row)] for row in rows]


def predict_steady(
    rows: Sequence[OpRow], shapes: Shapes, gpu: Gpu, net: Network, inlet_c: float, silicon: float | Floats = 1.0
) -> Held:
    """Return the means of ops that ran on and on over their windows."""
    window_s = np.array([row.window_s for row in rows])
    start_c, start = start_of(starts_c(rows), gpu, net, inlet_c)
    held = hold_window(shapes, gpu, start_c, start.mean_w, window_s, silicon=silicon)
    for _ in range(WARMING_ROUNDS):
        traffic = time_kernels(shapes, gpu, held.clock_hz).memory_bytes / held.seconds
        warm = warm_c(start, held.power_w, traffic, window_s, gpu, net)
        held = hold_window(shapes, gpu, warm, start.mean_w, window_s, silicon=silicon)
    return held


def starts_c(rows: Sequence[OpRow]) -> Floats:
    """Return start temperatures, NaN where none was read."""
    return np.array([np.nan if row.start_c is None else row.start_c for row in rows])


def start_of(start_c: Floats, gpu: Gpu, net: Network, inlet_c: float) -> tuple[Floats, Start]:
    """Return start temperatures, and what they tell: a bench holds its GPU at the cap, then pauses until it is so cool.

    Without one, there was no pause. Surroundings are those of the catalog's machine, moved as little as lets every
    start be explained.
    """
    board = board_of(gpu)
    resting_w = idle_w(board)
    idle, full = (_rises_k(np.full(1, power), gpu, net)[0] for power in (resting_w, board.hold_w))
    if np.isnan(start_c).all():
        start_c = np.full(len(start_c), inlet_c + full.sum())
    low, high = np.nanmax(start_c) - full.sum(), np.nanmin(start_c) - idle.sum()
    ambient = min(max(inlet_c, low), high) if low <= high else (low + high) / 2
    start_c = np.where(np.isnan(start_c), ambient + full.sum(), start_c)
    decays = np.exp(-PAUSES_S[:, None] / net.time_s[0])
    rises = idle + (full - idle) * decays
    # Temperature falls throughout a pause, so the pause can be read off it.
    pause = np.interp(-(start_c - ambient), -rises.sum(axis=1), PAUSES_S)
    state = idle + (full - idle) * np.exp(-pause[:, None] / net.time_s[0])
    mean_w = resting_w + (board.hold_w - resting_w) * np.exp(-pause / board.mean_s)
    return start_c, Start(mean_w, state, start_c - state.sum(axis=1))


def _rises_k(power_w: Floats, gpu: Gpu, net: Network) -> Floats:
    return np.asarray(steady_state_k(_first(power_w, net, gpu.power.idle_w), net)[:, 0])


def warm_c(start: Start, power_w: Floats, traffic: Floats, window_s: Floats, gpu: Gpu, net: Network) -> Floats:
    """Return mean temperatures over windows of constant power."""
    powers, bytes_per_s = _first(power_w, net, gpu.power.idle_w), _first(traffic, net, 0.0)
    target = steady_state_k(powers, net, bytes_per_s)[:, 0]
    share = -np.expm1(-window_s[:, None] / net.time_s[0]) * net.time_s[0] / window_s[:, None]
    return np.asarray(start.ambient_c + (target + (start.state_k - target) * share).sum(axis=1))


def _first(values: Floats, net: Network, others: float) -> Floats:
    """Return values for the first GPU of a node, and one for those beside it in its package."""
    table = np.full((len(values), net.slots), others)
    table[:, 0] = values
    return table


def classes_of(shapes: Shapes, gpu: Gpu, held: Held) -> list[str]:
    """Return the class of each op, by its shape and by what bounds it in the model."""
    times = time_kernels(shapes, gpu, held.clock_hz)
    waits = times.running_s < times.seconds
    return [_class_of(shape, bool(wait)) for shape, wait in zip(shapes.kinds, waits, strict=True)]


def _class_of(shape: KernelShape, waits_for_host: bool) -> str:
    if waits_for_host:
        return "host-bound"
    if shape.kind in STREAMS:
        return "memory"
    if shape.kind not in PRODUCTS:
        return "attention"
    if shape.kind in GROUPED:
        return "grouped"
    if shape.precision in NARROW:
        return "fp8"
    batch, m, n, k = shape.dims
    small = m <= SMALL_ROWS or n <= SMALL_COLUMNS or k <= SMALL_DEPTH or batch * m * n * k < SMALL_PRODUCTS
    return "small gemm" if small else "gemm"


def _predict_burst(row: OpRow, gpu: Gpu, net: Network, inlet_c: float, silicon: float) -> OpPrediction:
    seen, seconds = simulate_burst(row.shape, gpu, net, inlet_c, row.on_s, row.period_s, row.window_s, silicon)
    peak = seen.power_peak_sensor_w if row.on_s >= LEAST_PEAK_ON_S else None
    return OpPrediction(row, "burst", seconds, seen.power_mean_w, seen.clock_mean_hz, peak)


def score_ops(rows: Sequence[OpRow], skipped: Sequence[SkippedOp], gpu: str) -> dict[str, Any]:
    """Predict a table and describe the errors."""
    predictions = predict_ops(rows, bench_machine(gpu))
    kinds = [kind for kind in CLASSES if any(prediction.kind == kind for prediction in predictions)]
    return {
        "gpu": gpu,
        "rows": len(rows) + len(skipped),
        "scored": sum(prediction.op.measured.seconds_s is not None for prediction in predictions),
        "skipped": [row._asdict() for row in skipped],
        "overall": describe(predictions),
        "by_class": {kind: describe([each for each in predictions if each.kind == kind]) for kind in kinds},
        "baseline": {
            "overall": describe_baseline(predictions),
            "by_class": {
                kind: describe_baseline([each for each in predictions if each.kind == kind]) for kind in kinds
            },
        },
        "predictions": [_as_row(prediction) for prediction in predictions],
    }


def describe(predictions: Iterable[OpPrediction]) -> dict[str, dict[str, float | int | None]]:
    """Return median, 90th percentile and mean error of each quantity."""
    errors: dict[str, list[float]] = {name: [] for name in QUANTITIES}
    for prediction in predictions:
        for name, (said, read) in prediction.pairs().items():
            if read is not None:
                errors.setdefault(name, []).append(said / read - 1)
    return {name: describe_errors(found) for name, found in errors.items()}


def describe_baseline(predictions: Sequence[OpPrediction]) -> dict[str, dict[str, float | int | None]]:
    """Score one rate, one power and one clock for each class, each op against the others of its class."""
    figures: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for place, prediction in enumerate(predictions):
        for name, figure in _baseline_figures(prediction).items():
            figures[prediction.kind, name].append((place, figure))
    errors: dict[str, list[float]] = {name: [] for name in QUANTITIES}
    for (_, name), found in figures.items():
        for place, figure in found:
            others = [other for where, other in found if where != place]
            if others:
                ratio = statistics.median(others) / figure
                # A rate that is too high makes a time that is too short.
                errors[name].append((1 / ratio if name == "seconds" else ratio) - 1)
    return {name: describe_errors(found) for name, found in errors.items()}


def _baseline_figures(prediction: OpPrediction) -> dict[str, float]:
    """Return what one figure per class would stand for: calls a second where the host is waited for, else a rate."""
    flop, least_bytes = work(prediction.op.shape)
    amount = 1.0 if prediction.kind == "host-bound" else flop or least_bytes
    measured = prediction.op.measured
    found = {
        "seconds": amount / measured.seconds_s if measured.seconds_s else None,
        "watts": measured.power_w,
        "clock": measured.clock_hz,
    }
    return {name: figure for name, figure in found.items() if figure}


def _as_row(prediction: OpPrediction) -> dict[str, Any]:
    return {
        "name": prediction.op.name,
        "op": prediction.op.shape.label,
        "class": prediction.kind,
        **{
            name: {"predicted": said, "measured": read, "error_fraction": None if read is None else said / read - 1}
            for name, (said, read) in prediction.pairs().items()
        },
    }
