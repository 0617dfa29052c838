import pytest

from charllm.catalog.resolve import resolve_run
from charllm.workload.cut import cut_run


@pytest.mark.parametrize(("composed", "expected"), [(False, 25216), (True, 25128)])
def test_a_vocabulary_is_padded_for_each_rank_unless_layers_were_profiled_alone(composed: bool, expected: int) -> None:
    run = resolve_run(
        {
            "model": "gpt2",
            "cluster": "h100x8",
            "framework": {"base": "megatron-2020", "composed": composed},
            "parallelism": {"tp": 2},
        }
    )
    # 50257 entries: up to a multiple of 128 on each of two ranks, or what is left of an odd number.
    assert cut_run(run).vocab == expected
