"""Simulate or measure many runs: a study by name or file, or the product of axes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from charllm.api.keywords import FIELDS, SHORT, RunKeywords, as_path, build_request
from charllm.api.measurement import PlanKeywords, build_job, build_plan
from charllm.api.signature import public
from charllm.errors import SpecError
from charllm.measure.launch import AFTER_S
from charllm.report.study import render_study
from charllm.result.result import to_frame
from charllm.spec.request import Table
from charllm.sweep.measured import Measuring
from charllm.sweep.outcome import Outcome
from charllm.sweep.run import run_study
from charllm.sweep.runners.work import Engine
from charllm.sweep.study import Study, read_study, unfold

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURING = ("command", "adapter", "script", "steps", "telemetry", "rate", "idle", "cooldown")
"""Keywords that say how a case is measured; those of `build_plan` say where."""
DEFAULTS: dict[str, Any] = {"telemetry": "auto", "rate": 100.0, "idle": 2.0, "cooldown": AFTER_S}
ARRAY_WORDS = ("partition", "account", "time", "slurm_args", "setup", "prefix")
"""Words of Slurm's jobs that simulated cases have, too."""
Axis = Sequence[Any] | Mapping[str, Mapping[str, Any]]
"""Values of the keyword that the axis is named after, or labels, each with the keywords that it stands for."""


class MeasuringKeywords(PlanKeywords, total=False):
    """Words that say how and where cases are measured, named as the flags are; see `charllm sweep --help`."""

    command: str | None
    adapter: str | None
    script: str | None
    steps: int | None
    telemetry: str | None
    rate: float | None
    idle: float | None
    cooldown: float | None


class SweepKeywords(RunKeywords, MeasuringKeywords, total=False):
    """All words of a sweep beside its own: those of a run, and how it is measured."""


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
        return render_study(self.study, self.outcomes)


@public
def sweep(
    study: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    axes: Mapping[str, Axis] | None = None,
    base: Mapping[str, Any] | None = None,
    where: str | Sequence[str] = (),
    repeats: int | None = None,
    sample: int | None = None,
    sample_method: str | None = None,
    sample_seed: int | None = None,
    runner: str = "local",
    workers: int | None = None,
    address: str | None = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    signals: bool = False,
    measure: bool = False,
    **words: Unpack[SweepKeywords],
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
    described = {word: value for word, value in words.items() if word not in MeasuringKeywords.__annotations__}
    name, table = _study(study, axes, {**_keywords(base, "base"), **described})
    asked: dict[str, Any] = {"repeats": repeats, "sample": sample, "sample_method": sample_method}
    unfolded = refine_study(name, table, where=where, **asked, sample_seed=sample_seed)
    measured = {word: value for word, value in words.items() if word not in described}
    engine, measuring = build_engine(measure=measure, runner=runner, workers=workers, address=address, **measured)
    folder = None if out is None else as_path(out, "--out")
    found = run_study(unfolded, engine=engine, out=folder, resume=resume, signals=signals, measuring=measuring)
    return Sweep(found.study, found.outcomes)


def refine_study(
    name: str,
    table: Table,
    *,
    where: str | Sequence[str] = (),
    repeats: int | None = None,
    sample: int | None = None,
    sample_method: str | None = None,
    sample_seed: int | None = None,
) -> Study:
    """Return a study with more constraints than its table has, another sample or other repeats."""
    changed = dict(table)
    more = [where] if isinstance(where, str) else list(where)
    if more:
        before = table.get("where", [])
        changed["where"] = [*([before] if isinstance(before, str) else before), *more]
    drawn = {"count": sample, "method": sample_method, "seed": sample_seed}
    drawn = {word: value for word, value in drawn.items() if value is not None}
    if drawn:
        before = table.get("sample")
        changed["sample"] = {**(before if isinstance(before, dict) else {"count": before}), **drawn}
    if repeats is not None:
        changed["repeats"] = repeats
    return unfold(name, changed)


def build_engine(
    *, measure: bool, runner: str = "local", workers: int | None = None, address: str | None = None, **asked: Any
) -> tuple[Engine, Measuring | None]:
    """Check where cases are to be simulated, or how they are to be measured."""
    if workers is not None and not isinstance(workers, int):
        raise SpecError("--workers", workers, "a whole number")
    if measure:
        return Engine(workers=workers), build_measuring(**_launched(runner, address, asked))
    where = {word: value for word, value in asked.items() if word in PlanKeywords.__annotations__ and value}
    for word, value in asked.items():
        if value and word not in ARRAY_WORDS and (word != "launcher" or value != "local"):
            raise SpecError(f"--{word.replace('_', '-')}", value, "--measure with this flag")
        if value and word in ARRAY_WORDS and runner != "slurm":
            raise SpecError(f"--{word.replace('_', '-')}", value, "--runner slurm with this flag")
    plan = build_plan(**{**where, "launcher": "slurm"})
    ray_address = address or (os.environ.get("RAY_ADDRESS") if runner == "ray" else None)
    return Engine(runner, workers, plan, ray_address), None


def _launched(runner: str, address: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the words of measured cases: the runner of a measured study is the launcher of its jobs."""
    if runner not in ("local", "slurm"):
        raise SpecError("--runner", runner, "local or slurm with --measure")
    if address is not None:
        raise SpecError("--address", address, "no --address with --measure")
    launcher = asked.get("launcher") or "local"
    if runner == "slurm" and launcher == "torchrun":
        raise SpecError("--launcher", launcher, "slurm with --runner slurm")
    return {**asked, "launcher": "slurm" if runner == "slurm" else launcher}


def build_measuring(**asked: Any) -> Measuring:
    """Check how cases are to be measured."""
    given = {name: value for name in MEASURING if (value := asked.pop(name, None)) is not None}
    plan = build_plan(**asked)
    # The rules for a job hold for the jobs of a study.
    checked = {name: given.get(name, value) for name, value in DEFAULTS.items()}
    job = build_job(["true"], "unused", **checked)
    found = Measuring(plan, telemetry=job.telemetry, rate_hz=job.rate_hz, idle_s=job.idle_s, cooldown_s=job.cooldown_s)
    chosen = {name: given[name] for name in ("command", "adapter", "script", "steps") if name in given}
    return replace(found, environment=os.environ, **chosen)


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
