"""A comparison of two runs as text."""

from typing import Any

from charllm.report.tables import render_table
from charllm.result.compare import Difference


def render_comparison(differences: list[Difference], settings: dict[str, tuple[Any, Any]]) -> str:
    """Return the settings that differ, then every metric with its ratio."""
    asked = [[name, str(first), str(second)] for name, (first, second) in settings.items()]
    metrics = [
        [
            entry.metric,
            _number(entry.first),
            _number(entry.second),
            "-" if entry.ratio is None else f"{entry.ratio:.3f}",
        ]
        for entry in differences
    ]
    parts = (
        [render_table("Settings that differ", ["setting", "first", "second"], asked)]
        if asked
        else ["All settings are equal"]
    )
    parts.append(
        render_table("Metrics (unit: end of the name)", ["metric", "first", "second", "second/first"], metrics)
    )
    return "\n\n".join(parts)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
