"""A measured run as an observation: from its recordings, a folder a node, or from the rows of its result alone."""

from pathlib import Path
from typing import Any

import numpy as np

from charllm.analysis.doctor.observation import GPU_QUANTITIES, NODE_QUANTITIES, Observation
from charllm.arrays import Floats
from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError
from charllm.gpu.limits import LIMITS
from charllm.gpu.sensor import without_resets
from charllm.layout.grid import Grid
from charllm.layout.placement import place_ranks
from charllm.measure.finish import read_measured
from charllm.measure.host.record import HostRecording
from charllm.measure.measured import Measured, choose_window
from charllm.measure.parts import is_recording
from charllm.measure.recording import Recording
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec

MOST_WINDOWS, LEAST_WINDOW_S = 30, 3.0
"""Windows that a run is cut into; slow quantities are read once a second."""
READ_AS = {
    "power_w": ("power_average_w", "power_instant_w"),
    "temperature_c": ("temperature_c",),
    "clock_hz": ("clock_hz",),
    "power_limit_w": ("power_limit_w",),
    "sm_active_fraction": ("sm_active_fraction",),
    "utilization_fraction": ("utilization_fraction",),
}
"""Quantity: the readings that tell it, the best first."""
ROW_NAMES = {"power_w": "power_mean_w", "temperature_c": "temperature_mean_c", "clock_hz": "clock_mean_hz"}
WAIT_TICK_BYTES = 8


def observe_measured(result: RunResult, folder: Path | None) -> Observation:
    """Return what was recorded of a run; the rows of its result where its recordings are not there."""
    measured = read_measured(folder) if folder is not None and is_recording(folder) else None
    return _observe_rows(result) if measured is None or not measured.recording.sampled else _observe(result, measured)


def known_run(result: RunResult) -> RunSpec | None:
    """Return the run that a result's spec describes; None where it is only a command, or another number of GPUs."""
    try:
        return resolve_run(result.spec)
    except CharllmError:
        return None


def _observe(result: RunResult, measured: Measured) -> Observation:
    """Cut the window that the run's figures describe into shorter ones, the same on every node."""
    chosen, recording = choose_window(measured), measured.recording
    windows = int(np.clip((chosen.end_s - chosen.start_s) / LEAST_WINDOW_S, 1, MOST_WINDOWS))
    edges = np.linspace(chosen.start_s, chosen.end_s, windows + 1)
    rows = {row.get("uuid"): row for row in result.gpus}
    recorded = [node for node, gpus in enumerate(measured.by_node()) if gpus]
    gpus: dict[str, list[Floats]] = {name: [] for name in GPU_QUANTITIES}
    places: list[tuple[int, int, int]] = []
    for gpu in recording.sampled:
        identity = recording.facts.gpus[gpu]
        rank = rows.get(identity.uuid, {}).get("rank")
        node = recorded.index(measured.place(gpu).node)
        places.append((node, identity.number, len(places) if rank is None else int(rank)))
        for name, values in _read_gpu(recording, gpu, edges).items():
            gpus[name].append(values)
    columns = {name: np.array(values) for name, values in gpus.items()}
    known = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    hosts = [_read_host(measured.hosts[node], edges) for node in recorded]
    nodes = {name: np.array([host.get(name, np.full(windows, np.nan)) for host in hosts]) for name in NODE_QUANTITIES}
    names = tuple(measured.nodes[node] if len(recorded) > 1 else "0" for node in recorded)
    return _complete(
        result, places, known, {name: found for name, found in nodes.items() if np.isfinite(found).any()}, names
    )


def _read_gpu(recording: Recording, gpu: int, edges: Floats) -> dict[str, Floats]:
    """Return the means of one GPU's readings in each window."""
    found = {name: np.full(len(edges) - 1, np.nan) for name in GPU_QUANTITIES}
    for name, readings in READ_AS.items():
        for reading in readings:
            times, values = recording.known(gpu, reading)
            if len(times) and not np.isfinite(found[name]).any():
                found[name] = _means(times, values, edges)
    times, limits = recording.known(gpu, "limits")
    if len(times):
        bits = limits.astype(np.int64)
        for cause in ("power", "thermal", "brake"):
            found[f"{cause}_fraction"] = _means(times, (bits & LIMITS[cause] > 0).astype(np.float64), edges)
    return found


def _means(times_s: Floats, values: Floats, edges: Floats) -> Floats:
    place = np.searchsorted(edges, times_s, side="right") - 1
    inside = (place >= 0) & (place < len(edges) - 1)
    count = np.bincount(place[inside], minlength=len(edges) - 1)
    total = np.bincount(place[inside], weights=values[inside], minlength=len(edges) - 1)
    return np.where(count > 0, total / np.maximum(1, count), np.nan)


def _read_host(host: HostRecording | None, edges: Floats) -> dict[str, Floats]:
    """Return a node's host readings in each window; empty where none were taken.

    Counters of several ports are added up. A port's wait counter grows by one for each 8 bytes it could have sent
    (ibdiagnet manual 2.13, congestion assessment; of adapters this is assumed).
    """
    if host is None:
        return {}
    times_s, rate, seconds = host.times_s, _port_rate(host), float(edges[1] - edges[0])
    found = {
        name: _known_means(np.tile(times_s, len(values)), np.concatenate([*values.values()]), edges)
        for name, column in (("host_load_fraction", "cpu_load_fraction"), ("inlet_c", "inlet_c"))
        if (values := host.of(column))
    }
    for name, column, unit in (
        ("nic_sent_bytes_per_s", "nic_sent_bytes", 1.0),
        ("nic_retries_per_s", "nic_retries", 1.0),
        ("nic_wait_fraction", "nic_wait_ticks", WAIT_TICK_BYTES / rate if rate else np.nan),
    ):
        if host.of(column):
            grown = np.sum([_growth(times_s, counts, edges) for counts in host.of(column).values()], axis=0)
            found[name] = np.asarray(unit * grown / seconds)
    if rate:
        found["nic_rate_bytes_per_s"] = np.full(len(edges) - 1, rate)
    return found


def _known_means(times_s: Floats, values: Floats, edges: Floats) -> Floats:
    known = np.isfinite(values)
    return _means(times_s[known], values[known], edges)


def _growth(times_s: Floats, counts: Floats, edges: Floats) -> Floats:
    """Return how much a counter grew in each window; NaN where it was not read."""
    known = np.isfinite(counts) & np.isfinite(times_s)
    if known.sum() < 2:
        return np.full(len(edges) - 1, np.nan)
    return np.diff(np.interp(edges, times_s[known], without_resets(counts[known])))


def _port_rate(host: HostRecording) -> float | None:
    """Return the rate that the active ports of a node have agreed on, all together; None where one is not known."""
    ports = [port for port in host.facts.get("rdma", {}).values() if port.get("state") == "ACTIVE"]
    rates = [port.get("rate_bytes_per_s") for port in ports]
    return None if not rates or None in rates else float(sum(rates))


def _observe_rows(result: RunResult) -> Observation:
    """Return the means that a result holds of each GPU: one window."""
    rows = [row for row in result.gpus if row.get("clock_mean_hz") is not None or row.get("power_mean_w") is not None]
    numbers = {name: place for place, name in enumerate(dict.fromkeys(row.get("node") or 0 for row in rows))}
    places = [
        (
            numbers[row.get("node") or 0],
            place if row.get("slot") is None else int(row["slot"]),
            int(row.get("rank") or 0),
        )
        for place, row in enumerate(rows)
    ]
    columns = {name: [_value(row.get(column)) for row in rows] for name, column in ROW_NAMES.items()}
    for cause in ("power", "thermal", "brake"):
        columns[f"{cause}_fraction"] = [_value((row.get("throttled_time_fraction") or {}).get(cause)) for row in rows]
    known = {name: np.array(values)[:, None] for name, values in columns.items() if np.isfinite(values).any()}
    return _complete(result, places, known, {}, tuple(str(name) for name in numbers) or ("0",))


def _value(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _complete(
    result: RunResult, places: list[tuple[int, int, int]], gpus: dict[str, Floats], nodes: dict[str, Floats],
    names: tuple[str, ...],
) -> Observation:  # fmt: skip
    """Add what is known of the layout: the stage of each rank, where the run's spec is known and has as many ranks."""
    node, slot, rank = np.array(places, dtype=np.int64).reshape(-1, 3).T
    run = known_run(result)
    fits = run is not None and run.cluster.gpus == len(rank) and run.cluster.nodes == len(names)
    stages = {row.get("rank"): row.get("stage") for row in result.gpus}
    stage = np.array([-1 if (found := stages.get(int(one))) is None else found for one in rank], dtype=np.int64)
    if fits and run is not None:
        # Rows follow the numbers of the cluster's GPUs, as what a healthy run would show does.
        order = np.argsort(place_ranks(run)[rank])
        stage = Grid(run.parallelism).stage(rank)
        node, slot, rank, stage = node[order], slot[order], rank[order], stage[order]
        gpus = {name: values[order] for name, values in gpus.items()}
    return Observation(
        node=node,
        slot=slot,
        rank=rank,
        stage=stage if len(stage) and stage.min() >= 0 else None,
        gpus=gpus,
        nodes=nodes,
        node_names=names,
        step_time_s=result.metrics["step_time_s"],
        run=run if fits else None,
    )
