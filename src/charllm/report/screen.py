"""A simulated run on one screen: 24 lines of 100 columns, the least important left out; `--full` prints the rest."""

from collections.abc import Mapping
from dataclasses import replace

from charllm.report.tables import format_percent, render_facts, terminal_columns, wrap
from charllm.result.answers import (
    NOT_STORED,
    ONLY_MEMORY,
    answer_memory,
    answer_pace,
    answer_shutdown,
    best_changes,
    explanations,
    gpu_table,
    notable_warnings,
    write_gain,
    write_interval,
    write_metric,
)
from charllm.result.description import CONDITION, DEFAULT, JOB, PARALLELISM, texts_of
from charllm.result.metrics import METRICS
from charllm.result.result import RunResult
from charllm.result.uncertainty import LEVEL, intervals, stored_grade, tell_footing
from charllm.spec.request import merge
from charllm.units import MEGA

LINES, COLUMNS, CHANGES, BAR_WIDTH = 24, 100, 3, 80
MARKS = {
    "compute": "#", "recompute": "r", "optimizer": "u", "tp_exposed": "t", "pp_exposed": "p", "dp_exposed": "d",
    "ep_exposed": "e", "cp_exposed": "c", "straggler_wait": "w", "bubble": "b", "overhead": "h",
}  # fmt: skip
"""Label of a step's time: its mark in the bar."""
TOLD = {"optimizer": "update", "straggler_wait": "waiting for slower GPUs", "overhead": "host"}
LEAST_TOLD = 0.005
Fact = tuple[str, str]


def render_screen(result: RunResult) -> str:
    """Return what was run, the answers with their intervals, the best changes, what was defaulted or is doubtful."""
    ranked = [fact for fact in _facts(result) if fact[1]]
    changes, notes = [*_remedies(result), *_change_facts(result)], _notes(result)
    every = len(changes) + len(notes)

    def render(columns: int) -> str:
        return "\n\n".join([_head(result, columns), render_facts([*ranked, *changes, *notes], columns)])

    # A narrow terminal takes more lines; what is said is the same.
    while len(render(COLUMNS).splitlines()) >= LINES and (notes or len(changes) > 1):
        (notes if len(notes) > 1 or len(changes) <= 1 else changes).pop()
    more = ", and the notes that are left out here" if len(changes) + len(notes) < every else ""
    return f"{render(min(COLUMNS, terminal_columns()))}\n--full prints every table{more}"


def _head(result: RunResult, columns: int) -> str:
    told = result.table("description") or {"part": [], "text": []}
    return "\n".join(
        part for line in (*texts_of(told, JOB), *texts_of(told, PARALLELISM)) for part in wrap(line, columns)
    )


def _facts(result: RunResult) -> list[Fact]:
    return [
        ("Shutdown", answer_shutdown(result)),
        ("Step time", _time(result)),
        *_bar(result.metrics.get("breakdown_s") or {}),
        ("Power", _power(result)),
        ("Energy", _listed(result, "energy_per_step_j", "tokens_per_j")),
        ("Heat", _heat(result)),
        ("Clock", _clock(result)),
        ("Memory", answer_memory(result)),
        ("Paced by", answer_pace(result)),
    ]


def _listed(result: RunResult, *names: str) -> str:
    parts = [f"{write_metric(result, name)}{write_interval(result, name)}" for name in names]
    return ", ".join(part for part, name in zip(parts, names, strict=True) if result.metrics.get(name) is not None)


def _time(result: RunResult) -> str:
    """Step time with its interval of tuned runs and of runs as users have them, throughput, MFU."""
    step_s = result.metrics.get("step_time_s")
    if step_s is None:
        return ""
    ends = [f"{_ends(result, grade)} {words}" for grade, words in GRADES.items() if _has(result, grade)]
    rates = ", ".join(write_metric(result, name) for name in ("tokens_per_s", "mfu") if result.metrics.get(name))
    return f"{write_metric(result, 'step_time_s')} ({', '.join(ends)}), {rates}" if ends else rates


GRADES = {"tuned": "tuned", "usual": "as users run it"}
"""Grade of a run: how its interval is named."""


def _has(result: RunResult, grade: str) -> bool:
    return "cluster" in result.spec and stored_grade(result.spec) in (grade, "not stated")


def _ends(result: RunResult, grade: str) -> str:
    """Return the interval of the step time of a run set up in one way."""
    spec = merge(result.spec, {"framework": {"tuning": grade}})
    ends = intervals(replace(result, spec=spec))["step_time_s"]
    write = METRICS["step_time_s"].bound
    return f"{write(ends['low'])} to {write(ends['high'])}"


def _bar(breakdown_s: Mapping[str, float | None]) -> list[Fact]:
    """Draw one bar, and name the labels in it that can be seen."""
    shares = {label: spent_s for label, spent_s in breakdown_s.items() if spent_s}
    total_s = sum(shares.values())
    if not total_s:
        return []
    width, bar, end = min(BAR_WIDTH, terminal_columns() - 20), "", 0.0
    for label, spent_s in shares.items():
        end += spent_s / total_s
        bar += MARKS[label] * (round(end * width) - len(bar))
    told = sorted(shares, key=lambda label: -shares[label])
    names = [
        f"{MARKS[label]} {TOLD.get(label, label.replace('_', ' '))} {format_percent(shares[label] / total_s)}"
        for label in told
        if shares[label] >= LEAST_TOLD * total_s
    ]
    return [("Time goes", bar), ("", ", ".join(names))]


def _power(result: RunResult) -> str:
    peak_w = result.metrics.get("cluster_power_peak_w")
    whole = f"; cluster peak {METRICS['cluster_power_peak_w'].write(peak_w)}" if peak_w else ""
    return _listed(result, "power_mean_w", "power_peak_sensor_w", "node_power_mean_w") + whole


def _heat(result: RunResult) -> str:
    """Temperatures of dies, and of memory where it is the nearer to its limit."""
    die = _listed(result, "temperature_mean_c", "temperature_peak_c", "margin_to_slowdown_k")
    of_die, of_memory = (result.metrics.get(f"margin_to_{limit}_k") for limit in ("slowdown", "memory_limit"))
    if of_die is None or of_memory is None or of_memory > of_die:
        return die
    return f"{die}; memory {_listed(result, 'memory_temperature_peak_c')}, {of_memory:.0f} K below its limit"


def _clock(result: RunResult) -> str:
    """Mean clock of the highest, and for how long each cause holds it down."""
    clock_hz, shares = result.metrics.get("clock_mean_hz"), result.metrics.get("throttled_time_fraction") or {}
    if clock_hz is None:
        return ""
    held = [f"{cause}-throttled {format_percent(share, 0)} of the time" for cause, share in shares.items() if share]
    most_hz = gpu_table(result.spec).get("clock_max_hz", clock_hz)
    ends = write_interval(result, "clock_mean_hz")
    return f"{clock_hz / MEGA:.0f}{ends} of {most_hz / MEGA:.0f} MHz, {', '.join(held) or 'not throttled'}"


def _remedies(result: RunResult) -> list[Fact]:
    """Say of a run that does not fit why, and what would."""
    told = next((text for text in result.warnings if text.startswith("memory:")), "")
    parts = told.partition(": ")[2].split("; ", 2)
    return [(("Because", "", "Would fit")[place], text) for place, text in enumerate(parts) if text]


def _change_facts(result: RunResult) -> list[Fact]:
    """Return the best single changes, each with its gain and the interval of that gain."""
    if result.metrics.get("step_time_s") is None:
        return []
    changes = best_changes(result)
    if changes is None:
        return [("Would help", NOT_STORED)]
    told = [f"{row['change']}: {write_gain(row)}" for row in changes[:CHANGES]]
    none = "no single change that was tried is faster and fits in memory; charllm plan searches all"
    return [("" if place else "Would help", text) for place, text in enumerate(told or [none])]


def _notes(result: RunResult) -> list[Fact]:
    """Return what was defaulted, what the figures rest on, and what is doubtful."""
    told = result.table("description") or {"part": [], "text": []}
    taken = [*texts_of(told, CONDITION), *texts_of(told, DEFAULT)]
    notes = [("Taken", "; ".join(taken))] if taken else []
    if "cluster" in result.spec:
        footing, why = tell_footing(result.spec)
        notes.append(("Rests on", f"{footing} figures: {why}; intervals hold {format_percent(LEVEL, 0)} of runs"))
    told_above = ("memory:", f"temperature: {answer_shutdown(result)}" if answer_shutdown(result) else "memory:")
    known = [text for text in notable_warnings(result) if not text.startswith(told_above)]
    notes += [("Note", text) for text in [*explanations(result), *(text for text in known if text == ONLY_MEMORY)]]
    return [*notes, *(("Doubt", text) for text in known if text != ONLY_MEMORY)]
