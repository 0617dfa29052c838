"""The slow half of the loop by hand: starts, sinks, poles that are carried on, steps that are added, a watched GPU."""

import numpy as np
import pytest

from charllm.gpu.heat import SINK, network
from charllm.simulate import steady, step_loop
from charllm.simulate.sinks import sink_target_k
from charllm.simulate.steady import (
    AVERAGED_S,
    LEAST_ROUND_S,
    SimulatedStep,
    add_steps,
    average_rounds,
    carry_poles,
    repeat_poles,
    repeats_of,
    simulate_once,
    start_state,
    watch_gpu,
)
from tests.simulate.runs import ran, under

FAST = {"training": {"global_batch_size": 8}}


def test_gpus_begin_at_a_power_that_they_have_drawn_for_long() -> None:
    machine = ran(under(braked_nodes=[1], brake_clock_hz=6e8)).machine
    state = start_state(machine, 400.0, 0.5)
    assert state[0, step_loop.CLOCK] == 0.5 * 1.98e9
    assert state[8, step_loop.CLOCK] == state[8, step_loop.BRAKE_HZ] == 6e8
    assert (state[:, step_loop.MEAN_W] == 400.0).all()
    assert (state[:, step_loop.BOX_LEFT] == 0.025).all()
    assert state[:, step_loop.POLES :] == pytest.approx(np.broadcast_to(400.0 * machine.resistance, (32, 2)))


def test_a_sink_rises_by_its_resistance_times_the_power_of_its_node_and_more_where_it_is_worse() -> None:
    found = ran(under(hot_gpus=[9], hot_sink_fraction=1.5))
    machine, cluster = found.machine, found.machine.run.cluster
    power_w = np.linspace(300, 600, 32)
    net = network(cluster.node, cluster.cooling)
    own = power_w.reshape(4, 8)
    expected_k = net.resistance_k_per_w[:, SINK] * own + own @ net.air_k_per_w.T
    expected_k[1, 1] += 0.5 * net.resistance_k_per_w[1, SINK] * own[1, 1]
    assert sink_target_k(machine, power_w[machine.gpus]) == pytest.approx(expected_k.ravel()[machine.gpus])


def test_a_round_that_is_repeated_takes_poles_to_where_it_leaves_them_as_they_are() -> None:
    machine = ran().machine
    state = start_state(machine)
    state[:, step_loop.TIME] = 40 * 0.025
    # Forty boxes that pull each pole towards 30 K.
    before_k = np.full_like(state[:, step_loop.MEMORY :], 10.0)
    left = machine.decay[machine.kind]
    state[:, step_loop.MEMORY :] = 30.0 - 20.0 * left**40
    assert repeat_poles(machine, state, before_k) == pytest.approx(np.full_like(before_k, 30.0))
    far_k = float(np.max(20.0 * left**40))
    assert carry_poles(machine, state, before_k, 2.0) == pytest.approx(far_k)
    # Two seconds are eighty boxes more.
    assert state[:, step_loop.MEMORY :] == pytest.approx(30.0 - 20.0 * left**120)


def test_a_short_step_is_simulated_until_a_round_lasts_two_seconds() -> None:
    machine = ran().machine
    assert LEAST_ROUND_S == 2.0
    assert repeats_of(machine._replace(open_s=0.3)) == 7
    assert repeats_of(machine._replace(open_s=0.5)) == 4
    assert repeats_of(machine._replace(open_s=2.1)) == 1


def test_steps_add_up_and_keep_their_extremes() -> None:
    step = ran().simulated_step
    cooler = step._replace(sums=step.sums.copy(), step_time_s=2.0)
    cooler.sums[:, step_loop.HOT_C] -= 5
    cooler.sums[:, step_loop.COLD_C] -= 5
    cooler.sums[:, step_loop.PEAK_W] += 50
    cooler.sums[:, step_loop.SENSOR_W] -= 50
    both = add_steps(add_steps(None, step, 3.0), cooler, 2.0)
    assert both.step_time_s == pytest.approx(3 * step.step_time_s + 4.0)
    for column in (step_loop.ENERGY, step_loop.CLOCK_S, step_loop.GROUP_WAIT):
        assert both.sums[:, column] == pytest.approx(5 * step.sums[:, column])
    assert np.array_equal(both.sums[:, step_loop.HOT_C], step.sums[:, step_loop.HOT_C])
    assert np.array_equal(both.sums[:, step_loop.COLD_C], cooler.sums[:, step_loop.COLD_C])
    assert np.array_equal(both.sums[:, step_loop.PEAK_W], cooler.sums[:, step_loop.PEAK_W])
    assert np.array_equal(both.sums[:, step_loop.SENSOR_W], step.sums[:, step_loop.SENSOR_W])


def test_a_step_whose_clocks_move_is_the_mean_of_at_least_twelve_seconds() -> None:
    moving, still = ran(under(power_cap_w=400.0)), ran(under(clock_cap_hz=8e8))
    assert still.simulated_step.averaged == 1
    step = moving.simulated_step
    assert AVERAGED_S == 12.0
    assert step.averaged >= 12 / step.step_time_s
    state = step.averaged_from.copy()
    rounds = [simulate_once(moving.machine, state, step.sink_k) for _ in range(step.averaged)]
    assert step.step_time_s == pytest.approx(np.mean([one.step_time_s for one in rounds]), rel=1e-9)
    energies_j = np.mean([one.sums[:, step_loop.ENERGY] for one in rounds], axis=0)
    assert step.sums[:, step_loop.ENERGY] == pytest.approx(energies_j, rel=1e-9)
    assert (
        average_rounds(still.machine, still.simulated_step.begun.copy(), still.simulated_step) is still.simulated_step
    )


@pytest.mark.parametrize(("differs_fraction", "least", "most"), [(1e-5, 2, 2), (1e-3, 10, 40), (0.1, 1024, 1024)])
def test_rounds_that_differ_are_averaged_until_their_mean_is_known(
    differs_fraction: float, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, random = ran(under(power_cap_w=400.0)), np.random.default_rng(1)
    settled, state = found.simulated_step, found.simulated_step.begun[:4]

    def differ(*_asked: object) -> SimulatedStep:
        return settled._replace(step_time_s=settled.step_time_s * (1 + differs_fraction * random.standard_normal()))

    monkeypatch.setattr(steady, "simulate_once", differ)
    averaged = average_rounds(found.machine, state, settled)
    assert least <= averaged.averaged <= most
    error_fraction = differs_fraction / np.sqrt(averaged.averaged)
    assert averaged.step_time_s == pytest.approx(settled.step_time_s, rel=4 * error_fraction)
    assert averaged.sums[:, step_loop.ENERGY] == pytest.approx(settled.sums[:, step_loop.ENERGY])


@pytest.mark.parametrize("changes", [under(power_cap_w=450.0, weak_gpus=[9]), {**FAST, **under(clock_cap_hz=1.2e9)}])
@pytest.mark.parametrize("gpu", [9, 30])
def test_a_watched_gpu_waits_and_ends_its_steps_as_its_sums_say(changes: dict[str, object], gpu: int) -> None:
    found = ran(changes)
    sums = found.simulated_step.sums[gpu]
    watched = watch_gpu(found.machine, found.simulated_step, gpu)
    waits_s = sums[step_loop.INPUT_WAIT] + sums[step_loop.GROUP_WAIT]
    ended_s = {name: watched.ends_s[name] for name in step_loop.ENDING}
    assert watched.waits_s.sum() + ended_s["stage"] + ended_s["others"] == pytest.approx(waits_s, rel=0.02)
    assert ended_s["gradients"] + ended_s["weights"] == pytest.approx(sums[step_loop.EXCHANGED_S], rel=1e-6, abs=1e-9)
    assert ended_s["host"] == pytest.approx(sums[step_loop.UPDATE_HOST_S], rel=1e-6, abs=1e-9)
    assert (watched.waits_s >= 0).all()
