"""Which replicas are simulated, and whom each stands for."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate.fold import Fold, fold_run


def fold(cluster: Any = "h200x32", tp: int = 8, pp: int = 1, **conditions: Any) -> Fold:
    """Fold a dense model: on 32 GPUs as many replicas as there are stages of eight GPUs left."""
    request = {"model": "llama3-8b", "cluster": cluster, "parallelism": {"tp": tp, "pp": pp}}
    return fold_run(resolve_run({**request, "training": {"global_batch_size": 32}, "conditions": conditions}))


def test_replicas_in_equal_slots_are_simulated_once_and_stand_for_all() -> None:
    found = fold()
    assert found.positions.tolist() == list(range(8))
    assert found.weights.tolist() == [4.0] * 8
    assert found.representative.tolist() == list(range(8)) * 4
    assert found.begin_s.tolist() == [0.0] * 8


def test_a_cap_tells_one_replica_from_the_others() -> None:
    found = fold(capped_gpus=[9], capped_power_w=500.0)
    assert found.positions.tolist() == list(range(16))
    assert found.weights.tolist() == [3.0] * 8 + [1.0] * 8
    assert found.representative.tolist() == [*range(8), *range(8, 16), *range(8), *range(8)]
    # Two caps of one value are alike, two of different values are not.
    assert fold(capped_gpus=[9, 17], capped_power_w=500.0).weights.tolist() == [2.0] * 16
    assert len(fold(capped_gpus=[9, 17], capped_power_w=[500.0, 400.0]).weights) == 24


def test_an_inlet_tells_nodes_apart() -> None:
    cluster = {"base": "h200x32", "cooling": {"inlet_c": [20.0, 30.0, 20.0, 20.0]}}
    assert fold(cluster).weights.tolist() == [3.0] * 8 + [1.0] * 8


def test_replicas_whose_slots_are_warmed_otherwise_are_told_apart() -> None:
    # Two replicas in a node: slots 0 and 3 of the first are warmed by others, 0 and 2 of the second.
    assert fold(tp=4).weights.tolist() == [4.0] * 8
    assert fold(tp=4).representative.tolist() == [*range(8)] * 4


@pytest.mark.parametrize(
    "conditions",
    [{"silicon_spread_fraction": 0.05}, {"weak_gpus": [3]}, {"slow_host_nodes": [1]}, {"replica_stagger_s": 0.3}],
)
def test_where_gpus_differ_by_more_than_a_cap_all_are_simulated(conditions: dict[str, Any]) -> None:
    found = fold(**conditions)
    assert found.weights.tolist() == [1.0] * 32
    assert found.representative.tolist() == list(range(32))


def test_staggered_replicas_begin_evenly_one_after_another() -> None:
    assert fold(replica_stagger_s=0.3).begin_s == pytest.approx(np.repeat([0.0, 0.1, 0.2, 0.3], 8))


def test_groups_hold_the_positions_that_are_simulated() -> None:
    found = fold(pp=2)
    assert found.weights.tolist() == [2.0] * 8
    # Every position is once in the groups of each kind but those of a pipeline.
    sizes = np.diff(found.offsets, axis=1)
    assert set(sizes.sum(axis=1).tolist()) == {0, 8}
    for members, offsets in zip(found.members, found.offsets, strict=True):
        if offsets[-1]:
            assert sorted(members.tolist()) == list(range(8))
