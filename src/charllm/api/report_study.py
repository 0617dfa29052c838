"""What the pages of studies and comparisons are made of: stored cases, runs, predictions beside measured ones."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.api.keywords import FIELDS, as_path
from charllm.errors import CharllmError, SpecError
from charllm.report.figure import Page
from charllm.report.page.view import RunView
from charllm.result.answers import describe_degrees
from charllm.result.compare import differing_settings
from charllm.result.files import STUDY_FILE
from charllm.result.metrics import Metrics
from charllm.result.result import RunResult
from charllm.result.store import RESULT_FILE, load_run
from charllm.sweep.axes import Case, list_settings
from charllm.sweep.folder import case_folder, load_study_folder, read_case
from charllm.sweep.outcome import Outcome, summarise

if TYPE_CHECKING:
    from charllm.api.study import Sweep
    from charllm.report.page.cases import StudiedCase

FLAGS = {path: word for word, path in FIELDS.items() if word != "sp"}
"""Field: the flag that sets it as it is."""
NAMES = ("model", "cluster", "framework")
MOST_PREDICTED = 24
"""Measured cases that are simulated beside: each takes about a second."""
LONGEST_PREDICTION_S = 5.0
"""A measured run that would take longer to simulate is shown without its prediction."""


def sweep_page(sweep: Sweep) -> Page:
    """Return the page of a study that was not stored: all but what only the stored results of its cases say."""
    from charllm.report.page.study import study_page

    by_name = {case.name: case for case in sweep.study.cases}
    cases = [
        _studied(number, by_name[outcome.case], outcome, None)
        for number, outcome in enumerate(sweep.outcomes)
        if outcome.case in by_name
    ]
    note = "The study was not stored (--out DIR): temperatures of single GPUs and intervals are not known."
    return study_page(sweep.study, cases, notes=[note])


def stored_study_page(folder: Path) -> Page:
    """Return the page of a stored study; cases that are missing or cannot be read are skipped with a note."""
    from charllm.report.page.study import study_page

    study = load_study_folder(folder).study
    notes: list[str] = []
    cases = list(studied_cases(folder, study.cases, notes))
    predicted = list(_predictions(cases, study.cases, notes))
    return study_page(study, [*cases, *predicted], notes=notes, provenance=_provenance(folder))


def studied_cases(folder: Path, cases: Sequence[Case], notes: list[str]) -> Iterator[StudiedCase]:
    """Read the cases of a study one by one, and note those that are left out."""
    absent = []
    for number, case in enumerate(cases):
        place = case_folder(folder, number)
        outcome = read_case(place)
        if outcome is None or not isinstance(outcome.summary, dict):
            absent.append(case.name)
            continue
        result, why = _read_result(place)
        if why and outcome.exit_code == 0:
            notes.append(f"Case {case.name}: {why}; it is shown by its summary alone.")
        yield _studied(number, case, outcome, result, place)
    if absent:
        listed = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        notes.append(
            f"{len(absent)} of {len(cases):,} cases are skipped: not run yet, half-written or deleted ({listed}). "
            "`charllm sweep --resume` runs them."
        )


def _read_result(place: Path) -> tuple[RunResult | None, str]:
    """Return the result of a case, or why there is none."""
    if not (place / RESULT_FILE).is_file():
        return None, f"its {RESULT_FILE} is missing"
    try:
        return load_run(place), ""
    except CharllmError as error:
        return None, f"its {RESULT_FILE} cannot be read ({error})"


def _studied(
    number: int, case: Case, outcome: Outcome, result: RunResult | None, place: Path | None = None
) -> StudiedCase:
    """Return a case as its page reads it; its result is opened again only when a figure asks for it."""
    from charllm.report.page.cases import StudiedCase, machine_of

    settings = list_settings(case.request)
    bounds = {} if result is None else {f"{name}.interval": ends for name, ends in intervals_of(result).items()}
    return StudiedCase(
        name=case.name,
        exit_code=outcome.exit_code,
        message=outcome.message,
        values={**outcome.summary, **bounds},
        settings=settings,
        command=f"charllm simulate {write_flags(settings)}",
        origin="simulated" if result is None else result.origin,
        number=number,
        warnings=() if result is None else RunView(result).warnings,
        machine={} if result is None else machine_of(result.spec),
        open_view=lambda: _open(place) if place is not None else None,
    )


def _open(place: Path) -> RunView | None:
    result, _why = _read_result(place)
    return None if result is None else RunView(result)


def intervals_of(result: RunResult) -> dict[str, tuple[float, float]]:
    """Return the intervals of a run's metrics, as they were measured or as predictions are known to err."""
    from charllm.result.uncertainty import intervals

    measured = result.provenance.get("measurement", {}).get("intervals", {})
    if result.origin != "simulated":
        return {name: (ends[0], ends[1]) for name, ends in measured.items() if ends and None not in ends}
    return {name: (found["low"], found["high"]) for name, found in intervals(result).items()}


def _predictions(cases: Sequence[StudiedCase], asked: Sequence[Case], notes: list[str]) -> Iterator[StudiedCase]:
    """Simulate the measured cases of a study, so that each has its prediction beside it."""
    measured = [case for case in cases if case.origin == "measured" and case.ran]
    if len(measured) > MOST_PREDICTED:
        notes.append(f"Predictions are shown beside the first {MOST_PREDICTED} of {len(measured)} measured cases.")
    for case in measured[:MOST_PREDICTED]:
        number = case.number
        result = predict_run(asked[number].request)
        if result is None:
            notes.append(f"Case {case.name}: no prediction (its settings do not form a run that can be simulated).")
            continue
        outcome = Outcome(case.name, 0, "; ".join(result.warnings), summarise(asked[number], result))
        found = _studied(number, asked[number], outcome, result)
        yield replace(found, is_prediction=True, open_view=partial(RunView, result))


def predict_run(request: Mapping[str, Any]) -> RunResult | None:
    """Simulate what a request or the spec of a measured run asks for; None where it is no run, or takes long."""
    from charllm.catalog.resolve import resolve_run
    from charllm.simulate.predict import predict

    try:
        return predict(resolve_run(dict(request)), ignore_memory=True, longest_s=LONGEST_PREDICTION_S).result
    except CharllmError:
        return None


def predict_beside(result: RunResult) -> RunResult | None:
    """Return what was predicted of an emulated run before it ran, or what is predicted of a measured one."""
    if result.origin == "measured":
        return predict_run(result.spec)
    told = result.table("predicted")
    if told is None:
        return None
    return RunResult("simulated", result.spec, Metrics(zip(told["metric"], told["value"], strict=True)))


def write_flags(settings: Mapping[str, Any]) -> str:
    """Write settings by dotted field as flags of the command line."""
    words: list[str] = []
    for name, value in settings.items():
        if name in NAMES and isinstance(value, str):
            words += [f"--{name}", value]
        elif name in FLAGS and isinstance(value, str | int | float) and not isinstance(value, bool):
            words += [f"--{FLAGS[name].replace('_', '-')}", str(value)]
        elif name == "parallelism.sp":
            words.append("--sp" if value else "--no-sp")
        elif name == "training.recompute":
            words += ["--recompute", str(value)]
        elif name == "parallelism.overlap" and isinstance(value, list):
            words += ["--overlap", ",".join(value) or "none"]
        else:
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)


def _provenance(folder: Path) -> dict[str, Any]:
    """Return the versions that made a study."""
    header = json.loads((folder / STUDY_FILE).read_text(encoding="utf-8"))
    return {name: header[name] for name in ("name", "charllm", "catalog", "measured") if header.get(name) is not None}


def compared_page(runs: Sequence[Any]) -> Page:
    """Return runs side by side, given as results or as the folders they are stored in; the first is the reference."""
    from charllm.report.page.cases import case_of_run
    from charllm.report.page.comparison import comparison_page

    places = [as_path(run, "RUN") if isinstance(run, str | PathLike) else None for run in runs]
    results = [_one_run(run, place) for run, place in zip(runs, places, strict=True)]
    named = name_runs(results, places)
    compared = [case_of_run(name, RunView(result), intervals_of(result)) for name, result in named.items()]
    return comparison_page(compared, differing_settings(results), provenance=_versions(results[0]))


def _one_run(run: Any, place: Path | None) -> RunResult:
    from charllm.stored import load_one_run

    if place is not None:
        return load_one_run(place)
    if isinstance(run, RunResult):
        return run
    raise SpecError("what", type(run).__name__, "runs, or the folders they are stored in, to compare")


def _versions(result: RunResult) -> dict[str, Any]:
    return {name: value for name, value in result.provenance.items() if isinstance(value, str | int | float)}


def name_runs(results: Sequence[RunResult], places: Sequence[Path | None]) -> dict[str, RunResult]:
    """Name runs by their case or folder, or by what they run; where two have the same name they are numbered."""
    found: dict[str, RunResult] = {}
    for result, place in zip(results, places, strict=True):
        base = _name(result, place)
        name, again = base, 2
        while name in found:
            name, again = f"{base} ({again})", again + 1
        found[name] = result
    return found


def _name(result: RunResult, place: Path | None) -> str:
    if place is not None:
        folder = place.parent if place.is_file() else place
        outcome = read_case(folder)
        return outcome.case if outcome is not None else folder.resolve().name
    try:
        return f"{result.spec['model']['name']} {describe_degrees(result.spec)}"
    except (KeyError, TypeError):
        return f"{result.origin} run"
