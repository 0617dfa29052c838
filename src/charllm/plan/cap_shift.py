"""Power limits shifted between the GPUs of a node: its budget, the limits to choose from, and what each does to speed.

A node's budget is the sum of the limits of its packages. Shifting needs room: where every GPU has the highest limit it
can be set to, none can be raised, and limits may only fall.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.errors import SpecError
from charllm.spec.run import RunSpec

Floats = NDArray[np.float64]

CAP_STEP_W = 5
"""Limits are chosen in steps of this size."""
SHIFT_FRACTION = 0.25
"""How far a limit may lie from the mean."""
SIMULATED_CAPS = 5
"""Limits at which the run is simulated; in between, speeds are interpolated."""


class CapTable(NamedTuple):
    """Power limits and the speed at each."""

    caps_w: Floats
    """[limit] of a package, at which the run was simulated; whole steps."""
    slowness: Floats
    """[limit, GPU] own slowness (plan/slowness.py); in between it is interpolated."""
    budget_w: float
    """Of the GPUs of one node."""


def uniform_caps(run: RunSpec, budget_w: float | None) -> RunSpec:
    """Return a run whose GPUs share a node's budget evenly; without a budget, the run as it is.

    A budget below the lowest limits, or with limits of single GPUs beside it, is refused.
    """
    if budget_w is None:
        return run
    gpu, packages = run.cluster.gpu, packages_of(run)
    lowest_w, highest_w = packages * gpu.power_cap_min_w, packages * gpu.power_cap_w
    if not lowest_w <= budget_w <= highest_w:
        possible = (
            f"{lowest_w:g} to {highest_w:g} W: {packages} limits of {gpu.power_cap_min_w:g} to {gpu.power_cap_w:g} W"
        )
        raise SpecError("--node-budget", budget_w, possible)
    conditions = replace(run.conditions, power_cap_w=budget_w / packages, capped_gpus=(), capped_power_w=None)
    return replace(run, conditions=conditions)


def packages_of(run: RunSpec) -> int:
    """Return how many power limits a node has."""
    return run.cluster.node.gpus // run.cluster.gpu.package_gpus


def present_caps_w(run: RunSpec) -> Floats:
    """Return the power limit of each GPU (its package) of a run."""
    usual_w = run.conditions.power_cap_w or run.cluster.gpu.power_cap_w
    caps_w = np.full(run.cluster.gpus, usual_w)
    own = run.power_caps_w
    caps_w[list(own)] = list(own.values())
    return caps_w


def node_budget_w(run: RunSpec) -> float:
    """Return the sum of a node's present power limits, the smallest of all nodes."""
    packages = present_caps_w(run).reshape(run.cluster.nodes, -1, run.cluster.gpu.package_gpus)[:, :, 0]
    return float(packages.sum(axis=1).min())


def tabulate_caps(run: RunSpec, slowness_of: Callable[[RunSpec], Floats]) -> CapTable:
    """Simulate a run at several equal limits around its present ones, and read the speed of every GPU off each."""
    gpu, budget_w = run.cluster.gpu, node_budget_w(run)
    mean_w = budget_w / packages_of(run)
    low_w = max(gpu.power_cap_min_w, 1.05 * gpu.idle_draw_w, (1 - SHIFT_FRACTION) * mean_w)
    high_w = min(gpu.power_cap_w, (1 + SHIFT_FRACTION) * mean_w)
    steps = np.linspace(np.ceil(low_w / CAP_STEP_W), np.floor(high_w / CAP_STEP_W), SIMULATED_CAPS)
    caps_w = CAP_STEP_W * np.unique(np.round(steps))
    return CapTable(caps_w, np.array([slowness_of(with_cap(run, cap_w)) for cap_w in caps_w]), budget_w)


def lower_hull(caps_w: Floats, slowness: Floats) -> list[tuple[float, float]]:
    """Return slope and intercept of the lines that bound a GPU's slowness from below: its lower convex hull."""
    points: list[tuple[float, float]] = []
    for point in zip(caps_w.tolist(), slowness.tolist(), strict=True):
        while len(points) > 1 and _slope(points[-2], points[-1]) >= _slope(points[-1], point):
            points.pop()
        points.append(point)
    slopes = [_slope(*pair) for pair in pairwise(points)]
    return [(slope, at[1] - slope * at[0]) for slope, at in zip(slopes, points, strict=False)] or [(0.0, points[0][1])]


def _slope(before: tuple[float, float], after: tuple[float, float]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])


def slowness_at(table: CapTable, caps_w: Sequence[float]) -> Floats:
    """Return how slow each GPU is at its limit."""
    each = enumerate(caps_w)
    return np.array([np.interp(cap_w, table.caps_w, table.slowness[:, gpu]) for gpu, cap_w in each])


def corrected(table: CapTable, caps_w: Sequence[float], seen: Floats) -> CapTable:
    """Return the table for GPUs that were seen slower, at some limits, than it says."""
    if not caps_w:
        return table
    return table._replace(slowness=table.slowness * np.maximum(1.0, seen / slowness_at(table, caps_w)))


def with_cap(run: RunSpec, cap_w: float) -> RunSpec:
    """Return a run with one power limit for all GPUs (packages)."""
    conditions = replace(run.conditions, power_cap_w=float(cap_w), capped_gpus=(), capped_power_w=None)
    return replace(run, conditions=conditions)


def halfway(before: RunSpec, after: RunSpec) -> RunSpec:
    """Return the later run with its limits shifted half as far, in whole steps and within the same budget."""
    middle_w = (present_caps_w(before) + present_caps_w(after)) / 2
    return with_caps(after, CAP_STEP_W * np.floor(middle_w / CAP_STEP_W))


def with_caps(run: RunSpec, caps_w: Floats) -> RunSpec:
    """Return a run with a power limit for each GPU (its package); those that have the usual one are not listed."""
    usual_w = run.conditions.power_cap_w or run.cluster.gpu.power_cap_w
    own = {gpu: float(one) for gpu, one in enumerate(caps_w) if one != usual_w}
    conditions = replace(run.conditions, capped_gpus=tuple(own), capped_power_w=tuple(own.values()) or None)
    return replace(run, conditions=conditions)
