"""Kernels that only move memory: rates by kind, width, clock and GPU."""

import numpy as np
import pytest

from charllm.evaluate.ops import bench_machine
from charllm.gpu.kernels import read_shapes, time_kernels
from charllm.gpu.memory_bound import BYTES_PER_CLOCK, STREAMS, WIDTHS, share_of, stream_rate
from charllm.gpu.shape import DIMENSIONS, KernelShape, work
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
