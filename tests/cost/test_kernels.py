from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_cluster, resolve_framework, resolve_run
from charllm.catalog.tables import entries
from charllm.cost.calibration import CALIBRATION
from charllm.cost.kernels import fill_fraction, price_kernel, price_product, product_rate, softmax_factor
from charllm.spec.hardware import Gpu
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.workload.op import MATRIX_KINDS, Op, elementwise, gemm, is_communication
from charllm.workload.step import build_step

H100 = resolve_cluster("h100x64").gpu
PLAIN = resolve_framework("megatron")
NAMES = sorted(entries("gpus"))
REQUESTS: dict[str, dict[str, Any]] = {
    "dense": {"model": "llama3-8b", "parallelism": {"tp": 2}},
    "sparse": {"model": "mixtral-8x7b", "parallelism": {"ep": 2}},
    "recomputed": {"model": "gpt3-13b", "training": {"recompute": "full", "micro_batch_size": 2}},
    "split": {"model": "llama3-70b", "parallelism": {"tp": 2, "pp": 4, "schedule": "zero-bubble"}},
}


def node_of(gpu: str) -> dict[str, Any]:
    """A machine of eight GPUs of any kind: only the kernels of one of them are looked at."""
    base = resolve_cluster("h100x64").node
    shape = {"base": "hgx-h100", "gpu": gpu, "gpus": 8, "upstream": list(base.upstream)}
    return {"name": gpu, "node": shape, "nodes": 1, "fabric": "none"}


def ops_of(run: RunSpec) -> Iterator[Op]:
    blocks = {id(block.modules): block for chunk in build_step(run).chunks for block in chunk.blocks}
    for block in blocks.values():
        for module in block.modules:
            yield from module.forward
            yield from module.backward
        yield from block.replay.ops


@cache
def resolve(name: str, gpu: str) -> RunSpec:
    precision = "bf16" if entries("gpus")[gpu].values["peak_bf16_flop_per_s"] else "fp16"
    return resolve_run(merge({**REQUESTS[name], "cluster": node_of(gpu)}, {"training": {"precision": precision}}))


@given(st.integers(1, 64), st.integers(1, 50_000), st.integers(1, 50_000), st.integers(1, 304))
def test_some_share_of_the_multiprocessors_is_busy(batch: int, m: int, n: int, multiprocessors: int) -> None:
    assert 0 < fill_fraction(batch, m, n, multiprocessors) <= 1


@pytest.mark.parametrize("multiprocessors", [80, 104, 132, 304])
def test_huge_products_keep_all_multiprocessors_busy(multiprocessors: int) -> None:
    assert fill_fraction(1, 2**18, 2**18, multiprocessors) == pytest.approx(1, abs=1e-3)


def test_a_product_of_one_tile_keeps_one_multiprocessor_busy() -> None:
    assert fill_fraction(1, 64, 32, 100) == pytest.approx(0.3 / 100)


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4095, 4096), (4096, 4096, 4095), (8192, 51_203, 2048)])
def test_products_whose_rows_are_misaligned_are_slower(m: int, n: int, k: int) -> None:
    misaligned, aligned = (
        price_product(gemm("x", m, wide, deep, 2, 2, "bf16"), H100, PLAIN, CALIBRATION)
        for wide, deep in ((n, k), (-(-n // 8) * 8, -(-k // 8) * 8))
    )
    assert misaligned > 1.5 * aligned


def test_the_rows_of_a_weight_gradient_are_its_own() -> None:
    def seconds(name: str, m: int, k: int) -> float:
        return price_product(gemm(name, m, 4096, k, 2, 2, "bf16"), H100, PLAIN, CALIBRATION)

    assert seconds("fc1 wgrad", 4096, 4095) < 1.1 * seconds("fc1 wgrad", 4096, 4096)
    assert seconds("fc1 wgrad", 4095, 4096) > 1.5 * seconds("fc1 wgrad", 4096, 4096)
    assert seconds("fc1", 4095, 4096) < 1.1 * seconds("fc1", 4096, 4096)


@given(st.integers(1, 4096), st.integers(1, 512), st.integers(1, 512))
def test_a_deeper_product_is_never_faster(m: int, n: int, k: int) -> None:
    seconds = [
        price_product(gemm("x", m, 8 * n, 8 * deep, 2, 2, "bf16"), H100, PLAIN, CALIBRATION) for deep in (k, k + 1)
    ]
    assert seconds[0] <= seconds[1]


def least_s(op: Op, gpu: Gpu) -> tuple[float, float]:
    """No kernel beats the datasheet: neither in arithmetic nor in traffic."""
    # Products asked for in fp32 may use the matrix units (TF32), those in a format the GPU lacks its 16-bit ones.
    own = 0.0 if op.precision == "fp32" else gpu.peak_flop_per_s(op.precision)
    peak = own or max(gpu.peak_bf16_flop_per_s, gpu.peak_fp16_flop_per_s)
    return op.flop / peak, (op.read_bytes + op.written_bytes) / gpu.memory_bandwidth_bytes_per_s


@pytest.mark.parametrize("gpu", NAMES)
@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_no_product_and_no_attention_beats_the_datasheet(name: str, gpu: str) -> None:
    run = resolve(name, gpu)
    ops = [op for op in ops_of(run) if op.kind in MATRIX_KINDS]
    assert ops
    for op in ops:
        arithmetic, memory = least_s(op, run.cluster.gpu)
        assert price_kernel(op, run, CALIBRATION) > max(arithmetic, memory), (op.name, op.shape)


@pytest.mark.parametrize("gpu", NAMES)
@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_no_stream_beats_the_memory(name: str, gpu: str) -> None:
    run = resolve(name, gpu)
    streams = [op for op in ops_of(run) if op.kind not in MATRIX_KINDS and not is_communication(op)]
    assert streams
    for op in streams:
        assert price_kernel(op, run, CALIBRATION) > least_s(op, run.cluster.gpu)[1], op.name


@pytest.mark.parametrize("gpu", NAMES)
def test_every_kernel_takes_longer_than_the_gap_to_the_next(gpu: str) -> None:
    run = resolve("sparse", gpu)
    for op in ops_of(run):
        if not is_communication(op) and (op.flop or op.read_bytes or op.written_bytes):
            assert price_kernel(op, run, CALIBRATION) > CALIBRATION.kernel_gap_s


def test_a_stream_takes_its_bytes_times_the_frameworks_traffic() -> None:
    run = resolve("dense", "h100")
    gpu, framework = run.cluster.gpu, run.framework
    bandwidth = gpu.stream_fraction * gpu.memory_bandwidth_bytes_per_s
    norm, update = (elementwise("x", 3e9, 1e9, kind) for kind in ("norm", "optimizer"))
    expected = 4e9 * framework.traffic_factor / bandwidth + CALIBRATION.kernel_gap_s
    assert price_kernel(norm, run, CALIBRATION) == pytest.approx(expected)
    assert price_kernel(update, run, CALIBRATION) == pytest.approx(4e9 / bandwidth + CALIBRATION.kernel_gap_s)


def test_adding_gradients_up_in_a_kernel_of_its_own_takes_longer() -> None:
    op = gemm("fc1 wgrad", 4096, 4096, 8192, 2, 2, "bf16")
    fused, apart = (
        price_product(op, H100, replace(PLAIN, fused_gradients=fused), CALIBRATION) for fused in (True, False)
    )
    assert apart > fused + 4096 * 4096 * 10 / H100.memory_bandwidth_bytes_per_s


def test_narrower_products_are_never_slower_where_the_gpu_has_them() -> None:
    for name in NAMES:
        gpu = resolve_cluster(node_of(name)).gpu
        narrow = [precision for precision in ("fp8", "nvfp4") if gpu.peak_flop_per_s(precision)]
        rates = [product_rate(gpu, precision) for precision in ("fp32", "bf16", *narrow)]
        assert rates == sorted(rates), name


def test_older_attention_kernels_are_slower_where_they_leave_the_gpus_units_idle() -> None:
    def seconds(gpu: str, kernel: str) -> float:
        run = resolve("dense", gpu)
        run = replace(run, framework=replace(run.framework, attention_kernel=kernel))
        return sum(price_kernel(op, run, CALIBRATION) for op in ops_of(run) if op.kind == "attention")

    for gpu in ("h100", "b200"):
        assert seconds(gpu, "best") < seconds(gpu, "flash2") < seconds(gpu, "flash1")
    assert seconds("a100-80gb", "best") == seconds("a100-80gb", "flash2")


def test_narrow_heads_are_slower_for_the_same_products() -> None:
    run = resolve("dense", "h100")
    wide, narrow = (
        price_kernel(Op("x", "attention", 1e12, shape=(1, heads, heads, 4096, 4096, width, width)), run, CALIBRATION)
        for heads, width in ((32, 128), (64, 64))
    )
    assert wide < narrow < 2 * wide


@pytest.mark.parametrize("gpu", NAMES)
def test_exponentials_weigh_more_where_products_are_faster(gpu: str) -> None:
    described = resolve_cluster(node_of(gpu)).gpu
    faster = replace(described, peak_bf16_flop_per_s=2 * described.peak_16bit_flop_per_s)
    factor = softmax_factor(described, 64, CALIBRATION)
    assert factor > softmax_factor(described, 128, CALIBRATION) > 1
    assert softmax_factor(faster, 64, CALIBRATION) - 1 == pytest.approx(2 * (factor - 1))


def test_products_with_many_scales_are_slower_than_with_one() -> None:
    b200 = resolve_cluster(node_of("b200")).gpu
    one, many = (
        price_product(gemm("x", 8192, 8192, 8192, 1, 2, precision), b200, PLAIN, CALIBRATION)
        for precision in ("fp8", "mxfp8")
    )
    assert one < many < 1.1 * one


def test_a_loss_in_one_kernel_is_the_fastest() -> None:
    def seconds(kind: str) -> float:
        run = resolve("dense", "h100")
        run = replace(run, framework=replace(run.framework, cross_entropy=kind))
        return sum(price_kernel(op, run, CALIBRATION) for op in ops_of(run) if op.kind == "loss")

    assert seconds("fused") < seconds("fp32") < seconds("vocab-parallel")


def test_an_adapter_adds_its_output_and_its_gradient() -> None:
    request = {"model": "llama3-8b", "training": {"lora_rank": 16, "lora_targets": ["qkv"]}}
    run = resolve_run(merge({"cluster": node_of("h100")}, request))
    assert [op.name for op in ops_of(run) if op.name.endswith("add")] == ["qkv lora add", "qkv lora grad add"]


def test_a_scan_takes_what_was_published_and_gains_little_from_more_bandwidth() -> None:
    scan = Op("mamba scan", "scan", read_bytes=0.5e9, written_bytes=0.33e9, launches=5)
    seconds = {
        name: price_kernel(scan, resolve_run({"model": "llama3-8b", "cluster": name}), CALIBRATION)
        for name in ("h100x8", "h200x8", "b200x8")
    }
    assert seconds["h100x8"] == pytest.approx(0.65e-3, rel=0.05)
    assert seconds["h200x8"] == pytest.approx(seconds["h100x8"], rel=0.01)
    assert 0.8 < seconds["b200x8"] / seconds["h100x8"] < 1.0
