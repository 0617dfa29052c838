"""Runs side by side: every metric of each, with ratios, intervals and errors."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase
from charllm.report.page.quantity import is_number, write_list, write_number
from charllm.result.metrics import DECLARED, quantity, selected
from charllm.units import format_change

HEADLINES = selected(
    "step_time_s", "tokens_per_s_per_gpu", "mfu", "tokens_per_j", "power_mean_w", "power_peak_sensor_w",
    "temperature_mean_c", "temperature_peak_c", "clock_mean_hz", "memory_peak_bytes",
    "memory_allocated_bytes", "cluster_power_peak_w",
)  # fmt: skip
"""Metrics that are drawn; the table beside has all."""
READ = ("measured", "emulated")
"""Origins whose numbers were read on a GPU: predictions are held against them."""
THOUSANDS = 1000


class Compared(NamedTuple):
    """One metric of one run beside the same of the first."""

    metric: str
    run: StudiedCase
    value: float
    ratio: float | None
    """Over the first run that knows it."""
    error_fraction: float | None
    """Of a predicted value, against the measured one; None where there is no such pair."""


def compare_metric(runs: Sequence[StudiedCase], metric: str) -> list[Compared]:
    """Return a metric of every run that knows it."""
    known = [(run, float(run.values[metric])) for run in runs if is_number(run.values.get(metric))]
    measured = [value for run, value in known if run.origin in READ]
    found = []
    for run, value in known:
        first = known[0][1]
        told = measured[0] if run.origin not in READ and measured else None
        found.append(
            Compared(
                metric,
                run,
                value,
                value / first if first and run is not known[0][0] else None,
                value / told - 1 if told else None,
            )
        )
    return found


def sides(runs: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return the main metrics of all runs over those of the first; simulated and measured ones differ in shape."""
    question = "How do the runs differ?"
    rows = [row for metric in HEADLINES for row in compare_metric(runs, metric)]
    if not rows:
        return Figure("sides", "sides", question, "", missing="No metric is known of any of these runs.")
    bounds = [row.run.values.get(f"{row.metric}.interval") or (None, None) for row in rows]
    columns = {
        "metric": Column("metric", [quantity(row.metric).brief for row in rows]),
        "run": Column("run", [row.run.label for row in rows]),
        "origin": Column("origin", [row.run.origin for row in rows]),
        "value": Column("value", [quantity(row.metric).shown(row.value) for row in rows]),
        "low": Column("low", [quantity(row.metric).shown(low) for row, (low, _) in zip(rows, bounds, strict=True)]),
        "high": Column("high", [quantity(row.metric).shown(high) for row, (_, high) in zip(rows, bounds, strict=True)]),
        "unit": Column("unit", [quantity(row.metric).unit for row in rows]),
        "ratio": Column("over the first run", [row.ratio for row in rows]),
        "error": Column("error of the prediction", [_error(row) for row in rows]),
    }
    options = {
        "metric": "metric",
        "run": "run",
        "origin": "origin",
        "value": "value",
        "low": "low",
        "high": "high",
        "unit": "unit",
        "error": "error",
    }
    return Figure("sides", "sides", question, _message(runs, rows), columns, options, conditions)


def every_metric(runs: Sequence[StudiedCase]) -> Figure:
    """Return every metric that a run knows, a column for each run and its ratio to the first."""
    names = dict.fromkeys(name for run in runs for name, value in run.values.items() if is_number(value))
    known = dict.fromkeys((*(name for name in DECLARED if name in names), *names))
    kept = [name for name in known if any(run.values.get(name) for run in runs) and not name.endswith(".interval")]
    columns = {
        "metric": Column("metric", [quantity(name).label for name in kept]),
        "unit": Column("unit", [quantity(name).unit for name in kept]),
    }
    for at, run in enumerate(runs):
        columns[f"run{at}"] = Column(run.label, [quantity(name).shown(run.values.get(name)) for name in kept])
    for at, run in enumerate(runs[1:], start=1):
        ratios = [_ratio(name, run, runs[0]) for name in kept]
        columns[f"ratio{at}"] = Column(f"{run.label} / {runs[0].label}", ratios)
    message = f"{len(kept)} metrics; those that are 0 or unknown in all runs are left out."
    return Figure("metrics", "table", "Every metric", message, columns, {"search": True})


def settings_table(runs: Sequence[StudiedCase], apart: Mapping[str, Sequence[Any]]) -> Figure:
    """Return the settings in which the runs differ."""
    question = "Which settings differ?"
    if not apart:
        message = "All settings are equal."
        return Figure("settings", "table", question, message, missing="All settings of these runs are equal.")
    columns = {"setting": Column("setting", list(apart))}
    for at, run in enumerate(runs):
        columns[f"run{at}"] = Column(run.label, [write_setting(values[at]) for values in apart.values()])
    names = [name.rpartition(".")[2].replace("_", " ") for name in apart]
    message = f"{len(apart)} settings differ: {write_list(names, 6)}."
    return Figure("settings", "table", question, message, columns, {"search": True})


def write_setting(value: Any) -> str:
    """Return a setting as text."""
    if value is None:
        return "not set"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,.0f}" if isinstance(value, float) and value.is_integer() and value >= THOUSANDS else str(value)


def _message(runs: Sequence[StudiedCase], rows: Sequence[Compared]) -> str:
    """Name the metrics that differ most between the runs, or the errors of a prediction."""
    errors = [row for row in rows if row.error_fraction is not None]
    if errors:
        told = [
            f"{quantity(row.metric).label} {_error(row)}"
            for row in sorted(errors, key=lambda row: -abs(row.error_fraction or 0.0))
        ]
        return f"Each metric is drawn over that of {runs[0].label}. Errors against measured: {write_list(told, 8)}."
    moved = sorted((row for row in rows if row.ratio), key=lambda row: -abs((row.ratio or 1.0) - 1))
    told = [
        f"{quantity(row.metric).label} of {row.run.label} {_change(row)}"
        for row in moved[:4]
        if abs((row.ratio or 1.0) - 1) > 0.001
    ]
    changes = f" Largest changes: {write_list(told)}." if told else " No main metric differs by more than 0.1 %."
    return f"Each metric is drawn over that of {runs[0].label}.{changes}"


def write_change(metric: str, value: float, before: float) -> str:
    """Write how far a value differs from another: '+12.0 %', '3.4 times', '-1.2 K', '+3.1 points'."""
    shown = quantity(metric)
    if shown.unit == "C":
        return f"{value - before:+.1f} K"
    if shown.unit == "%" or not before:
        return f"{(value - before) / shown.scale:+.1f} {'points' if shown.unit == '%' else shown.unit}"
    ratio = value / before
    return format_change(ratio - 1) if ratio < 2 else f"{write_number(ratio)} times"


def _change(row: Compared) -> str:
    return write_change(row.metric, row.value, row.value / (row.ratio or 1.0))


def _error(row: Compared) -> str | None:
    """Write the error of a prediction."""
    if row.error_fraction is None:
        return None
    return write_change(row.metric, row.value, row.value / (1 + row.error_fraction))


def _ratio(name: str, run: StudiedCase, first: StudiedCase) -> float | None:
    """Return a metric over that of the first run; None where it says nothing, as of a rank."""
    value, other = run.values.get(name), first.values.get(name)
    return value / other if quantity(name).is_number and is_number(value) and is_number(other) and other else None
