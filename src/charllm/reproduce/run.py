"""Repeat a publication: its studies, its figures, its findings and what follows from them, into one folder.

    studies/NAME/           every configuration, stored as `charllm sweep` does (show, report and query read them)
    runs.jsonl              a row for each further run: what findings compare, draws and condition maps
    findings.json, recommendations.json, conditions.json, findings.md, report.html, figures/*.svg

Killed and started again it goes on where it was; what is done is not simulated again.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from charllm.api.keywords import as_path
from charllm.api.report import write_page
from charllm.api.report_study import studied_cases
from charllm.api.signature import public
from charllm.errors import SpecError, unknown_name
from charllm.report.figure import Figure
from charllm.report.page.cases import StudiedCase, group_cases
from charllm.report.svg.draw import DRAWN, write_svg
from charllm.reproduce.document import write_document
from charllm.reproduce.draws import draws
from charllm.reproduce.figures import FIGURES
from charllm.reproduce.figures.emulated import emulated_runs
from charllm.reproduce.figures.heat import WARM_UP, warm_up
from charllm.reproduce.findings import FINDINGS
from charllm.reproduce.looks import Rows
from charllm.reproduce.maps import map_of
from charllm.reproduce.nic import infer_nic, nic_runs, nic_words
from charllm.reproduce.page import paper_page
from charllm.reproduce.paper import STUDIES, Request
from charllm.reproduce.readings import both_readings, reading_runs
from charllm.reproduce.recommendations import RECOMMENDATIONS
from charllm.reproduce.settings import NAME, PUBLICATIONS, WORKERS
from charllm.reproduce.tables import advice_table, finding_table
from charllm.reproduce.verdicts import Advice, Judged, advise, explain_all, judge_all
from charllm.reproduce.workers import Track, begin, run_rows
from charllm.result.store import write_text
from charllm.sweep.run import Progress, run_study
from charllm.sweep.runners.work import Engine
from charllm.sweep.study import Study, load_study


class Reproduced(NamedTuple):
    """What was judged, and where it lies."""

    folder: Path
    findings: list[dict[str, Any]]
    """As in findings.json."""
    recommendations: list[dict[str, Any]]
    """As in recommendations.json."""
    one_setting: dict[str, Any] | None
    """Whether one setting explains all thermal findings; None without condition maps."""

    @property
    def report(self) -> Path:
        """The report, one HTML file."""
        return self.folder / "report.html"


def _plainly(items: Iterable[Any], _total: int, _title: str) -> Iterator[Any]:
    yield from items


@public
def reproduce(
    publication: str = NAME,
    *,
    out: str | PathLike[str] | None = None,
    intervals: bool = False,
    maps: bool = False,
    only: Sequence[str] = (),
    workers: int = WORKERS,
) -> Reproduced:
    """Repeat a publication: simulate its runs, draw its figures, judge its findings, and write a report of it.

    `out` is the folder (by default one of the publication's name); what is in it already is not simulated again.
    `intervals` adds an interval to every effect, `maps` says under which conditions each finding would hold.
    `only` names findings: then nothing else is judged, and no study is run.

    >>> import charllm, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = charllm.reproduce("charllm-ppt", out=folder, only=["thermal-placement"], workers=1)
    >>> found.findings[0]["name"], found.findings[0]["verdict"] in ("holds", "fails", "undecided at this accuracy")
    ('thermal-placement', True)
    """
    if publication not in PUBLICATIONS:
        raise unknown_name("publication", publication, PUBLICATIONS)
    folder = as_path(publication if out is None else out, "--out")
    return run_reproduction(folder, intervals=intervals, maps=maps, only=only, workers=workers)


def run_reproduction(
    folder: Path,
    *,
    intervals: bool = False,
    maps: bool = False,
    only: Sequence[str] = (),
    workers: int = WORKERS,
    studies: Sequence[Study] | None = None,
    track: Track = _plainly,
    study_track: Progress = _plainly,
) -> Reproduced:
    """Run what is left to run, judge, and write every file; `studies` stand in for those of the paper."""
    for name in only:
        if name not in FINDINGS:
            raise unknown_name("--only", name, FINDINGS)
    if folder.exists() and not folder.is_dir():
        raise SpecError("--out", str(folder), "a folder")
    file = begin(folder)
    names = () if only else STUDIES
    asked = [load_study(name) for name in names] if studies is None else list(studies)
    cases = _run_studies(asked, folder, workers, study_track)
    chosen = [FINDINGS[name]() for name in (only or FINDINGS)]
    advised = [] if only else [build() for build in RECOMMENDATIONS.values()]
    points = [run for one in chosen for run in (*one.runs, *one.reading_runs)]
    points += [run for one in advised for run in one.runs]
    points += [] if only else [*reading_runs(), *emulated_runs(), *nic_runs()]
    rows: Rows = run_rows(points, file, workers, track, "runs that findings compare")
    if intervals:
        base = [run for one in chosen for run in one.runs]
        base += [run for one in advised for pair in one.configurations.values() for run in pair.runs]
        wanted: list[Request] = [one.apply(run) for one in draws() for run in base]
        rows = run_rows(wanted, file, workers, track, "draws for intervals")
    if maps:
        wanted = [setting.apply(run) for one in chosen for setting in map_of(one).settings for run in one.runs]
        rows = run_rows(wanted, file, workers, track, "condition maps")
    judged = judge_all(chosen, rows, drawn=intervals, mapped=maps)
    advice = [advise(one, rows, drawn=intervals) for one in advised]
    return _write(folder, cases, judged, advice, rows)


def _run_studies(studies: Sequence[Study], folder: Path, workers: int, track: Progress) -> dict[str, list[StudiedCase]]:
    """Run every study, and return its cases as figures read them."""
    found = {}
    for study in studies:
        place = folder / "studies" / study.name
        run_study(study, engine=Engine(workers=workers), out=place, resume=True, progress=track)
        found[study.name] = group_cases(studied_cases(place, study.cases, []))
    return found


def _write(
    folder: Path, cases: dict[str, list[StudiedCase]], judged: list[Judged], advice: list[Advice], rows: Rows
) -> Reproduced:
    nic = infer_nic(rows) if cases else None
    findings = [{**finding_table(one), "nic": nic_words(one, nic)} for one in judged]
    recommendations, joint = [advice_table(one) for one in advice], explain_all(judged)
    seen = {**rows, WARM_UP: warm_up()} if cases else rows
    figures: list[Figure] = [figure for build in FIGURES for figure in build(cases, seen)] if cases else []
    readings = both_readings(rows) if cases else []
    page = paper_page(judged, advice, figures, readings, joint)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for section in page.sections:
        for figure in section.figures:
            if figure.kind in DRAWN and not figure.missing:
                write_text(write_svg(figure), folder / "figures" / f"{figure.name}.svg")
    _write_json(findings, folder / "findings.json")
    _write_json(recommendations, folder / "recommendations.json")
    if any(one.mapped for one in judged):
        maps = [_map_table(one) for one in judged if one.mapped]
        _write_json({"one_setting": joint, "maps": maps, "nic": nic}, folder / "conditions.json")
    write_text(write_document(judged, advice, readings, joint, nic), folder / "findings.md")
    write_page(page, folder / "report.html")
    return Reproduced(folder, findings, recommendations, joint)


def _map_table(judged: Judged) -> dict[str, Any]:
    cells = [{"setting": cell.setting.words, "verdict": cell.verdict, "effect": cell.effect} for cell in judged.mapped]
    return {"name": judged.finding.name, "unit": judged.finding.unit, "cells": cells}


def _write_json(table: Any, path: Path) -> None:
    write_text(json.dumps(table, indent=1, allow_nan=False) + "\n", path)
