"""A comparison of two runs as text."""

from typing import Any

from charllm.report.tables import render_table
from charllm.result.compare import Difference
from charllm.units import format_figure


def render_comparison(differences: list[Difference], settings: dict[str, tuple[Any, Any]]) -> str:
    """Return the settings that differ, then every metric with its ratio."""
    asked = [[name, _setting(first), _setting(second)] for name, (first, second) in settings.items()]
    metrics = [
        [
            entry.metric,
            format_figure(entry.metric.split(".")[0], entry.first),
            format_figure(entry.metric.split(".")[0], entry.second),
            "-" if entry.ratio is None else f"{entry.ratio:.3f}",
        ]
        for entry in differences
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
            ["metric", "first", "second", "second/first"],
            metrics,
        )
    )
    return "\n\n".join(parts)


def _setting(value: Any) -> str:
    return "not set" if value is None else str(value)
