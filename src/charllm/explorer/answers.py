"""What a worker computes for one job: one event with its data, whatever happens."""

import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from charllm.analysis.comment import with_changes, with_explanations
from charllm.api.plan import run_budget, run_plan
from charllm.api.report import page_of
from charllm.errors import CharllmError, SpecError
from charllm.explorer.nearest import nearest_valid
from charllm.explorer.request import keywords_of, resolve_words
from charllm.explorer.workers import PROGRESS
from charllm.plan.settings import PlanSettings
from charllm.report.figure import Page
from charllm.report.page.budget import budget_page
from charllm.report.page.changes import changes_figure
from charllm.report.page.plan import plan_page
from charllm.report.page.run import run_page
from charllm.report.page.view import RunView
from charllm.report.web.html import pack
from charllm.simulate.fast import predict_fast
from charllm.simulate.misfit import nearest_change
from charllm.simulate.predict import predict
from charllm.simulate.work import TooLong
from charllm.spec.flags import read_keywords
from charllm.tracking import Track

LONGEST_S = 4.0
"""Estimated seconds beyond which a request is left to the command line."""
PROGRESS_S = 0.25
"""Between two lines that say how far a search is."""
LEFT_OUT = ("changes", "warm-up", "trust", "assumptions")
"""Figures of a run's page that do not follow while it is changed; `charllm report` has them."""
Check = Callable[[], None]
"""Called now and then during work; raises `Stopped` when nobody waits for the answer any more."""


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class Waiting(NamedTuple):
    """Who waits for an answer."""

    check: Check
    tell: Callable[[str], None]
    """Takes a line that says how far the job is."""


class Answer(NamedTuple):
    """One event of a stream."""

    event: str
    data: Mapping[str, Any]


def write_answer(job: Mapping[str, Any], waiting: Waiting) -> str:
    """Do a job and write its answer on one line: the event, a space, its data as JSON. No job ends a worker."""
    try:
        return _write(_answer(job, waiting))
    except Exception as error:
        name = type(error).__name__
        if job["kind"] == "page":
            return _write(_refuse(422, "path", f"the folder was not written by charllm ({name})"))
        traceback.print_exc()
        return _write(_refuse(500, "", f"the request failed ({name})"))


def _write(found: Answer) -> str:
    return f"{found.event} {json.dumps(found.data, allow_nan=False, separators=(',', ':'))}"


def _answer(job: Mapping[str, Any], waiting: Waiting) -> Answer:
    """Do a job; what is wrong with it is an answer too."""
    try:
        return Answer(job["kind"], KINDS[job["kind"]](job, waiting))
    except Stopped:
        return Answer("stopped", {})
    except TooLong as error:
        message = f"{error.field}: {error.asked} takes too long for the explorer. Expected {error.possible}."
        return _refuse(422, error.field, f"{message} Use `charllm simulate` on the command line.")
    except SpecError as error:
        offers = nearest_valid(job["words"], error) if job["kind"] == "fast" else []
        return _refuse(400, _hide_places(job, error.field), _hide_places(job, str(error)), offers)
    except CharllmError as error:
        return _refuse(422, "", _hide_places(job, str(error)))
    except MemoryError:
        return _refuse(422, "", "This needs more memory than a worker of the explorer may hold.")


def _hide_places(job: Mapping[str, Any], text: str) -> str:
    """Name the folders of a job as the store lists them, not by where they lie on the server."""
    for folder in job.get("folders", ()):
        text = text.replace(folder, Path(folder).name)
    return text


def _refuse(status: int, field: str, message: str, offers: Sequence[Mapping[str, Any]] = ()) -> Answer:
    """Return the answer to a request that is not carried out, with changes that would let it."""
    return Answer("error", {"status": status, "field": field, "message": message, "offers": list(offers)})


def _fast(job: Mapping[str, Any], waiting: Waiting) -> dict[str, Any]:
    waiting.check()
    begun_s = time.perf_counter()
    run = resolve_words(job["words"])
    result = predict_fast(run, longest_s=LONGEST_S)
    remedy = None if result.metrics["fits"] else nearest_change(run)
    return {
        "metrics": dict(result.metrics),
        "spec": result.spec,
        "warnings": result.warnings,
        "fits": result.metrics["fits"],
        "fits_with": remedy.flags if remedy else "",
        "elapsed_s": time.perf_counter() - begun_s,
    }


def _coupled(job: Mapping[str, Any], waiting: Waiting) -> dict[str, Any]:
    waiting.check()
    begun_s = time.perf_counter()
    found = predict(resolve_words(job["words"]), longest_s=LONGEST_S, before_round=waiting.check)
    waiting.check()
    page = _without_computed(run_page(RunView(with_explanations(found))))
    result = found.result
    return {
        "metrics": dict(result.metrics),
        "gpus": result.gpus,
        "nodes": result.nodes,
        "warnings": result.warnings,
        "fits": result.metrics["fits"],
        "page": pack(page),
        "elapsed_s": time.perf_counter() - begun_s,
    }


def _without_computed(page: Page) -> Page:
    """Leave out the figures that need further simulations, and those that are the same for every run."""
    sections = [
        replace(section, figures=[figure for figure in section.figures if figure.name not in LEFT_OUT])
        for section in page.sections
    ]
    return replace(page, sections=[section for section in sections if section.figures])


def _tracked(check: Check) -> Track:
    """Return what looks before every change that is simulated whether somebody still waits."""

    def track(items: Iterable[Any], _total: int, _title: str) -> Iterable[Any]:
        for item in items:
            check()
            yield item

    return track


def _changes(job: Mapping[str, Any], waiting: Waiting) -> dict[str, Any]:
    found = predict(resolve_words(job["words"]), longest_s=LONGEST_S, before_round=waiting.check)
    result = with_changes(found, _tracked(waiting.check))
    return {"figure": pack(changes_figure(RunView(result)))}


def _page(job: Mapping[str, Any], waiting: Waiting) -> dict[str, Any]:
    waiting.check()
    folders = [Path(folder) for folder in job["folders"]]
    page: dict[str, Any] = pack(page_of(folders if len(folders) > 1 else folders[0], _tracked(waiting.check)))
    return page


def _plan(job: Mapping[str, Any], waiting: Waiting) -> dict[str, Any]:
    waiting.check()
    names = ("objective", "limit", "top", "sensitivity", "whole_run")
    settings, words = read_keywords(PlanSettings, {name: job[name] for name in names}), keywords_of(job["words"])
    if job["machines"]:
        begun_s = time.perf_counter()
        machines = list(dict.fromkeys([words["cluster"], *job["machines"]]))
        spent = run_budget(None, _told(waiting), settings, {**words, "cluster": machines}).as_table()
        page = pack(budget_page(spent))
        return {"page": page, "spec": None, "flags": "", "elapsed_s": time.perf_counter() - begun_s}
    found = run_plan(None, _told(waiting), settings, words).as_table()
    best = found["best"][0]
    return {
        "page": pack(plan_page(found)),
        "spec": best["spec"],
        "flags": best["flags"],
        "elapsed_s": found["elapsed_s"],
    }


def _told(waiting: Waiting) -> Track:
    """Return what looks before every part of a search whether somebody waits, and says how far it is now and then."""
    last_s = [0.0]

    def track(items: Iterable[Any], total: int, title: str) -> Iterator[Any]:
        for done, item in enumerate(items):
            waiting.check()
            now_s = time.monotonic()
            if now_s - last_s[0] > PROGRESS_S:
                last_s[0] = now_s
                waiting.tell(_write(Answer(PROGRESS, {"title": title, "done": done, "total": total})))
            yield item

    return track


KINDS: dict[str, Callable[[Mapping[str, Any], Waiting], dict[str, Any]]] = {
    "fast": _fast,
    "coupled": _coupled,
    "changes": _changes,
    "page": _page,
    "plan": _plan,
}
"""Kind of job: what does it."""
