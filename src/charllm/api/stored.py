"""Runs and studies on disk, and two runs side by side."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from charllm.api.keywords import as_path
from charllm.api.signature import public
from charllm.errors import SpecError
from charllm.result.compare import Compared, compare_runs, spec_differences
from charllm.result.result import RunResult, to_frame
from charllm.stored import OpsResult, load_one_run, read_character
from charllm.stored import load as load_stored

if TYPE_CHECKING:
    from pandas import DataFrame

    from charllm.analysis.characterize import Character
    from charllm.api.study import Sweep

Run = RunResult | str | PathLike[str]
"""A result, or the folder (or result.json) it is stored in."""


@public
def load(folder: str | PathLike[str]) -> RunResult | Sweep | OpsResult:
    """Read what `save`, ``--out``, `measure` or `sweep` stored: a run, a study with all its cases, an op benchmark.

    A recording that was killed is completed first: its result summarises the readings up to then.

    >>> import charllm, tempfile
    >>> result = charllm.simulate(model="llama3-8b", cluster="h200x8", tp=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = charllm.load(result.save(f"{folder}/run"))
    >>> again == result
    True
    """
    from charllm.api.study import Sweep
    from charllm.sweep.outcome import StudyResult

    found = load_stored(as_path(folder, "folder"))
    return Sweep(found.study, found.outcomes) if isinstance(found, StudyResult) else found


@public
def characterize(folder: str | PathLike[str]) -> Character:
    """Characterise the recording of a run: power states, temperature groups, step period, dips, outlier GPUs.

    `folder` is the folder of a run of `measure` or `convert`; ``charllm show`` prints the same.
    """
    found = read_character(as_path(folder, "folder"))
    if found is None:
        raise SpecError("folder", str(folder), "the folder of a measured or converted run")
    return found


@public
def query(store: str | PathLike[str], sql: str) -> DataFrame:
    """Run a SELECT over the runs and studies in a folder; returns a pandas DataFrame (see ``charllm query --help``).

    >>> import charllm, tempfile
    >>> result = charllm.simulate(model="llama3-8b", cluster="h200x8", tp=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = result.save(f"{folder}/run")
    ...     charllm.query(folder, "SELECT run, tp, count(*) AS gpus FROM runs JOIN gpus USING (run) GROUP BY ALL")
       run  tp  gpus
    0  run   2     8
    """
    from charllm.database import query_store

    if not isinstance(sql, str):
        raise SpecError("sql", sql, "a text")
    answer = query_store(as_path(store, "store"), sql)
    for name, why in answer.skipped.items():
        warnings.warn(f"{name} is left out: {why}", stacklevel=2)
    return to_frame(answer.as_dicts(), answer.columns)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Two runs side by side: the settings that differ, and every metric that is known for one of them."""

    settings: dict[str, tuple[Any, Any]]
    """Setting: its value in the first run and in the second."""
    metrics: list[Compared]
    """By metric: the first run's value, the second run's, `ratio`, second over first, and of two simulated runs the
    `difference` with its interval."""

    def to_frame(self) -> DataFrame:
        """Return a row per metric as a pandas DataFrame."""
        return to_frame(self._rows())

    def to_json(self) -> str:
        """Return the comparison as JSON, as ``charllm compare --json`` prints it."""
        settings = {name: list(pair) for name, pair in self.settings.items()}
        return json.dumps({"settings": settings, "metrics": self._rows()}, indent=2, allow_nan=False)

    def __repr__(self) -> str:
        ratio = next((one.ratio for one in self.metrics if one.metric == "step_time_s"), None)
        time = "" if ratio is None else f", step_time_s x {ratio:.3g}"
        return f"Comparison(settings that differ: {len(self.settings)}; metrics: {len(self.metrics)}{time})"

    def __str__(self) -> str:
        from charllm.report.compare import render_comparison

        return render_comparison(self.metrics, self.settings)

    def _repr_html_(self) -> str:
        from charllm.report.notebook import write_html

        return write_html(lambda: str(self))

    def _rows(self) -> list[dict[str, Any]]:
        return [one.as_row() for one in self.metrics]


@public
def compare(first: Run, second: Run) -> Comparison:
    """Compare two runs, given as results or as the folders they are stored in.

    >>> import charllm
    >>> few, many = (charllm.simulate(model="llama3-8b", cluster="h200x8", tp=tp) for tp in (1, 8))
    >>> charllm.compare(few, many).settings["parallelism.tp"]
    (1, 8)
    """
    left, right = _run(first, "first"), _run(second, "second")
    return Comparison(spec_differences(left, right), compare_runs(left, right))


def _run(given: Run, word: str) -> RunResult:
    return given if isinstance(given, RunResult) else load_one_run(as_path(given, word))
