"""Simulate one case of a study and store it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from charllm.errors import CharllmError, DoesNotFit
from charllm.result.files import CASE_FILE
from charllm.result.result import Columns, to_stored
from charllm.result.store import RESULT_FILE, large_tables, save_folder
from charllm.sweep.axes import Case
from charllm.sweep.outcome import FAILED, Outcome, summarise

if TYPE_CHECKING:
    from charllm.simulate.predict import Simulation


class Task(NamedTuple):
    """One case to simulate."""

    case: Case
    folder: Path | None = None
    """Where to store it."""
    signals: bool = False
    """Whether to store power, temperature and clock over time."""


def run_case(task: Task) -> Outcome:
    """Simulate a case and, where it has a folder, store it; only what goes wrong with the storing is an error."""
    from charllm.catalog.resolve import resolve_run
    from charllm.simulate.predict import predict

    texts: dict[str, str] = {}
    tables: dict[str, Columns] = {}
    try:
        found = predict(resolve_run(task.case.request))
        outcome = _judge(task.case, found)
        if task.folder is not None:
            texts[RESULT_FILE] = to_stored(found.result, one_line=True)
            tables = large_tables(found.result) if task.signals else {}
    except CharllmError as error:
        outcome = Outcome(task.case.name, error.exit_code, str(error), summarise(task.case, None))
    except Exception as error:
        # A fault of ours, or no memory left, must not end the other cases.
        return fail_case(task.case, f"internal error: {type(error).__name__}: {error}")
    if task.folder is not None:
        # To wait for the disk takes as long as a case; one that a loss of power has spoiled is seen by `begin`.
        save_folder(task.folder, {**texts, CASE_FILE: outcome.to_line()}, tables, durable=False)
    return outcome


def fail_case(case: Case, reason: str) -> Outcome:
    """Return the outcome of a case that could not be finished."""
    return Outcome(case.name, FAILED, reason, summarise(case, None))


def _judge(case: Case, found: Simulation) -> Outcome:
    result = found.result
    if result.metrics["fits"]:
        return Outcome(case.name, 0, "; ".join(result.warnings), summarise(case, result))
    reason = next(warning for warning in result.warnings if warning.startswith("memory"))
    return Outcome(case.name, DoesNotFit.exit_code, reason, summarise(case, result))
