"""Where does the step time go? A stacked bar for each stage, and their mean."""

from collections.abc import Mapping
from statistics import median

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.view import RunView, missing
from charllm.report.tables import shown_ends
from charllm.result.metrics import LABEL_WORDS, LABELS
from charllm.units import MILLI, SHORT_S, format_percent, format_seconds, seconds_format

NAME, KIND, QUESTION = "seconds", "stacked-bars", "Where does the step time go?"
MEAN = "all stages (mean)"
UNMARKED = "not marked"


def seconds_figure(run: RunView) -> Figure | None:
    """Return the breakdown of the step time by stage; of a simulated step that has phases alone, none."""
    breakdown_s = run.result.metrics.get("breakdown_s")
    if not breakdown_s and run.rows("phases"):
        return None if run.result.origin == "simulated" else _marked_figure(run)
    if not breakdown_s:
        return missing(NAME, KIND, QUESTION, run.why_not("breakdown_s"))
    stages = _stages(run)
    shown, left_out = shown_ends(list(stages))
    bars: dict[str, Mapping[str, float]] = {stage: stages[stage] for stage in shown}
    bars[MEAN if len(stages) > 1 else "step"] = breakdown_s
    order = [label for label in LABELS if any(labels.get(label, 0.0) > 0 for labels in bars.values())]
    cells = [(bar, label, labels.get(label, 0.0)) for bar, labels in bars.items() for label in order]
    columns = {
        "bar": Column("stage", [bar for bar, _label, _seconds in cells]),
        "part": Column("label", [LABEL_WORDS[label] for _bar, label, _seconds in cells]),
        "key": Column("key", [label for _bar, label, _seconds in cells]),
        "seconds": Column("time", [seconds for _bar, _label, seconds in cells], "s", 4),
    }
    words = {label: LABEL_WORDS[label] for label in order}
    options = bar_options(words, "seconds", "s", "part", part="key", mean_bar=MEAN if len(stages) > 1 else "step")
    return Figure(NAME, KIND, QUESTION, _message(breakdown_s, stages) + left_out, columns, options, run.conditions)


def _marked_figure(run: RunView) -> Figure:
    """Return the phases that a measured job has marked within its steps, and what lies between them."""
    median_s = median(end_s - start_s for start_s, end_s in run.steps_s)
    parts = {row["phase"]: row["seconds"] for row in sorted(run.rows("phases"), key=lambda row: -row["seconds"])}
    # Phases inside others may add up to more than the step.
    parts[UNMARKED] = max(0.0, median_s - sum(parts.values()))
    unit, scale = ("ms", MILLI) if median_s < SHORT_S else ("s", 1.0)
    columns = {
        "bar": Column("step", ["median step"] * len(parts)),
        "phase": Column("phase", list(parts)),
        "time": Column("time", [seconds / scale for seconds in parts.values()], unit, 4),
    }
    options = bar_options({name: name for name in parts}, "time", unit, "series", part="phase")
    told = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in parts.items() if name != UNMARKED)
    message = (
        f"Of a step of {format_seconds(median_s)} (median), as the host has marked its phases: {told}. The GPU may "
        "still work when the host ends a phase; where its own seconds go needs a profiler trace."
    )
    return Figure(NAME, KIND, QUESTION, message, columns, options, run.conditions)


def phases_figure(run: RunView) -> Figure | None:
    """Return the phases of a generation or a step of reinforcement learning, in a bar for each group of GPUs."""
    rows = run.rows("phases") if run.result.origin == "simulated" else []
    if not rows:
        return None
    bars: dict[str, dict[str, float]] = {}
    for row in rows:
        name, _, where = row["phase"].partition(" (")
        parts = bars.setdefault(where.rstrip(")") or "all GPUs", {})
        parts[name] = parts.get(name, 0.0) + row["seconds"]
    longest_s = max(sum(parts.values()) for parts in bars.values())
    unit, scale = ("ms", MILLI) if longest_s < SHORT_S else ("s", 1.0)
    cells = [(bar, name, seconds / scale) for bar, parts in bars.items() for name, seconds in parts.items()]
    columns = {
        "bar": Column("GPUs", [bar for bar, _name, _seconds in cells]),
        "phase": Column("phase", [name for _bar, name, _seconds in cells]),
        "time": Column("time", [seconds for _bar, _name, seconds in cells], unit, 4),
    }
    words = {name: name for parts in bars.values() for name in parts}
    (bar, parts), *_others = bars.items()
    told = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in parts.items())
    message = f"Of {format_seconds(longest_s)}, on {bar}: {told}."
    options = bar_options(words, "time", unit, "series", part="phase")
    return Figure("phases", KIND, "How long does each phase take?", message, columns, options, run.conditions)


def _stages(run: RunView) -> dict[str, dict[str, float]]:
    """Return the seconds of each label on each stage; nothing where a run was stored without them, or has one stage."""
    table = run.table("breakdown")
    found: dict[str, dict[str, float]] = {}
    for stage, label, seconds in (
        zip(*(table[name] for name in ("stage", "label", "seconds")), strict=True) if table else ()
    ):
        found.setdefault(f"stage {stage}", {})[label] = seconds
    return found if len(found) > 1 else {}


def _message(breakdown_s: Mapping[str, float], stages: Mapping[str, Mapping[str, float]]) -> str:
    """Say what takes most of a step, what is not compute, and how far stages differ."""
    step_s = sum(breakdown_s.values())
    write = seconds_format(step_s)
    largest = [pair for pair in sorted(breakdown_s.items(), key=lambda pair: -pair[1]) if pair[1] > 0][:3]
    told = ", ".join(
        f"{LABEL_WORDS[label]} {write(spent_s)} s ({format_percent(spent_s / step_s)})" for label, spent_s in largest
    )
    text = f"Of {write(step_s)} s a step, mean over GPUs: {told}."
    if stages:
        waits = {stage: labels["bubble"] + labels["straggler_wait"] for stage, labels in stages.items()}
        least, most = min(waits, key=waits.__getitem__), max(waits, key=waits.__getitem__)
        text += (
            f" Idle time (pipeline bubble and waiting for slower GPUs) is {write(waits[least])} s on {least} "
            f"and {write(waits[most])} s on {most}."
        )
    return text
