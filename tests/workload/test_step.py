from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.workload.layer import layer_kinds
from charllm.workload.step import Step, build_step
from charllm.workload.update import PIECE_CALLS, update_launches
from tests.timeline.unlimited import time_at_highest_clock


def step(model: str, **parallelism: Any) -> Step:
    training = {"global_batch_size": 256}
    return build_step(
        resolve_run({"model": model, "cluster": "charllm-ppt-h200", "parallelism": parallelism, "training": training})
    )


def names(built: Step, stage: int) -> list[tuple[str, int]]:
    return [(block.name, block.repeats) for block in built.stage_blocks(stage)]


def test_the_ends_of_the_model_sit_on_the_first_and_last_stage() -> None:
    built = step("gpt3-175b", tp=8, pp=4)
    assert names(built, 0) == [("embedding", 1), ("dense layer", 24)]
    assert names(built, 1) == [("dense layer", 24)]
    assert names(built, 3) == [("dense layer", 24), ("head", 1)]


def test_dense_layers_of_a_sparse_model_come_first() -> None:
    built = step("deepseek-v3", pp=2, ep=8, layers_per_stage=[30, 31])
    assert names(built, 0) == [("embedding", 1), ("dense layer", 3), ("sparse layer", 27)]
    assert names(built, 1) == [("sparse layer", 31), ("head", 1), ("mtp entry", 1), ("mtp layer", 1), ("mtp head", 1)]


def test_windowed_layers_alternate() -> None:
    kinds = layer_kinds(resolve_run({"model": "gpt-oss-20b", "cluster": "h200x8"}).model)
    assert [kind.window for kind in kinds[:4]] == [128, 0, 128, 0]


def test_uneven_stages_hold_what_they_are_given() -> None:
    built = step("llama3-70b", tp=8, pp=4, layers_per_stage=[19, 21, 21, 19])
    assert [sum(repeats for name, repeats in names(built, stage) if "layer" in name) for stage in range(4)] == [
        19,
        21,
        21,
        19,
    ]


def test_chunks_of_a_stage_are_apart_in_the_model() -> None:
    built = step("gpt3-175b", tp=8, pp=4, vpp=2)
    assert names(built, 0) == [("embedding", 1), ("dense layer", 12), ("dense layer", 12)]
    assert [chunk.stage for chunk in built.chunks] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_equal_stages_share_their_blocks() -> None:
    built = step("gpt3-175b", tp=1, pp=32)
    assert built.chunks[5].blocks is built.chunks[20].blocks


def test_fused_experts_have_no_kernels_between_their_products() -> None:
    request = {"model": "qwen3-30b-a3b", "cluster": "b200x8", "parallelism": {"ep": 8}}

    def kernels(fused: bool, precision: str) -> set[tuple[str, str, str]]:
        changes = {"framework": {"base": "megatron", "fused_experts": fused}, "training": {"precision": precision}}
        step = build_step(resolve_run({**request, **changes}))
        modules = [module for block in step.stage_blocks(0) for module in block.modules]
        ops = [op for module in modules for op in (*module.forward, *module.backward) if op.expert]
        return {(op.name, op.kind, op.direction) for op in ops}

    spared = kernels(False, "mxfp8") - kernels(True, "mxfp8")
    assert {kind for _name, kind, _direction in spared} == {"activation", "cast"}
    assert {direction for _name, kind, direction in spared if kind == "activation"} == {"forward", "backward"}
    assert kernels(False, "bf16") == kernels(True, "bf16")


def narrow_step(precision: str, wide_layers: int) -> Step:
    training = {"precision": precision, "wide_layers": wide_layers, "global_batch_size": 64}
    return build_step(resolve_run({"model": "llama3-8b", "cluster": "b200x8", "training": training}))


def test_the_last_layers_may_keep_their_products_in_16_bits() -> None:
    blocks = [block for block in narrow_step("nvfp4", 5).stage_blocks(0) if block.name == "dense layer"]
    formats = [{op.precision for module in block.modules for op in module.forward if op.flop} for block in blocks]
    assert [block.repeats for block in blocks] == [27, 5]
    assert "nvfp4" in formats[0]
    assert formats[1] == {"bf16"}


def test_wide_layers_take_as_long_as_in_16_bits() -> None:
    none, some, all_wide = (time_at_highest_clock(narrow_step("nvfp4", count)).step_time_s for count in (0, 8, 32))
    assert none < some < all_wide
    assert all_wide == pytest.approx(time_at_highest_clock(narrow_step("bf16", 0)).step_time_s, rel=0.01)


def test_nothing_stays_wide_where_nothing_is_narrow() -> None:
    assert narrow_step("bf16", 8).chunks == narrow_step("bf16", 0).chunks


def test_weights_copied_out_of_pieces_cost_the_host_a_call_for_each_tensor_and_replica() -> None:
    def launches(gpus: int) -> float:
        request = {"model": "llama3-8b", "cluster": f"h100x{gpus}", "framework": "nanotron",
                   "training": {"global_batch_size": 32}}  # fmt: skip
        return update_launches(build_step(resolve_run(request)), 0)

    few, more, most = launches(8), launches(16), launches(32)
    assert most - more == pytest.approx(2 * (more - few))
    assert more - few > 100 * 8 * PIECE_CALLS
