"""The strategies worth simulating: the fast path ranks all that fit, under each pair of caps where one may help."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from charllm.errors import SpecError, Words
from charllm.plan.feasible import Feasible, divide_space
from charllm.plan.limits import Limit, broken
from charllm.plan.metrics import Economics
from charllm.plan.objectives import Objective
from charllm.plan.rank import Caps, Ranked, Ranking, rank
from charllm.plan.rows import cell_run
from charllm.plan.scores import score_of
from charllm.plan.space import Space
from charllm.result.memory_verdict import MOST_RISK
from charllm.simulate.misfit import nearest_change
from charllm.tracking import Track

MOST_ROUNDS = 4
"""How often as many further strategies are simulated where limits reject all so far."""
UNDER_EACH_CAP = 2
"""Strategies that are simulated under each pair of caps, at least, where limits or fronts may need a cap."""


class NothingFits(SpecError):
    """No strategy of a space fits in memory."""


class Shortlist(NamedTuple):
    """Strategies of a space that fit, and the best of them by the fast path, best first."""

    feasible: Feasible
    rankings: list[Ranking]
    ranked: list[Ranked]


def rank_space(
    space: Space, objective: Objective, limits: tuple[Limit, ...], *, top: int, economics: Economics, risk: float,
    capped: bool, track: Track,
) -> Shortlist:  # fmt: skip
    """Rank the strategies that fit; where none does, at twice the risk, and so on; NothingFits where none ever does."""
    for allowed in _risks(risk):
        feasible = divide_space(space, allowed)
        rankings = _rank_all(feasible, objective, economics, limits, top, track, capped=capped)
        ranked = _in_turn([ranking.best for ranking in rankings])
        if ranked:
            return Shortlist(feasible, rankings, ranked)
    raise _nothing_fits(space, limits)


def _risks(risk: float) -> list[float]:
    """List risks to take: the one that is asked for, then twice as much each, at most that of any run that fits."""
    return [risk] if risk >= MOST_RISK else [risk, *_risks(min(2 * risk, MOST_RISK))]


def _rank_all(
    feasible: Feasible, objective: Objective, economics: Economics, early: tuple[Limit, ...], top: int, track: Track, *,
    capped: bool,
) -> list[Ranking]:  # fmt: skip
    """Rank strategies; where only step time counts, no cap can help, else each pair of caps has its own best."""
    score = score_of(feasible.space.base, objective, economics)

    def accept(memory: Mapping[str, Any]) -> bool:
        return not broken(early, memory)

    caps = list(feasible.space.caps)
    if score.fastest_wins and not capped:
        return [rank(feasible, score, [loosest(caps)], top, accept, track)]
    if not capped:
        return [rank(feasible, score, caps, top, accept, track)]
    each = max(UNDER_EACH_CAP, -(-top // len(caps)))
    return [rank(feasible, score, [pair], each * MOST_ROUNDS, accept) for pair in track(caps, len(caps), "rank")]


def loosest(caps: Sequence[Caps]) -> Caps:
    """Return the caps that hold least: with either lower, no strategy is faster."""
    infinite = float("inf")
    return max(caps, key=lambda pair: tuple(infinite if cap is None else cap for cap in pair))


def _in_turn(lists: Sequence[Sequence[Ranked]]) -> list[Ranked]:
    """Take the best of each ranking, then the second of each, and so on."""
    longest = max((len(listed) for listed in lists), default=0)
    return [listed[place] for place in range(longest) for listed in lists if place < len(listed)]


def _nothing_fits(space: Space, limits: tuple[Limit, ...]) -> SpecError:
    """Say that no strategy fits, and the change that comes nearest."""
    words = f" under {', '.join(limit.text for limit in limits)}" if limits else ""
    return NothingFits("memory", Words(f"no strategy that fits{words}"), _nearest(space))


def _nearest(space: Space) -> str:
    remedy = nearest_change(cell_run(space, space.cell(space.cells.size - 1)))
    return f"more GPUs or a smaller model; {remedy.describe()}" if remedy else "more GPUs or a smaller model"
