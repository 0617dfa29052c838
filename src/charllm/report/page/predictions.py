"""How far are the predictions of a measured study from what was measured?"""

from collections.abc import Sequence
from statistics import median

from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase, title
from charllm.report.page.sides import READ, write_change
from charllm.result.metrics import quantity, selected
from charllm.units import format_percent

METRICS = selected("step_time_s", "power_mean_w", "temperature_peak_c", "clock_mean_hz", "memory_allocated_bytes")
BAND_FRACTION = 0.1
Pair = tuple[StudiedCase, StudiedCase]


def predicted_pairs(cases: Sequence[StudiedCase]) -> list[Pair]:
    """Return each measured case with its prediction."""
    predicted = {case.number: case for case in cases if case.is_prediction}
    return [(case, predicted[case.number]) for case in cases if case.origin in READ and case.number in predicted]


def error_fractions(pairs: Sequence[Pair], metric: str) -> list[float]:
    """Return predicted over measured less one, of every pair that knows both."""
    values = [(measured.values.get(metric), predicted.values.get(metric)) for measured, predicted in pairs]
    return [guess / truth - 1 for truth, guess in values if truth and guess is not None]


def told_errors(cases: Sequence[StudiedCase]) -> str:
    """Say how far predictions of step time and power are off; empty where there are none."""
    pairs = predicted_pairs(cases)
    told = []
    for metric in METRICS[:2]:
        errors = error_fractions(pairs, metric)
        if errors:
            sizes = sorted(abs(error) for error in errors)
            told.append(
                f"{quantity(metric).label} off by a median of {format_percent(median(sizes))} "
                f"(at most {format_percent(sizes[-1])})"
            )
    return f"Simulated beside measured, {len(pairs)} cases: {' and '.join(told)}." if told else ""


def predictions(cases: Sequence[StudiedCase]) -> Figure:
    """Return predicted against measured step time on log axes, and the errors of every main metric behind it."""
    question = "How far are predictions from what was measured?"
    pairs = predicted_pairs(cases)
    known = [pair for pair in pairs if all(case.values.get("step_time_s") for case in pair)]
    if not known:
        return Figure(
            "predictions", "scatter", question, "", missing="No case has both a measured and a predicted step."
        )
    columns = {
        "case": Column("case", [title(measured) for measured, _ in known]),
        "measured": Column("measured step time", [pair[0].values["step_time_s"] for pair in known], "s", 3),
        "predicted": Column("predicted step time", [pair[1].values["step_time_s"] for pair in known], "s", 3),
    }
    for metric in METRICS:
        errors = [_error(pair, metric) for pair in known]
        if any(errors):
            columns[f"{metric}.error"] = Column(f"error of {quantity(metric).label}", errors)
    options = {
        "x": "measured",
        "y": "predicted",
        "x_scale": "log",
        "y_scale": "log",
        "name": "case",
        "lines": [{"label": "equal, with a band of 10 %", "slope": 1, "band_fraction": BAND_FRACTION}],
    }
    message = told_errors(cases) or "No metric is known both ways."
    return Figure("predictions", "scatter", question, message, columns, options, CONDITIONS)


CONDITIONS = "predictions hold for the settings of each case, at thermal steady state"


def _error(pair: Pair, metric: str) -> str | None:
    truth, guess = (case.values.get(metric) for case in pair)
    return write_change(metric, guess, truth) if truth and guess is not None else None
