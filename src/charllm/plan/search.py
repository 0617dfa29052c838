"""The search: the fast path ranks the whole space, the coupled simulator decides among the best, limits included."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from charllm.errors import SpecError, Words
from charllm.plan.alternatives import list_alternatives, try_simulating
from charllm.plan.candidate import Candidate
from charllm.plan.feasible import Feasible, divide_space
from charllm.plan.limits import Limit, broken, explain_infeasible
from charllm.plan.metrics import USUAL, Economics, derive_metrics
from charllm.plan.money import tell_tariff
from charllm.plan.objectives import Objective
from charllm.plan.pareto import front
from charllm.plan.plan import Counts, Plan
from charllm.plan.probability import probability_best
from charllm.plan.rank import Caps, Ranked, Ranking, rank
from charllm.plan.rows import cell_run
from charllm.plan.runnable import set_aside_refused
from charllm.plan.scores import score_of
from charllm.plan.sensitivity import sensitivity
from charllm.plan.settings import TOP
from charllm.plan.space import Space
from charllm.plan.whole_run import ALWAYS_WARM, warm_up
from charllm.plan.why import explain_winner
from charllm.result.memory_verdict import MOST_RISK, RISK
from charllm.result.metrics import PLAN_METRICS, selected
from charllm.simulate.misfit import nearest_change
from charllm.simulate.predict import predict
from charllm.simulate.work import LONGEST_S, TooLong
from charllm.spec.run import RunSpec, idle_requests
from charllm.tracking import Track, untracked
from charllm.units import format_probability

MOST_ROUNDS = 4
"""How often as many further strategies are simulated where limits reject all so far."""
UNDER_EACH_CAP = 2
"""Strategies that are simulated under each pair of caps, at least, where limits or fronts may need a cap."""
PARETO_AXES = {
    name: PLAN_METRICS[name].better
    for name in selected("tokens_per_s", "tokens_per_j", "temperature_peak_c", "cluster_power_peak_w")
}
"""Metric of the front: which way it is better."""
KNOWN_EARLY = ("memory_",)
"""Beginnings of metrics that are the same on the fast path and in the simulator."""


class NothingFits(SpecError):
    """No strategy of a space fits in memory."""


def search(
    space: Space, objective: Objective, limits: tuple[Limit, ...] = (), *, top: int = TOP, economics: Economics = USUAL,
    own: RunSpec | None = None, pareto: bool = False, sensitive: bool = False, longest_s: float = LONGEST_S,
    risk: float = RISK, alone: bool = False, track: Track = untracked,
) -> Plan:  # fmt: skip
    """Find the best strategies of a space; SpecError where none fits or none keeps the limits.

    Strategies fit in memory but for a probability of `risk`; where none does, the risk is raised until one does. With
    `alone`, no alternatives to the best are looked for.
    """
    begun_s = time.perf_counter()
    if not space.cells.size:
        raise SpecError("--axis", Words(f"{space.combinations:,} combinations of degrees"), "a valid run")
    early = tuple(limit for limit in limits if limit.metric.startswith(KNOWN_EARLY))
    late = tuple(limit for limit in limits if limit not in early)
    for allowed in _risks(risk):
        feasible = divide_space(space, allowed)
        rankings = _rank_all(feasible, objective, economics, early, top, track, capped=bool(late) or pareto)
        ranked = _in_turn([ranking.best for ranking in rankings])
        if ranked:
            break
    else:
        raise _nothing_fits(space, early)
    wanted, refused, what_ifs = set_aside_refused(space, ranked)
    at_once = max(top, UNDER_EACH_CAP * len(rankings)) if len(rankings) > 1 else top
    simulated = _simulate(wanted, late, at_once, economics, longest_s, track)
    within = [one for one in simulated if not broken(limits, one.metrics)]
    # A run that turns a GPU off ends there: one that lasts is better, whatever its figures.
    lasting = [one for one in within if not one.metrics.get("shutdown")]
    kept = sorted(lasting or within, key=lambda one: objective.key(one.metrics))
    if not kept:
        asked = Words("; ".join(limit.text for limit in limits))
        raise SpecError("--limit", asked, f"limits that some strategy meets: {explain_infeasible(limits, simulated)}")
    mine, odds = _own(own, economics, longest_s), probability_best(kept, objective)
    warnings = _memory_warnings(risk, kept[:top]) if feasible.risk > risk else []
    warnings += [] if lasting else [SHUT_DOWN]
    score, caps = score_of(space.base, objective, economics), [_loosest(space.caps)]
    attempt = try_simulating(lambda run: simulate_candidate(run, economics, longest_s))
    first = kept[:top], odds and odds[:top]
    rows = [] if alone else list_alternatives(*first, objective, feasible, score, caps, limits, attempt)
    return Plan(
        objective=objective,
        limits=limits,
        counts=_counts(feasible, rankings, len(simulated))._replace(refused=refused),
        elapsed_s=time.perf_counter() - begun_s,
        best=kept[:top],
        alternatives=rows,
        pareto=[kept[place] for place in front([one.metrics for one in kept], PARETO_AXES)] if pareto else [],
        others=[one for one in simulated if broken(limits, one.metrics)],
        own=mine,
        own_rank=_place(mine, kept, objective, limits, feasible.risk),
        why=explain_winner(kept[0], [row.one for row in rows[1:]], objective, mine),
        prices=tell_tariff(economics.tariff),
        probability_best=odds and odds[:top],
        rejected={limit.text: sum(limit in broken(limits, one.metrics) for one in simulated) for limit in limits},
        sensitivity=sensitivity(kept, objective, economics, longest_s=longest_s) if sensitive else (),
        warnings=[*warnings, *_warnings(rankings, objective), *what_ifs, *_idle_overlap(space, kept[0].run)],
    )


SHUT_DOWN = (
    "temperature: every strategy turns a GPU off by heat, which ends the run; charllm simulate says which and when"
)


def _risks(risk: float) -> list[float]:
    """List risks to take: the one that is asked for, then twice as much each, at most that of any run that fits."""
    return [risk] if risk >= MOST_RISK else [risk, *_risks(min(2 * risk, MOST_RISK))]


def _memory_warnings(risk: float, best: Sequence[Candidate]) -> list[str]:
    """Say that no strategy fits with the probability that was asked for, and with which the best ones do."""
    least = min(one.metrics["memory_fit_probability"] for one in best)
    return [
        f"memory: no strategy fits with a probability of {format_probability(1 - risk)}; those listed fit with a "
        f"probability of {format_probability(least)} or more"
    ]


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
        return [rank(feasible, score, [_loosest(caps)], top, accept, track)]
    if not capped:
        return [rank(feasible, score, caps, top, accept, track)]
    each = max(UNDER_EACH_CAP, -(-top // len(caps)))
    return [rank(feasible, score, [pair], each * MOST_ROUNDS, accept) for pair in track(caps, len(caps), "rank")]


def _loosest(caps: Sequence[Caps]) -> Caps:
    """Return the caps that hold least: with either lower, no strategy is faster."""
    infinite = float("inf")
    return max(caps, key=lambda pair: tuple(infinite if cap is None else cap for cap in pair))


def _in_turn(lists: Sequence[Sequence[Ranked]]) -> list[Ranked]:
    """Take the best of each ranking, then the second of each, and so on."""
    longest = max((len(listed) for listed in lists), default=0)
    return [listed[place] for place in range(longest) for listed in lists if place < len(listed)]


def _simulate(
    wanted: list[Ranked], limits: tuple[Limit, ...], top: int, economics: Economics, longest_s: float, track: Track,
) -> list[Candidate]:  # fmt: skip
    """Simulate the first strategies; where limits reject all of them, as many again, up to a bound."""
    found: list[Candidate] = []
    for turn in range(MOST_ROUNDS):
        part = wanted[turn * top : (turn + 1) * top]
        for one in track(part, len(part), "simulate"):
            candidate = simulate_candidate(one.run, economics, longest_s)
            found += [candidate] if candidate else []
        if found and any(not broken(limits, one.metrics) for one in found):
            break
    if not found:
        raise SpecError(
            "plan", Words(f"{len(wanted)} strategies"), "a run that can be simulated in time (or --allow-long)"
        )
    return found


def simulate_candidate(run: RunSpec, economics: Economics, longest_s: float) -> Candidate | None:
    """Run the coupled simulator; None where it would take too long."""
    try:
        metrics = predict(run, longest_s=longest_s).result.metrics
    except TooLong:
        return None
    warm = warm_up(run, metrics) if economics.whole_run and metrics["fits"] else ALWAYS_WARM
    return Candidate(run, run.as_table(), derive_metrics(run, metrics, economics, warm), True)


def _own(own: RunSpec | None, economics: Economics, longest_s: float) -> Candidate | None:
    return None if own is None else simulate_candidate(own, economics, longest_s)


def _place(
    own: Candidate | None, kept: list[Candidate], objective: Objective, limits: tuple[Limit, ...], risk: float
) -> int | None:
    """Return the place of the user's own strategy among the best, counted from 1; None where it may not fit."""
    if own is None or own.metrics["memory_fit_probability"] < 1 - risk or broken(limits, own.metrics):
        return None
    return 1 + sum(objective.key(one.metrics) < objective.key(own.metrics) for one in kept if one.run != own.run)


def _counts(feasible: Feasible, rankings: list[Ranking], simulated: int) -> Counts:
    """Count the strategies that were considered, ruled out, evaluated and simulated."""
    priced = sum(ranking.priced for ranking in rankings)
    misfits = feasible.pruned_memory + sum(ranking.misfits for ranking in rankings)
    invalid = feasible.space.combinations - feasible.space.cells.size
    return Counts(feasible.visited, invalid, misfits, feasible.visited - misfits - priced, priced, simulated)


def _warnings(rankings: list[Ranking], objective: Objective) -> list[str]:
    if all(ranking.proven for ranking in rankings):
        return []
    return [
        f"objective {objective.name}: the ranking has no proof that no other strategy is better; "
        "pin axes to make the space smaller"
    ]


def _idle_overlap(space: Space, best: RunSpec) -> list[str]:
    """Say what the best strategy cannot hide of the one set of axes that the user asks to overlap."""
    if "overlap" not in space.stated or len(space.axes.overlap) > 1:
        return []
    asked = replace(best.parallelism, overlap=tuple(sorted(space.axes.overlap[0])))
    said = idle_requests(replace(best, parallelism=asked))
    return [text for text in said if text.startswith("parallelism.overlap")]


def _nothing_fits(space: Space, limits: tuple[Limit, ...]) -> SpecError:
    """Say that no strategy fits, and the change that comes nearest."""
    words = f" under {', '.join(limit.text for limit in limits)}" if limits else ""
    return NothingFits("memory", Words(f"no strategy that fits{words}"), _nearest(space))


def _nearest(space: Space) -> str:
    remedy = nearest_change(cell_run(space, space.cell(space.cells.size - 1)))
    return f"more GPUs or a smaller model; {remedy.describe()}" if remedy else "more GPUs or a smaller model"
