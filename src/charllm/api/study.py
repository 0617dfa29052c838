"""Simulate or measure many runs: a study by name or file, or the product of axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from charllm.api.keywords import FIELDS, SHORT, RunKeywords, as_path, build_request
from charllm.api.measurement import build_job, build_plan
from charllm.api.signature import public
from charllm.errors import SpecError
from charllm.measure.launch import AFTER_S
from charllm.measure.launchers.plan import Plan
from charllm.report.study import render_study
from charllm.result.result import to_frame
from charllm.spec.request import Table
from charllm.sweep.measured import Measuring
from charllm.sweep.outcome import Outcome
from charllm.sweep.run import run_study
from charllm.sweep.study import Study, load_study, unfold

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURING = ("command", "steps", "telemetry", "rate", "idle", "cooldown")
"""Keywords that say how a case is measured; those of `build_plan` say where."""
DEFAULTS: dict[str, Any] = {"telemetry": "auto", "rate": 100.0, "idle": 2.0, "cooldown": AFTER_S}
Axis = Sequence[Any] | Mapping[str, Mapping[str, Any]]
"""Values of the keyword that the axis is named after, or labels, each with the keywords that it stands for."""


@dataclass(frozen=True, slots=True, repr=False)
class Sweep:
    """The cases of a study with their outcomes."""

    study: Study
    outcomes: tuple[Outcome, ...]
    """By case: message, columns and exit code (0 simulated, 1 failed, 2 the request is wrong, 3 does not fit)."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per case: its name, its exit code, why it was rejected, what the study varies, and every metric."""
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
    workers: int = 1,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    signals: bool = False,
    measure: bool = False,
    launcher: str = "local",
    nodes: int | None = None,
    ranks_per_node: int | None = None,
    gpus_per_node: int | None = None,
    time_limit: float | None = None,
    partition: str | None = None,
    account: str | None = None,
    time: str | None = None,
    slurm_args: str = "",
    setup: Sequence[str] = (),
    prefix: str = "",
    shared: bool = False,
    command: str | None = None,
    steps: int | None = None,
    telemetry: str | None = None,
    rate: float | None = None,
    idle: float | None = None,
    cooldown: float | None = None,
    **words: Unpack[RunKeywords],
) -> Sweep:
    """Simulate or measure every case of a study, or of the product of `axes` over the keywords in `base`.

    `study` is a name from ``charllm.catalog("studies")``, a TOML file or a table as in such a file. An axis is a list
    of values for the keyword it is named after, or a dict of labels with the keywords that each stands for. A case
    that is wrong or does not fit is an outcome with its message, never an exception. `out` stores every case as it
    ends, with `signals` also power, temperature and clock over time; `resume` continues there after an interruption.

    With `measure` every case is run for real, one after another, by the reference trainer or by `command`, in which
    {spec}, {case}, {number} and {steps} are filled in; `launcher` and the words after it say where, as of
    `charllm.measure_command`.

    >>> import charllm
    >>> study = charllm.sweep(
    ...     axes={"strategy": {"tensor": {"tp": 8}, "data": {"tp": 1}}, "mbs": [1, 2]},
    ...     base={"model": "llama3-8b", "cluster": "h200x8"},
    ... )
    >>> [row["case"] for row in study.rows]
    ['tensor / mbs 1', 'tensor / mbs 2', 'data / mbs 1', 'data / mbs 2']
    >>> study.rows[0]["strategy"], study.rows[0]["training.micro_batch_size"], study.rows[0]["step_time_s"] > 0
    ('tensor', 1, True)
    """
    if not isinstance(workers, int):
        raise SpecError("--workers", workers, "a whole number")
    unfolded = _study(study, axes, {**_keywords(base, "base"), **words})
    folder = None if out is None else as_path(out, "--out")
    measuring = build_measuring(
        measure=measure,
        launcher=launcher,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        gpus_per_node=gpus_per_node,
        time_limit=time_limit,
        partition=partition,
        account=account,
        time=time,
        slurm_args=slurm_args,
        setup=setup,
        prefix=prefix,
        shared=shared,
        command=command,
        steps=steps,
        telemetry=telemetry,
        rate=rate,
        idle=idle,
        cooldown=cooldown,
    )
    found = run_study(unfolded, workers=workers, out=folder, resume=resume, signals=signals, measuring=measuring)
    return Sweep(found.study, found.outcomes)


def build_measuring(*, measure: bool, **asked: Any) -> Measuring | None:
    """Check how cases are to be measured; None where they are simulated."""
    how = {name: asked.pop(name) for name in MEASURING}
    plan = build_plan(**asked)
    given = {name: value for name, value in how.items() if value is not None}
    if not measure:
        flag = next(iter(given), None if plan == Plan() else "launcher")
        if flag is not None:
            raise SpecError(f"--{flag}", given.get(flag, plan.launcher), "--measure with this flag")
        return None
    # The rules for a job hold for the jobs of a study.
    checked = {name: given.get(name, value) for name, value in DEFAULTS.items()}
    job = build_job(["true"], "unused", **checked)
    found = Measuring(plan, telemetry=job.telemetry, rate_hz=job.rate_hz, idle_s=job.idle_s, cooldown_s=job.cooldown_s)
    return replace(found, **{name: given[name] for name in ("command", "steps") if name in given})


def _study(study: Any, axes: Any, words: Mapping[str, Any]) -> Study:
    if (study is None) == (axes is None):
        raise SpecError("study", "both a study and axes" if study is not None else None, "a study, or axes with a base")
    if study is None:
        return unfold("sweep", {"request": _request(words), "groups": [{"axes": _axes(axes)}]})
    if words:
        raise SpecError(next(iter(words)), "a keyword beside a study", "a study alone: its request describes the runs")
    if isinstance(study, Mapping):
        return unfold(str(study.get("name", "sweep")), study)
    return load_study(str(as_path(study, "study")))


def _axes(axes: Any) -> Table:
    """Turn axes of keywords into axes of a study."""
    found: Table = {}
    for name, axis in _keywords(axes, "axes").items():
        if isinstance(axis, Mapping):
            found[name] = {str(label): _request(_keywords(words, f"axes.{name}")) for label, words in axis.items()}
        elif isinstance(axis, str) or not hasattr(axis, "__iter__"):
            raise SpecError(f"axes.{name}", axis, "a list of values, or labels with keywords")
        elif (field := FIELDS.get(SHORT.get(name, name), name)) in FIELDS.values() or "." in name:
            found[name] = {"field": field, "values": [_value(name, value) for value in axis]}
        else:
            found[name] = {f"{name} {value}": _request({name: value}) for value in axis}
    return found


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
