"""Seconds and joules of single kernels."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.ops import bench_machine
from charllm.gpu.kernels import (
    Shapes,
    energy_of_kernels,
    matrix_flop_per_cycle,
    read_shapes,
    stream_bandwidth,
    time_kernels,
)
from charllm.gpu.ops import op_energy, uncached_fraction
from charllm.gpu.shape import KernelShape
from charllm.spec.hardware import Gpu
from charllm.workload.step import build_step

SHAPES = (
    KernelShape("gemm", (1, 4096, 12288, 12288)),
    KernelShape("gemm", (1, 128, 28672, 4096)),
    KernelShape("gemm", (1, 512, 512, 512)),
    KernelShape("grouped_gemm", (8, 1024, 28672, 4096)),
    KernelShape("attention", (1, 64, 8, 8192, 128)),
    KernelShape("attention_backward", (1, 64, 8, 8192, 128)),
    KernelShape("copy", (2**29,)),
    KernelShape("softmax", (16384, 4096)),
    KernelShape("norm", (8192, 12288)),
)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return bench_machine("h200").gpu


@pytest.fixture(scope="module")
def shapes(gpu: Gpu) -> Shapes:
    return read_shapes(SHAPES, gpu)


def seconds(shape: KernelShape, gpu: Gpu, clock_hz: float = 1.5e9) -> float:
    return float(time_kernels(read_shapes([shape], gpu), gpu, np.array([clock_hz])).seconds[0])


def joules(shape: KernelShape, gpu: Gpu, clock_hz: float = 1.5e9) -> float:
    known = read_shapes([shape], gpu)
    return float(sum(part[0] for part in energy_of_kernels(known, gpu, time_kernels(known, gpu, np.array([clock_hz])))))


def test_a_higher_clock_is_never_slower(gpu: Gpu, shapes: Shapes) -> None:
    times = [time_kernels(shapes, gpu, np.full(len(SHAPES), clock)).seconds for clock in np.linspace(6e8, 1.98e9, 30)]
    assert np.all(np.diff(times, axis=0) <= 1e-12)


def test_no_kernel_beats_its_roofs(gpu: Gpu, shapes: Shapes) -> None:
    times = time_kernels(shapes, gpu, np.full(len(SHAPES), 1.5e9))
    peak = gpu.multiprocessors * 4096 * 1.5e9
    assert np.all(shapes.flop / times.seconds < peak)
    assert np.all(times.memory_bytes / times.seconds < gpu.memory_bandwidth_bytes_per_s)


def test_the_share_that_follows_the_clock_is_a_share(gpu: Gpu, shapes: Shapes) -> None:
    times = time_kernels(shapes, gpu, np.full(len(SHAPES), 1.5e9))
    assert np.all((times.clock_bound >= 0) & (times.clock_bound <= 1))
    assert times.clock_bound[6] == 0


def test_zeros_take_less_energy_than_random_operands(gpu: Gpu) -> None:
    for shape in (SHAPES[0], SHAPES[6], KernelShape("gelu", (2**29,))):
        assert joules(shape._replace(values="zeros"), gpu) < 0.8 * joules(shape, gpu)
        assert joules(shape._replace(values="trained"), gpu) == joules(shape, gpu)


def test_eight_bits_take_less_time_and_energy_than_sixteen(gpu: Gpu) -> None:
    narrow = SHAPES[0]._replace(precision="fp8")
    assert seconds(narrow, gpu) < 0.6 * seconds(SHAPES[0], gpu)
    assert joules(narrow, gpu) < 0.75 * joules(SHAPES[0], gpu)


def test_what_stays_in_cache_takes_no_energy_of_memory(gpu: Gpu) -> None:
    small, large = KernelShape("copy", (2**22,)), KernelShape("copy", (2**29,))
    assert joules(small, gpu) < 0.6 * joules(large, gpu) / 2**7
    assert uncached_fraction(gpu, 1e6) == 0
    assert uncached_fraction(gpu, 1e9) == 1


def test_wider_rows_of_softmax_take_longer_and_more_for_each_element(gpu: Gpu) -> None:
    narrow, wide = KernelShape("softmax", (65536, 2048)), KernelShape("softmax", (16384, 8192))
    assert seconds(wide, gpu) > 1.5 * seconds(narrow, gpu)
    assert joules(wide, gpu) > 1.3 * joules(narrow, gpu)


def test_small_products_wait_for_the_host_and_lonely_ones_for_a_second_launch(gpu: Gpu) -> None:
    assert seconds(KernelShape("gemm", (1, 1024, 1024, 1024)), gpu) == pytest.approx(gpu.kernels.launch_s)
    assert seconds(SHAPES[2], gpu) == pytest.approx(gpu.kernels.launch_s + gpu.kernels.split_s)


def test_an_op_of_a_step_takes_what_its_kernel_takes(gpu: Gpu) -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 1}})
    modules = [module for block in build_step(run).stage_blocks(0) for module in block.modules]
    ops = {op.shape: op for module in modules for op in (*module.forward, *module.backward) if op.kind == "gemm"}
    assert ops
    for dims, op in ops.items():
        shape = KernelShape("gemm", tuple(int(max(1, size)) for size in dims))
        assert sum(op_energy(op, gpu, run.framework)) == pytest.approx(joules(shape, gpu), rel=0.12), op.name


@pytest.mark.parametrize(
    ("name", "wide", "eight", "four"),
    [
        ("h200", 4096, 2, 2), ("h100-nvl", 4096, 2, 2), ("a100-80gb", 2048, 1, 1), ("v100-32gb", 1024, 1, 1),
        ("b200", 8192, 2, 4), ("gb200", 8192, 2, 4), ("b300", 8192, 2, 6), ("gb300", 8192, 2, 6),
        ("mi250", 1024, 1, 1), ("mi300x", 2048, 2, 2), ("mi355x", 4096, 2, 4),
    ],
)  # fmt: skip
def test_matrix_units_do_a_power_of_two_in_16_bits_and_whole_multiples_in_fewer(
    name: str, wide: int, eight: int, four: int
) -> None:
    gpu = bench_machine(name).gpu
    assert matrix_flop_per_cycle(gpu) == wide
    assert matrix_flop_per_cycle(gpu, "fp8") == wide * eight
    assert matrix_flop_per_cycle(gpu, "nvfp4") == wide * four


def test_memory_bound_kernels_keep_their_share_on_an_h200_at_the_clock_it_was_read_at() -> None:
    gpu, share = bench_machine("h200").gpu, np.array([1.0, 0.79, 0.365])
    clock = np.full(3, 1.8e9)
    copies = gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    moved, bound = stream_bandwidth(share, clock, gpu, clock)
    assert moved / copies == pytest.approx(share, rel=1e-3)
    assert bound[0] == 0
    assert bound[2] > 0.99


@pytest.mark.parametrize(("values", "mhz", "seconds"), [("random", 1719, 642.1e-6), ("zeros", 1980, 578.4e-6)])
def test_gelu_slows_down_with_the_clock_as_read_on_an_h200(values: str, mhz: float, seconds: float) -> None:
    gpu = bench_machine("h200").gpu
    shapes = read_shapes([KernelShape("gelu", (536870912,), "bf16", values)], gpu)
    assert time_kernels(shapes, gpu, np.array([mhz * 1e6])).seconds[0] == pytest.approx(seconds, rel=0.015)


def test_memory_bound_kernels_meet_another_gpus_own_limits() -> None:
    share = np.array([1.0, 0.573])
    read_at = np.full(2, 1.98e9)
    for name, least, most in (("b200", 0.3, 0.5), ("a100-80gb", 0.75, 1.0)):
        gpu = bench_machine(name).gpu
        copies = gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
        moved, _ = stream_bandwidth(share, read_at, gpu, np.full(2, gpu.clock_max_hz))
        assert moved[0] == copies
        assert least < moved[1] / copies < most, name
