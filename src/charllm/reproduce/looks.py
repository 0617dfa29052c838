"""What findings read of a run, as one row of a few dozen numbers."""

import hashlib
import json
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.errors import CharllmError
from charllm.evaluate.h200.rank_cases import RANK_S
from charllm.reproduce.paper import Request
from charllm.result.metrics import AXES, selected
from charllm.result.result import RunResult
from charllm.simulate.emulated import predict_emulated
from charllm.simulate.predict import simulate
from charllm.simulate.rank_timeline import generate_timeline
from charllm.spec.request import dotted_fields, merge

Row = Mapping[str, Any]
Rows = Mapping[str, Row]
"""Key of a request: its row."""
KEPT = selected(
    "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "tokens_per_j", "energy_per_step_j", "fits",
    "memory_peak_bytes", "power_mean_w", "power_peak_w", "power_peak_sensor_w", "cluster_power_swing_w",
    "cluster_power_peak_w", "temperature_mean_c", "temperature_peak_c", "temperature_spread_node_k",
    "temperature_swing_k", "margin_to_slowdown_k", "clock_mean_hz", "breakdown_s", "clock_loss_fraction",
    "link_utilization_fraction", "message_bytes_median",
)  # fmt: skip
"""Metrics of a row; those with keys have all of them."""
RANK = "rank"
"""Key of a request that asks for one rank alone."""
LINK_COLUMNS = ("axis", "calls", "seconds", "achieved_bytes_per_s", "large_message_bytes_per_s", "peak_bytes_per_s")


def key_of(request: Request) -> str:
    """Return the name under which the row of a request is kept: equal requests have equal keys."""
    return hashlib.sha256(json.dumps(merge({}, request), sort_keys=True).encode()).hexdigest()[:20]


def look(request: Request) -> Row:
    """Simulate a run, whether it fits or not, and return its row; one that cannot be is a row with the reason."""
    run = {name: value for name, value in request.items() if name != RANK}
    try:
        if RANK in request:
            return rank_row(run, request[RANK])
        return row_of(simulate(resolve_run(run), ignore_memory=True))
    except CharllmError as error:
        return {"refused": str(error)}


def of_rank(request: Request, rank: int) -> Request:
    """Return the request of one rank of a run, as a single H200 would emulate it."""
    return {**request, RANK: rank}


def rank_row(request: Request, rank: int) -> Row:
    """Predict what one H200 alone reads while it emulates a rank of a run."""
    timeline = generate_timeline(resolve_run(request), rank)
    return predict_emulated(timeline, resolve_cluster("h200x1"), RANK_S).metrics


def row_of(result: RunResult) -> Row:
    """Return the row of a result."""
    flat = dotted_fields(result.metrics)
    kept = {name: value for name, value in flat.items() if name.partition(".")[0] in KEPT}
    derived = {
        "clock_loss": result.metrics.clock_loss,
        "exposed_s": sum(flat[f"breakdown_s.{axis}_exposed"] or 0.0 for axis in AXES),
        **_places(result),
        **_small_messages(result),
        **_working_clock(result),
    }
    return {**{name: value for name, value in kept.items() if value is not None}, **derived}


def _places(result: RunResult) -> dict[str, float]:
    """Return mean temperatures of slots in front and behind, and the largest gap inside a package."""
    node = result.spec["cluster"]["node"]
    upstream, size = node.get("upstream") or [], node["gpu"].get("package_gpus", 1)
    groups: dict[str, list[float]] = {"front_c": [], "rear_c": []}
    packages: dict[tuple[int, int], list[float]] = {}
    for row in result.gpus:
        degrees_c, slot = row["temperature_mean_c"], row["slot"]
        if upstream:
            groups["rear_c" if upstream[slot] >= 0 else "front_c"].append(degrees_c)
        packages.setdefault((row["node"], slot // size), []).append(degrees_c)
    found = {name: fmean(values) for name, values in groups.items() if values}
    gaps = [max(mates) - min(mates) for mates in packages.values() if len(mates) > 1]
    return {**found, **({"package_gap_k": max(gaps)} if gaps else {})}


def _working_clock(result: RunResult) -> dict[str, float]:
    """Return the share of the clock that is lost while GPUs work hardest: during GEMMs.

    Equation: 1 - sum(W f) / sum(W) / f_max over boxes of 25 ms, W the power above that of an idle GPU, of which GEMMs
    draw most; a mean over time counts waiting, where the clock recovers, as less throttling.
    """
    table = result.tables["signals"]() if "signals" in result.tables else {}
    if not table:
        return {}
    gpu = result.spec["cluster"]["node"]["gpu"]
    power_w, clock_hz = np.array(table["power_w"]), np.array(table["clock_hz"])
    above_w = np.maximum(power_w - gpu["power"]["idle_w"], 0.0)
    asked_hz = result.spec["conditions"].get("clock_cap_hz") or gpu["clock_max_hz"]
    return {"gemm_clock_loss": 1 - float(np.average(clock_hz, weights=above_w)) / asked_hz} if above_w.any() else {}


def _small_messages(result: RunResult) -> dict[str, float]:
    """Return, per axis, seconds under way and the share of them that larger messages would save; and the links' peak.

    Equation: a message of b bytes takes b / achieved; one of the same bytes as part of a large one b / large.
    """
    table = result.tables["links"]() if "links" in result.tables else {}
    found: dict[str, float] = {}
    for axis in AXES:
        rows = [
            (calls * seconds, achieved / large, achieved / peak)
            for name, calls, seconds, achieved, large, peak in zip(
                *(table.get(column, ()) for column in LINK_COLUMNS), strict=True
            )
            if name == axis and achieved and large and peak
        ]
        whole_s = sum(seconds for seconds, _, _ in rows)
        if whole_s:
            found[f"link_s.{axis}"] = whole_s
            found[f"small_message_loss.{axis}"] = 1 - sum(s * reached for s, reached, _ in rows) / whole_s
            found[f"peak_use.{axis}"] = sum(s * used for s, _, used in rows) / whole_s
    return found
