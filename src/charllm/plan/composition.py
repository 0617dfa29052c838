"""How many blocks of each kind the stages of a pipeline hold: what turns prices of blocks into those of stages."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.plan.share import POLICIES
from charllm.workload.layer import LayerKind


class Composition(NamedTuple):
    """The blocks of three stages of a pipeline: the first, the last, and the latest of those with most layers."""

    stages: tuple[int, int, int]
    held: Floats
    """[stage, column] blocks of the stage."""
    before: Floats
    """[stage, column] blocks that a microbatch passes on earlier stages before it first reaches this one."""
    own: Floats
    """[stage, chunk, column] blocks of each chunk of the stage."""
    chunks: Floats
    """[chunk of the pipeline, column]"""


@lru_cache(maxsize=65_536)
def compose(kinds: tuple[LayerKind, ...], split: tuple[int, ...], pp: int, recompute: str) -> Composition:
    """Count the blocks of stages, by the columns of plan/share.py."""
    distinct = list(dict.fromkeys(kinds))
    policy, _colon, depth = recompute.partition(":")
    way, width = POLICIES.index(policy), len(POLICIES)
    columns = len(distinct) * width
    chunks = np.zeros((len(split), columns + 1 + width))
    start = 0
    for chunk, layers in enumerate(split):
        again = min(layers, int(depth)) if depth else layers
        for place, kind in enumerate(kinds[start : start + layers]):
            chunks[chunk, distinct.index(kind) * width + (way if place < again else 0)] += 1
        start += layers
    chunks[0, columns] += 1
    chunks[-1, columns + 1 + way] += 1
    held = np.stack([chunks[stage::pp].sum(axis=0) for stage in range(pp)])
    layers_held = held[:, :columns].sum(axis=1)
    fullest = int(np.flatnonzero(layers_held == layers_held.max())[-1])
    stages = (0, pp - 1, fullest)
    passed = np.concatenate([np.zeros((1, chunks.shape[1])), np.cumsum(chunks[:pp], axis=0)])
    own = np.stack([chunks[stage::pp] for stage in stages])
    return Composition(stages, held[list(stages)], passed[list(stages)], own, chunks)


@lru_cache(maxsize=16_384)
def compose_ways(
    kinds: tuple[LayerKind, ...], split: tuple[int, ...], pp: int, recomputes: tuple[str, ...]
) -> Composition:
    """Count the same for several ways to recompute, [way] being the first dimension of every array."""
    found = [compose(kinds, split, pp, recompute) for recompute in recomputes]
    return Composition(found[0].stages, *(np.stack(column) for column in list(zip(*found, strict=True))[1:]))
