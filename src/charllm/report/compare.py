"""A comparison of two runs as text."""

from typing import Any

from charllm.report.tables import render_table, wrap_all
from charllm.result.compare import Compared
from charllm.result.differences import LEVEL
from charllm.units import format_figure, format_percent

INTERVAL = f"difference ({format_percent(LEVEL, 0)} interval)"


def render_comparison(compared: list[Compared], settings: dict[str, tuple[Any, Any]]) -> str:
    """Return the settings that differ, then every metric with its difference, or its ratio where none is known."""
    asked = [[name, _setting(first), _setting(second)] for name, (first, second) in settings.items()]
    known = [entry.difference for entry in compared if entry.difference]
    metrics = [
        [
            entry.metric,
            format_figure(entry.metric.split(".")[0], entry.first),
            format_figure(entry.metric.split(".")[0], entry.second),
            entry.difference.words if entry.difference else _ratio(entry.ratio),
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
            ["metric", "first", "second", f"{INTERVAL}, else second/first" if known else "second/first"],
            metrics,
            drop=(),
        )
    )
    if known:
        parts.append("\n".join(wrap_all([f"{INTERVAL.capitalize()}: {known[0].basis}."])))
    return "\n\n".join(parts)


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def _setting(value: Any) -> str:
    return "not set" if value is None else str(value)
