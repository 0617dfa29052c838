"""Seconds and joules of single kernels."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.evaluate.h200.tables import read_table
from charllm.evaluate.ops import bench_machine
from charllm.gpu.formats import matrix_flop_per_cycle
from charllm.gpu.kernels import (
    EAGER_GAP_S,
    Shapes,
    energy_of_kernels,
    read_shapes,
    time_kernels,
)
from charllm.gpu.l2_cache import uncached_fraction
from charllm.gpu.shape import KernelShape
from charllm.gpu.steady import draw, hold_clocks
from charllm.spec.hardware import Gpu

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
    assert uncached_fraction(gpu, np.array([1e6, 1e9])).tolist() == [0, 1]


def test_wider_rows_of_softmax_take_longer_and_more_for_each_element(gpu: Gpu) -> None:
    narrow, wide = KernelShape("softmax", (65536, 2048)), KernelShape("softmax", (16384, 8192))
    assert seconds(wide, gpu) > 1.5 * seconds(narrow, gpu)
    assert joules(wide, gpu) > 1.3 * joules(narrow, gpu)


def test_small_products_wait_for_the_host_and_lonely_ones_for_a_second_launch(gpu: Gpu) -> None:
    assert seconds(KernelShape("gemm", (1, 1024, 1024, 1024)), gpu) == pytest.approx(gpu.kernels.launch_s)
    assert seconds(SHAPES[2], gpu) == pytest.approx(gpu.kernels.launch_s + gpu.kernels.split_s)


def test_half_of_a_small_kernels_traffic_reaches_memory_within_a_step(gpu: Gpu) -> None:
    small = KernelShape("copy", (2**22,))
    warm, cold = (read_shapes([small], gpu, in_step=in_step) for in_step in (False, True))
    clock = np.array([1.5e9])
    assert time_kernels(cold, gpu, clock).memory_bytes[0] == 0.5 * cold.least_bytes[0]
    assert time_kernels(warm, gpu, clock).memory_bytes[0] == 0
    large = read_shapes([KernelShape("copy", (2**28,))], gpu, in_step=True)
    assert time_kernels(large, gpu, clock).memory_bytes[0] == large.least_bytes[0]


def test_rows_that_are_no_multiple_of_16_bytes_are_slow(gpu: Gpu) -> None:
    aligned, odd = (KernelShape("gemm", (1, 4096, columns, 4096)) for columns in (50304, 50257))
    assert seconds(odd, gpu) > 3 * seconds(aligned, gpu)


def test_few_rows_an_expert_run_slower_than_many(gpu: Gpu) -> None:
    rates = [
        rows / seconds(KernelShape("grouped_gemm", (8, rows, 4096, 4096)), gpu) for rows in (64, 128, 256, 1024, 4096)
    ]
    assert rates == sorted(rates)
    assert rates[0] < 0.5 * rates[-1]


@pytest.mark.parametrize(
    ("name", "wide"),
    [
        ("h200", 4096), ("h100-nvl", 4096), ("a100-80gb", 2048), ("v100-32gb", 1024), ("b200", 8192), ("gb200", 8192),
        ("b300", 8192), ("gb300", 8192), ("mi250", 1024), ("mi300x", 2048), ("mi355x", 4096),
    ],
)  # fmt: skip
def test_matrix_units_do_a_power_of_two_in_16_bits(name: str, wide: int) -> None:
    assert matrix_flop_per_cycle(bench_machine(name).gpu) == wide


@pytest.mark.parametrize(
    ("name", "eight", "four"), [("h200", True, False), ("a100-80gb", False, False), ("b200", True, True)]
)
def test_formats_that_a_gpu_has_no_units_for_run_in_the_next_wider_one(name: str, eight: bool, four: bool) -> None:
    gpu = bench_machine(name).gpu
    wide, fp8, fp4 = (seconds(SHAPES[0]._replace(precision=one), gpu) for one in ("bf16", "fp8", "nvfp4"))
    assert (fp8 < 0.8 * wide) == eight
    assert (fp4 < 0.8 * fp8) == four


CUDNN_MS: dict[tuple[str, str, tuple[int, ...]], float] = {
    ("gb200", "attention", (2, 64, 8, 4096, 128)): 0.391,
    ("gb200", "attention_backward", (2, 64, 8, 4096, 128)): 1.198,
    ("gb200", "attention", (2, 128, 128, 8192, 160)): 3.470,
    ("gb200", "attention_backward", (2, 128, 128, 8192, 168)): 11.984,
    ("gb300", "attention", (2, 64, 8, 8192, 128)): 1.185,
    ("gb300", "attention_backward", (2, 64, 8, 8192, 128)): 3.832,
    ("gb300", "attention", (2, 64, 64, 4096, 160)): 0.421,
    ("gb300", "attention_backward", (2, 64, 64, 4096, 168)): 1.548,
    ("h200", "attention", (1, 64, 8, 8192, 128)): 1.708,
    ("h200", "attention_backward", (1, 64, 8, 8192, 128)): 5.083,
}
"""NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results: causal, bf16, cuDNN 9.22 (9.19 on the H200)."""


@pytest.mark.parametrize(("name", "kind", "dims"), CUDNN_MS, ids=str)
def test_causal_attention_takes_what_cudnn_publishes(name: str, kind: str, dims: tuple[int, ...]) -> None:
    gpu = resolve_cluster(f"{name}x1").gpu
    taken_s = seconds(KernelShape(kind, dims), gpu, gpu.clock_max_hz)
    assert taken_s * 1e3 == pytest.approx(CUDNN_MS[name, kind, dims], rel=0.08)


def test_flash_attention_2_on_ampere_runs_backward_as_fast_as_published() -> None:
    """RTX A5000, heads of 64 (gpu-mode/ring-attention issue 10): 0.86, 0.92 and 0.95 of the forward rate."""
    ampere = resolve_cluster("a100x8").gpu
    # The published sequences see all keys: as much work for each query as a causal sequence of twice the length.
    for length, published in ((4096, 0.862), (8192, 0.916), (16384, 0.946)):
        forward, backward = (seconds(KernelShape(kind, (32768 // length, 32, 32, length, 64), variant="flash2"), ampere)
                             for kind in ("attention", "attention_backward"))  # fmt: skip
        assert 2.5 * forward / backward == pytest.approx(published, abs=0.05)


@pytest.mark.parametrize(("width", "as_wide_as"), [(80, 128), (96, 128), (56, 64)])
def test_a_head_between_two_widths_takes_as_long_as_the_wider(gpu: Gpu, width: int, as_wide_as: int) -> None:
    # cuDNN has kernels for 64 and 128: 80 and 96 take as long as 128.
    taken, wider = (seconds(KernelShape("attention", (1, 64, 8, 8192, size)), gpu) for size in (width, as_wide_as))
    assert taken == pytest.approx(wider, rel=0.01)


READ: tuple[tuple[KernelShape, float, float, float], ...] = (
    (KernelShape("gemm", (1, 128, 2048, 768)), 1980, 4.4514, 327.3),
    (KernelShape("gemm", (1, 128, 16384, 2048)), 1770, 20.976, 742.1),
    (KernelShape("gemm", (1, 512, 1536, 4096)), 1746, 14.289, 734.1),
    (KernelShape("gemm", (1, 2048, 2048, 2048)), 1699, 26.504, 723.2),
    (KernelShape("gemm", (1, 2048, 16384, 2048)), 1594, 205.02, 728.2),
    (KernelShape("gemm", (1, 4096, 128, 4096), "fp32"), 1980, 100.43, 699.3),
    (KernelShape("gemm", (1, 4096, 50257, 1600)), 1980, 6826.7, 425.1),
    (KernelShape("gemm", (1, 4096, 1600, 50257)), 1980, 4906.6, 506.3),
    (KernelShape("gemm", (1, 50257, 1600, 4096), variant="wgrad"), 1980, 4850.9, 511.3),
    (KernelShape("gemm", (1, 2048, 8192, 8192), "fp8"), 1517, 209.52, 727.1),
    (KernelShape("gemm", (1, 512, 28672, 8192), "fp8"), 1444, 186.05, 713.6),
    (KernelShape("grouped_gemm", (128, 64, 1536, 2048)), 1894, 279.07, 766.9),
    (KernelShape("grouped_gemm", (64, 128, 1536, 2048)), 1725, 137.56, 746.0),
    (KernelShape("grouped_gemm", (8, 256, 1536, 4096)), 1801, 52.920, 737.1),
    (KernelShape("grouped_gemm", (16, 512, 4096, 7168)), 1500, 726.56, 739.8),
    (KernelShape("attention", (1, 32, 8, 4096, 128)), 1827, 282.31, 665.2),
    (KernelShape("attention_backward", (1, 32, 8, 4096, 128)), 1854, 825.50, 716.2),
)
"""Products and attention on an H200: MHz, us, W (evaluate/h200/readings/single_kernels.csv)."""


@pytest.mark.parametrize("read", READ, ids=lambda read: read[0].label)
def test_a_product_takes_and_draws_what_was_read_on_an_h200(
    gpu: Gpu, read: tuple[KernelShape, float, float, float]
) -> None:
    shape, mhz, micros, watts = read
    times, drawn_w = draw(read_shapes([shape], gpu, cold=True), gpu, np.array([mhz * 1e6]), np.array([50.0]))
    assert times.running_s[0] * 1e6 == pytest.approx(micros, rel=0.1)
    assert drawn_w[0] == pytest.approx(watts, rel=0.16)


def test_products_of_few_rows_draw_more_than_a_copy_as_a_b200_was_read() -> None:
    # 628 W copying, 680 W in products of few rows, whose number is not stated: fewer than fill a tile.
    b200 = bench_machine("b200").gpu
    shapes = read_shapes([KernelShape("copy", (2**30,)), KernelShape("gemm", (1, 8, 8192, 8192)),
                          KernelShape("gemm", (1, 32, 8192, 8192))], b200, cold=True)  # fmt: skip
    _times, watts = draw(shapes, b200, np.full(3, b200.clock_max_hz), np.full(3, 60.0))
    assert watts[0] == pytest.approx(628, rel=0.06)
    assert watts[1] < 680 < watts[2]


def test_kernels_that_wait_for_memory_draw_what_was_read_on_an_h200(gpu: Gpu) -> None:
    shapes = {f"gemm-m{rows}-8192x28672": KernelShape("gemm", (1, rows, 28672, 8192)) for rows in (1, 8, 16, 32, 64)}
    shapes |= {f"gemm-m{rows}-4096x4096": KernelShape("gemm", (1, rows, 4096, 4096)) for rows in (1, 16, 64)}
    shapes |= {kind: KernelShape(kind, (1 << 28,)) for kind in ("copy", "add", "fill", "optimizer", "optimizer_16bit")}
    shapes |= {f"cache-b{batch}": KernelShape("cached_attention", (batch, 64, 8, 4096, 128)) for batch in (8, 64)}
    read = read_table("memory_loops.csv")
    held = hold_clocks(read_shapes([*shapes.values()], gpu, cold=True), gpu, np.full(len(shapes), 55.0))
    watts, clocks = (
        np.array([float(read[name][column]) for name in shapes]) for column in ("power_mean_w", "clock_mean_hz")
    )
    errors = held.power_w / watts - 1
    assert np.abs(errors).max() < 0.085
    assert np.median(np.abs(errors)) < 0.03
    assert np.abs(held.clock_hz / clocks - 1).max() < 0.06


def test_kernels_that_a_host_launches_one_by_one_lie_further_apart_and_take_no_more_energy(gpu: Gpu) -> None:
    queued, eager = (read_shapes(SHAPES, gpu, in_step=True, eager=eager) for eager in (False, True))
    clock_hz = np.full(len(SHAPES), 1.5e9)
    before, after = (time_kernels(shapes, gpu, clock_hz) for shapes in (queued, eager))
    assert after.running_s - before.running_s == pytest.approx(EAGER_GAP_S)
    # The gap does not follow the clock.
    assert after.clock_bound * after.running_s == pytest.approx(before.clock_bound * before.running_s)
    assert energy_of_kernels(eager, gpu, after).core_j == pytest.approx(energy_of_kernels(queued, gpu, before).core_j)


@pytest.mark.parametrize(
    ("columns", "tokens", "measured_us"),
    [(4096, 128, 12480), (2048, 128, 6025), (1024, 128, 3121), (512, 128, 1732), (4096, 3072, 27190)],
)
def test_scaled_blocks_in_triton_take_as_long_as_published(columns: int, tokens: int, measured_us: float) -> None:
    # 256 experts of DeepSeek-V3, eight for each token, on an H100: vLLM, pull request 13932.
    rows = tokens * 8 // 256
    sizes = (256, rows, columns, 7168), (256, rows, 7168, columns // 2)
    gpu = resolve_cluster("h100x8").gpu
    shapes = [KernelShape("gemm", size, "fp8", variant="tiled") for size in sizes]
    predicted_us = 1e6 * sum(seconds(shape, gpu, gpu.clock_max_hz) for shape in shapes)
    assert predicted_us == pytest.approx(measured_us, rel=0.1)
    plain_us = 1e6 * sum(seconds(shape._replace(variant="best"), gpu, gpu.clock_max_hz) for shape in shapes)
    assert plain_us < 0.6 * predicted_us
