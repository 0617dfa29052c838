"""A run, a study or several runs as a page, and as one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.api.keywords import as_file, as_path
from charllm.api.signature import public
from charllm.errors import CharllmError, SpecError
from charllm.profile import TRACE_FILES
from charllm.report.figure import Page
from charllm.report.page.planned import PLAN_FILE, check_plan, is_plan
from charllm.report.web.html import write_html
from charllm.result.columns import Columns, columns_of
from charllm.result.files import STUDY_FILE
from charllm.result.result import RunResult
from charllm.result.store import RESULT_FILE, write_text
from charllm.spec.request import parse_json, read_text
from charllm.spec.run import RunSpec
from charllm.stored import load
from charllm.tracking import Track, untracked
from charllm.units import MIB

Place = str | PathLike[str]

if TYPE_CHECKING:
    from charllm.api.study import Sweep
    from charllm.plan.plan import Plan
    from charllm.report.page.view import Background, RunView
    from charllm.simulate.predict import Simulation

    Reported = RunResult | Sweep | Plan | Mapping[str, Any] | Place
    """A run, a study, a plan or its table, or the folder or file it is stored in."""

Tables = Mapping[str, Callable[[], Columns]]
LONGEST_S = 5.0
"""A stored run that would take longer to simulate again is shown without explanations and changes."""
NOT_AGAIN = "the stored run takes too long to simulate again, or this version gives another prediction"
MOST_PLAN_BYTES = int(256 * MIB)
SAME_FRACTION = 1e-3
"""A run simulated again is the stored one where its step time differs by less."""


@public
def report(what: Reported | Sequence[Reported], out: Place) -> Path:
    """Write a run, a study, a plan or a comparison of several runs as one HTML file that needs no network.

    `what` is a result, a sweep or a plan, the folder or file in which one is stored, or a list of runs to compare.
    Returns the path of the file.

    >>> import charllm, tempfile
    >>> result = charllm.simulate(model="llama3-8b", cluster="h200x8", tp=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     charllm.report(result, out=f"{folder}/run.html").name
    'run.html'
    """
    path = as_file(out, "--out")
    return write_page(page_of(what), path)


def write_page(page: Page, path: Path, flag: str = "--out") -> Path:
    """Write a page as one HTML file; `flag` has named it."""
    try:
        write_text(write_html(page), path)
    except OSError as error:
        raise SpecError(flag, str(path), f"a file that can be written ({error.strerror or error})") from None
    return path


def page_of(what: Reported | Sequence[Reported], track: Track = untracked) -> Page:
    """Compute the page of a run, a study or a plan, or of several runs side by side; `track` shows how far it is."""
    from charllm.api.report_study import compared_page, sweep_page
    from charllm.report.page.plan import plan_page
    from charllm.report.page.run import run_page

    if isinstance(what, str | PathLike):
        return _page_of_folder(as_path(what, "what"), track)
    if isinstance(what, RunResult):
        return run_page(view_run(what, track=track))
    if isinstance(what, Sequence) and len(what) == 1:
        return page_of(what[0], track)
    if isinstance(what, Sequence) and what:
        return compared_page(what)
    if isinstance(what, Mapping):
        return plan_page(what)
    # Their classes bring along all that makes a plan or runs a sweep.
    from charllm.api.study import Sweep
    from charllm.plan.plan import Plan

    if isinstance(what, Plan):
        return plan_page(what.as_table())
    if isinstance(what, Sweep):
        return sweep_page(what)
    raise SpecError(
        "what", type(what).__name__, "a run, a study, a plan, the folder one is stored in, or a list of runs"
    )


def _page_of_folder(path: Path, track: Track) -> Page:
    from charllm.api.report_study import stored_study_page
    from charllm.report.page.plan import plan_page
    from charllm.report.page.run import run_page
    from charllm.sweep.outcome import StudyResult

    plan = _read_plan(path / PLAN_FILE if path.is_dir() else path)
    if plan is not None:
        return plan_page(plan)
    found = load(path, "RUN")
    if isinstance(found, StudyResult):
        return stored_study_page(path if path.is_dir() else path.parent)
    if isinstance(found, RunResult):
        return run_page(view_run(found, path, track))
    raise SpecError("RUN", str(path), "the folder of a run or of a study, or the file of a plan")


def _read_plan(file: Path) -> Mapping[str, Any] | None:
    """Return the table of a plan; None where a file is none, or something else."""
    if file.suffix != ".json" or file.name in (RESULT_FILE, STUDY_FILE) or not file.is_file():
        return None
    table = parse_json(read_text(file, "RUN", MOST_PLAN_BYTES), str(file), "RUN")
    if not is_plan(table):
        return None
    check_plan(table, file)
    plan: Mapping[str, Any] = table
    return plan


def view_run(result: RunResult, folder: Path | None = None, track: Track = untracked) -> RunView:
    """Return what the page of a run needs; a simulated one is simulated again for what is not stored."""
    from charllm.analysis.comment import ask_what_if
    from charllm.analysis.doctor.measured import known_run
    from charllm.api.report_study import predict_beside
    from charllm.report.page.view import RunView
    from charllm.result.provenance import tabulate_figures

    spec = known_run(result)
    if result.origin != "simulated":
        tables = {} if spec is None else {"figures": partial(tabulate_figures, spec)}
        result = replace(result, tables={**tables, **result.tables})
        return RunView(result, background=_background(), traced=_traced(folder), prediction=predict_beside(result))
    if "changes" in result.tables:
        return RunView(result, background=_background())
    again = _simulated(spec, result) if spec is not None else None
    if again is None:
        rows = [(name, NOT_AGAIN) for name in ("changes", "warm_up", "preheating")]
        more: Tables = {"reasons": partial(columns_of, ("table", "reason"), rows)}
    else:
        # Tables that were not stored are those of the same run simulated again.
        more = ask_what_if(again, track).tables
    return RunView(
        replace(result, tables={**more, **result.tables, "reasons": more["reasons"]}), background=_background()
    )


def _background() -> Background:
    """Return what every prediction stands among and rests on."""
    from charllm.evaluate.constants import list_constants
    from charllm.evaluate.predictions import load_predictions
    from charllm.report.page.view import Background

    published, constants = load_predictions(), list_constants()
    return Background(columns_of(published[0]._fields, published), columns_of(constants[0]._fields, constants))


def _traced(path: Path | None) -> list[dict[str, Any]]:
    """Return where the joules of a recorded run went; nothing where it has no trace, or one that cannot be read."""
    from charllm.analysis.attribution.run import attribute_run
    from charllm.analysis.attribution.table import as_table
    from charllm.trace.run import read_run

    folder = None if path is None else path if path.is_dir() else path.parent
    if folder is None or not any(folder.rglob(TRACE_FILES)):
        return []
    try:
        return [as_table(found) for found in attribute_run(folder, read_run([folder]).ranks)]
    except (CharllmError, OSError, ValueError):
        return []


def _simulated(spec: RunSpec, result: RunResult) -> Simulation | None:
    """Simulate a stored run again; None where that takes long, or where this version predicts something else."""
    from charllm.simulate.predict import predict

    stored_s = result.metrics.get("step_time_s")
    try:
        found = predict(spec, ignore_memory=stored_s is not None, longest_s=LONGEST_S)
    except CharllmError:
        return None
    if stored_s is None or found.timed is None:
        return found
    return found if abs(found.timed.step_time_s / stored_s - 1) < SAME_FRACTION else None
