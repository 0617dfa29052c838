"""How wrong may it be? Published runs, predicted without them against measured, and the intervals of this run."""

from collections.abc import Sequence
from statistics import median

from charllm.report.figure import Column, Figure
from charllm.report.page.view import RunView, missing
from charllm.result.columns import Row, rows_of
from charllm.result.metrics import METRICS
from charllm.result.uncertainty import LEVEL, intervals, stored_class, tell_footing
from charllm.spec.run import CLASSES
from charllm.units import format_change, format_percent

KIND = "scatter"
TRUST = ("trust", "How accurate is the step time?")
CERTAINTY = ("intervals", "How accurate is each figure?")
BAND_FRACTION = 0.1


def trust_figure(run: RunView) -> Figure | None:
    """Return predicted against measured step times of published runs, and where a simulated run stands among them."""
    if run.result.origin != "simulated":
        return None
    name, question = TRUST
    rows = rows_of(run.background.published) if run.background else []
    if not rows:
        return missing(name, KIND, question, run.why_not_simulated("published"))
    columns: dict[str, list[object]] = {
        "name": [f"{row['model']} on {row['gpu']}" for row in rows],
        "measured": [row["measured_s"] for row in rows],
        "predicted": [row["predicted_s"] for row in rows],
        "kind": [CLASSES[row["kind"]] for row in rows],
        "source": [row["source"] for row in rows],
        "gpu": [row["gpu"] for row in rows],
        "id": [row["id"] for row in rows],
        "error": [format_change(row["predicted_s"] / row["measured_s"] - 1) for row in rows],
        "low": [None] * len(rows),
        "high": [None] * len(rows),
        "this": [False] * len(rows),
    }
    _add_this_run(run, columns)
    labels = {"name": "run", "measured": "measured step time", "predicted": "predicted step time (family held out)",
              "kind": "class", "source": "source", "gpu": "GPU", "id": "row", "error": "error", "low": "low",
              "high": "high", "this": "this run"}  # fmt: skip
    units = dict.fromkeys(("measured", "predicted", "low", "high"), "s")
    options = {"x": "measured", "y": "predicted", "x_scale": "log", "y_scale": "log", "colour": "kind",
               "shape": "kind", "name": "name", "low": "low", "high": "high", "marked": "this",
               "filters": ["source", "gpu", "kind"],
               "lines": [{"label": "within 10 %", "slope": 1.0, "band_fraction": BAND_FRACTION}]}  # fmt: skip
    made = {key: Column(labels[key], values, units.get(key, ""), 4) for key, values in columns.items()}
    return Figure(name, KIND, question, _message(run, rows), made, options)


def _add_this_run(run: RunView, columns: dict[str, list[object]]) -> None:
    """Add the run itself at its prediction, with its interval."""
    step_s, ends = run.result.metrics.get("step_time_s"), run.interval("step_time_s")
    if step_s is None or ends is None:
        return
    footing, _why = tell_footing(run.result.spec)
    values = {"name": f"this run (rests on {footing} figures)", "measured": step_s, "predicted": step_s,
              "kind": CLASSES[stored_class(run.result.spec)], "source": "this run",
              "gpu": run.result.spec["cluster"]["node"]["gpu"]["name"], "id": "", "error": "not measured",
              "low": ends[0], "high": ends[1], "this": True}  # fmt: skip
    for key, value in values.items():
        columns[key].append(value)


def _message(run: RunView, rows: Sequence[Row]) -> str:
    """Say how far predictions were off, by class, and what this run rests on."""
    tuned = [row for row in rows if row["host"] == "tuned"]
    told = []
    for kind, word in CLASSES.items():
        own = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in tuned if row["kind"] == kind]
        if own:
            told.append(f"{word} {format_percent(median(own))} ({len(own)} runs)")
    within = sum(abs(row["predicted_s"] / row["measured_s"] - 1) <= BAND_FRACTION for row in tuned) / max(1, len(tuned))
    untuned = f", without the {len(rows) - len(tuned)} on untuned hosts" if len(tuned) < len(rows) else ""
    text = (
        f"{len(rows)} published runs of {len({row['source'] for row in rows})} sources, each predicted with constants "
        f"fitted without its model family. Median error{untuned}: {', '.join(told)}; {format_percent(within)} lie "
        "within 10 %."
    )
    footing, why = tell_footing(run.result.spec)
    known = intervals(run.result).get("step_time_s")
    interval = ""
    if known:
        step_s = run.result.metrics["step_time_s"]
        low, high = (100 * (known[end] / step_s - 1) for end in ("low", "high"))
        interval = (
            f" The {format_percent(LEVEL, 0)} interval of this run, {low:+.0f} to {high:+.0f} %, "
            f"rests on {known['basis']}."
        )
    return f"{text}{interval} This run rests on {footing} figures: {why}."


def intervals_figure(run: RunView) -> Figure | None:
    """Return every figure of a simulated run with its interval and what that rests on."""
    name, question = CERTAINTY
    known = intervals(run.result)
    if not known:
        return None
    columns = {
        "metric": Column("metric", [METRICS[metric].label for metric in known]),
        "value": Column("predicted", [METRICS[metric].write(run.result.metrics[metric]) for metric in known]),
        "low": Column("low", [METRICS[metric].write(known[metric]["low"]) for metric in known]),
        "high": Column("high", [METRICS[metric].write(known[metric]["high"]) for metric in known]),
        "basis": Column("basis", [known[metric]["basis"] for metric in known]),
    }
    message = (
        f"Intervals of {format_percent(LEVEL, 0)}, from held-out errors of runs with known values; "
        "independent causes add in squares."
    )
    return Figure(name, "table", question, message + _preheating(run), columns, {"search": False})


def _preheating(run: RunView) -> str:
    """Say how far the assumed preheating of rear GPUs moves the result."""
    told = [
        f"{'without it' if one['factor'] == 0 else 'with twice as much'} the hottest GPU reaches "
        f"{one['temperature_peak_c']:.1f} C and a step takes {one['step_time_s']:.4g} s"
        for one in run.rows("preheating")
    ]
    return f" Preheating of rear GPUs by upstream ones is assumed: {'; '.join(told)}." if told else ""
