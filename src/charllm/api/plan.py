"""Search the strategies of a job from keywords."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

from charllm.api.economics import build_economics
from charllm.api.keywords import RunKeywords, Spec, as_file, build_request
from charllm.api.signature import public_with
from charllm.catalog.defaults import DEFAULT_BATCH
from charllm.catalog.resolve import DEFAULT_FRAMEWORK, read_run, resolve_cluster, resolve_run
from charllm.errors import SpecError
from charllm.plan.axes import FIELDS, default_axes, parse_axis, pinned_axes, read_axes
from charllm.plan.budget import Budget, budget_row, budget_spent, list_sizes, misfit_row
from charllm.plan.limits import Judged, explain_unmet, parse_limits
from charllm.plan.money import tell_tariff
from charllm.plan.objectives import parse_objective
from charllm.plan.plan import Plan
from charllm.plan.rows import cell_run
from charllm.plan.runnable import find_refusal
from charllm.plan.search import search
from charllm.plan.settings import PlanKeywords, PlanSettings
from charllm.plan.shortlist import NothingFits
from charllm.plan.space import Space
from charllm.result.description import BATCH_FLAGS, describe_batch
from charllm.simulate.work import LONGEST_S, TooLong
from charllm.spec.flags import take
from charllm.spec.request import Table, merge, nest, parse_value
from charllm.spec.run import RunSpec
from charllm.tracking import Track, untracked

FILE_WORDS = ("from_", "args", "env", "allow_unmodelled")
"""Keywords of a foreign file, whose settings are the user's own strategy and pin nothing."""
LONGEST_DAYS, BUDGET_TOP = 100_000, 2
"""Of a budget: days of a run, and strategies that are simulated on each machine, at most."""
OFFLOAD = "training.optimizer_offload_fraction"
FRAMEWORKS = ("nemo", "torchtitan")
"""Software profiles that are tried where the usual one cannot run a job."""
DROPPED = (*FIELDS.values(), "parallelism.layers_per_stage", "parallelism.regather_size", "training.recompute_layers",
           "training.recompute_modules")  # fmt: skip
"""Fields of a request that the strategies of a plan replace."""


class Keywords(PlanKeywords, RunKeywords, total=False):
    """All words of a plan."""


@public_with(PlanSettings)
def plan(spec: Spec | None = None, **words: Unpack[Keywords]) -> Plan:
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
    run: dict[str, Any] = dict(words)
    return run_plan(spec, untracked, take(PlanSettings, run), run)


def run_plan(spec: Spec | None, track: Track, settings: PlanSettings, words: Mapping[str, Any]) -> Plan:
    """Search the strategies that the keywords of a run leave open; `track` shows how far it is."""
    page = None if settings.report is None else as_file(settings.report, "--report")
    found = _plan(spec, track, settings, words)
    if page is not None:
        # A page draws on studies and measurement, too, which take longer to load than most plans to find.
        from charllm.api.report import page_of, write_page

        write_page(page_of(found), page, "--report")
    return found


def _plan(
    spec: Spec | None, track: Track, settings: PlanSettings, words: Mapping[str, Any], *, alone: bool = False
) -> Plan:
    """Search, with a framework that runs the job and, where nothing fits otherwise, an optimizer on the CPUs."""
    words, notes = _runnable_words(spec, settings.axis, words)
    try:
        found = _search(spec, track, settings, words, alone=alone)
    except NothingFits as error:
        relief = {**words, OFFLOAD: 1.0}
        if OFFLOAD in words or words.get("lora"):
            raise
        try:
            found = _search(spec, track, settings, relief, alone=alone)
        except SpecError:
            raise error from None
        notes += [f"nothing fits with the optimizer's states on the GPU: all strategies have --set {OFFLOAD}=1"]
    return replace(found, warnings=[*notes, *found.warnings])


@public_with(PlanSettings)
def budget(spec: Spec | None = None, **words: Unpack[Keywords]) -> Budget:
    """Compare what a job takes on several machines: GPUs, days, money, MW, MWh and CO2, each with its best strategy.

    The keywords are those of `charllm.plan`; `cluster` may be a list of clusters, `nodes` a range (``"4..256"``: 4, 8,
    16 and so on). The whole run is given by its tokens or its days (``whole_run={"tokens": 15e12}`` or
    ``{"days": 30}``); without it, figures are of a trillion tokens. A `limit` marks the machines that break it.

    >>> import charllm
    >>> found = charllm.budget(model="llama3-8b", cluster=["h200x8", "h100x8"], gbs=32, pp=1, cp=1, mbs=1, top=1)
    >>> [row["cluster"] for row in found.rows], found.rows[0]["days"] < found.rows[1]["days"]
    (['h200x8', 'h100x8'], True)
    """
    run: dict[str, Any] = dict(words)
    return run_budget(spec, untracked, take(PlanSettings, run), run)


def run_budget(spec: Spec | None, track: Track, settings: PlanSettings, words: Mapping[str, Any]) -> Budget:
    """Plan the job on each machine, and tell what it takes there."""
    whole = dict(settings.whole_run or {})
    days = whole.pop("days", None)
    if days is not None and (whole or not 0 < (length := _days(days)) < LONGEST_DAYS):
        raise SpecError("--whole-run", f"days={days}", f"tokens=N or days=N, up to {LONGEST_DAYS:,}")
    economics, limits = build_economics(settings.tariff, whole), parse_limits(settings.limit)
    each = replace(settings, limit=(), whole_run=whole, top=min(settings.top, BUDGET_TOP), report=None)
    machines = [
        {"cluster": cluster, "nodes": nodes}
        for cluster in _several(words.get("cluster"))
        for nodes in (list_sizes(words["nodes"]) if words.get("nodes") is not None else [None])
    ]
    page = None if settings.report is None else as_file(settings.report, "--report")
    rows, plans, judged = [], [], []
    for machine in track(machines, len(machines), "machines"):
        try:
            plan = _plan(spec, untracked, each, {**words, **machine}, alone=True)
        except (NothingFits, TooLong) as error:
            rows.append(misfit_row(_machine_name(machine, words), str(error)))
            continue
        plans.append(plan)
        spent = budget_spent(plan, economics, None if days is None else length)
        rows.append(budget_row(plan, spent, economics, limits))
        judged.append(Judged(rows[-1]["cluster"], spent.metrics))
    prices, currency = tell_tariff(economics.tariff), economics.tariff.currency
    found = Budget(
        rows=rows, limits=limits, prices=prices, currency=currency, objective=settings.objective, plans=plans,
        job=_describe_work(plans[0]) if plans else "",
        nearest=explain_unmet(limits, judged, "machine") if judged and not any(row["meets"] for row in rows) else "",
    )  # fmt: skip
    if page is not None:
        from charllm.api.report import write_page
        from charllm.report.page.budget import budget_page

        write_page(budget_page(found.as_table()), page, "--report")
    return found


def _describe_work(plan: Plan) -> str:
    """Name what is trained on every machine of a budget."""
    run = plan.best[0].run
    return f"{run.model.name}, {run.training.precision}, {describe_batch(run, plan.defaulted)}"


def _days(days: Any) -> float:
    value = parse_value(days) if isinstance(days, str) else days
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _several(cluster: Any) -> list[Any]:
    return list(cluster) if isinstance(cluster, list | tuple) else [cluster]


def _machine_name(machine: Mapping[str, Any], words: Mapping[str, Any]) -> str:
    """Name a machine that was asked for."""
    asked = {word: machine.get(word, words.get(word)) for word in ("cluster", "nodes", "gpu", "gpus", "network")}
    request = build_request(None, {word: value for word, value in asked.items() if value is not None})
    return resolve_cluster(request["cluster"]).name


def is_budget(words: Mapping[str, Any]) -> bool:
    """Tell whether several machines are asked for."""
    several = len(_several(words.get("cluster"))) > 1
    return several or isinstance(words.get("nodes"), str)


def _search(spec: Spec | None, track: Track, settings: PlanSettings, words: Mapping[str, Any], *, alone: bool) -> Plan:
    job = build_space(spec, settings.axis, words)
    found = search(
        job.space,
        parse_objective(settings.objective, whole_run=bool(settings.whole_run)),
        parse_limits(settings.limit),
        top=settings.top,
        economics=build_economics(settings.tariff, settings.whole_run),
        own=job.own,
        pareto=settings.pareto,
        sensitive=settings.sensitivity,
        longest_s=math.inf if settings.allow_long else LONGEST_S,
        risk=settings.risk,
        alone=alone,
        track=track,
    )
    return replace(found, defaulted=job.defaulted)


def _runnable_words(
    spec: Spec | None, axis: Mapping[str, Any], words: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[str]]:
    """Name a framework that trains adapters where the request names none and the usual one cannot, and say so."""
    if spec is not None or words.get("from_") is not None or words.get("framework") is not None:
        return words, []
    why = _job_fault(build_space(spec, axis, words).space)
    for name in FRAMEWORKS if why else ():
        chosen = {**words, "framework": name}
        if _job_fault(build_space(spec, axis, chosen).space) is None:
            return chosen, [f"framework {name}, as {DEFAULT_FRAMEWORK} cannot run it: {why}"]
    return words, []


def _job_fault(space: Space) -> SpecError | None:
    """Return why the program of a space cannot train adapters, where the job asks for them; None where it can."""
    if not space.base.training.lora_rank or not space.cells.size:
        return None
    fault = find_refusal(space.program, cell_run(space, space.cell(0)))
    return fault if fault is not None and fault.field.startswith("training.lora") else None


class PlannedJob(NamedTuple):
    """A space, and the user's own strategy in it, where a file describes one."""

    space: Space
    own: RunSpec | None
    defaulted: tuple[str, ...]
    """Fields of the batch that the request leaves to their defaults."""


def build_space(spec: Spec | None, axis: Mapping[str, Any], words: Mapping[str, Any]) -> PlannedJob:
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
    defaulted = tuple(name for name in BATCH_FLAGS if name not in whole.get("training", {}))
    return PlannedJob(space, resolve_run(whole) if has_own else None, defaulted)


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


def _listed(axis: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    pairs = axis.items()
    return dict(parse_axis(f"{name}={value}") if isinstance(value, str) else (name, value) for name, value in pairs)
