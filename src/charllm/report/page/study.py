"""The page of a study: the answer, then every question about its cases, then all cases at a glance."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Figure, Page, Section
from charllm.report.page.case_links import case_links
from charllm.report.page.case_memory import case_memory
from charllm.report.page.case_pages import case_pages, hottest_cases
from charllm.report.page.case_power import case_clock, case_energy, case_power
from charllm.report.page.case_seconds import case_seconds
from charllm.report.page.cases import StudiedCase, conditions_of, group_cases
from charllm.report.page.claims import PAPER, claims_figure
from charllm.report.page.pareto import pareto
from charllm.report.page.predictions import predictions
from charllm.report.page.strategies import strategies
from charllm.report.page.study_answer import answer, facts, further
from charllm.report.study import NamedStudy

NUMBER = re.compile(r"\d[\d.,]*")


def study_page(
    study: NamedStudy,
    cases: Sequence[StudiedCase],
    *,
    notes: Sequence[str] = (),
    provenance: Mapping[str, Any] | None = None,
) -> Page:
    """Return a study as one page; `notes` say which cases were skipped and why."""
    everything = group_cases(sorted(cases, key=lambda case: (case.number, case.is_prediction)))
    listed = [case for case in everything if not case.is_prediction]
    is_paper = study.name.startswith(PAPER)
    conditions = conditions_of(listed)
    return Page(
        title=f"Study {study.name}",
        answer=answer(listed),
        further=further(everything, study.about, is_paper),
        facts=facts(listed),
        sections=_sections(study, everything, conditions, is_paper),
        origin=_origin(listed),
        warnings=[*notes, *_case_warnings(listed)],
        provenance=dict(provenance or {}),
    )


def _sections(study: NamedStudy, everything: Sequence[StudiedCase], conditions: str, is_paper: bool) -> list[Section]:
    cases = [case for case in everything if not case.is_prediction]
    sections = [
        Section("Which strategy?", [strategies(everything, conditions)]),
        Section("Speed against energy", [pareto(everything, study.swept, conditions)]),
        *([Section("Measured against predicted", [predictions(everything)])] if len(cases) < len(everything) else []),
        Section("Where does the time go?", [case_seconds(cases, conditions)]),
        Section("Does it fit?", case_memory(cases, conditions)),
        Section(
            "Power, temperature and energy",
            [case_power(cases, conditions), case_clock(cases, conditions), case_energy(cases, conditions)],
        ),
        Section("The hottest cases", [hottest_cases(cases)]),
        Section("Links", [case_links(cases, conditions)]),
    ]
    if is_paper:
        sections.append(Section("The paper's claims", [claims_figure(cases, conditions)]))
    rejected = _rejected(cases)
    if rejected is not None:
        sections.append(Section("Cases without a result", [rejected]))
    if study.corrections:
        sections.append(Section("Corrections to the source", [_corrections(study)]))
    return [*sections, Section("All cases at a glance", case_pages(cases))]


def _rejected(cases: Sequence[StudiedCase]) -> Figure | None:
    listed = [case for case in cases if not case.ran]
    if not listed:
        return None
    columns = {
        "case": Column("case", [case.name for case in listed]),
        "verdict": Column("outcome", [case.verdict or "no step was found" for case in listed]),
        "message": Column("reason", [case.message for case in listed]),
        "command": Column("command", [case.command for case in listed]),
    }
    message = f"{len(listed)} of {len(cases):,} cases have no result, each with the reason."
    return Figure("rejected", "table", "Which cases have no result, and why?", message, columns, {"search": True})


def _corrections(study: NamedStudy) -> Figure:
    columns = {"correction": Column("what differs, and why", list(study.corrections))}
    question = "What differs from the source of this study?"
    count = len(study.corrections)
    message = f"{count} {'difference' if count == 1 else 'differences'} from the source that this study was taken from."
    return Figure("corrections", "table", question, message, columns, {"search": False})


def _origin(cases: Sequence[StudiedCase]) -> str:
    origins = {case.origin for case in cases if case.ran}
    return origins.pop() if len(origins) == 1 else ""


def _case_warnings(cases: Sequence[StudiedCase]) -> list[str]:
    """Return the warnings of cases that ran, each once (with the numbers of the first) and how many cases have it."""
    found: dict[str, list[str]] = {}
    for case in cases:
        for text in case.warnings or ((case.message,) if case.message else ()):
            if case.ran:
                found.setdefault(NUMBER.sub("#", text), []).append(text)
    return [f"{len(texts)} of {len(cases):,} cases: {texts[0]}" for texts in found.values()]
