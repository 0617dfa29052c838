"""How evenly tokens fall on the ranks that hold experts, and how many of those ranks one token visits.

Equation: experts drawn at random give each of R ranks m copies on average and the busiest one about
m + sqrt(2 m ln R) (Gaussian tail of the largest of R): over the mean 1 + sqrt(2 ln R / m), which grows with ranks and
shrinks with tokens. A learned router adds an imbalance of its own: experts whose loads spread by s add up to ranks that
spread by s / sqrt(experts of a rank), of which the busiest is the largest of R. Of C ranks (or nodes) that a token may
visit, C (1 - (1 - 1/C)^k) have some of its k experts; where it chooses M of G groups first, C is the part of them that
M groups lie on.

Source: Megatron-Core's forced balance draws router logits at random, NeMo AutoModel's takes the next experts in turn;
groups: DeepSeek-V2 and V3 reports (tokens go to at most 3 and 4 of 8 groups).
Ignores: experts whose loads go together, that copies of one token go to different experts (a little less spread),
correlations between layers.
"""

from math import comb, gcd, log, sqrt

from charllm.spec.framework import Framework
from charllm.spec.model import BALANCINGS, Model
from charllm.spec.training import Training
from charllm.workload.cut import Cut

EXPERT_SPREAD = 1.18
"""Standard deviation of the load of one expert over its mean that a learned router leaves in one layer and microbatch.
Derived: Qwen3-235B on H100, 128 experts on eight ranks, takes 25, 21, 15 and 9 % longer than with forced balance at 16k
to 128k tokens (Megatron-MoE-ModelZoo); the four lengths ask alike for 1.6 on the busiest rank."""


def skew(cut: Cut) -> float:
    """Return the copies of the busiest expert rank over the mean, in one layer and microbatch."""
    asked = cut.training.routing_skew
    if cut.training.capacity_factor is not None or cut.ep == 1:
        return 1.0
    if asked is not None:
        return asked
    natural = cut.training.routing == "natural"
    if not natural and cut.framework.forced_routing == "in-turn":
        return 1.0
    chance = busiest_of_many(cut.shard_tokens * cut.model.topk, cut.ep)
    return min(float(cut.ep), chance * (natural_skew(cut.model, cut.ep) if natural else 1.0))


def natural_skew(model: Model, ranks: int) -> float:
    """Return the load of the busiest of `ranks` ranks over the mean that a learned router leaves beyond chance."""
    spread = EXPERT_SPREAD * BALANCINGS[model.balancing]
    return busiest_of_many(model.experts / ranks / spread**2, ranks)


def busiest_of_many(mean: float, ranks: int) -> float:
    """Return the expected largest of `ranks` counts over their mean, when each thing counted falls on any rank."""
    if ranks <= 1 or mean <= 0:
        return 1.0
    # No rank can have more than everything.
    return min(float(ranks), 1.0 + sqrt(2 * log(ranks) / mean))


def visited(model: Model, training: Training, framework: Framework, parts: int) -> float:
    """Return on how many of `parts` equal parts of the experts (ranks, nodes) one token has some of its own."""
    if training.routing == "forced" and framework.forced_routing == "in-turn":
        held = model.experts_on_rank(parts)
        # A token's experts are neighbours, and begin at a multiple of k.
        return min(float(parts), 1 + (model.topk - gcd(model.topk, held)) / held)
    reachable = parts * (1 - _missed(model, parts))
    return reachable * (1 - (1 - 1 / reachable) ** model.topk) if reachable > 1 else 1.0


def _missed(model: Model, parts: int) -> float:
    """Return the chance that a part has none of the groups a token chose."""
    groups, chosen = model.expert_groups, model.groups_per_token
    inside = max(1, groups // parts)
    return comb(groups - inside, chosen) / comb(groups, chosen) if groups > 1 else 0.0
