"""Simulate or measure many runs: a study by name or file, or the product of axes."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from charllm.api.keywords import FIELDS, SHORT, RunKeywords, as_path, build_request
from charllm.api.signature import public_with
from charllm.errors import SpecError
from charllm.measure.launchers.plan import LOCAL, SLURM, TORCHRUN, Plan, build_plan
from charllm.measure.settings import MeasureSettings
from charllm.report.notebook import write_html
from charllm.report.study import VERDICTS, render_study
from charllm.result.result import to_frame
from charllm.spec.flags import pop_keywords, read_keywords, take
from charllm.spec.request import Table
from charllm.sweep.measured import Measuring
from charllm.sweep.outcome import Outcome, StudyResult
from charllm.sweep.run import run_study
from charllm.sweep.runners.work import RAY, Engine
from charllm.sweep.settings import Selection, SweepKeywords, SweepSettings
from charllm.sweep.study import Study, read_study

if TYPE_CHECKING:
    from pandas import DataFrame

SETTINGS = (SweepSettings, Selection, Engine, Plan, MeasureSettings, Measuring)
ARRAY_WORDS = ("partition", "account", "time", "slurm_args", "setup", "prefix")
"""Words of Slurm's jobs that simulated cases have, too."""
Axis = Sequence[Any] | Mapping[str, Mapping[str, Any]]
"""Values of the keyword that the axis is named after, or labels, each with the keywords that it stands for."""


class StudyKeywords(RunKeywords, SweepKeywords, total=False):
    """All words of a sweep: those of a run, and how its cases are run."""


@dataclass(frozen=True, slots=True, repr=False)
class Sweep:
    """The cases of a study with their outcomes."""

    study: Study
    outcomes: tuple[Outcome, ...]
    """By case: message, columns and exit code (0 simulated, 1 failed, 2 the request is wrong, 3 does not fit)."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per case: name, exit code, reason of rejection, varied settings, and every metric."""
        return [outcome.row for outcome in self.outcomes]

    def to_frame(self) -> "DataFrame":
        """Return a row per case as a pandas DataFrame."""
        return to_frame(self.rows)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __repr__(self) -> str:
        ends = Counter(VERDICTS.get(outcome.exit_code, "invalid") or "with a result" for outcome in self.outcomes)
        ended = ", ".join(f"{count:,} {end}" for end, count in ends.most_common())
        return f"Sweep({self.study.name}: {ended or 'no cases'})"

    def __str__(self) -> str:
        return render_study(self.study, self.outcomes)

    def _repr_html_(self) -> str:
        return write_html(lambda: str(self))


@public_with(*SETTINGS)
def sweep(
    study: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    axes: Mapping[str, Axis] | None = None,
    base: Mapping[str, Any] | None = None,
    **words: Unpack[StudyKeywords],
) -> Sweep:
    """Simulate or measure every case of a study, or of the product of `axes` over the keywords in `base`.

    `study` is a name from ``charllm.catalog("studies")``, a TOML file or a table as in such a file. An axis is a list
    of values for the keyword it is named after, or a dict of labels with the keywords that each stands for. A case
    that is invalid or does not fit is an outcome with its message, never an exception. `out` stores every case as it
    ends, with `signals` also power, temperature and clock over time; `resume` continues there after an interruption.

    `where` keeps only cases that meet a constraint (``"tp*pp <= 32"``). `sample` is the number of cases to draw by
    `sample_method` (random, latin or sobol), `repeats` the number of seeds for each case.

    `runner` is where cases are simulated: local (processes of this machine), slurm (an array job; `partition`,
    `account`, `time`, `slurm_args`, `setup` and `prefix` as in `charllm.measure_command`) or ray (Ray on this
    machine, or the cluster at `address`). `workers` cases run at the same time.

    With `measure` every case is run and measured, one after another, by the reference trainer, by the program of an
    `adapter` or by `command`, in which {spec}, {case}, {number} and {steps} are filled in; `launcher` and its
    options are those of `charllm.measure_command`.

    >>> import charllm
    >>> study = charllm.sweep(
    ...     axes={"strategy": {"tensor": {"tp": 8}, "data": {"tp": 1}}, "mbs": [1, 2]},
    ...     base={"model": "llama3-8b", "cluster": "h200x8"},
    ...     where="strategy == 'tensor' or mbs == 1",
    ... )
    >>> [row["case"] for row in study.rows]
    ['tensor / mbs 1', 'tensor / mbs 2', 'data / mbs 1']
    >>> study.rows[0]["strategy"], study.rows[0]["training.micro_batch_size"], study.rows[0]["step_time_s"] > 0
    ('tensor', 1, True)
    """
    left = dict(words)
    sweeping = read_sweep(left)
    name, table = _study(study, axes, {**_keywords(base, "base"), **left})
    found = sweeping.run(sweeping.selection.select(name, table))
    return Sweep(found.study, found.outcomes)


class Sweeping(NamedTuple):
    """How the cases of a study are run."""

    settings: SweepSettings
    selection: Selection
    engine: Engine
    measuring: Measuring | None

    def run(self, study: Study, **watched: Any) -> StudyResult:
        """Run a study's cases; `watched` is told about progress, as by `run_study`."""
        own = self.settings
        return run_study(
            study, engine=self.engine, out=own.out, resume=own.resume, signals=own.signals, measuring=self.measuring,
            **watched,
        )  # fmt: skip


def read_sweep(words: dict[str, Any]) -> Sweeping:
    """Take the words of a sweep out of all keywords, and check where its cases are simulated or how measured."""
    settings, selection, engine = take(SweepSettings, words), take(Selection, words), take(Engine, words)
    where, recorded, cases = (pop_keywords(cls, words) for cls in (Plan, MeasureSettings, Measuring))
    if settings.measure:
        plan = build_plan({**where, "launcher": _launcher(engine, where.get("launcher", LOCAL))})
        recording = read_keywords(MeasureSettings, recorded)
        measuring = read_keywords(Measuring, cases, plan=plan, settings=recording, environment=os.environ)
        return Sweeping(settings, selection, Engine(workers=engine.workers), measuring)
    for word, value in {**where, **recorded, **cases}.items():
        flag = f"--{word.replace('_', '-')}"
        if value and word not in ARRAY_WORDS and (word, value) != ("launcher", LOCAL):
            raise SpecError(flag, value, "--measure with this flag")
        if value and word in ARRAY_WORDS and engine.runner != SLURM:
            raise SpecError(flag, value, "--runner slurm with this flag")
    address = engine.address or (os.environ.get("RAY_ADDRESS") if engine.runner == RAY else None)
    engine = replace(engine, slurm=build_plan({**where, "launcher": SLURM}), address=address)
    return Sweeping(settings, selection, engine, None)


def _launcher(engine: Engine, launcher: str) -> str:
    """Return the launcher of measured cases: the runner of a measured study is the launcher of its jobs."""
    if engine.runner not in (LOCAL, SLURM):
        raise SpecError("--runner", engine.runner, "local or slurm with --measure")
    if engine.address is not None:
        raise SpecError("--address", engine.address, "no --address with --measure")
    if engine.runner == SLURM and launcher == TORCHRUN:
        raise SpecError("--launcher", launcher, "slurm with --runner slurm")
    return SLURM if engine.runner == SLURM else launcher


def _study(study: Any, axes: Any, words: Mapping[str, Any]) -> tuple[str, Table]:
    """Return the name and the table of a study."""
    if (study is None) == (axes is None):
        raise SpecError("study", "both a study and axes" if study is not None else None, "a study, or axes with a base")
    if study is None:
        return "sweep", {"request": _request(words), "groups": [{"axes": _axes(axes)}]}
    if words:
        raise SpecError(next(iter(words)), "a keyword beside a study", "a study alone: its request describes the runs")
    if isinstance(study, Mapping):
        return str(study.get("name", "sweep")), dict(study)
    return read_study(str(as_path(study, "study")))


def _axes(axes: Any) -> Table:
    """Turn axes of keywords into axes of a study."""
    found: Table = {}
    for name, axis in _keywords(axes, "axes").items():
        if isinstance(axis, Mapping):
            found[name] = {str(label): _request(_keywords(words, f"axes.{name}")) for label, words in axis.items()}
        elif isinstance(axis, str) or not hasattr(axis, "__iter__"):
            raise SpecError(f"axes.{name}", axis, "a list of values, or labels with keywords")
        else:
            found[name] = _axis(name, list(axis))
    return found


def _axis(name: str, values: list[Any]) -> Table:
    """Return values as an axis: of a field, or of requests where a value is None or sets several fields."""
    field = FIELDS.get(SHORT.get(name, name), name)
    if None not in values and (field in FIELDS.values() or "." in name):
        return {"field": field, "values": [_value(name, value) for value in values]}
    return {f"{name} {value}": _request({name: value}) for value in values}


def _value(name: str, value: Any) -> Any:
    """Return a value as a request holds it."""
    request: Any = _request({name: value})
    for key in FIELDS.get(SHORT.get(name, name), name).split("."):
        request = request[key]
    return request


def _request(words: Mapping[str, Any]) -> Table:
    return build_request(words.get("spec"), {word: value for word, value in words.items() if word != "spec"})


def _keywords(given: Any, word: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
        raise SpecError(word, given, "a dict of keywords")
    return dict(given)
