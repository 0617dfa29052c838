"""What a plan warns of: memory that may not suffice, heat that ends a run, a ranking without proof, idle overlap."""

from collections.abc import Sequence
from dataclasses import replace

from charllm.plan.candidate import Candidate
from charllm.plan.objectives import Objective
from charllm.plan.rank import Ranking
from charllm.plan.shortlist import Shortlist
from charllm.plan.space import Space
from charllm.spec.run import RunSpec, idle_requests
from charllm.units import format_probability

SHUT_DOWN = (
    "temperature: every strategy turns a GPU off by heat, which ends the run; charllm simulate says which and when"
)


def list_caveats(
    found: Shortlist, best: Sequence[Candidate], objective: Objective, risk: float, what_ifs: Sequence[str], *,
    lasting: bool,
) -> list[str]:  # fmt: skip
    """List what a user should know of the best strategies; not `lasting`: each turns a GPU off."""
    return [
        *(_risky(risk, best) if found.feasible.risk > risk else []),
        *([] if lasting else [SHUT_DOWN]),
        *_unproven(found.rankings, objective),
        *what_ifs,
        *_idle_overlap(found.feasible.space, best[0].run),
    ]


def _risky(risk: float, best: Sequence[Candidate]) -> list[str]:
    """Say that no strategy fits with the probability that was asked for, and with which the best ones do."""
    least = min(one.metrics["memory_fit_probability"] for one in best)
    return [
        f"memory: no strategy fits with a probability of {format_probability(1 - risk)}; those listed fit with a "
        f"probability of {format_probability(least)} or more"
    ]


def _unproven(rankings: list[Ranking], objective: Objective) -> list[str]:
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
