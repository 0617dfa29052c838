"""The hops between neighbouring pipeline stages: which leave their node, and how many leave one node together."""

from functools import lru_cache

import numpy as np

from charllm.layout.grid import Grid, Ranks
from charllm.layout.links import DOMAINS, Numbering, hop_domains, numbered, numbering_of
from charllm.layout.placement import place_ranks
from charllm.spec.hardware import Cluster
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import RunSpec


def stage_hops(run: RunSpec) -> tuple[int, ...]:
    """Return for each stage how many of a node's sends to the next stage share its NICs; 0: the hop stays inside.

    The last entry is the hop from the last stage back to the first, which interleaved chunks take.
    """
    if not run.conditions.gpu_of_rank:
        return _default_hops(run.cluster, numbering_of(run.parallelism))
    return _hops(run.cluster, run.parallelism, place_ranks(run))


@lru_cache(maxsize=4096)
def _default_hops(cluster: Cluster, numbering: Numbering) -> tuple[int, ...]:
    parallelism = numbered(numbering)
    return _hops(cluster, parallelism, np.arange(parallelism.world))


def _hops(cluster: Cluster, parallelism: Parallelism, gpu_of_rank: Ranks) -> tuple[int, ...]:
    grid, pp = Grid(parallelism), parallelism.pp
    positions = np.arange(grid.positions)
    found = []
    for stage in range(pp):
        sender = gpu_of_rank[grid.rank(positions, stage)]
        receiver = gpu_of_rank[grid.rank(positions, (stage + 1) % pp)]
        leaving = sender[hop_domains(cluster, sender, receiver) >= DOMAINS.index("rail")]
        found.append(int(np.bincount(leaving // cluster.node.gpus).max()) if len(leaving) else 0)
    return tuple(found)
