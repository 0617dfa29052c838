from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge
from charllm.workload.op import Module, Op
from charllm.workload.step import build_step

DENSE: dict[str, Any] = {"model": "llama3-8b", "cluster": "charllm-ppt-h100", "training": {"seq_length": 8192}}
OLD: dict[str, Any] = {"model": "gpt3-13b", "cluster": "charllm-ppt-h100", "framework": "megatron-2020"}


def core_module(request: dict[str, Any], changes: dict[str, Any] | None = None) -> Module:
    step = build_step(resolve_run(merge(request, changes or {})))
    modules = [module for block in step.chunks[0].blocks for module in block.modules]
    return next(module for module in modules if module.name == "core attention")


def core(request: dict[str, Any], changes: dict[str, Any] | None = None) -> tuple[Op, ...]:
    return core_module(request, changes).forward


def test_packed_documents_are_a_batch_of_short_sequences() -> None:
    (whole,), (packed,) = core(DENSE), core(DENSE, {"training": {"document_tokens": 512}})
    assert packed.flop == pytest.approx(whole.flop / 16)
    assert packed.shape[:5] == (16, 32, 8, 512, 512)
    assert packed.read_bytes == whole.read_bytes


def test_a_document_longer_than_its_sequence_fills_it() -> None:
    assert core(DENSE, {"training": {"document_tokens": 65536}}) == core(DENSE)


def test_a_ring_adds_up_the_results_of_its_blocks() -> None:
    *_exchange, attention, merge_op = core(DENSE, {"parallelism": {"cp": 4}})
    elements = attention.written_bytes // 2
    assert merge_op.name == "attention merge"
    assert merge_op.written_bytes == pytest.approx(3 * 4 * elements, rel=0.05)
    assert core(DENSE, {"parallelism": {"cp": 4, "cp_kind": "all-to-all"}})[-1].kind == "attention"


def test_softmax_is_one_kernel_where_batch_and_heads_allow_it() -> None:
    def kernels(tp: int) -> int:
        return sum("softmax" in op.name for op in core(OLD, {"parallelism": {"tp": tp}}))

    # 40 heads: 20 on each of two ranks go in fours, 5 on each of eight do not.
    assert (kernels(2), kernels(8)) == (1, 5)


def test_a_chain_of_softmax_kernels_runs_backwards_too() -> None:
    def kernels(tp: int) -> list[Op]:
        module = core_module(OLD, {"parallelism": {"tp": tp}})
        return [op for op in module.backward if "softmax" in op.name]

    (fused,), chain = kernels(2), kernels(8)
    scores = fused.written_bytes / 2 / 4
    assert len(chain) == 5
    # In 16 bits at both ends, in fp32 between them.
    assert chain[0].read_bytes == chain[-1].written_bytes == pytest.approx(2 * scores)
    assert [op.written_bytes for op in chain[:-1]] == pytest.approx([4 * scores] * 4)
