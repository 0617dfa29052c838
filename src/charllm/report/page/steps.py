"""How steady are the steps? The time of every marked step of a measured run."""

import numpy as np

from charllm.report.figure import Column, Figure
from charllm.report.page.view import RunView
from charllm.result.metrics import METRICS
from charllm.units import MILLI, SHORT_S, format_seconds

NAME, KIND, QUESTION = "steps", "bands", "How steady are the steps?"
LABEL = METRICS["step_time_s"].label
FEWEST, MOST = 3, 600
"""Marked steps from which a figure tells something, and from which several share a point."""
WARM_UP = 3.0
"""A first step that takes so many times the median warms up."""


def steps_figure(run: RunView) -> Figure | None:
    """Return the time of each step, or of the shortest, mean and longest of several; None where none were marked."""
    if len(run.steps_s) < FEWEST:
        return None
    begun_s, ended_s = np.array(run.steps_s).T
    took_s = ended_s - begun_s
    median_s = float(np.median(took_s))
    # A step that compiles and warms up would leave no room for the others.
    first = int(took_s[0] > WARM_UP * median_s)
    bins = np.array_split(np.arange(first, len(begun_s)), min(MOST, len(begun_s) - first))
    unit, scale = ("ms", MILLI) if median_s < SHORT_S else ("s", 1.0)
    shown = took_s / scale
    columns = {
        "t": Column("time since the first reading", [float(begun_s[own[0]]) for own in bins], "s", 5),
        "low": Column("shortest step", [float(shown[own].min()) for own in bins], unit, 4),
        "mean": Column(LABEL, [float(shown[own].mean()) for own in bins], unit, 4),
        "high": Column("longest step", [float(shown[own].max()) for own in bins], unit, 4),
    }
    panel = {
        "label": LABEL,
        "unit": unit,
        "low": "low",
        "mean": "mean",
        "high": "high",
        "lines": [{"label": f"median {format_seconds(median_s)}", "value": median_s / scale}],
        "from_zero": False,
    }
    longest, (low_s, high_s) = int(np.argmax(took_s)), np.quantile(took_s, (0.1, 0.9))
    message = (
        f"{len(took_s):,} marked steps: median {format_seconds(median_s)}; four in five last between "
        f"{format_seconds(float(low_s))} and {format_seconds(float(high_s))}; the longest is step {longest} with "
        f"{format_seconds(float(took_s[longest]))}."
    )
    message += " The first step, which warms up, is not drawn." if first else ""
    return Figure(NAME, KIND, QUESTION, message, columns, {"x": "t", "panels": [panel]}, run.conditions)
