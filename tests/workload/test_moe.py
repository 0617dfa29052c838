"""A sparse block: what sorting copies, and which messages go beside the tokens, by dispatcher."""

from dataclasses import replace
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge
from charllm.workload.cut import cut_run
from charllm.workload.kernel_calls import LOOPED_S, SMALL_S
from charllm.workload.launches import launched
from charllm.workload.linear import quantise
from charllm.workload.moe import moe
from charllm.workload.op import Op, is_communication

SPARSE: dict[str, Any] = {
    "model": "qwen3-30b-a3b",
    "cluster": "charllm-ppt-h100",
    "framework": "megatron-bridge",
    "parallelism": {"ep": 8},
}


def ops(direction: int = 0, **framework: Any) -> list[Op]:
    run = resolve_run(merge(SPARSE, {"framework": {"base": "megatron-bridge", **framework}}))
    return [op for module in moe(cut_run(run)) for op in (module.forward, module.backward)[direction]]


def sorted_bytes(request: dict[str, Any]) -> float:
    run = resolve_run(merge(SPARSE, request))
    found = [op for module in moe(cut_run(run)) for op in module.forward if op.kind == "permute"]
    return sum(op.read_bytes + op.written_bytes for op in found)


def test_what_copies_while_it_sends_sorts_only_what_arrives() -> None:
    alltoall, deepep, hybridep = (
        sorted_bytes({"framework": {"base": "megatron-bridge", "dispatcher": name}})
        for name in ("alltoall", "deepep", "hybridep")
    )
    assert deepep == hybridep
    # Eight copies of a token to eight ranks: 1 + 8 and 8 + 8 bytes by all-to-all, 5.25 + 8 otherwise.
    assert deepep / alltoall == pytest.approx((5.25 + 8) / (1 + 8 + 8 + 8), rel=0.02)


def test_a_rank_with_one_expert_sorts_nothing_after_the_exchange() -> None:
    whole = sorted_bytes({"model": {"base": "qwen3-30b-a3b", "experts": 8}, "training": {"capacity_factor": 1.0}})
    several = sorted_bytes({"model": {"base": "qwen3-30b-a3b", "experts": 16}, "training": {"capacity_factor": 1.0}})
    assert several / whole == pytest.approx((1 + 3 * 8) / (1 + 8))


def test_narrow_formats_pad_each_experts_rows_unless_their_number_is_fixed() -> None:
    wide, narrow = (sorted_bytes({"training": {"precision": name}}) for name in ("bf16", "fp8"))
    assert narrow / wide == pytest.approx((1 + 5 * 8) / (1 + 3 * 8), rel=0.02)
    fixed = {"capacity_factor": 1.0}
    assert sorted_bytes({"training": {"precision": "fp8", **fixed}}) == sorted_bytes({"training": fixed})


def test_megatron_sends_probabilities_and_counts_apart_from_tokens() -> None:
    kinds = [[op.kind for op in ops(way) if is_communication(op)] for way in (0, 1)]
    assert kinds == [["all_gather", "all_to_all", "all_to_all", "all_to_all"], ["all_to_all"] * 3]
    tokens, probabilities = [op.message_bytes for op in ops() if op.kind == "all_to_all"][:2]
    assert tokens / probabilities == 2048 * 2 / 4
    before = [op.kind for op in ops(weighs_in_experts=False) if is_communication(op)]
    assert before == ["all_to_all", "all_to_all"]


def test_hybridep_gathers_which_token_goes_to_which_expert_and_deepep_nothing() -> None:
    (gathered,) = [op for op in ops(dispatcher="hybridep") if op.kind == "all_gather"]
    run = resolve_run(SPARSE)
    assert gathered.message_bytes == 8 * cut_run(run).shard_tokens * 128
    assert not [op for op in ops(dispatcher="deepep") if op.kind == "all_gather"]


def test_small_ops_cost_the_host_the_same_in_every_framework() -> None:
    run = resolve_run(merge(SPARSE, {"training": {"precision": "mxfp8"}}))
    (cast,) = launched(next(op for module in moe(cut_run(run)) for op in module.forward if op.kind == "cast"), run)
    # Sixteen experts: a tensor each, and three launches from a loop.
    assert cast.times * cast.host_s(1.0) == pytest.approx(16 * (SMALL_S + 3 * LOOPED_S))


def test_experts_that_weigh_outputs_read_them_again_for_the_gradient_of_probabilities() -> None:
    def kernels(**framework: Any) -> int:
        run = resolve_run(merge(SPARSE, {"framework": {"base": "megatron-bridge", **framework}}))
        (op,) = [op for op in ops(1, **framework) if op.kind == "activation"]
        return len(launched(op, run))

    assert kernels() == kernels(weighs_in_experts=False) + 1


def test_four_bits_read_an_operand_three_times() -> None:
    eight, four = (
        quantise(replace(cut_run(resolve_run(SPARSE)), cast=True, precision=name), "cast", 1000)[0]
        for name in ("mxfp8", "nvfp4")
    )
    assert four.read_bytes == 3 * eight.read_bytes
