"""The search: of the strategies that the fast path ranks best, the coupled simulator decides, limits included."""

import time

from charllm.errors import SpecError, Words
from charllm.plan.alternatives import list_alternatives, try_simulating
from charllm.plan.candidate import Candidate
from charllm.plan.caveats import list_caveats
from charllm.plan.feasible import Feasible
from charllm.plan.limits import Limit, broken, explain_infeasible
from charllm.plan.metrics import USUAL, Economics, derive_metrics
from charllm.plan.money import tell_tariff
from charllm.plan.objectives import Objective
from charllm.plan.pareto import front
from charllm.plan.plan import Counts, Plan
from charllm.plan.probability import probability_best
from charllm.plan.rank import Ranked, Ranking
from charllm.plan.runnable import set_aside_refused
from charllm.plan.scores import score_of
from charllm.plan.sensitivity import sensitivity
from charllm.plan.settings import TOP
from charllm.plan.shortlist import MOST_ROUNDS, UNDER_EACH_CAP, loosest, rank_space
from charllm.plan.space import Space
from charllm.plan.whole_run import ALWAYS_WARM, warm_up
from charllm.plan.why import explain_winner
from charllm.result.memory_verdict import RISK
from charllm.result.metrics import PLAN_METRICS, selected
from charllm.simulate.predict import predict
from charllm.simulate.work import LONGEST_S, TooLong
from charllm.spec.run import RunSpec
from charllm.tracking import Track, untracked

PARETO_AXES = {
    name: PLAN_METRICS[name].better
    for name in selected("tokens_per_s", "tokens_per_j", "temperature_peak_c", "cluster_power_peak_w")
}
"""Metric of the front: which way it is better."""
KNOWN_EARLY = ("memory_",)
"""Beginnings of metrics that are the same on the fast path and in the simulator."""


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
    found = rank_space(
        space, objective, early, top=top, economics=economics, risk=risk, capped=bool(late) or pareto, track=track
    )
    feasible, rankings = found.feasible, found.rankings
    wanted, refused, what_ifs = set_aside_refused(space, found.ranked)
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
    score, caps = score_of(space.base, objective, economics), [loosest(space.caps)]
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
        warnings=list_caveats(found, kept[:top], objective, risk, what_ifs, lasting=bool(lasting)),
    )


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
