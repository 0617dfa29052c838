"""What one GPU will read while it emulates a timeline."""

import time
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.errors import SpecError
from charllm.gpu.heat import network
from charllm.gpu.physics import board_of, operating_point, standing_w
from charllm.gpu.shape import KernelShape
from charllm.simulate.emulated import Start, predict_emulated
from charllm.simulate.one_gpu import SingleGpu, SingleGpuRun, simulate_burst
from charllm.simulate.rank_timeline import rank_timeline, simulated_gpu
from charllm.simulate.steady import repeats_of
from charllm.spec.request import merge
from charllm.timeline.rank_timeline import Item, RankTimeline, Segment
from tests.simulate.runs import GPT3, Done, ran, under
from tests.simulate.test_energy_and_heat import SLICED

ONE = resolve_cluster("h200x1")
PRODUCT = ("gemm", (1, 8192, 8192, 8192), "bf16")


def product(count: int) -> tuple[Item, ...]:
    return (Item("kernel", "product", shape=PRODUCT),) * count


def wait(seconds: float) -> Item:
    return Item("wait", "bubble", duration_s=seconds)


def emulated(*items: Item, repeat: int = 1, least_s: float = 4.0) -> SingleGpuRun:
    return predict_emulated(RankTimeline(0, {}, (Segment("step", repeat, items),), 1), ONE, least_s)


def test_energy_is_the_integral_of_the_series() -> None:
    found = emulated(*product(100), wait(0.2), repeat=2)
    boxes_s = len(found.series) * found.box_s
    assert found.series[:, 0].mean() * boxes_s == pytest.approx(found.power_mean_w * found.seconds_s, rel=0.01)
    assert boxes_s == pytest.approx(found.seconds_s, abs=2 * found.box_s)


def test_waits_draw_what_an_idle_context_draws() -> None:
    found = emulated(wait(0.5))
    board = board_of(ONE.gpu)
    level = operating_point(board, found.clock_mean_hz, found.clock_mean_hz).level
    idle_w = standing_w(board, level, found.temperature_mean_c)
    assert found.power_mean_w == pytest.approx(idle_w, rel=1e-3)
    assert found.busy_s == pytest.approx(0.5, rel=1e-6)


def test_a_short_step_is_predicted_as_a_long_one_and_one_without_a_length_is_refused() -> None:
    start_s = time.process_time()
    short, longer = emulated(wait(2e-4)), emulated(wait(0.5))
    assert time.process_time() - start_s < 10
    assert short.power_mean_w == pytest.approx(longer.power_mean_w, rel=1e-3)
    assert short.busy_s == pytest.approx(2e-4, rel=1e-6)
    for length_s in (0.0, 1e-9):
        with pytest.raises(SpecError, match=r"a step of .* s'?; expected one of at least 0.0001 s"):
            emulated(wait(length_s))
    with pytest.raises(SpecError, match="got a step of 0 s"):
        emulated()


def test_work_without_rest_is_held_at_the_cap_and_rests_let_it_run_faster() -> None:
    full, half = emulated(*product(400), least_s=8.0), emulated(*product(100), wait(0.15), least_s=8.0)
    assert full.power_mean_w == pytest.approx(ONE.gpu.governor.hold_fraction * ONE.gpu.power_cap_w, rel=0.03)
    assert half.power_mean_w < full.power_mean_w
    assert half.clock_mean_hz > full.clock_mean_hz
    assert half.temperature_mean_c < full.temperature_mean_c
    assert half.power_peak_sensor_w > full.power_mean_w


def test_a_transfer_takes_its_time_and_draws_more_than_a_wait_and_less_than_work() -> None:
    moving = Item("communication", "all_gather", duration_s=0.4, blocks=24, sent_bytes=50e9)
    polling = moving._replace(moves=False)
    idle, copied, polled, worked = (emulated(*items) for items in ((wait(0.4),), (moving,), (polling,), product(200)))
    assert copied.busy_s == pytest.approx(0.4, rel=1e-6)
    assert polled.busy_s == pytest.approx(0.4, rel=1e-6)
    assert idle.power_mean_w < polled.power_mean_w < copied.power_mean_w < worked.power_mean_w


def test_a_transfer_beside_compute_slows_it_and_warms_it() -> None:
    beside = Item("communication", "reduce_scatter", stream="dp", duration_s=0.05, blocks=24)
    alone, both = emulated(*product(40)), emulated(*product(40), beside)
    assert both.busy_s > alone.busy_s
    assert both.busy_s < alone.busy_s + 0.05


def test_what_joins_a_transfer_waits_for_what_is_left_of_it() -> None:
    beside = Item("communication", "reduce_scatter", stream="tp", duration_s=0.2, blocks=24)
    joining = Item("communication", "all_gather", duration_s=0.1, blocks=24, joins=("tp",))
    free, joined = (emulated(beside, *product(10), one) for one in (joining._replace(joins=()), joining))
    assert emulated(*product(10)).busy_s < 0.05
    # The transfer is over before what joins it begins.
    assert joined.busy_s == pytest.approx(0.3, rel=0.01)
    assert free.busy_s < 0.25
    # Of one that compute covers nothing is left.
    covered = beside._replace(duration_s=0.005)
    waits_s = [emulated(covered, *product(40), one).busy_s for one in (joining._replace(joins=()), joining)]
    assert waits_s[0] == pytest.approx(waits_s[1], rel=1e-9)


def test_a_burst_is_a_square_wave() -> None:
    shape = KernelShape(*PRODUCT)
    net = network(ONE.node, ONE.cooling)
    seen, call_s = simulate_burst(shape, ONE.gpu, net, ONE.cooling.inlet_of(0), on_s=0.1, period_s=0.37, seconds_s=8.0)
    steady, steady_call_s = simulate_burst(
        shape, ONE.gpu, net, ONE.cooling.inlet_of(0), on_s=0.37, period_s=0.37, seconds_s=8.0
    )
    assert call_s <= steady_call_s * 1.001
    assert seen.power_mean_w < steady.power_mean_w
    assert seen.power_peak_sensor_w >= steady.power_mean_w


@pytest.mark.parametrize("silicon", [0.9, 1.0, 1.15])
def test_a_gpu_that_only_waits_settles_where_its_power_takes_it(silicon: float) -> None:
    single = SingleGpu(
        ONE.gpu, network(ONE.node, ONE.cooling), ONE.cooling.inlet_of(0), longest_s=400.0, silicon=silicon
    )
    single.wait(300.0)
    single.clear()
    single.wait(50.0)
    seen = single.seen()
    warm_k = network(ONE.node, ONE.cooling).resistance_k_per_w[0].sum() * seen.power_mean_w
    assert seen.temperature_mean_c == pytest.approx(ONE.cooling.inlet_of(0) + warm_k, abs=0.1)


GRAPHS: dict[str, Any] = {"base": "megatron", "graphs": "full"}
ALONE: dict[str, Any] = {
    "model": {"base": "llama3-8b", "layers": 8},
    "cluster": "h200x1",
    "framework": GRAPHS,
    "training": {"global_batch_size": 8},
}
RANKS: dict[str, dict[str, Any]] = {
    "pipeline": merge(GPT3, {"framework": GRAPHS}),
    "experts": merge(SLICED["experts"], {"framework": GRAPHS, "training": {"global_batch_size": 64}}),
    "sharded": {
        "model": "llama3-8b", "cluster": "h200x8", "parallelism": {"zero": 3},
        "framework": {"base": "fsdp", "graphs": "full"}, "training": {"global_batch_size": 16},
    },
}  # fmt: skip
"""A host that costs nothing: the one that emulates launches its own kernels."""
CAPS: dict[str, dict[str, Any]] = {
    "as delivered": {},
    "500 W": {"power_cap_w": 500.0},
    "300 W": {"power_cap_w": 300.0},
    "1200 MHz": {"clock_cap_hz": 1.2e9},
    "1600 MHz and 400 W": {"clock_cap_hz": 1.6e9, "power_cap_w": 400.0},
}


def agreement(found: Done, rank: int) -> tuple[float, float, float]:
    """Return what an emulated rank reads over what was simulated: step time, power and clock."""
    run, row = found.machine.run, found.gpus[rank]
    step = found.simulated_step
    # The same steps from the same state: those that the simulated step is the mean of.
    steps = step.averaged * repeats_of(found.machine)
    seen = predict_emulated(
        rank_timeline(found.whole, rank), run.cluster, (steps - 0.5) * found.metrics["step_time_s"], run.conditions,
        start=Start(state=step.averaged_from[simulated_gpu(found.machine, rank)]), launch_s=0.0,
    )  # fmt: skip
    return (
        seen.busy_s / found.metrics["step_time_s"],
        seen.power_mean_w / row["power_mean_w"],
        seen.clock_mean_hz / row["clock_mean_hz"],
    )


@pytest.mark.parametrize("cap", CAPS)
def test_an_emulated_gpu_reads_what_is_simulated_under_any_cap(cap: str) -> None:
    assert agreement(ran(under(**CAPS[cap]), ALONE), 0) == pytest.approx((1, 1, 1), abs=1e-3)


@pytest.mark.parametrize("conditions", [{}, {"clock_cap_hz": 1.2e9}, {"braked_nodes": [0]}], ids=str)
@pytest.mark.parametrize("name", RANKS)
def test_an_emulated_rank_reads_what_is_simulated_in_its_node(name: str, conditions: dict[str, Any]) -> None:
    found = ran(under(**conditions), RANKS[name])
    for rank in (0, found.machine.run.parallelism.world - 1):
        assert agreement(found, rank) == pytest.approx((1, 1, 1), abs=1e-3)


@pytest.mark.parametrize("conditions", [{}, {"clock_cap_hz": 1.2e9}], ids=str)
def test_exchanges_beside_products_hide_as_much_when_they_are_emulated(conditions: dict[str, Any]) -> None:
    exposed, hidden = (merge(GPT3, {"framework": GRAPHS, "parallelism": {"overlap": axes}}) for axes in ([], ["tp"]))
    found = ran(under(**conditions), hidden)
    assert found.metrics["step_time_s"] < 0.95 * ran(under(**conditions), exposed).metrics["step_time_s"]
    assert agreement(found, 0) == pytest.approx((1, 1, 1), abs=2e-3)


@pytest.mark.parametrize("name", RANKS)
def test_an_emulated_rank_reads_what_is_simulated_under_a_power_cap(name: str) -> None:
    found = ran(under(power_cap_w=450.0), RANKS[name])
    # Clocks move within a step, and with them what transfers hide under and how long others are waited for: a timeline
    # has one length for each, the mean of the steps that were simulated.
    for rank in (0, found.machine.run.parallelism.world - 1):
        assert agreement(found, rank) == pytest.approx((1, 1, 1), abs=6e-3)


def test_a_host_that_launches_slowly_makes_a_step_longer() -> None:
    timeline = rank_timeline(ran(base=ALONE).whole, 0)
    none, usual, slow = (
        predict_emulated(timeline, ONE, 2.0, launch_s=launch_s).busy_s for launch_s in (0.0, 8e-6, 5e-3)
    )
    assert none <= usual < slow
