"""The outcome of one case of a study, as a line of JSON and as a row of a table."""

import json
import math
from types import NoneType
from typing import Any, NamedTuple, TypedDict

from charllm.result.metrics import COLUMNS
from charllm.result.result import RunResult
from charllm.spec.request import check_plain, dotted_fields
from charllm.spec.shape import Cell, Number, check_shape
from charllm.sweep.axes import Case, find_setting
from charllm.sweep.study import Study

FAILED = 1
"""Exit code of a case that could not be finished; unlike a refused one it is not stored, and `--resume` retries it."""
DEGREES = ("tp", "pp", "dp", "ep", "zero")


class Outcome(NamedTuple):
    """One case after it was tried: 0 simulated, 1 failed, 2 the request is wrong, 3 it does not fit in memory."""

    case: str
    exit_code: int
    message: str
    summary: dict[str, Any]
    """What the study varies, then every metric in one level; the same columns for every case of a study."""

    def to_line(self) -> str:
        """Write it as one line of JSON."""
        return json.dumps(self._asdict(), allow_nan=False)

    @property
    def row(self) -> dict[str, Any]:
        """The case in one level of columns."""
        return {"case": self.case, "exit_code": self.exit_code, "message": self.message, **self.summary}


class StoredOutcome(TypedDict):
    """The shape of a stored outcome."""

    case: str
    exit_code: int
    message: str
    summary: dict[str, Cell]


SUMMARY = TypedDict("Summary", dict.fromkeys(COLUMNS, Number | bool), total=False)  # type: ignore[misc]


def from_line(line: str, source: object = "an outcome") -> Outcome | None:
    """Read it back; a line cut short by a crash gives None, one that holds something else is refused."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    check_plain(found, str(source))
    check_shape(found, StoredOutcome, source)
    check_shape(found["summary"], SUMMARY, source, "summary")
    return Outcome(**{name: found[name] for name in Outcome._fields})


class StudyResult(NamedTuple):
    """A study and the outcomes of its cases, in the order of the study; cases not run yet are not among them."""

    study: Study
    outcomes: tuple[Outcome, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each case: its name, what the study varies, and every metric."""
        return [outcome.row for outcome in self.outcomes]

    @property
    def failed(self) -> list[Outcome]:
        """Cases that could not be finished."""
        return [outcome for outcome in self.outcomes if outcome.exit_code == FAILED]


def summarise(case: Case, result: RunResult | None) -> dict[str, Any]:
    """Return the columns of a case; without a result its metrics are None."""
    spec = {} if result is None else result.spec
    settings = {"model": find_setting(spec or case.request, "model")}
    settings |= {axis: find_setting(spec, f"parallelism.{axis}") for axis in DEGREES}
    swept = {name: as_cell(find_setting(spec, name) if value is None else value) for name, value in case.swept.items()}
    metrics = {} if result is None else dotted_fields(result.metrics)
    # Twice: once for its place in front, once more to win over a column of the same name.
    return {**swept, **settings, **{name: metrics.get(name) for name in COLUMNS}, **swept}


def as_cell(value: Any) -> Any:
    """Return a setting as one cell of a table; lists are joined, and what JSON does not know is written as text."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    known = isinstance(value, str | bool | int | NoneType) or (isinstance(value, float) and math.isfinite(value))
    return value if known else str(value)
