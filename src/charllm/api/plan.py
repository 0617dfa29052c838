"""Search the strategies of a job from keywords."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from charllm.api.economics import build_economics
from charllm.api.keywords import File, RunKeywords, Spec, as_file, build_request
from charllm.api.signature import public
from charllm.catalog.resolve import DEFAULT_BATCH, read_run, resolve_run
from charllm.errors import SpecError
from charllm.plan.axes import FIELDS, default_axes, parse_axis, pinned_axes, read_axes
from charllm.plan.limits import parse_limits
from charllm.plan.objectives import parse_objective
from charllm.plan.plan import Plan
from charllm.plan.search import TOP, search
from charllm.plan.space import Space
from charllm.result.memory_verdict import MOST_RISK, RISK
from charllm.simulate.work import LONGEST_S
from charllm.spec.request import Table, merge, nest
from charllm.spec.run import RunSpec
from charllm.tracking import Track, untracked

MOST_TOP = 500
FILE_WORDS = ("from_", "args", "env", "allow_unmodelled")
"""Keywords of a foreign file, whose settings are the user's own strategy and pin nothing."""
DROPPED = (*FIELDS.values(), "parallelism.layers_per_stage", "parallelism.regather_size", "training.recompute_layers",
           "training.recompute_modules")  # fmt: skip
"""Fields of a request that the strategies of a plan replace."""


@public
def plan(
    spec: Spec | None = None,
    *,
    objective: str = "throughput",
    limit: str | Sequence[str] = (),
    top: int = TOP,
    axis: str | Sequence[str] | Mapping[str, Sequence[Any]] = (),
    pareto: bool = False,
    sensitivity: bool = False,
    risk: float = RISK,
    tariff: Mapping[str, Any] | None = None,
    whole_run: Mapping[str, Any] | None = None,
    allow_long: bool = False,
    report: File | None = None,
    **words: Unpack[RunKeywords],
) -> Plan:
    """Find the best strategy of a job: degrees, sharding, microbatch, recomputation, overlap, schedule and caps.

    The keywords are the flags of ``charllm plan``. A keyword of a strategy (``tp=4``) pins that setting; `axis` lists
    the values to try (``{"tp": [4, 8]}`` or ``"tp=4,8"``). The strategy of a file (`spec`, `from_`) pins nothing: it is
    compared with the best as the user's own. `objective` is the metric to optimise and `limit` bounds any metric
    (``"temperature_peak_c<80"``). `top` strategies are simulated in full; `tariff` sets prices and `whole_run` the
    run of many steps (``{"tokens": 15e12}``). `risk` is the highest probability of not fitting in memory that a
    strategy may have. `report` writes everything as one HTML file.

    A wrong request raises `charllm.SpecError`, as do limits that no strategy meets.

    >>> import charllm
    >>> found = charllm.plan(model="llama3-8b", cluster="h200x8", gbs=32, pp=1, cp=1, mbs=1, zero=1, top=2)
    >>> found.best[0].run.parallelism.world, len(found.best), found.counts.simulated
    (8, 2, 2)
    """
    return run_plan(
        spec, untracked, objective=objective, limit=limit, top=top, axis=axis, pareto=pareto, sensitivity=sensitivity,
        risk=risk, tariff=tariff, whole_run=whole_run, allow_long=allow_long, report=report, **words,
    )  # fmt: skip


def run_plan(
    spec: Spec | None, track: Track, *, objective: str, limit: str | Sequence[str], top: int, axis: Any, pareto: bool,
    sensitivity: bool, tariff: Mapping[str, Any] | None, whole_run: Mapping[str, Any] | None, allow_long: bool,
    risk: float = RISK, report: File | None = None, **words: Any,
) -> Plan:  # fmt: skip
    """Search the strategies that keywords leave open; `track` shows how far it is."""
    page = None if report is None else as_file(report, "--report")
    asked = build_space(spec, axis, words)
    found = search(
        asked.space,
        parse_objective(objective),
        parse_limits([limit] if isinstance(limit, str) else limit),
        top=_checked_top(top),
        economics=build_economics(tariff, whole_run),
        own=asked.own,
        pareto=pareto,
        sensitive=sensitivity,
        longest_s=math.inf if allow_long else LONGEST_S,
        risk=_checked_risk(risk),
        track=track,
    )
    if page is not None:
        # A page draws on studies and measurement, too, which take longer to load than most plans to find.
        from charllm.api.report import page_of, write_page

        write_page(page_of(found), page, "--report")
    return found


class Asked(NamedTuple):
    """A space, and the user's own strategy in it, where a file describes one."""

    space: Space
    own: RunSpec | None


def build_space(spec: Spec | None, axis: Any, words: Mapping[str, Any]) -> Asked:
    """Return the strategies that a request leaves open."""
    whole = build_request(spec, words)
    pinned = build_request(None, {word: value for word, value in words.items() if word not in FILE_WORDS})
    job = _job(whole, pinned)
    base = read_run(job)
    stated = pinned_axes(pinned) | read_axes(_listed(axis))
    space = Space(base, default_axes(base)._replace(**stated), stated)
    if not space.cells.size:
        # The pinned settings alone may say what is wrong.
        resolve_run(merge(job, {part: pinned.get(part, {}) for part in ("parallelism", "training", "conditions")}))
    has_own = spec is not None or words.get("from_") is not None
    return Asked(space, resolve_run(whole) if has_own else None)


def _job(whole: Table, pinned: Table) -> Table:
    """Return a request without its strategy: model, cluster, batch, formats; what a flag pins beside the axes stays."""
    job = {part: dict(table) if isinstance(table, Mapping) else table for part, table in whole.items()}
    for field in DROPPED:
        part, _dot, name = field.partition(".")
        if isinstance(job.get(part), dict):
            job[part].pop(name, None)
    for part, name in (("training", "recompute_modules"), ("parallelism", "layers_per_stage")):
        kept = pinned.get(part, {}).get(name)
        job = merge(job, nest(f"{part}.{name}", kept)) if kept else job
    batch = job.get("training", {}).get("global_batch_size", DEFAULT_BATCH)
    return dict(merge(job, {"training": {"global_batch_size": batch}}))


def _listed(axis: Any) -> Mapping[str, Sequence[Any]]:
    if isinstance(axis, Mapping):
        return axis
    return dict(parse_axis(text) for text in ([axis] if isinstance(axis, str) else axis))


def _checked_top(top: int) -> int:
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= MOST_TOP:
        raise SpecError("--top", top, f"a whole number from 1 to {MOST_TOP}")
    return top


def _checked_risk(risk: float) -> float:
    if isinstance(risk, bool) or not isinstance(risk, int | float) or not 0 < risk <= MOST_RISK:
        raise SpecError("--risk", risk, f"a number above 0, at most {MOST_RISK:g}")
    return risk
