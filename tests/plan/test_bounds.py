"""Bounds of memory are below what every strategy needs, and near it."""

from typing import Any

import numpy as np
import pytest

from charllm.api.plan import build_space
from charllm.plan.bounds import least_need_bytes
from charllm.plan.feasible import divide_space
from charllm.plan.rows import list_rows
from charllm.plan.share import share_blocks
from charllm.plan.space import Space, Variant
from charllm.workload.memory import rank_memories
from charllm.workload.step import build_step

DENSE: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x8", "gbs": 16}


def ratios(space: Space) -> list[float]:
    """Return each bound over what the worst rank of the strategy needs."""
    found = []
    for share in divide_space(space).shares:
        rows = list_rows(space, share.places)
        for row, bound in enumerate(least_need_bytes(share_blocks(share.run), rows).tolist()):
            cell = space.cell(int(rows.cell[row]))
            way = space.recomputes(cell)[int(rows.recompute[row])]
            run = space.run(cell, Variant(way, int(rows.zero[row]), int(rows.shard_size[row]), (), None, None))
            found.append(bound / max(rank.need_bytes for rank in rank_memories(build_step(run))))
    return found


@pytest.mark.parametrize(
    ("words", "axes"),
    [
        ({**DENSE, "framework": "deepspeed"}, {"tp": [1, 2], "zero": [2, 3], "pp": [1]}),
        ({**DENSE, "framework": "fsdp"}, {"tp": [1], "zero": [2, 3], "pp": [1, 2]}),
        ({**DENSE, "training.activation_offload_fraction": 0.8}, {"tp": [2], "pp": [1, 2], "zero": [1]}),
        ({**DENSE, "training.optimizer_offload_fraction": 0.5}, {"tp": [2], "pp": [1], "zero": [0, 1]}),
    ],
    ids=["deepspeed", "fsdp", "offloaded activations", "offloaded optimizer"],
)
def test_a_bound_of_memory_is_below_what_a_strategy_needs_and_near_it(
    words: dict[str, Any], axes: dict[str, list[Any]]
) -> None:
    each = ratios(build_space(None, {"mbs": [1], "recompute": ["none"], **axes}, words).space)
    assert max(each) <= 1 + 1e-9
    assert np.median(each) > 0.75
