"""Whether a run fits in memory: one verdict with the need, the margin, the probability and the worst rank.

Equation: need = allocated (1 + fragmentation) + communication + context of a rank (workload/memory.py); its margin is
1 - need / memory of its GPU, and the worst rank is the one with the least margin. With e = ln(predicted / measured),

    P(fits) = Phi(ln(memory of the GPU / need) / s)

where s is the spread of predictions that were too low where the need is below the GPU's memory, and of those that were
too high where it is above.
Source: held-out errors of allocated memory, published rows and loops on an H200 (result/data/errors.json).
Ignores: that errors of communication and context, which nobody prints, may be others; spreads of single frameworks.
"""

from dataclasses import dataclass
from math import expm1, log1p
from statistics import NormalDist
from typing import Any

from charllm.result.uncertainty import RISK as RISK
from charllm.result.uncertainty import errors
from charllm.workload.memory import StageMemory, rank_memories
from charllm.workload.step import Step

MOST_RISK = 0.5
"""Risk of a run that needs just what its GPUs have."""


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """What the ranks of a run need of the memory of their GPUs."""

    ranks: tuple[StageMemory, ...]
    """One of every stage, in a mixed cluster on each kind of node that the stage runs on."""
    worst: StageMemory
    """The rank with the least margin."""

    @property
    def stages(self) -> list[StageMemory]:
        """Of every stage the rank with the least margin."""
        tightest: dict[int, StageMemory] = {}
        for memory in sorted(self.ranks, key=lambda one: one.margin_fraction):
            tightest.setdefault(memory.stage, memory)
        return [tightest[stage] for stage in sorted(tightest)]

    @property
    def fits(self) -> bool:
        """Whether every rank fits in its GPU, if the prediction is exact."""
        return self.fits_within(MOST_RISK)

    @property
    def fit_probability(self) -> float:
        """Probability that the worst rank fits."""
        room = -log1p(-self.worst.margin_fraction)
        return NormalDist(sigma=_spread(too_low=room >= 0)).cdf(room)

    def fits_within(self, risk: float = RISK) -> bool:
        """Tell whether every rank fits in its GPU, but for a probability."""
        return self.worst.margin_fraction >= least_margin_fraction(risk)

    def as_metrics(self) -> dict[str, Any]:
        """Return the metrics of memory."""
        return {
            "fits": self.fits,
            "memory_need_bytes": self.worst.need_bytes,
            "memory_margin_fraction": self.worst.margin_fraction,
            "memory_fit_probability": self.fit_probability,
            "memory_allocated_bytes": max(memory.allocated_bytes for memory in self.ranks),
            "memory_reserved_bytes": max(memory.reserved_bytes for memory in self.ranks),
            "memory_peak_bytes": self.worst.total_bytes,
            "memory_breakdown_bytes": self.worst.by_kind(),
            "memory_rank": self.worst.rank,
        }


def judge_memory(step: Step) -> MemoryVerdict:
    """Return the verdict on a step."""
    ranks = tuple(rank_memories(step))
    return MemoryVerdict(ranks, min(ranks, key=lambda memory: memory.margin_fraction))


def least_margin_fraction(risk: float = RISK) -> float:
    """Return the least margin with which a rank fits but for a probability: the inverse of `fit_probability`."""
    return -expm1(-NormalDist(sigma=_spread(too_low=risk <= MOST_RISK)).inv_cdf(1 - risk))


def _spread(*, too_low: bool) -> float:
    """Return the standard deviation of the errors on one side, as the quantile that bounds 95 % of all gives it."""
    bounds = errors()["memory"]["allocated"]
    quantile = (1 + errors()["level"]) / 2
    return float(-bounds["low"] if too_low else bounds["high"]) / NormalDist().inv_cdf(quantile)
