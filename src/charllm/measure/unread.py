"""What was not read of a measured run: told, as a reason of what is not known, and in the intervals of its means."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from charllm.measure.gaps import MOST_UNREAD_FRACTION, NO_GAPS, NOTED_FRACTION, find_gaps, widen
from charllm.measure.host.window import HostWindow
from charllm.measure.measured import Measured
from charllm.measure.window import Window
from charllm.result.answers import tell_gaps
from charllm.units import format_percent

GAPS = "gaps"
"""The first word of the warning."""
READ_MEANS = (
    "power_mean_w", "energy_per_step_j", "tokens_per_j", "temperature_mean_c", "temperature_spread_node_k",
    "clock_mean_hz", "clock_std_fraction",
)  # fmt: skip
"""Metrics that are means over readings."""


def describe_gaps(measured: Measured, windows: Mapping[int, Window], start_s: float, end_s: float) -> dict[str, float]:
    """Return how much of the command, and of the part of it that metrics describe, was not read of a GPU at worst."""
    recording = measured.recording
    found = [find_gaps(recording.fast(gpu).times_s, measured.start_s, measured.end_s) for gpu in windows]
    worst = max(found, key=lambda gaps: gaps.unread_s, default=NO_GAPS)
    described_s = max((window.gaps.unread_s for window in windows.values()), default=0.0)
    return {
        "number": worst.number,
        "unread_s": worst.unread_s,
        "longest_s": worst.longest_s,
        "command_s": measured.end_s - measured.start_s,
        "unread_fraction": _share(worst.unread_s, measured.end_s - measured.start_s),
        "described_unread_fraction": _share(described_s, end_s - start_s),
    }


def _share(part_s: float, whole_s: float) -> float:
    return part_s / whole_s if whole_s > 0 else 0.0


def warn_of_gaps(gaps: Mapping[str, float]) -> list[str]:
    """Return a warning where gaps leave out so much that it should be known."""
    if max(gaps["unread_fraction"], gaps["described_unread_fraction"]) < NOTED_FRACTION:
        return []
    return [
        f"{GAPS}: {tell_gaps(gaps)}; {format_percent(gaps['described_unread_fraction'])} of the time that metrics "
        "describe was not read, which is in the intervals of means and energies"
    ]


def explain_gaps(gaps: Mapping[str, float]) -> dict[str, str]:
    """Return why means are not known of time that was mostly not read."""
    unread = gaps["described_unread_fraction"]
    why = f"no readings for {format_percent(unread)} of the time"
    return dict.fromkeys(READ_MEANS, why) if unread > MOST_UNREAD_FRACTION else {}


def with_gaps(
    intervals: Mapping[str, list[float | None]],
    metrics: Mapping[str, Any],
    windows: Mapping[int, Window],
    hosts: Sequence[HostWindow | None],
) -> dict[str, list[float | None]]:
    """Return the intervals of metrics with the time in them that was not read: by one sampler, of all GPUs at once."""
    bounds: dict[str, tuple[float, float]] = {}
    for name in ("power_mean_w", "temperature_mean_c", "clock_mean_hz"):
        values = [(window, getattr(window, name)) for window in windows.values()]
        bounds[name] = _mean_ends([window.bounds.get(name, (value, value)) for window, value in values if value])
    bounds["node_power_mean_w"] = _mean_ends(
        [
            host.system_power_bounds_w or (host.system_power_mean_w, host.system_power_mean_w)
            for host in hosts
            if host is not None and host.system_power_mean_w is not None
        ]
    )
    power_w, (low_w, high_w) = metrics.get("power_mean_w"), bounds["power_mean_w"]
    if power_w and low_w > 0:
        bounds["energy_per_step_j"] = _scaled(metrics.get("energy_per_step_j"), low_w / power_w, high_w / power_w)
        bounds["tokens_per_j"] = _scaled(metrics.get("tokens_per_j"), power_w / high_w, power_w / low_w)
    widened = {
        name: widen(metrics[name], intervals.get(name), ends)
        for name, ends in bounds.items()
        if ends[0] < ends[1] and metrics.get(name) is not None
    }
    return {**intervals, **widened}


def _mean_ends(ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    low, high = np.mean(ends, axis=0) if ends else (0.0, 0.0)
    return float(low), float(high)


def _scaled(value: float | None, low: float, high: float) -> tuple[float, float]:
    return (0.0, 0.0) if value is None else (value * low, value * high)
