"""Power limits shifted between the GPUs of a node: its budget, the limits to choose from, and what each does to speed.

A node's budget is the sum of the limits of its packages. Shifting needs room: where every GPU has the highest limit it
can be set to, none can be raised, and limits may only fall.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.errors import SpecError
from charllm.gpu.physics import power_cap_w
from charllm.spec.run import RunSpec

CAP_STEP_W = 5
"""Limits are chosen in steps of this size."""
SHIFT_FRACTION = 0.25
"""How far a limit may lie from the mean."""
RATES = 200
"""Rates of a group of GPUs at which its watts are read."""
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
    usual_w = power_cap_w(run.cluster.gpu, run.conditions)
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
    points = _hull(caps_w, slowness)
    slopes = [_slope(*pair) for pair in pairwise(points)]
    return [(slope, at[1] - slope * at[0]) for slope, at in zip(slopes, points, strict=False)] or [(0.0, points[0][1])]


def _hull(caps_w: Floats, values: Floats) -> list[tuple[float, float]]:
    """Return the corners of a lower convex hull."""
    points: list[tuple[float, float]] = []
    for point in zip(caps_w.tolist(), values.tolist(), strict=True):
        if points and point[0] <= points[-1][0]:
            # Of several values at one limit the lowest counts.
            points[-1] = points[-1][0], min(points[-1][1], point[1])
            continue
        while len(points) > 1 and _slope(points[-2], points[-1]) >= _slope(points[-1], point):
            points.pop()
        points.append(point)
    return points


def best_rate(table: CapTable, groups: Sequence[Sequence[int]], package_gpus: int) -> float:
    """Return the highest sum of rates (1 / slowness) of a node's groups of GPUs that its budget allows, or more.

    A group is as fast as its slowest GPU. What each needs for a rate is bounded by a concave hull, and the budget is
    spent where it gains most: the best of a linear program, which no choice of limits exceeds.
    """
    hulls = [_rate_hull(table, group, package_gpus) for group in groups]
    left_w = table.budget_w - sum(corners[0][0] for corners in hulls)
    rate = sum(corners[0][1] for corners in hulls)
    pieces = [(_slope(*pair), pair[1][0] - pair[0][0]) for corners in hulls for pair in pairwise(corners)]
    for slope, wide_w in sorted(pieces, reverse=True):
        spent_w = max(0.0, min(left_w, wide_w))
        rate, left_w = rate + slope * spent_w, left_w - spent_w
    return rate


def _rate_hull(table: CapTable, gpus: Sequence[int], package_gpus: int) -> list[tuple[float, float]]:
    """Return the corners of a concave hull of the rate of a group of GPUs over the watts of its packages."""
    # No slower at any lower limit: then the least limit of a rate can be read off.
    slowness = np.minimum.accumulate(table.slowness[:, list(gpus)], axis=0)
    rates = np.linspace(1 / slowness[0].max(), 1 / slowness[-1].max(), RATES)
    least_w = np.array([np.interp(1 / rates, own[::-1], table.caps_w[::-1]) for own in slowness.T])
    # GPUs of a package have one limit, which another group may share.
    places = np.unique([gpu // package_gpus for gpu in gpus], return_inverse=True)[1]
    shared = np.array([least_w[places == place].max(axis=0) for place in range(places.max() + 1)])
    watts = shared.sum(axis=0) * len(gpus) / (package_gpus * len(shared))
    # Between two rates the higher one is taken, so that the hull is nowhere too low.
    corners = _hull(watts, -np.append(rates[1:], rates[-1]))
    return [(cap_w, -rate) for cap_w, rate in corners]


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
    usual_w = power_cap_w(run.cluster.gpu, run.conditions)
    own = {gpu: float(one) for gpu, one in enumerate(caps_w) if one != usual_w}
    conditions = replace(run.conditions, capped_gpus=tuple(own), capped_power_w=tuple(own.values()) or None)
    return replace(run, conditions=conditions)
