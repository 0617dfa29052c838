"""An attribution as a plain table, in seconds and joules of a step: what reports draw and `--json` prints."""

from typing import Any

from charllm.analysis.attribution.run import GpuAttribution
from charllm.trace.attribution import Attribution


def as_table(found: GpuAttribution) -> dict[str, Any]:
    """Return what one GPU spent its time, energy and clock on; without marked steps, in all that was observed."""
    scale = found.step_time_s / found.observed_s if found.step_time_s and found.observed_s else 1.0
    classes = found.classes
    return {
        "rank": found.rank,
        "step_time_s": found.step_time_s,
        "traced_steps": found.traced_steps,
        "like_steps": found.like_steps,
        "observed_s": found.observed_s,
        "bins": classes.bins,
        "energy_j": classes.total * scale,
        "power_w": classes.total / found.observed_s if found.observed_s else None,
        "residual_fraction": classes.residual_fraction,
        "held_out_fraction": classes.held_out_fraction,
        "clock_error_s": found.clock_error_s,
        "counter_phase_s": found.counter_phase_s,
        "unknown_fraction": found.unknown_fraction,
        "full_clock_hz": found.full_clock_hz,
        "refused": classes.refused or None,
        "classes": [{**row, **_lost(found, row["name"])} for row in _rows(classes, scale)],
        "phases": _rows(found.phases, scale),
        "limited_fraction": {
            cause: {name: share.rate for name, share in one.shares.items()} for cause, one in found.limited.items()
        },
        "kernels": found.kernels,
    }


def _rows(found: Attribution, scale: float) -> list[dict[str, Any]]:
    """Return a row for each class, largest in energy first; watts are those of the group that it is told apart in."""
    rows = [
        {
            "name": name,
            "seconds_s": share.seconds_s * scale,
            "energy_j": share.amount * scale,
            "power_w": share.rate,
            "power_low_w": share.low,
            "power_high_w": share.high,
            "told_with": [other for other in share.group if other != name],
            "reason": share.reason or None,
        }
        for name, share in found.shares.items()
    ]
    return sorted(rows, key=lambda row: -row["energy_j"])


def _lost(found: GpuAttribution, name: str) -> dict[str, Any]:
    """Return the mean clock of a class, and the fraction of the full clock that it lost."""
    share = found.clock.shares.get(name)
    if share is None:
        return {"clock_hz": None, "clock_lost_fraction": None}
    return {"clock_hz": share.rate, "clock_lost_fraction": max(0.0, 1 - share.rate / found.full_clock_hz)}
