"""Which GPU each rank runs on."""

import json

import numpy as np

from charllm.errors import SpecError
from charllm.layout.grid import Ranks
from charllm.spec.request import read_text
from charllm.spec.run import RunSpec


def place_ranks(run: RunSpec) -> Ranks:
    """Return the GPU of each rank: rank i on GPU i, or as a file lists them.

    A placement file is a JSON list with the GPU of each rank, each GPU once.
    """
    gpus = run.cluster.gpus
    placement = run.conditions.placement
    if placement == "default":
        return np.arange(gpus, dtype=np.int64)
    if placement == "thermal":
        raise SpecError("conditions.placement", placement, "default, or a JSON file that lists the GPU of each rank")
    text = read_text(placement, "conditions.placement")
    try:
        listed = np.asarray(json.loads(text))
    except (ValueError, RecursionError):
        listed = np.empty(0)
    if listed.shape != (gpus,) or listed.dtype.kind != "i" or not np.array_equal(np.sort(listed), np.arange(gpus)):
        raise SpecError("conditions.placement", placement, f"a JSON list of the GPUs 0 to {gpus - 1}, each once")
    return listed.astype(np.int64)
