"""Kernels that a framework launches for an op."""

import csv
from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.evaluate.h200.tables import READINGS
from charllm.gpu.kernels import read_shapes
from charllm.gpu.shape import check_shape, work
from charllm.gpu.steady import hold_clocks
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.timeline.costs import read_step
from charllm.workload.launches import LAUNCHES, launched
from charllm.workload.op import Op, is_communication
from charllm.workload.step import build_step

FRAMEWORKS = sorted(entries("frameworks"))
LLAMA: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 64}}
EVERYTHING: tuple[dict[str, Any], ...] = (
    LLAMA,
    merge(LLAMA, {"model": "mixtral-8x7b", "parallelism": {"ep": 8}, "training": {"precision": "fp8"}}),
    merge(LLAMA, {"model": "deepseek-v2-lite", "parallelism": {"ep": 8}}),
    merge(LLAMA, {"model": "gpt-oss-120b", "parallelism": {"ep": 8}}),
    merge(LLAMA, {"model": "nemotron-h-8b"}) if "nemotron-h-8b" in entries("models") else LLAMA,
    merge(LLAMA, {"model": "bloom-176b"}),
    merge(LLAMA, {"model": "gpt2-xl", "framework": {"attention": "unfused"}, "training": {"lora_rank": 8}}),
    merge(LLAMA, {"parallelism": {"cp": 2}}),
)


def ops_of(run: RunSpec) -> list[Op]:
    step = build_step(run)
    blocks = [block for chunk in step.chunks for block in chunk.blocks]
    ops = [op for block in blocks for module in block.modules for op in (*module.forward, *module.backward)]
    updates = [op for stage in read_step(step).updates for op in stage]
    return [op for op in (*ops, *updates) if not is_communication(op)]


def run_of(request: dict[str, Any], framework: str | None = None, **choices: Any) -> RunSpec:
    base = framework or request.get("framework", {}).get("base", "megatron")
    return resolve_run(merge(request, {"framework": {"base": base, **choices}}))


def kernels_of(run: RunSpec, kind: str, direction: str = "forward") -> float:
    """Count what is launched for all ops of a kind."""
    chosen = [op for op in ops_of(run) if op.kind == kind and op.direction == direction]
    assert chosen
    return sum(one.times for op in chosen for one in launched(op, run))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_op_launches_kernels_that_exist_with_every_profile(framework: str) -> None:
    for request in EVERYTHING:
        run = run_of(request, framework)
        for op in ops_of(run):
            kernels = launched(op, run)
            assert kernels, op.name
            for one in kernels:
                check_shape(one.shape, op.name)
                assert one.times >= 1
                assert one.host_s(1e-6) > 0


def test_every_kind_of_op_occurs() -> None:
    runs = [
        run_of(request, framework) for request in EVERYTHING for framework in ("megatron", "megatron-2020", "reference")
    ]
    elsewhere = {"cached attention", "sampling", "convolution", "scan", "delta", "elementwise", "square loss"}
    assert set(LAUNCHES) - {op.kind for run in runs for op in ops_of(run)} <= elsewhere
    assert {op.kind for run in runs for op in ops_of(run)} <= set(LAUNCHES)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_an_unfused_gated_activation_works_on_its_own_elements(direction: str) -> None:
    run = run_of(LLAMA, "pytorch-eager")
    (op, *_) = (op for op in ops_of(run) if op.kind == "activation" and op.direction == direction)
    elements = run.training.micro_batch_size * run.training.seq_length * run.model.ffn
    kernels = {one.shape.kind: one.shape.dims for one in launched(op, run)}
    # Gate and up are halves of one product's output, whose gradients are joined.
    assert kernels.pop("cat", (2 * elements,)) == (2 * elements,)
    assert {*kernels.values()} == {(elements,)}
    assert "strided_add" in kernels


def test_a_loop_over_experts_activates_each() -> None:
    sparse = merge(LLAMA, {"model": "mixtral-8x7b", "parallelism": {"ep": 1}})
    looped, grouped = (
        kernels_of(run_of(merge(sparse, {"training": {"grouped_gemm": one}}), "pytorch-eager"), "activation")
        for one in (False, True)
    )
    assert looped == 8 * grouped


def test_plain_modules_launch_what_traces_of_the_trainer_show() -> None:
    """A microbatch of two sequences of Llama 3 8B, four layers: evaluate/h200/readings/traced_classes.csv."""
    asked = {"model": {"base": "llama3-8b", "layers": 4, "vocab": 32000}, "cluster": "h200x1",
             "training": {"seq_length": 4096, "micro_batch_size": 2, "global_batch_size": 4}}  # fmt: skip
    run = run_of(asked, "reference")
    products = [op for op in ops_of(run) if op.kind == "gemm"]
    assert len([op for op in products if op.direction == "forward"]) == 7 + 1
    (update,) = (op for op in ops_of(run) if op.kind == "optimizer")
    assert launched(update, run)[-1].looped == 55


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_products_have_the_flop_of_their_ops(framework: str) -> None:
    for request in EVERYTHING[:2]:
        run = run_of(request, framework)
        for op in (op for op in ops_of(run) if op.kind in ("gemm", "grouped_gemm")):
            flop = sum(one.times * work(one.shape)[0] for one in launched(op, run))
            assert flop == pytest.approx(op.flop, rel=1e-9), op.name


@pytest.mark.parametrize(
    ("choice", "fused", "chain", "kind", "model"),
    [
        ("norm", "fused", "chain", "norm", "llama3-8b"),
        ("fused_rope", True, False, "rope", "llama3-8b"),
        ("fused_latent_rope", True, False, "latent rope", "deepseek-v2-lite"),
        ("fused_activation", True, False, "activation", "llama3-8b"),
        ("fused_router", True, False, "router", "mixtral-8x7b"),
    ],
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_chain_launches_more_kernels_than_a_fused_one(
    choice: str, fused: Any, chain: Any, kind: str, model: str, direction: str
) -> None:
    one, several = (run_of(merge(LLAMA, {"model": model}), **{choice: value}) for value in (fused, chain))
    counts = [kernels_of(run, kind, direction) for run in (one, several)]
    if (kind, direction) == ("router", "backward"):
        assert counts[0] == counts[1]
    else:
        assert counts[0] < counts[1]


def test_gradients_are_accumulated_only_with_several_microbatches_and_where_no_product_does_it() -> None:
    def added(microbatches: int, fused: bool) -> int:
        batch = {"training": {"global_batch_size": 8 * microbatches}}
        run = run_of(merge(LLAMA, batch), fused_gradients=fused)
        wgrads = [op for op in ops_of(run) if op.direction == "wgrad"]
        assert wgrads
        return sum(one.shape.kind == "add" for op in wgrads for one in launched(op, run))

    assert added(1, fused=False) == added(1, fused=True) == added(8, fused=True) == 0
    assert added(8, fused=False) > 0


def test_a_product_that_adds_gradients_in_place_reads_and_writes_them_in_fp32() -> None:
    plain, accumulated = (run_of(LLAMA, fused_gradients=fused) for fused in (False, True))
    for one, other in zip(ops_of(plain), ops_of(accumulated), strict=True):
        if one.direction == "wgrad":
            least, more = (launched(op, run)[0].shape for op, run in ((one, plain), (other, accumulated)))
            _batch, m, n, _k = least.dims
            assert work(more)[1] - work(least)[1] == pytest.approx(6.0 * m * n)


def test_experts_in_a_loop_are_a_product_each_and_grouped_ones_a_single_kernel() -> None:
    sparse = merge(LLAMA, {"model": "mixtral-8x7b"})
    looped, grouped = (resolve_run(merge(sparse, {"training": {"grouped_gemm": how}})) for how in (False, True))
    (loop,) = {tuple(one.times for one in launched(op, looped)[:1]) for op in ops_of(looped) if op.expert and op.flop}
    (group,) = {
        tuple(one.times for one in launched(op, grouped)[:1]) for op in ops_of(grouped) if op.kind == "grouped_gemm"
    }
    assert (loop, group) == ((8,), (1,))


BIAS_TABLE = READINGS / "expert_bias.csv"
READ_BIAS = list(csv.DictReader(BIAS_TABLE.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("row", READ_BIAS, ids=lambda row: f"{row['experts']} experts")
def test_adding_experts_biases_takes_the_kernels_and_the_time_that_an_h200_shows(row: dict[str, str]) -> None:
    experts, size = int(row["experts"]), (int(row["experts"]) * int(row["tokens_each"]), int(row["hidden"]))
    run = resolve_run(
        {
            "model": {"base": "gpt-oss-120b", "experts": experts, "topk": 1},
            "cluster": "h200x1",
            "training": {"global_batch_size": 1},
        }
    )
    kernels = [
        one
        for direction in ("forward", "backward")
        for one in launched(Op("expert bias", "expert bias", shape=size, direction=direction, expert=True), run)
    ]
    assert sum(one.times for one in kernels) == pytest.approx(int(row["kernels"]), rel=0.15)
    shapes = read_shapes([one.shape for one in kernels], run.cluster.gpu, cold=True)
    held = hold_clocks(shapes, run.cluster.gpu, np.full(len(kernels), 50.0))
    gpu_s = sum(one.times * float(seconds) for one, seconds in zip(kernels, held.seconds, strict=True))
    assert gpu_s * 1e6 == pytest.approx(float(row["gpu_us"]), rel=0.15)


MIXER_TABLE = READINGS / "mamba_mixer.csv"
READ_MIXER = [
    row for row in csv.DictReader(MIXER_TABLE.read_text(encoding="utf-8").splitlines()) if row["part"] != "scan"
]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("row", READ_MIXER, ids=lambda row: f"{row['part']} {row['heads']}{row['channels']}")
def test_mamba_takes_the_kernels_and_the_time_that_an_h200_shows(row: dict[str, str], direction: str) -> None:
    kind, groups = ("scan", int(row["groups"])) if row["heads"] else ("convolution", 8)
    heads = int(row["heads"] or (int(row["channels"]) - 2 * groups * 128) // 64)
    model = {"base": "nemotron3-nano-30b-a3b", "ssm_heads": heads, "ssm_groups": groups}
    run = resolve_run({"model": model, "cluster": "h200x1", "training": {"global_batch_size": 1, "seq_length": 8192}})
    op = next(op for op in ops_of(run) if op.kind == kind and op.direction == direction)
    kernels = launched(op, run)
    assert sum(one.times for one in kernels) == int(row[f"{direction}_kernels"])
    shapes = read_shapes([one.shape for one in kernels], run.cluster.gpu, cold=True)
    held = hold_clocks(shapes, run.cluster.gpu, np.full(len(kernels), 50.0))
    gpu_s = sum(one.times * float(seconds) for one, seconds in zip(kernels, held.seconds, strict=True))
    assert gpu_s * 1e6 == pytest.approx(float(row[f"{direction}_us"]), rel=0.1)


def test_a_ring_launches_kernels_for_each_further_block() -> None:
    def count(cp: int, direction: str) -> float:
        return kernels_of(run_of(merge(LLAMA, {"parallelism": {"cp": cp}})), "merge", direction)

    for direction in ("forward", "backward"):
        assert count(8, direction) - count(4, direction) == pytest.approx(
            2 * (count(4, direction) - count(2, direction))
        )


def test_adapters_scale_and_drop_by_kernels_of_their_own() -> None:
    def names(**training: Any) -> list[str]:
        return [op.name for op in ops_of(run_of(merge(LLAMA, {"training": training}))) if "lora" in op.name]

    plain, dropped = names(lora_rank=8), names(lora_rank=8, lora_dropout_fraction=0.1)
    assert plain.count("qkv lora scale") == dropped.count("qkv lora scale") == 2
    assert (plain.count("qkv lora dropout"), dropped.count("qkv lora dropout")) == (0, 2)


def test_four_bits_are_read_three_times_to_be_quantised() -> None:
    def read_bytes(precision: str) -> float:
        run = run_of(merge(LLAMA, {"cluster": "gb200x4", "training": {"precision": precision}}))
        return sum(op.read_bytes for op in ops_of(run) if op.kind == "cast")

    assert read_bytes("nvfp4") == pytest.approx(3 * read_bytes("mxfp8"))
