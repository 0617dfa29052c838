"""Placement as a decision: ranks on slots, layers per stage, power limits within a node's budget; solved, then judged.

Each kind of decision is solved alone, ranks and layers also as a pair (thermal-aware uneven pipelines); all are then
solved together and, beside that, one after another, each on top of the one before. What the solver decides is simulated
in full and compared with the run as it is. A simulated placement shows how slow GPUs are in their new roles: the model
is corrected with it and solved again, a few times. What is reported is the best placement that was simulated; where
none is faster, the run stays as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

from charllm.arrays import Floats
from charllm.errors import SpecError, unknown_name
from charllm.plan.cap_shift import CapTable, corrected, halfway, tabulate_caps, uniform_caps
from charllm.plan.placement_model import Model, build_model, decided_run
from charllm.plan.placement_slots import find_units
from charllm.plan.placement_solver import Solution, solve
from charllm.plan.settings import DECISIONS, MOST_WORK
from charllm.plan.slowness import Reference, find_references, own_slowness, simulated_slowness, slowest
from charllm.result.memory_verdict import least_margin_fraction
from charllm.simulate.predict import Simulation, predict
from charllm.spec.run import RunSpec

PAIR = ("ranks", "layers")
TOGETHER = "all"
ROUNDS = 3
"""How often the model is corrected by what the simulator says of its decisions."""
LEAST_GAIN_FRACTION = 1e-5
"""A placement that gains less than this is no other one."""


class Judged(NamedTuple):
    """One placement as the coupled simulator sees it."""

    name: str
    """default, a kind of decision, or all."""
    run: RunSpec
    metrics: Mapping[str, Any]
    gain_fraction: float = 0.0
    """Tokens a second over those of the run as it is, less one."""
    promised_fraction: float | None = None
    """The same as the model promised it, of the first decision; None where nothing was decided."""
    gap_fraction: float | None = None
    """How far the first decision may be from the best one, in the model."""
    bound_fraction: float | None = None
    """No placement of this kind gains more, in the model."""
    note: str = ""
    """Why it is as it is."""


class Effort(NamedTuple):
    """How long is searched."""

    most_work: float = MOST_WORK
    rounds: int = ROUNDS


def check_decisions(decide: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of decisions in their order, each once."""
    for one in decide:
        if one not in DECISIONS:
            raise unknown_name("--decide", one, DECISIONS)
    if not decide:
        raise SpecError("--decide", list(decide), f"at least one of {', '.join(DECISIONS)}")
    return tuple(one for one in DECISIONS if one in decide)


def judge_placements(
    run: RunSpec, decide: Sequence[str] = DECISIONS, node_budget_w: float | None = None, effort: Effort | None = None
) -> Iterator[Judged]:
    """Yield the run as it is, then what each decision makes of it, as soon as it is known."""
    kinds, effort = check_decisions(decide), effort or Effort()
    before = predict(uniform_caps(run, node_budget_w), ignore_memory=True)
    yield Judged("default", before.step.run, before.result.metrics)
    alone = []
    pair = [PAIR] if {*PAIR} <= {*kinds} else []
    for some in [*((kind,) for kind in kinds), *pair]:
        alone.append(decide_kinds("+".join(some), some, before, effort))
        yield alone[-1]
    if len(kinds) > len(pair) + 1:
        together = decide_kinds(TOGETHER, kinds, before, effort._replace(rounds=2))
        yield _best_of(together, [*alone, *_in_turn(alone, before, effort)])


def decide_kinds(name: str, kinds: Sequence[str], before: Simulation, effort: Effort) -> Judged:
    """Solve and simulate in turn; returns the fastest run that was simulated."""
    best = Judged(name, before.step.run, before.result.metrics)
    why_not = _undecidable(before.step.run, kinds)
    if why_not:
        return best._replace(note=why_not)
    simulated = {best.run: best}
    searches = [_search(kinds, before, reference, effort, simulated) for reference in find_references(before)]
    safe = [one for one in simulated.values() if _is_safe(one, before)]
    best = max(safe, key=_gain)._replace(name=name)
    return _explain(best, searches[0], simulated=len(simulated) - 1)


def _is_safe(one: Judged, before: Simulation) -> bool:
    """Tell whether a placement fits in memory without a warning, or at least as well as the run as it is."""
    least_margin = min(least_margin_fraction(), before.memory.worst.margin_fraction)
    return bool(one.metrics["memory_margin_fraction"] >= least_margin)


def _search(
    kinds: Sequence[str], before: Simulation, reference: Reference, effort: Effort, simulated: dict[RunSpec, Judged]
) -> Solution:
    """Solve, simulate and correct in turn until nothing new is decided; returns the first solution.

    What is simulated is added to `simulated`.
    """
    readings = [own_slowness(before, reference)]
    caps = tabulate_caps(before.step.run, partial(simulated_slowness, reference)) if "caps" in kinds else None
    solutions: list[Solution] = []
    for _ in range(effort.rounds):
        model = _model(before, reference.role, slowest(readings), caps, kinds)
        solutions.append(solve(model, effort.most_work))
        decision = solutions[-1].decision
        decided = decided_run(model, decision)
        if decided in simulated:
            break
        after = predict(decided, ignore_memory=True)
        for judged in (_judge(decided, before, after), *_judge_halfway(decided, before)):
            simulated[judged.run] = judged
        readings.append(own_slowness(after, reference))
        caps = corrected(caps, decision.caps_w, readings[-1]) if caps else None
    return solutions[0]


def _undecidable(run: RunSpec, kinds: Sequence[str]) -> str:
    """Say why there is nothing to decide, where there is not."""
    if run.parallelism.pp == 1 and "caps" not in kinds:
        return "one stage: every GPU has equal work wherever its rank sits"
    if find_units(run) is None:
        return "ranks that exchange tensors or experts do not fill whole parts of a node"
    if run.cluster.mixed and "caps" in kinds:
        return "limits are not shifted in a cluster of several kinds of nodes"
    return ""


def _model(before: Simulation, role: Floats, own: Floats, caps: CapTable | None, kinds: Sequence[str]) -> Model:
    return build_model(before, role, own, ranks="ranks" in kinds, layers="layers" in kinds, caps=caps)


def _judge(run: RunSpec, before: Simulation, after: Simulation, name: str = "") -> Judged:
    now, then = before.result.metrics, after.result.metrics
    return Judged(name, run, then, now["step_time_s"] / then["step_time_s"] - 1)


def _judge_halfway(decided: RunSpec, before: Simulation) -> list[Judged]:
    """Judge limits shifted half as far, where any were: the model is right about directions more than about sizes."""
    if not decided.conditions.capped_gpus:
        return []
    half = halfway(before.step.run, decided)
    return [_judge(half, before, predict(half, ignore_memory=True))]


def _in_turn(alone: Sequence[Judged], before: Simulation, effort: Effort) -> list[Judged]:
    """Decide one kind on top of another, the one that gains most first."""
    found: list[Judged] = []
    order = sorted(alone, key=_gain, reverse=True)
    best = order[0]
    for other in order[1:]:
        if best.gain_fraction < LEAST_GAIN_FRACTION:
            break
        under = predict(best.run, ignore_memory=True)
        more = decide_kinds(other.name, other.name.split("+"), under, effort)
        if more.gain_fraction >= LEAST_GAIN_FRACTION:
            name = f"{best.name}, then {other.name}"
            best = _judge(more.run, before, predict(more.run, ignore_memory=True), name)
            found.append(best)
    return found


def _best_of(together: Judged, others: Sequence[Judged]) -> Judged:
    """Return what all decisions together gain: at least what the best of the others does."""
    best = max(others, key=_gain)
    if together.gain_fraction >= best.gain_fraction:
        return together
    found = best._replace(name=together.name, note=f"decided: {best.name}")
    bounds = {name: getattr(together, name) for name in ("promised_fraction", "gap_fraction", "bound_fraction")}
    return found._replace(**bounds)


def _gain(one: Judged) -> float:
    return one.gain_fraction


def _explain(best: Judged, first: Solution, simulated: int) -> Judged:
    """Add what the model said, and why nothing was changed where nothing was."""
    promised = first.present_s / first.seconds - 1
    bound = first.present_s / first.bound_s - 1 if first.bound_s > 0 else inf
    told = best._replace(promised_fraction=promised, gap_fraction=first.gap_fraction, bound_fraction=bound)
    if best.gain_fraction >= LEAST_GAIN_FRACTION:
        return told
    why = f"{simulated} simulated, none faster" if simulated else "nothing gained in the model"
    return told._replace(note=f"unchanged: {why}")
