"""What one GPU will read while it plays a timeline."""

import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.gpu.board import standing_w
from charllm.gpu.heat import network
from charllm.gpu.shape import KernelShape
from charllm.simulate.emulated import predict_played
from charllm.simulate.one_gpu import Alone, Player, play_burst
from charllm.timeline.play import Item, PlayTimeline, Segment

ONE = resolve_cluster("h200x1")
PRODUCT = ("gemm", (1, 8192, 8192, 8192), "bf16")


def product(count: int) -> tuple[Item, ...]:
    return (Item("kernel", "product", shape=PRODUCT),) * count


def wait(seconds: float) -> Item:
    return Item("wait", "bubble", duration_s=seconds)


def played(*items: Item, repeat: int = 1, least_s: float = 4.0) -> Alone:
    return predict_played(PlayTimeline(0, {}, (Segment("step", repeat, items),), 1), ONE, least_s)


def test_energy_is_the_integral_of_the_series() -> None:
    found = played(*product(100), wait(0.2), repeat=2)
    boxes_s = len(found.series) * found.box_s
    assert found.series[:, 0].mean() * boxes_s == pytest.approx(found.power_mean_w * found.seconds_s, rel=0.01)
    assert boxes_s == pytest.approx(found.seconds_s, abs=2 * found.box_s)


def test_waits_draw_what_an_idle_context_draws() -> None:
    found = played(wait(0.5))
    power = ONE.gpu.power
    idle_w = standing_w(power, ONE.gpu.clock_max_hz, found.clock_mean_hz, found.temperature_mean_c)
    assert found.power_mean_w == pytest.approx(idle_w, rel=1e-3)
    assert found.busy_s == pytest.approx(0.5, rel=1e-6)


def test_work_without_rest_is_held_at_the_cap_and_rests_let_it_run_faster() -> None:
    full, half = played(*product(400), least_s=8.0), played(*product(100), wait(0.15), least_s=8.0)
    assert full.power_mean_w == pytest.approx(ONE.gpu.governor.hold_fraction * ONE.gpu.power_cap_w, rel=0.03)
    assert half.power_mean_w < full.power_mean_w
    assert half.clock_mean_hz > full.clock_mean_hz
    assert half.temperature_mean_c < full.temperature_mean_c
    assert half.power_peak_sensor_w > full.power_mean_w


def test_a_transfer_takes_its_time_and_draws_more_than_a_wait_and_less_than_work() -> None:
    moving = Item("communication", "all_gather", duration_s=0.4, blocks=24, sent_bytes=50e9)
    polling = moving._replace(moves=False)
    idle, copied, polled, worked = (played(*items) for items in ((wait(0.4),), (moving,), (polling,), product(200)))
    assert copied.busy_s == pytest.approx(0.4, rel=1e-6)
    assert polled.busy_s == pytest.approx(0.4, rel=1e-6)
    assert idle.power_mean_w < polled.power_mean_w < copied.power_mean_w < worked.power_mean_w


def test_a_transfer_beside_compute_slows_it_and_warms_it() -> None:
    beside = Item("communication", "reduce_scatter", stream="dp", duration_s=0.05, blocks=24)
    alone, both = played(*product(40)), played(*product(40), beside)
    assert both.busy_s > alone.busy_s
    assert both.busy_s < alone.busy_s + 0.05


def test_a_burst_is_a_square_wave() -> None:
    shape = KernelShape(*PRODUCT)
    net = network(ONE.node, ONE.cooling)
    seen, call_s = play_burst(shape, ONE.gpu, net, ONE.cooling.inlet_c, on_s=0.1, period_s=0.37, seconds_s=8.0)
    steady, steady_call_s = play_burst(
        shape, ONE.gpu, net, ONE.cooling.inlet_c, on_s=0.37, period_s=0.37, seconds_s=8.0
    )
    assert call_s <= steady_call_s * 1.001
    assert seen.power_mean_w < steady.power_mean_w
    assert seen.power_peak_sensor_w >= steady.power_mean_w


@pytest.mark.parametrize("silicon", [0.9, 1.0, 1.15])
def test_a_player_that_only_waits_settles_where_its_power_takes_it(silicon: float) -> None:
    player = Player(ONE.gpu, network(ONE.node, ONE.cooling), ONE.cooling.inlet_c, longest_s=400.0, silicon=silicon)
    player.wait(300.0)
    player.clear()
    player.wait(50.0)
    seen = player.seen()
    warm_k = network(ONE.node, ONE.cooling).resistance_k_per_w[0].sum() * seen.power_mean_w
    assert seen.temperature_mean_c == pytest.approx(ONE.cooling.inlet_c + warm_k, abs=0.1)
