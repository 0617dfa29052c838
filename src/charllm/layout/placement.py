"""Which GPU each rank runs on."""

import numpy as np

from charllm.layout.grid import Ranks
from charllm.spec.run import RunSpec


def place_ranks(run: RunSpec) -> Ranks:
    """Return the GPU of each rank: rank i on GPU i unless the run places them otherwise."""
    placed = run.conditions.gpu_of_rank
    return np.asarray(placed if placed else range(run.cluster.gpus), dtype=np.int64)
