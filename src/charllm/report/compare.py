"""A comparison of two runs as text."""

from typing import Any

from charllm.report.tables import render_table, wrap_all
from charllm.result.compare import Compared
from charllm.result.differences import LEVEL
from charllm.units import format_figure, format_percent

INTERVAL = f"difference ({format_percent(LEVEL, 0)} interval)"


def render_comparison(compared: list[Compared], settings: dict[str, tuple[Any, Any]]) -> str:
    """Return the settings that differ, then every metric with its ratio."""
    asked = [[name, _setting(first), _setting(second)] for name, (first, second) in settings.items()]
    known = [entry.difference for entry in compared if entry.difference]
    has_intervals = bool(known)
    metrics = [
        [
            entry.metric,
            format_figure(entry.metric.split(".")[0], entry.first),
            format_figure(entry.metric.split(".")[0], entry.second),
            "-" if entry.ratio is None else f"{entry.ratio:.3f}",
            *([entry.difference.words if entry.difference else ""] if has_intervals else []),
        ]
        for entry in compared
        if entry.first or entry.second
    ]
    parts = (
        [render_table("Settings that differ", ["setting", "first", "second"], asked)]
        if asked
        else ["All settings are equal"]
    )
    parts.append(
        render_table(
            "Metrics (those that are 0 or unknown in both are left out)",
            ["metric", "first", "second", "second/first", *([INTERVAL] if has_intervals else [])],
            metrics,
            drop=("second/first",),
            where="--csv",
        )
    )
    if known:
        parts.append("\n".join(wrap_all([f"{INTERVAL.capitalize()}: {known[0].basis}."])))
    return "\n\n".join(parts)


def _setting(value: Any) -> str:
    return "not set" if value is None else str(value)
