"""The page of a comparison: two or more runs side by side, the answer in words first."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from charllm.report.figure import Fact, Figure, Page, Section
from charllm.report.page.case_links import case_links
from charllm.report.page.case_memory import case_memory
from charllm.report.page.case_pages import hottest_cases, power_over_time
from charllm.report.page.case_power import case_clock, case_power
from charllm.report.page.case_seconds import case_seconds
from charllm.report.page.cases import StudiedCase, conditions_of
from charllm.report.page.quantity import write_list, write_number, write_ratio, write_slower, write_value
from charllm.report.page.sides import READ, compare_metric, every_metric, settings_table, sides, write_change
from charllm.report.page.study_answer import is_unmeasurable, why_slower
from charllm.result.metrics import quantity, selected
from charllm.units import PERCENT

LEVEL_FRACTION = 0.005
"""Measured runs nearer than this are called equally fast."""
OF_RUNS = {"case": "run", "cases": "runs", "Case": "Run", "Cases": "Runs"}
"""Word of a study: that of a comparison."""
LEAST_W, LEAST_K, LEAST_HZ = 1.0, 0.2, 2e6
"""Differences of measured runs in power, temperature and clock that are worth a word."""
LONGEST_SETTING = 16
CHECKED = selected("step_time_s", "power_mean_w", "temperature_peak_c", "clock_mean_hz", "memory_allocated_bytes")
"""Metrics of a prediction that the answer checks against the measured ones."""


def comparison_page(
    runs: Sequence[StudiedCase],
    apart: Mapping[str, Sequence[Any]],
    *,
    provenance: Mapping[str, Any] | None = None,
) -> Page:
    """Return runs side by side; the first is what the others are compared with. `apart`: settings that differ."""
    conditions = conditions_of(runs)
    runs, common = _short_labels(runs)
    of_runs = partial(_of_runs, names={run.label for run in runs} | {run.name for run in runs})
    names = " against ".join(run.label for run in runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    return Page(
        title=f"{common}: {names}" if common else names,
        answer=answer(runs, apart),
        facts=facts(runs),
        sections=[
            Section("Side by side", [sides(runs, conditions), settings_table(runs, apart)]),
            Section("Where does the time go?", of_runs([case_seconds(runs, conditions)])),
            Section(
                "Power, temperature and clock", of_runs([case_power(runs, conditions), case_clock(runs, conditions)])
            ),
            Section("Hot GPUs, and power over time", of_runs([hottest_cases(runs), *power_over_time(runs)])),
            Section("Does it fit?", of_runs(case_memory(runs, conditions))),
            Section("Links", of_runs([case_links(runs, conditions)])),
            Section("Every metric", [every_metric(runs)]),
        ],
        origin=runs[0].origin if len({run.origin for run in runs}) == 1 else "",
        warnings=_warnings(runs),
        provenance=dict(provenance or {}),
    )


def _of_runs(figures: Sequence[Figure], names: Collection[str]) -> list[Figure]:
    """Say of runs what figures of a study say of its cases; the names of runs stay as they are."""
    word = re.compile("|".join([*map(re.escape, sorted(names, key=len, reverse=True)), r"\b[Cc]ases?\b"]))

    def reworded(text: str) -> str:
        return word.sub(lambda found: found[0] if found[0] in names else OF_RUNS[found[0]], text)

    return [
        replace(
            figure,
            question=reworded(figure.question),
            message=reworded(figure.message),
            missing=reworded(figure.missing),
            columns={key: replace(column, label=reworded(column.label)) for key, column in figure.columns.items()},
        )
        for figure in figures
    ]


def _warnings(runs: Sequence[StudiedCase]) -> list[str]:
    """Return each warning once, with the runs that have it where those are not all."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for text in run.warnings:
            found.setdefault(text, []).append(run.label)
    return [text if len(names) == len(runs) else f"{write_list(names)}: {text}" for text, names in found.items()]


def _short_labels(runs: Sequence[StudiedCase]) -> tuple[Sequence[StudiedCase], str]:
    """Return the runs named without the words that all their names begin with, and those words."""
    words = [run.label.split(" ") for run in runs]
    shared = 0
    # What is left must still read as a name: 'mbs 2' does not become '2'.
    while all(_is_name(each[shared + 1 : shared + 2]) and each[shared] == words[0][shared] for each in words):
        shared += 1
    named = [replace(run, label=" ".join(each[shared:])) for run, each in zip(runs, words, strict=True)]
    return named, " ".join(words[0][:shared])


def _is_name(words: Sequence[str]) -> bool:
    return any(letter.isalpha() for word in words for letter in word)


def answer(runs: Sequence[StudiedCase], apart: Mapping[str, Sequence[Any]]) -> list[str]:
    """Say of each other run how much faster or slower it is than the first, why, and what it draws."""
    first = runs[0]
    sentences = [
        _check_prediction(run, first) if _is_prediction(run, first) else _compare(run, first) for run in runs[1:]
    ]
    return [*(sentence for sentence in sentences if sentence), _settings(apart)]


def facts(runs: Sequence[StudiedCase]) -> list[Fact]:
    """Return the step time, power and temperature of the first two runs, and how they differ."""
    found = []
    for metric, link in (
        ("step_time_s", "breakdown"),
        ("tokens_per_s_per_gpu", "sides"),
        ("power_mean_w", "power"),
        ("temperature_peak_c", "power"),
        ("tokens_per_j", "sides"),
        ("memory_peak_bytes", "memory"),
    ):
        rows = compare_metric(runs[:2], metric)
        if len(rows) == 2:
            shown = quantity(metric)
            before, after = rows[0].value, rows[1].value
            change = f"{write_change(metric, after, before)} ({write_value(metric, before)} in {runs[0].label})"
            found.append(Fact(f"{shown.label} of {runs[1].label}", write_value(metric, after), link=link, note=change))
    return found


def _is_prediction(run: StudiedCase, first: StudiedCase) -> bool:
    """Tell whether one of two runs was read on GPUs and the other is simulated."""
    return (run.origin in READ) != (first.origin in READ)


def _check_prediction(run: StudiedCase, first: StudiedCase) -> str:
    """Say how far a prediction is off what was measured."""
    measured, predicted = (first, run) if first.origin in READ else (run, first)
    told = []
    for metric in CHECKED:
        value, truth = predicted.values.get(metric), measured.values.get(metric)
        if value and truth:
            predicts, read = write_value(metric, value), write_value(metric, truth)
            error = write_change(metric, value, truth)
            told.append(f"{quantity(metric).label} {predicts} where {read} was {measured.origin} ({error})")
    if not told:
        return f"{predicted.label} and {measured.label} have no metric in common that could be checked."
    return f"{predicted.label} ({predicted.origin}) predicts {write_list(told, 5)}."


def _compare(run: StudiedCase, first: StudiedCase) -> str:
    """Say how a run differs from the first."""
    if not run.ran or not first.ran:
        lost = [each for each in (first, run) if not each.ran]
        return f"{write_list([each.label for each in lost])} has no step time ({lost[0].verdict or 'unknown'})."
    parts = [
        part for part in (_speed(run, first), _power(run, first), _temperature(run, first), _clock(run, first)) if part
    ]
    return (
        f"{run.label} {'; it '.join(parts)}." if parts else f"{run.label} and {first.label} have no metric in common."
    )


def _speed(run: StudiedCase, first: StudiedCase) -> str:
    rows = next(
        (
            rows
            for metric in ("tokens_per_s_per_gpu", "step_time_s")
            if len(rows := compare_metric([first, run], metric)) == 2
        ),
        None,
    )
    if rows is None or not rows[0].value or not rows[1].value:
        return ""
    ratio = rows[1].value / rows[0].value
    speedup = ratio if quantity(rows[0].metric).better == "higher" else 1 / ratio
    values = " against ".join(write_value(row.metric, row.value) for row in reversed(rows))
    if is_unmeasurable(run, first, rows[0].metric, LEVEL_FRACTION * rows[0].value):
        return f"is as fast as {first.label} within the error ({values})"
    slower, faster = (run, first) if speedup < 1 else (first, run)
    much = write_slower(1 / speedup) if speedup < 1 else f"{write_ratio(speedup)} faster"
    return f"is {much} than {first.label} ({values}){_reason(slower, faster, run)}"


def _reason(slower: StudiedCase, faster: StudiedCase, run: StudiedCase) -> str:
    """Say which part of the step makes the difference."""
    reason = why_slower(slower, faster)
    if not reason:
        return ""
    return f", because {reason}" if slower is run else f", because in {slower.label} {reason}"


def _power(run: StudiedCase, first: StudiedCase) -> str:
    change = _difference(run, first, "power_mean_w")
    if change is None:
        return ""
    if is_unmeasurable(run, first, "power_mean_w", LEAST_W):
        return f"draws the same power within the error ({run.values['power_mean_w']:.0f} W per GPU)"
    return f"draws {abs(change):.0f} W {'more' if change > 0 else 'less'} per GPU"


def _temperature(run: StudiedCase, first: StudiedCase) -> str:
    change = _difference(run, first, "temperature_peak_c")
    if change is None or is_unmeasurable(run, first, "temperature_peak_c", LEAST_K):
        return ""
    return f"peaks {abs(change):.1f} K {'hotter' if change > 0 else 'cooler'}"


def _clock(run: StudiedCase, first: StudiedCase) -> str:
    change = _difference(run, first, "clock_loss")
    if change is None or is_unmeasurable(run, first, "clock_mean_hz", LEAST_HZ):
        return ""
    return f"loses {abs(change / PERCENT):.1f} points {'more' if change > 0 else 'less'} of its clock to throttling"


def _difference(run: StudiedCase, first: StudiedCase, metric: str) -> float | None:
    value, other = run.values.get(metric), first.values.get(metric)
    return None if value is None or other is None else float(value - other)


def _settings(apart: Mapping[str, Sequence[Any]]) -> str:
    """Name the settings that differ."""
    if not apart:
        return "All settings are equal."
    told = [f"{name.rpartition('.')[2].replace('_', ' ')} ({_values(values)})" for name, values in apart.items()]
    return f"Settings that differ: {write_list(told, 6)}."


def _values(values: Sequence[Any]) -> str:
    return " against ".join("not set" if value is None else _short(value) for value in values)


def _short(value: Any) -> str:
    text = write_number(value) if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_SETTING else f"{text[: LONGEST_SETTING - 3]}..."
