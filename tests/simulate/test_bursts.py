"""One GPU that works and rests in turn."""

import pytest

from charllm.evaluate.ops import bench_machine
from charllm.gpu.heat import Network, network
from charllm.gpu.shape import KernelShape
from charllm.simulate.one_gpu import simulate_burst
from charllm.spec.hardware import Gpu

PRODUCT = KernelShape("gemm", (1, 4096, 12288, 12288))


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return bench_machine("h200").gpu


@pytest.fixture(scope="module")
def net() -> Network:
    cluster = bench_machine("h200")
    return network(cluster.node, cluster.cooling)


def test_a_burst_after_rest_reads_above_the_cap_for_one_box_while_the_mean_stays_below(gpu: Gpu, net: Network) -> None:
    seen, _ = simulate_burst(PRODUCT, gpu, net, 34.8, on_s=0.25, period_s=0.507, seconds_s=10.0)
    assert 820 < seen.power_peak_sensor_w < 980
    assert seen.power_mean_w < 0.75 * gpu.power_cap_w
    assert seen.power_mean_w == pytest.approx(float(seen.series[:, 0].mean()), rel=0.02)


def test_longer_bursts_are_held_at_lower_clocks(gpu: Gpu, net: Network) -> None:
    calls_s = [
        simulate_burst(PRODUCT, gpu, net, 34.8, on_s=on_s, period_s=2.03 * on_s, seconds_s=12.0)[1]
        for on_s in (0.02, 0.25, 2.0)
    ]
    assert calls_s == sorted(calls_s)
    # 2 x 4096 x 12288 x 12288 FLOP at up to 989 TFLOP/s.
    assert all(1.25e-3 < call_s < 3e-3 for call_s in calls_s)


def test_weak_silicon_draws_more_at_the_peak_of_a_burst(gpu: Gpu, net: Network) -> None:
    usual, weak = (
        simulate_burst(PRODUCT, gpu, net, 34.8, on_s=0.25, period_s=0.507, seconds_s=5.0, silicon=silicon)[
            0
        ].power_peak_sensor_w
        for silicon in (1.0, 1.05)
    )
    assert weak > usual
