"""The trial of a cluster for people: pass or fail of every part, and what was predicted beside what was measured."""

from collections.abc import Mapping
from typing import Any

from charllm.report.tables import render_table


def render_smoke(summary: Mapping[str, Any]) -> str:
    """Render the summary."""
    rows = [(step["state"], step["name"], f"{step['seconds_s']:.0f} s", step["words"]) for step in summary["steps"]]
    parts = [render_table("Trial", ("result", "part", "took", "words"), rows)]
    if summary["compared"]:
        figures = [
            (
                one["metric"],
                _figure(one["predicted"]),
                _figure(one["measured"]),
                _ratio(one["predicted"], one["measured"]),
            )
            for one in summary["compared"]
        ]
        parts.append(render_table("Predicted and measured", ("metric", "predicted", "measured", "ratio"), figures))
    verdict = "all parts passed" if summary["passed"] else "some parts failed"
    return "\n\n".join([*parts, f"{verdict}; everything is stored in {summary['folder']}"])


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _ratio(predicted: float | None, measured: float | None) -> str:
    return f"{predicted / measured:.2f}" if predicted and measured else "-"
