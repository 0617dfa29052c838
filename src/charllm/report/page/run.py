"""The page of one run: simulated, emulated or measured."""

from collections.abc import Callable, Mapping
from typing import Any

from charllm.report.figure import Figure, Page, Section
from charllm.report.page.answer import answer_facts, answer_sentences, title_of
from charllm.report.page.assumptions import assumptions_figure
from charllm.report.page.changes import changes_figure
from charllm.report.page.clock import clock_figure, throttled_figure
from charllm.report.page.energy import energy_figure
from charllm.report.page.heat import heat_figure
from charllm.report.page.links import links_figure
from charllm.report.page.memory import memory_figure
from charllm.report.page.power import cluster_figure, power_figure, warm_up_figure
from charllm.report.page.prediction import prediction_figure
from charllm.report.page.seconds import phases_figure, seconds_figure
from charllm.report.page.steps import steps_figure
from charllm.report.page.traced import classes_figure, kernels_figure
from charllm.report.page.trust import intervals_figure, trust_figure
from charllm.report.page.view import RunView
from charllm.report.page.when import when_figure

SECTIONS: Mapping[str, tuple[Callable[[RunView], Figure | None], ...]] = {
    "Time": (seconds_figure, phases_figure, when_figure, steps_figure),
    "Power, temperature and clocks": (
        heat_figure,
        power_figure,
        clock_figure,
        throttled_figure,
        energy_figure,
        cluster_figure,
        warm_up_figure,
    ),
    "Kernels": (classes_figure, kernels_figure),
    "Memory": (memory_figure,),
    "Communication": (links_figure,),
    "Measured against predicted": (prediction_figure,),
    "Changes": (changes_figure,),
    "Trust": (trust_figure, intervals_figure, assumptions_figure),
}
"""Heading: the figures under it, in order. One that cannot be drawn says why; None: the question does not arise."""

OF_PREDICTIONS = ("cluster-power", "warm-up", "links", "changes", "trust", "intervals", "assumptions")
"""Figures that nobody expects of a measured or emulated run."""


def run_page(run: RunView) -> Page:
    """Return the page of a run: the answer, then a section for each kind of question."""
    sections = [_section(run, title, figures) for title, figures in SECTIONS.items()]
    if run.misfit:
        sections.sort(key=lambda section: section.title != "Memory")
    names = {figure.name for section in sections for figure in section.figures if not figure.missing}
    return Page(
        title=title_of(run),
        answer=answer_sentences(run),
        facts=answer_facts(run, names),
        sections=[section for section in sections if section.figures],
        origin=run.result.origin,
        warnings=run.warnings,
        provenance=_provenance(run.result.provenance),
    )


def _section(run: RunView, title: str, figures: tuple[Callable[[RunView], Figure | None], ...]) -> Section:
    """Return a section with what can be shown, and why the rest cannot, where a reader would ask."""
    found = [figure for draw in figures if (figure := draw(run)) is not None]
    return Section(title, [figure for figure in found if not figure.missing or _is_asked(run, figure.name)])


def _is_asked(run: RunView, name: str) -> bool:
    """Tell whether a reader expects a figure: the answer of a run that does not fit has said what it lacks."""
    if run.result.origin != "simulated":
        return name not in OF_PREDICTIONS
    return run.has_times or not run.misfit


def _provenance(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what made the run in a few lines: single values alone; what it rests on has a figure of its own."""
    kept: dict[str, Any] = {}
    for name, value in found.items():
        inside = {key: part for key, part in value.items() if _is_single(part)} if isinstance(value, Mapping) else value
        if name != "figures" and (inside or inside == 0):
            kept[name] = inside
    return kept


def _is_single(value: Any) -> bool:
    return isinstance(value, str | int | float) and not (isinstance(value, str) and not value)
