"""What if? The effect of single changes on tokens per second, with intervals; those that do not fit are marked."""

from charllm.report.figure import Column, Figure
from charllm.report.page.quantity import metric_column
from charllm.report.page.view import RunView, missing
from charllm.result.columns import Row
from charllm.result.differences import LEVEL, differences_basis
from charllm.result.metrics import METRICS
from charllm.units import format_change, format_percent

NAME, KIND, QUESTION = "changes", "tornado", "What if one setting changes?"


def changes_figure(run: RunView) -> Figure | None:
    """Return every change that was simulated, the best first; None for a run that was not simulated."""
    if run.result.origin != "simulated":
        return None
    changes = sorted(run.rows("changes"), key=lambda change: (not change["fits"], -change["gain_fraction"]))
    if not changes:
        return missing(NAME, KIND, QUESTION, run.why_not_simulated("changes"))
    ends = [[change.get(end) for change in changes] for end in ("low_fraction", "high_fraction")]
    columns = {
        "change": Column("change", [change["change"] for change in changes]),
        "effect": Column("change of tokens/s", [round(change["gain_fraction"], 3) for change in changes], "", 3),
        "low": Column("low", [_rounded(end) for end in ends[0]], "", 3),
        "high": Column("high", [_rounded(end) for end in ends[1]], "", 3),
        "fits": Column(METRICS["fits"].label, [change["fits"] for change in changes]),
        "tokens_per_j": Column(f"change of {METRICS['tokens_per_j'].label}",
                               [_percent(change["tokens_per_j_fraction"]) for change in changes]),
        "temperature": Column(f"change of {METRICS['temperature_peak_c'].label}",
                              [change["temperature_peak_k"] for change in changes], "K", 3),
        "step": metric_column("step_time_s", changes, 4),
        "memory": metric_column("memory_need_bytes", changes, 4),
        "note": Column("note", [change["needs"] for change in changes]),
    }  # fmt: skip
    options = {"change": "change", "effect": "effect", "low": "low", "high": "high", "fits": "fits", "note": "note",
               "unit": "%"}  # fmt: skip
    return Figure(NAME, KIND, QUESTION, _message(changes), columns, options, run.conditions)


def _rounded(end: float | None) -> float | None:
    return None if end is None else round(end, 3)


def _percent(fraction: float | None) -> str | None:
    return None if fraction is None else format_change(fraction)


def _message(changes: list[Row]) -> str:
    """Name the best change, the one that saves most energy, and what does not fit."""
    fitting = [change for change in changes if change["fits"]]
    misfits = [change for change in changes if not change["fits"]]
    text = f"{len(changes)} single changes, each simulated."
    best = max(fitting, key=lambda change: change["gain_fraction"], default=None)
    if best is not None and best["gain_fraction"] > 0:
        low, high = best.get("low_fraction"), best.get("high_fraction")
        text += f" Fastest: {best['change']}, {format_change(best['gain_fraction'])} tokens/s"
        # A run stored by another version has no intervals.
        text += "." if low is None or high is None else f" ({100 * low:+.0f} to {format_change(high, 0)})."
    saving = max(
        (change for change in fitting if change["tokens_per_j_fraction"]),
        key=lambda change: change["tokens_per_j_fraction"] or 0.0,
        default=None,
    )
    if saving is not None and (saving["tokens_per_j_fraction"] or 0.0) > 0:
        text += f" Most tokens per joule: {saving['change']}, {_percent(saving['tokens_per_j_fraction'])}."
    if misfits:
        listed = [f"{change['change']} ({change['needs']})" for change in misfits]
        text += f" Grey: {', '.join(listed)}."
    whiskers = f"whiskers their {format_percent(LEVEL, 0)} intervals: {differences_basis()}"
    return f"{text} Bars are the simulated effects, {whiskers}."
