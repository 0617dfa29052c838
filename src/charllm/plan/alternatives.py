"""A plan as a person reads it: strategies that predictions cannot tell apart in one row, then those that differ.

Two strategies differ where the difference of their step times is beyond its error (result/differences.py).
Ignores: that strategies with a setting in common share more of their errors, so that some rows could be told apart.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import expm1, inf
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.plan.candidate import Candidate
from charllm.plan.feasible import Feasible, divide_space
from charllm.plan.limits import Limit, broken
from charllm.plan.objectives import Objective
from charllm.plan.rank import Caps, rank
from charllm.plan.scores import Score
from charllm.plan.space import Space
from charllm.result.differences import find_error, half_width
from charllm.spec.run import RunSpec

LESS_MEMORY_FRACTION, LOWER_CAP_FRACTION, LESS_FRACTION, COOLER_K = 0.75, 0.8, 0.05, 2.0
"""What an alternative is asked for, and how much less power or heat is worth a row."""
TRAITS = ("tp", "cp", "pp", "vpp", "dp", "ep", "zero", "sp", "mbs", "recompute", "overlap")
SIMPLE: dict[str, tuple[Any, ...]] = {"pp": (1,), "vpp": (1,), "cp": (1,), "shard_size": (0,)}
"""Axis: its value in a strategy that is simple to run."""
FASTEST, SIMPLEST, LEAST_MEMORY, COOLEST = "best", "simplest", "least memory", "less power, cooler"


def twin_fraction() -> float:
    """Return by how much a strategy must be better than another to be told from it."""
    return expm1(half_width(find_error("step time", "strategy"), 0.0))


class Alternative(NamedTuple):
    """One row of a plan."""

    role: str
    one: Candidate
    probability: float | None
    """That the best strategy is among its like; None where that is not known or not asked."""
    gain_fraction: float | None
    """Of the objective over the best one; negative where it is worse."""
    like: int
    """Simulated strategies that the prediction cannot tell from it."""
    traits: Mapping[str, str]
    """Setting: the values that those have."""


Simulate = Callable[[RunSpec], Candidate | None]


def list_alternatives(
    kept: Sequence[Candidate], odds: Sequence[float] | None, objective: Objective, feasible: Feasible, score: Score,
    caps: list[Caps], limits: tuple[Limit, ...], simulate: Simulate,
) -> list[Alternative]:  # fmt: skip
    """Return the best strategy with its like, then a simpler, a smaller and a cooler one where they really differ."""
    best = kept[0]
    like = [place for place, one in enumerate(kept) if _worse(one, best, objective) <= twin_fraction()]
    found = [
        Alternative(
            FASTEST, best, None if odds is None else sum(odds[place] for place in like), 0.0, len(like),
            traits_of([kept[place] for place in like]),
        )
    ]  # fmt: skip
    for role, finder in ((SIMPLEST, _simple), (LEAST_MEMORY, _small), (COOLEST, _cool)):
        run = finder(best, feasible, score, caps)
        one = simulate(run) if run is not None and all(run != row.one.run for row in found) else None
        if one is not None and not broken(limits, one.metrics) and _differs(role, one, best):
            found.append(Alternative(role, one, None, objective.gain_fraction(one.metrics, best.metrics), 1, {}))
    return found


def _worse(one: Candidate, best: Candidate, objective: Objective) -> float:
    gain = objective.gain_fraction(best.metrics, one.metrics)
    return 0.0 if one is best else 1.0 if gain is None else gain


def traits_of(like: Sequence[Candidate]) -> dict[str, str]:
    """Return what strategies have in common, and the settings in which they vary with their values."""
    found = {}
    for name in TRAITS:
        values = list(dict.fromkeys(_value(one.run, name) for one in like))
        found[name] = values[0] if len(values) == 1 else _span(values)
    return found


def _value(run: RunSpec, name: str) -> str:
    if name in ("mbs", "recompute"):
        return str({"mbs": run.training.micro_batch_size, "recompute": run.training.recompute}[name])
    value = getattr(run.parallelism, name)
    return "+".join(value) or "none" if isinstance(value, tuple) else str(value)


def _span(values: list[str]) -> str:
    numbers = all(value.isdigit() for value in values)
    return f"{min(map(int, values))} to {max(map(int, values))}" if numbers else " or ".join(values[:4])


def _simple(best: Candidate, feasible: Feasible, score: Score, caps: list[Caps]) -> RunSpec | None:
    """Return the best strategy without pipeline, virtual stages and context parallelism, but for what is stated."""
    axes, training = feasible.space.axes, best.run.training
    node_gpus = feasible.space.base.cluster.node.gpus
    near = {
        "tp": tuple(tp for tp in axes.tp if tp <= node_gpus),
        "mbs": tuple(mbs for mbs in axes.mbs if mbs <= 2 * training.micro_batch_size),
    }
    return _narrowed({**SIMPLE, **near}, feasible, score, caps)


def _small(best: Candidate, feasible: Feasible, score: Score, caps: list[Caps]) -> RunSpec | None:
    """Return the best strategy with the same share of a layer that needs clearly less memory."""
    degrees, mbs = best.run.parallelism, best.run.training.micro_batch_size
    same = {name: (getattr(degrees, name),) for name in ("tp", "cp", "ep")}
    most_bytes = LESS_MEMORY_FRACTION * best.metrics["memory_need_bytes"]
    smaller = tuple(dict.fromkeys((1, mbs // 2 or 1, mbs)))
    return _narrowed({**same, "mbs": smaller}, feasible, score, caps, most_bytes)


def _narrowed(
    values: Mapping[str, tuple[Any, ...]], feasible: Feasible, score: Score, caps: list[Caps], most_bytes: float = inf
) -> RunSpec | None:
    """Return the best strategy with some values of the axes that are not stated, and at most so much memory."""
    space = feasible.space
    axes = {axis: value for axis, value in values.items() if axis not in space.stated}
    narrow = Space(space.base, space.axes._replace(**axes), space.stated)
    if not narrow.cells.size:
        return None
    divided = divide_space(narrow, feasible.risk)
    found = rank(divided, score, caps[:1], 1, lambda memory: memory["memory_need_bytes"] <= most_bytes)
    return found.best[0].run if found.best else None


def _cool(best: Candidate, feasible: Feasible, _score: Score, _caps: list[Caps]) -> RunSpec | None:
    """Return the best strategy under a lower power limit, unless a limit is stated."""
    gpu = feasible.space.base.cluster.gpu
    cap_w = LOWER_CAP_FRACTION * gpu.power_cap_w
    if (
        "power_cap" in feasible.space.stated
        or best.run.conditions.power_cap_w is not None
        or cap_w < gpu.power_cap_min_w
    ):
        return None
    return replace(best.run, conditions=replace(best.run.conditions, power_cap_w=cap_w))


def _differs(role: str, one: Candidate, best: Candidate) -> bool:
    """Tell whether an alternative is what its row says."""
    if role != COOLEST:
        return True
    mine, theirs = one.metrics, best.metrics
    cooler = theirs["temperature_peak_c"] - mine["temperature_peak_c"] >= COOLER_K
    return bool(cooler or mine["power_mean_w"] <= (1 - LESS_FRACTION) * theirs["power_mean_w"])


def try_simulating(simulate: Simulate) -> Simulate:
    """Return a simulation that gives nothing where a run is refused."""

    def attempt(run: RunSpec) -> Candidate | None:
        try:
            return simulate(run)
        except SpecError:
            return None

    return attempt
