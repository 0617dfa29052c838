"""Kernels that only move memory: rates by kind, width, clock and GPU."""

import numpy as np
import pytest

from charllm.evaluate.ops import bench_machine
from charllm.gpu.kernels import read_shapes, time_kernels
from charllm.gpu.memory_bound import BYTES_PER_CLOCK, STREAMS, WIDTHS, share_of, stream_rate
from charllm.gpu.shape import DIMENSIONS, KernelShape, work
from charllm.gpu.steady import draw
from charllm.spec.hardware import Gpu

KINDS = sorted(STREAMS)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return bench_machine("h200").gpu


def copies(gpu: Gpu) -> float:
    return gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s


def large(kind: str) -> KernelShape:
    return KernelShape(kind, (2**29,) if 1 in DIMENSIONS[kind] else (2**16, 2**13))


def test_kernels_keep_their_share_of_a_copy_on_an_h200_at_its_highest_clock(gpu: Gpu) -> None:
    share = np.array([1.0, 0.79, 0.365])
    moved, bound = stream_rate(gpu, share, np.full(3, gpu.clock_max_hz))
    # A copy's own instructions could move as much as memory can, so that the share is exact where both are equal.
    issued = BYTES_PER_CLOCK * gpu.multiprocessors * gpu.clock_max_hz
    assert issued == pytest.approx(copies(gpu), rel=0.02)
    assert moved / copies(gpu) == pytest.approx(share, rel=0.02)
    assert bound[0] == 0
    assert bound[2] > 0.99


@pytest.mark.parametrize("name", ["h200", "b200", "a100-80gb", "mi300x"])
def test_no_kernel_is_faster_than_a_copy_and_a_higher_clock_never_slower(name: str) -> None:
    gpu = bench_machine(name).gpu
    share = np.array([share_of(kind, 8192.0) for kind in KINDS])
    rates = [
        stream_rate(gpu, share, np.full(len(KINDS), clock_hz))[0]
        for clock_hz in np.linspace(0.3 * gpu.clock_max_hz, gpu.clock_max_hz, 12)
    ]
    assert np.all(np.diff(rates, axis=0) >= 0)
    assert np.max(rates) <= copies(gpu) * (1 + 1e-12)


def test_what_follows_the_clock_is_the_slope_of_the_rate(gpu: Gpu) -> None:
    share = np.linspace(0.05, 1.0, 20)
    clock = np.full(20, 1.5e9)
    (rate, bound), (faster, _) = (stream_rate(gpu, share, factor * clock) for factor in (1.0, 1 + 1e-6))
    assert (faster / rate - 1) / 1e-6 == pytest.approx(bound, abs=1e-4)


def test_a_kernel_that_waits_for_memory_hardly_follows_the_clock(gpu: Gpu) -> None:
    share, clock = np.array([0.7, 0.7]), np.full(2, 0.75 * gpu.clock_max_hz)
    latent = np.array([0.0, 0.8])
    at_highest, _ = stream_rate(gpu, share, np.full(2, gpu.clock_max_hz), latent)
    (rate, bound), (faster, _) = (stream_rate(gpu, share, factor * clock, latent) for factor in (1.0, 1 + 1e-6))
    assert at_highest[0] == at_highest[1]
    assert rate / at_highest == pytest.approx([0.76, 0.95], abs=0.02)
    assert (faster / rate - 1) / 1e-6 == pytest.approx(bound, abs=1e-4)


@pytest.mark.parametrize(("values", "mhz", "seconds"), [("random", 1719, 642.1e-6), ("zeros", 1980, 578.4e-6)])
def test_gelu_slows_down_with_the_clock_as_read_on_an_h200(gpu: Gpu, values: str, mhz: float, seconds: float) -> None:
    shapes = read_shapes([KernelShape("gelu", (536870912,), "bf16", values)], gpu)
    assert time_kernels(shapes, gpu, np.array([mhz * 1e6])).seconds[0] == pytest.approx(seconds, rel=0.03)


def test_another_gpu_has_its_own_limits() -> None:
    share = np.array([1.0, 0.573])
    # A B200 has twice the bandwidth and as many multiprocessors: instructions hold kernels up more than on an H200.
    for name, least, most in (("b200", 0.2, 0.5), ("a100-80gb", 0.7, 1.0)):
        other = bench_machine(name).gpu
        moved, _ = stream_rate(other, share, np.full(2, other.clock_max_hz))
        assert moved[0] == copies(other)
        assert least < moved[1] / copies(other) < most, name


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_moves_its_bytes_in_time_that_grows_with_them(gpu: Gpu, kind: str) -> None:
    shape = large(kind)
    double = shape._replace(dims=(2 * shape.dims[0], *shape.dims[1:]))
    assert work(shape) == (0.0, STREAMS[kind].element_bytes * 2**29)
    known = read_shapes([shape, double], gpu, cold=True)
    times = time_kernels(known, gpu, np.full(2, gpu.clock_max_hz))
    assert times.running_s[1] == pytest.approx(2 * times.running_s[0], rel=0.01)
    assert work(shape)[1] / times.running_s[0] <= copies(gpu)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if STREAMS[kind].by_width])
def test_kinds_measured_by_width_have_their_rates_there_and_between_them_between(kind: str) -> None:
    rates = STREAMS[kind].by_width
    assert len(rates) == len(WIDTHS)
    for width, rate in zip(WIDTHS, rates, strict=True):
        assert share_of(kind, width) == pytest.approx(rate)
    assert min(rates[:2]) <= share_of(kind, 1500.0) <= max(rates[:2])
    assert share_of(kind, 65536.0) == rates[-1]


def test_wider_rows_of_softmax_are_slower() -> None:
    assert share_of("softmax", 4096.0) > share_of("softmax", 8192.0) > share_of("softmax", 16384.0)
    assert share_of("copy", 1.0) == share_of("copy", 1e9) == 1.0


ELEMENTS = (134217728,)
READ: dict[str, tuple[tuple[int, ...], float, float, float, float]] = {
    "accumulate": (ELEMENTS, 487.0, 588.9, 1980, 0.05),
    "add": (ELEMENTS, 184.0, 592.9, 1977, 0.05),
    "cat": (ELEMENTS, 145.5, 518.2, 1980, 0.05),
    "copy": (ELEMENTS, 127.2, 551.0, 1977, 0.05),
    "dropout": (ELEMENTS, 224.1, 624.0, 1980, 0.05),
    "embedding": ((8192, 4096), 38.0, 508.8, 1980, 0.1),
    "gelu": (ELEMENTS, 148.0, 777.6, 1978, 0.05),
    "gelu_backward": (ELEMENTS, 198.2, 783.9, 1939, 0.05),
    "index_add": ((32768, 7168), 1831.6, 410.9, 1979, 0.06),
    "loss": ((4096, 128256), 3532.2, 499.7, 1980, 0.15),
    "loss_backward": ((4096 * 128256,), 3324.6, 499.0, 1980, 0.05),
    "optimizer": ((200_000_000,), 1610.1, 557.4, 1977, 0.05),
    "permute": ((32768, 7168), 221.2, 544.1, 1980, 0.15),
    "silu": (ELEMENTS, 138.0, 781.7, 1965, 0.05),
    "silu_backward": (ELEMENTS, 190.7, 784.9, 1973, 0.05),
    "strided": (ELEMENTS, 359.1, 513.2, 1980, 0.05),
    "to_16bit": (ELEMENTS, 184.9, 579.6, 1980, 0.05),
    "to_fp32": (ELEMENTS, 383.6, 479.2, 1980, 0.05),
}
"""Kernels of PyTorch on an H200 (evaluate/h200/readings/single_kernels.csv, under other names): dimensions, us, W, MHz,
and how far off the time may be."""


@pytest.mark.parametrize("kind", READ)
def test_a_kernel_takes_and_draws_what_was_read_on_an_h200(gpu: Gpu, kind: str) -> None:
    dims, micros, watts, mhz, slack = READ[kind]
    shapes = read_shapes([KernelShape(kind, dims)], gpu, cold=True)
    times, drawn_w = draw(shapes, gpu, np.array([mhz * 1e6]), np.array([46.0]))
    assert times.running_s[0] * 1e6 == pytest.approx(micros, rel=slack)
    assert drawn_w[0] == pytest.approx(watts, rel=0.16)


# TB/s in rows of 1024, 2048, 4096, 8192 and 12288 elements, of the same readings; a copy moves 4.33.
READ_BY_WIDTH = {
    "norm": (1.732, 2.216, 2.428, 2.159, 1.879),
    "norm_backward": (1.562, 2.399, 2.881, 2.566, 2.413),
    "rmsnorm": (3.058, 3.191, 3.112, 2.5, 2.187),
    "rmsnorm_backward": (1.871, 2.75, 3.047, 2.58, 2.466),
}


@pytest.mark.parametrize("kind", READ_BY_WIDTH)
def test_norms_reach_what_was_read_in_rows_of_each_width(kind: str) -> None:
    for width, rate in zip((1024, 2048, 4096, 8192, 12288), READ_BY_WIDTH[kind], strict=True):
        assert share_of(kind, width) * 4.33 == pytest.approx(rate, rel=0.18)


# What a kernel reads and writes for an element: 2 bytes of a 16-bit tensor, 4 of one in fp32, 1 of a mask or of fp8.
BYTES_BY_HAND = {
    "copy": 2 + 2, "add": 2 + 2 + 2, "gelu": 2 + 2, "gelu_backward": 2 + 2 + 2, "silu": 2 + 2,
    "silu_backward": 2 + 2 + 2, "strided": 2 + 2, "strided_add": 2 + 2 + 2, "cat": 2 + 2, "strided_cat": 2 + 2,
    "to_fp32": 2 + 4, "to_16bit": 4 + 2, "accumulate": 2 + 4 + 4, "fill": 2, "column_sum": 2, "norm_of_tensor": 2,
    "scale": 2 + 2, "rmsnorm": 2 + 2, "norm": 2 + 2, "softmax": 2 + 2, "swiglu": 2 + 2 + 2, "dropout": 2 + 2 + 1,
    "dropout_add": 2 + 2 + 2 + 1, "cast": 2 + 1, "permute": 2 + 2, "index_add": 2 + 2 + 2, "embedding": 2 + 2,
    "optimizer": 4 * (4 + 3), "optimizer_16bit": 2 * (4 + 3), "scaled_rows": 4 + 4,
}  # fmt: skip


@pytest.mark.parametrize("kind", BYTES_BY_HAND)
def test_an_element_is_read_and_written_in_as_many_bytes_as_a_hand_counts(kind: str) -> None:
    # AdamW reads weight, gradient and two moments, and writes all but the gradient.
    assert STREAMS[kind].element_bytes == BYTES_BY_HAND[kind]


def test_a_rate_by_width_falls_as_a_power_of_the_width_and_is_no_more_than_a_copys() -> None:
    # softmax: 0.214 of a copy at 8192, falling with the root (0.49) of the width.
    assert share_of("softmax", 4 * 8192.0) == pytest.approx(0.214 / 4**0.49)
    assert share_of("softmax", 8.0) == 1.0


def test_the_roof_of_memory_and_instructions_is_that_of_its_equation(gpu: Gpu) -> None:
    # 1 / r^6 = 1 / copy^6 + 1 / issued^6. At the highest clock a share of (1/2)^(1/6) has both equal; at half the clock
    # instructions issue half: r = copy / (1 + 2^6)^(1/6), of whose slope 64 / 65 follows the clock.
    share = np.array([0.5 ** (1 / 6)])
    issued = 16.57 * gpu.multiprocessors * gpu.clock_max_hz / copies(gpu)  # of a copy: 1 but for rounding
    rate, bound = stream_rate(gpu, share, np.array([gpu.clock_max_hz / 2]))
    assert rate / copies(gpu) == pytest.approx((1 + (2 / issued) ** 6) ** (-1 / 6), rel=1e-9)
    assert bound == pytest.approx(64 / 65, rel=2e-3)
