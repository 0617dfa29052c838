"""Where the joules and the lost clock of a traced, measured run went, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.tables import render_table, wrap
from charllm.report.trace import shorten_kernel
from charllm.result.metrics import quantity
from charllm.units import MEGA, MICRO, MILLI, format_percent

SHOWN_KERNELS = 10
SMALLEST_FRACTION = 0.002
"""Classes with a smaller share of the energy are not shown."""


def render_attribution(found: Mapping[str, Any]) -> str:
    """Return the tables of one GPU: classes, phases, kernels, and how far to trust them."""
    if found["refused"]:
        return "\n".join(wrap(f"Joules by class, rank {found['rank']}: not determined: {found['refused']}."))
    of = "a step" if found["step_time_s"] else "the trace"
    parts = [
        _shares(f"Energy of {of} by class, rank {found['rank']}", found["classes"], found["energy_j"]),
        _shares(f"Energy of {of} by phase", found["phases"], found["energy_j"]),
        _kernels(of, found["kernels"]),
        "\n".join(wrap(_trust(found))),
    ]
    return "\n\n".join(parts)


def _shares(title: str, rows: Sequence[Mapping[str, Any]], total_j: float) -> str:
    shown = [row for row in rows if row["energy_j"] >= SMALLEST_FRACTION * total_j]
    groups = _letters(shown)
    columns = ["class", "ms", "J", "share", "W", "95 %", quantity("clock_loss").label, "separated"]
    cells = [
        [
            row["name"],
            f"{row['seconds_s'] / MILLI:.2f}",
            f"{row['energy_j']:.2f}",
            format_percent(row["energy_j"] / total_j),
            f"{row['power_w']:.0f}",
            f"{row['power_low_w']:.0f}-{row['power_high_w']:.0f}",
            "" if row.get("clock_lost_fraction") is None else format_percent(row["clock_lost_fraction"]),
            groups[row["name"]],
        ]
        for row in shown
    ]
    return render_table(title, columns, cells)


def _letters(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name the groups that have one power together: yes for a class of its own, else a letter for each group."""
    found: dict[frozenset[str], str] = {}
    said = {}
    for row in rows:
        if not row["told_with"]:
            said[row["name"]] = "yes"
            continue
        group = frozenset((row["name"], *row["told_with"]))
        letter = found.setdefault(group, chr(ord("a") + len(found)))
        said[row["name"]] = f"group {letter}"
    return said


def _kernels(of: str, rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        [
            shorten_kernel(row["name"]),
            row["class"],
            f"{row['calls']:.0f}",
            f"{row['seconds'] / MILLI:.2f}",
            "" if row["energy_j"] is None else f"{row['energy_j']:.2f}",
            "" if row["power_w"] is None else f"{row['power_w']:.0f}",
            "" if row["clock_hz"] is None else f"{row['clock_hz'] / MEGA:.0f}",
        ]
        for row in rows[:SHOWN_KERNELS]
    ]
    columns = ["kernel", "class", "calls", "ms", "J", "W", "MHz"]
    return render_table(f"Largest kernels of {of}, with the power and clock of their class", columns, cells)


def _trust(found: Mapping[str, Any]) -> str:
    steps = (
        f"{found['traced_steps']} traced steps and {found['like_steps']} like them"
        if found["step_time_s"]
        else "the traced time"
    )
    limits = {cause: max(shares.values()) for cause, shares in found["limited_fraction"].items() if shares}
    held = ", ".join(f"{cause} for up to {format_percent(share)} of the time" for cause, share in limits.items())
    return (
        f"From {found['bins']} steps of the energy counter in {steps}. Held-out energy of 0.1 s is "
        f"predicted within {format_percent(found['held_out_fraction'])}; the residual of the fit is "
        f"{format_percent(found['residual_fraction'])}. Classes of a group rise and fall together in the readings: "
        f"their power is that of the group. Trace and readings agree in time within "
        f"{found['clock_error_s'] / MICRO:.0f} us. Kernels of unknown class: "
        f"{format_percent(found['unknown_fraction'])} of busy time."
        + (f" GPUs were throttled by {held}." if held else "")
    )
