"""Which real kernel stands for an op: the same arithmetic, or the same bytes."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.gpu.shape import KernelShape, check_shape, work
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.timeline.kernels import MAX_OPTIMIZER_ELEMENTS, kernel_items
from charllm.workload.op import MATRIX_KINDS, Op, is_communication
from charllm.workload.step import build_step
from charllm.workload.totals import stage_ops

DENSE: dict[str, Any] = {
    "model": {"name": "tiny", "layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 96},
    "cluster": "h200x1",
    "training": {"seq_length": 128, "global_batch_size": 2, "micro_batch_size": 2},
}
CHANGES: dict[str, dict[str, Any]] = {
    "dense": {},
    "classic": {"model": {"norm": "layernorm", "activation": "gelu", "dropout_fraction": 0.1, "position": "learned"}},
    "unfused": {"framework": {"attention": "unfused"}},
    "sparse": {
        "model": {"experts": 4, "topk": 2, "expert_ffn": 32, "shared_ffn": 64},
        "training": {"grouped_gemm": False},
    },
    "grouped": {"model": {"experts": 4, "topk": 2, "expert_ffn": 32}, "training": {"grouped_gemm": True}},
    "fp8": {"training": {"precision": "fp8"}},
    "lora": {"training": {"lora_rank": 8}},
    "encoder": {"model": {"causal": False}},
    "windowed": {"model": {"window": 32}},
    "latent": {
        "model": {
            "attention": "mla", "q_lora_rank": 32, "kv_lora_rank": 32, "head_dim": 128, "rope_head_dim": 64,
            "v_head_dim": 128,
        }
    },
}  # fmt: skip
CLOSE = {"encoder": 0.02, "windowed": 0.02, "latent": 0.05}
"""Where attention is no causal square of equal widths: how near its stand-in comes."""


def run_of(name: str) -> RunSpec:
    return resolve_run(merge(DENSE, CHANGES[name]))


def ops_of(run: RunSpec) -> list[Op]:
    return [op for op, _, _ in stage_ops(build_step(run), 0) if not is_communication(op)]


def shapes_of(run: RunSpec, op: Op) -> list[KernelShape]:
    return [KernelShape(*item.shape) for item in kernel_items(run, op)]


@pytest.mark.parametrize("name", CHANGES)
def test_every_op_has_kernels_that_exist(name: str) -> None:
    run = run_of(name)
    for op in ops_of(run):
        shapes = shapes_of(run, op)
        assert shapes, op.name
        for shape in shapes:
            check_shape(shape, op.name)


@pytest.mark.parametrize("name", CHANGES)
def test_products_and_attention_have_the_ops_own_flop(name: str) -> None:
    run = run_of(name)
    for op in ops_of(run):
        if op.kind in MATRIX_KINDS:
            flop = sum(work(shape)[0] for shape in shapes_of(run, op))
            close = CLOSE.get(name, 1e-9) if op.kind == "attention" else 1e-9
            assert flop == pytest.approx(op.flop, rel=close), op.name


@pytest.mark.parametrize("name", CHANGES)
def test_streams_move_the_ops_own_bytes_within_a_factor_of_two(name: str) -> None:
    run = run_of(name)
    for op in ops_of(run):
        moved = op.read_bytes + op.written_bytes
        if op.kind not in MATRIX_KINDS and moved > 1000:
            found = sum(work(shape)[1] for shape in shapes_of(run, op))
            assert 0.45 < found / moved < 2.2, (op.name, found, moved)


def test_plain_streams_move_exactly_the_ops_bytes() -> None:
    run = run_of("dense")
    op = Op("anything", "elementwise", 0.0, 4000.0, 2000.0)
    assert [work(shape)[1] for shape in shapes_of(run, op)] == [6000.0]
    assert shapes_of(run, Op("nothing", "cast"))[0].dims == (1,)


def test_experts_in_a_loop_are_as_many_launches() -> None:
    loop, grouped = (
        [shapes_of(run, op) for op in ops_of(run) if op.name == "expert fc1"]
        for run in map(run_of, ("sparse", "grouped"))
    )
    assert [[shape.kind for shape in shapes] for shapes in loop] == [["gemm"] * 4]
    assert [[shape.kind for shape in shapes] for shapes in grouped] == [["grouped_gemm"]]
    assert loop[0][0].dims[0] == 1
    assert grouped[0][0].dims[0] == 4


def test_narrow_products_are_narrow_kernels() -> None:
    for name, precision in (("fp8", "fp8"), ("dense", "bf16")):
        run = run_of(name)
        by_name = {op.name: shapes_of(run, op) for op in ops_of(run)}
        assert by_name["qkv"][0].precision == by_name["fc2 wgrad"][0].precision == precision
        assert by_name["flash attention"][0].precision == "bf16"


def test_norms_and_activations_are_the_models_own() -> None:
    kinds = {
        name: {shape.kind for op in ops_of(run_of(name)) for shape in shapes_of(run_of(name), op)}
        for name in ("dense", "classic", "unfused")
    }
    assert {"rmsnorm", "swiglu", "norm_backward", "gelu_backward", "embedding", "loss", "optimizer"} <= kinds["dense"]
    assert {"norm", "gelu"} <= kinds["classic"]
    assert not {"rmsnorm", "swiglu"} & kinds["classic"]
    assert "softmax" in kinds["unfused"]


def test_a_large_update_is_cut_into_pieces_that_fit() -> None:
    elements = 2 * MAX_OPTIMIZER_ELEMENTS + 5
    op = Op("optimizer", "optimizer", 0.0, 16.0 * elements, 12.0 * elements)
    assert [shape.dims[0] for shape in shapes_of(run_of("dense"), op)] == [MAX_OPTIMIZER_ELEMENTS] * 2 + [5]


def test_attention_keeps_its_length_where_it_is_a_causal_square() -> None:
    run = run_of("dense")
    shapes = {op.name: shapes_of(run, op)[0] for op in ops_of(run) if op.kind == "attention"}
    assert shapes["flash attention"].dims == (2, 4, 4, 128, 16)
    assert shapes["flash attention backward"] == KernelShape("attention_backward", (2, 4, 4, 128, 16))
