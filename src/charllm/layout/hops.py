"""The hops between neighbouring pipeline stages: which leave node or pod, and how many leave one node together."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from charllm.layout.grid import Grid, Ranks
from charllm.layout.links import DOMAINS, Numbering, hop_domains, numbered, numbering_of
from charllm.layout.placement import place_ranks
from charllm.spec.hardware import Cluster
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import RunSpec


class StageHop(NamedTuple):
    """How the sends of a stage go to the next one."""

    leaving: int = 0
    """How many of one node's share its NICs; 0: they stay inside."""
    core: bool = False
    """Whether some pass the switches above the pods."""


def stage_hops(run: RunSpec) -> tuple[StageHop, ...]:
    """Return the hop from each stage to the next; the last is the one back to the first, for interleaved chunks."""
    if not run.conditions.gpu_of_rank:
        return _default_hops(run.cluster, numbering_of(run.parallelism))
    return _hops(run.cluster, run.parallelism, place_ranks(run))


@lru_cache(maxsize=4096)
def _default_hops(cluster: Cluster, numbering: Numbering) -> tuple[StageHop, ...]:
    parallelism = numbered(numbering)
    return _hops(cluster, parallelism, np.arange(parallelism.world))


def _hops(cluster: Cluster, parallelism: Parallelism, gpu_of_rank: Ranks) -> tuple[StageHop, ...]:
    grid, pp = Grid(parallelism), parallelism.pp
    positions = np.arange(grid.positions)
    found = []
    for stage in range(pp):
        sender = gpu_of_rank[grid.rank(positions, stage)]
        receiver = gpu_of_rank[grid.rank(positions, (stage + 1) % pp)]
        domains = hop_domains(cluster, sender, receiver)
        leaving = sender[domains >= DOMAINS.index("rail")]
        together = int(np.bincount(leaving // cluster.node.gpus).max()) if len(leaving) else 0
        found.append(StageHop(together, bool((domains == DOMAINS.index("core")).any())))
    return tuple(found)
