"""Single cases of a study: where the GPUs of the hottest ones stand, and what the page of each would show, in small."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from charllm.report.figure import Column, Figure
from charllm.report.page.answer import answer_facts, answer_sentences
from charllm.report.page.cases import StudiedCase, ranked, select, title
from charllm.report.page.heat import heat_figure
from charllm.report.page.links import links_figure
from charllm.report.page.memory import memory_figure
from charllm.report.page.power import power_figure
from charllm.report.page.quantity import metric_column, write_list, write_value
from charllm.report.page.seconds import seconds_figure
from charllm.report.page.view import RunView
from charllm.result.metrics import selected

MOST_PAGES = 24
"""Cases that are shown in small; of a larger study the fastest of each model."""
MOST_HOT, MOST_OVER_TIME = 6, 4
SHOWN: tuple[Callable[[RunView], Figure | None], ...] = (seconds_figure, memory_figure, heat_figure, links_figure)
SUMMARY = selected("step_time_s", "tokens_per_s_per_gpu", "power_mean_w", "temperature_peak_c")
NOT_STORED = (
    "This study was not stored in a folder, so data on single GPUs are not available (charllm sweep --out DIR)."
)


def hottest_cases(cases: Sequence[StudiedCase]) -> Figure:
    """Return the hottest node of each of the hottest cases, all on one scale."""
    question = "Where do the hottest cases have their hot GPUs?"
    maps = [(case, heat) for case in _hottest(cases) if (heat := _hottest_node(case)) is not None][:MOST_HOT]
    if not maps:
        return Figure("heat", "node-map", question, "", missing=NOT_STORED)
    first = maps[0][1]
    columns = {
        name: replace(column, values=[value for _, heat in maps for value in heat.columns[name].values])
        for name, column in first.columns.items()
        if all(name in heat.columns for _, heat in maps)
    }
    told = [f"{title(case)} {write_value('temperature_peak_c', case.values['temperature_peak_c'])}" for case, _ in maps]
    message = (
        f"The hottest node of {len(maps)} cases, the hottest case of each model first; peaks: {write_list(told, 6)}."
    )
    options = {**first.options, "nodes_shown": len(maps)}
    return Figure("heat", "node-map", question, message, columns, options, first.conditions)


def _hottest(cases: Sequence[StudiedCase]) -> list[StudiedCase]:
    """Return cases by peak temperature, the hottest of each model first."""
    hot = sorted(
        (case for case in cases if case.ran and case.values.get("temperature_peak_c") is not None),
        key=lambda case: -case.values["temperature_peak_c"],
    )
    seen: set[str] = set()
    first = [case for case in hot if not (case.group in seen or seen.add(case.group))]  # type: ignore[func-returns-value]
    return [*first, *(case for case in hot if case not in first)][: 2 * MOST_HOT]


def _hottest_node(case: StudiedCase) -> Figure | None:
    """Return the map of a case with its hottest node alone, named after the case."""
    view = case.open_view()
    heat = heat_figure(view) if view is not None else None
    if heat is None or heat.missing:
        return None
    values, nodes = heat.columns["value"].values, heat.columns["node"].values
    node = nodes[max(range(len(values)), key=lambda at: values[at])]
    kept = [at for at, name in enumerate(nodes) if name == node]
    columns = {
        name: replace(column, values=[column.values[at] for at in kept]) for name, column in heat.columns.items()
    }
    columns["node"] = replace(columns["node"], values=[f"{title(case)}, node {node}"] * len(kept))
    return replace(heat, columns=columns)


def power_over_time(cases: Sequence[StudiedCase]) -> list[Figure]:
    """Return the power of each run over time, where it was kept; of the first few, one below the other."""
    found = []
    for at, case in enumerate(cases[:MOST_OVER_TIME]):
        view = case.open_view()
        figure = power_figure(view) if view is not None else None
        if figure is not None and not figure.missing:
            found.append(replace(figure, name=f"power-{at + 1}", question=f"How does the power of {title(case)} vary?"))
    return found


def case_pages(cases: Sequence[StudiedCase]) -> list[Figure]:
    """Return the figures of every case, folded under its name."""
    found: list[Figure] = []
    shown, left_out = select([case for case in cases if case.ran], MOST_PAGES)
    for case in shown:
        view = case.open_view()
        if view is not None:
            found += _small_page(case, view)
    if not found:
        return [Figure("cases", "table", "All cases at a glance", "", missing=NOT_STORED)]
    return [_overview(cases, left_out), *found]


def _small_page(case: StudiedCase, view: RunView) -> list[Figure]:
    told = [write_value(name, case.values[name]) for name in SUMMARY if case.values.get(name) is not None]
    origin = "" if case.origin == "simulated" else f" ({case.origin})"
    heading = f"{title(case)}{origin}: {', '.join(told)}"
    prefix = f"case-{case.number}-{case.origin}"
    answer = _answer(case, view)
    drawn = [figure for draw in SHOWN if (figure := draw(view)) is not None and not figure.missing]
    figures = [answer, *drawn]
    return [replace(figure, name=f"{prefix}-{figure.name}", folded=heading) for figure in figures]


def _answer(case: StudiedCase, view: RunView) -> Figure:
    """Return the answer of a case in words, and the settings that make it."""
    facts = answer_facts(view, set())
    rows = [*((fact.label, fact.value, fact.interval or fact.note) for fact in facts), ("Command", case.command, "")]
    columns = {
        "fact": Column("fact", [label for label, _, _ in rows]),
        "value": Column("value", [value for _, value, _ in rows]),
        "note": Column("note", [note for _, _, note in rows]),
    }
    return Figure("answer", "table", "In short", " ".join(answer_sentences(view)), columns, {"search": False})


def _overview(cases: Sequence[StudiedCase], left_out: str) -> Figure:
    """Return the cases that ran in one table, the fastest first."""
    listed = ranked(cases)
    columns = {"case": Column("case", [case.name for case in listed])}
    rows = [case.values for case in listed]
    columns |= {name: metric_column(name, rows) for name in (*SUMMARY, "memory_peak_bytes")}
    message = (
        f"{left_out}Open a case below for its answer, breakdown, memory and temperatures; "
        "`charllm report FOLDER/runs/NUMBER` writes the whole page of one case."
    )
    return Figure("cases", "table", "Every case, the fastest first", message, columns, {"search": True})
