"""Caps for each pipeline stage: stages that wait for others run slower at no cost in time, at every speed of the job.

Method: the frontier begins with one cap for all, from none down. At each level, stages that do the same (equal layers,
neither first nor last) get one cap: group by group, the one that waits most first, bisection finds the lowest cap that
keeps the step within the group's share of a tolerance; a cap that saves no energy is not set. Every step of the
bisection is a coupled simulation, so that a point takes as long as its level to within the tolerance, and never more
energy.
Source: slowing what is not critical for free, and the time-energy frontier of a pipeline: Perseus (arXiv:2312.06902).
Ignores: caps that change within a step (forward and backward passes get the same), single slow GPUs inside a stage.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.layout.placement import place_ranks
from charllm.plan.caps import (
    USUAL_JUDGE,
    CapKind,
    CapPoint,
    Judge,
    cap_range,
    capped_run,
    find_knees,
)
from charllm.result.metrics import Metrics
from charllm.simulate.predict import predict
from charllm.spec.run import RunSpec
from charllm.tracking import Track, untracked

FREE_FRACTION = 0.0015
"""How much longer a step may get in all that counts as unchanged; plays of a step repeat within 0.05 %."""
HALVINGS = 5
LOWEST_FRACTION = 0.6
"""A stage is capped no lower than this share of the cap of all."""
LEVEL_FRACTIONS = (0.97, 0.91, 0.85, 0.79, 0.73, 0.67)
"""Levels below the first, over the clock or power at which the job runs without caps; those below the knee are left
out but for one."""
WAITS = ("bubble", "straggler_wait", "pp_exposed")


class StageGroup(NamedTuple):
    """Stages that get the same cap."""

    stages: tuple[int, ...]
    waits_s: float
    """Time of a step in which they have nothing to do, without caps."""


class Level(NamedTuple):
    """One cap for all stages, and lower ones for stages that wait, with the same step time."""

    uniform: CapPoint
    staged: CapPoint


class StageCaps(NamedTuple):
    """The frontier of a run."""

    groups: list[StageGroup]
    levels: list[Level]
    """The first is without a cap of all."""


def advise_stages(run: RunSpec, kind: CapKind, judge: Judge = USUAL_JUDGE, track: Track = untracked) -> StageCaps:
    """Find the lowest caps of each stage that cost no time, at several levels of speed of the whole job."""
    if run.parallelism.pp == 1:
        raise SpecError("--per", "stage", "gpu: the run has one pipeline stage (pp 1)")
    if run.conditions.capped_gpus:
        raise SpecError("conditions.capped_gpus", list(run.conditions.capped_gpus), "none with caps for each stage")
    low, high = cap_range(run.cluster, kind)
    groups = group_stages(run, judge)
    first = _uniform(run, kind, judge, min(high, getattr(run.conditions, kind.of_all) or high))
    at = kind.runs_at(first)
    caps = [cap for share in LEVEL_FRACTIONS if low < (cap := share * at) < first.caps[0]]
    levels = (_level(run, kind, judge, groups, cap, first) for cap in (None, *caps))
    found: list[Level] = []
    for level in track(levels, 1 + len(caps), f"{kind.name} caps of stages"):
        found.append(level)
        if find_knees([each.staged for each in found])["knee"] < len(found) - 1:
            break
    return StageCaps(groups, found)


def _uniform(run: RunSpec, kind: CapKind, judge: Judge, cap: float) -> CapPoint:
    return CapPoint((cap,) * run.parallelism.pp, judge(capped_run(run, kind, cap)))


def _level(
    run: RunSpec, kind: CapKind, judge: Judge, groups: Sequence[StageGroup], cap: float | None, first: CapPoint
) -> Level:
    """Lower the caps of stages that wait below the cap of all; None: no cap of all."""
    uniform = first if cap is None else _uniform(run, kind, judge, cap)
    waits_s = np.cumsum([group.waits_s for group in groups])
    staged, usual_s = uniform, uniform.metrics["step_time_s"]
    for group, share in zip(groups, (waits_s / max(waits_s[-1], 1e-9)).tolist(), strict=True):
        staged = _lowest(run, kind, judge, group, staged, usual_s * (1 + FREE_FRACTION * share))
    return Level(uniform, staged)


def group_stages(run: RunSpec, judge: Judge) -> list[StageGroup]:
    """Return the stages that do the same, those that wait most first."""
    timed = predict(run, ignore_memory=judge.ignore_memory, longest_s=judge.longest_s).timed
    pp, layers = run.parallelism.pp, run.parallelism.layers_per_stage
    groups: dict[tuple[Any, ...], list[int]] = {}
    for stage in range(pp):
        alike = (layers[stage::pp], stage == 0, stage == pp - 1)
        groups.setdefault(alike, []).append(stage)
    waits_s = [sum(labels[name] for name in WAITS) for labels in timed.stages] if timed else [0.0] * pp
    found = [
        StageGroup(tuple(stages), float(np.mean([waits_s[stage] for stage in stages]))) for stages in groups.values()
    ]
    return sorted(found, key=lambda group: -group.waits_s)


def stage_capped_run(run: RunSpec, kind: CapKind, caps: Sequence[float]) -> RunSpec:
    """Return a run with a cap for the GPUs of each stage."""
    ranks = np.arange(run.parallelism.world)
    of_gpu = np.empty(run.cluster.gpus)
    of_gpu[place_ranks(run)] = np.asarray(caps)[Grid(run.parallelism).stage(ranks)]
    listed: dict[str, Any] = {"capped_gpus": tuple(range(run.cluster.gpus)), kind.of_each: tuple(of_gpu.tolist())}
    return replace(run, conditions=replace(run.conditions, **listed))


def _lowest(run: RunSpec, kind: CapKind, judge: Judge, group: StageGroup, known: CapPoint, most_s: float) -> CapPoint:
    """Bisect the lowest cap of a group that keeps the step time, other caps held; the known point if none saves."""
    high, best = known.caps[group.stages[0]], known
    low = max(cap_range(run.cluster, kind)[0], LOWEST_FRACTION * high)
    for _ in range(HALVINGS):
        cap = (low + high) / 2
        caps = tuple(cap if stage in group.stages else each for stage, each in enumerate(known.caps))
        metrics: Metrics = judge(stage_capped_run(run, kind, caps))
        if metrics["step_time_s"] > most_s:
            low = cap
            continue
        high = cap
        if metrics["energy_per_step_j"] < best.metrics["energy_per_step_j"]:
            best = CapPoint(caps, metrics)
    return best
