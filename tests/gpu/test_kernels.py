"""Seconds and joules of single kernels."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.ops import bench_machine
from charllm.gpu.kernels import Shapes, energy_of_kernels, read_shapes, time_kernels
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
