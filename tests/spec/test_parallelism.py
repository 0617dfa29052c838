import pytest

from charllm.errors import SpecError
from charllm.spec.parallelism import Parallelism


def test_the_world_is_the_product_of_the_dense_degrees() -> None:
    degrees = Parallelism(tp=2, cp=3, dp=5, pp=7, ep=15, etp=2)
    assert degrees.world == 210
    assert degrees.data_ranks == 15
    assert degrees.expert_data_ranks == 1


def test_sharding_covers_all_data_ranks_unless_a_size_is_given() -> None:
    assert Parallelism(dp=8, cp=2, zero=3).shard_ranks == 16
    assert Parallelism(dp=8, zero=3, shard_size=4).shard_ranks == 4
    assert Parallelism(dp=8).shard_ranks == 1
    assert Parallelism(dp=8, ep=4, zero=1, shard_size=4).expert_shard_ranks == 2


@pytest.mark.parametrize(
    "degrees",
    [
        {"tp": 0},
        {"sp": True},
        {"vpp": 2},
        {"pp": 4, "vpp": 2},
        {"pp": 4, "schedule": "interleaved"},
        {"order": "tp-pp"},
        {"order": "tp-tp-ep-dp-pp"},
        {"zero": 4},
        {"overlap": ("wifi",)},
    ],
)
def test_contradictions_are_refused(degrees: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        Parallelism(**degrees)  # type: ignore[arg-type]
