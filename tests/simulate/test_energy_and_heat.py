"""Nothing is lost: joules, heat, seconds and cycles."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.gpu.heat import SINK, network, steady_state_k
from charllm.simulate import step_loop
from charllm.simulate.cold import seconds_to_shutdown
from charllm.simulate.sinks import sink_target_k
from charllm.simulate.slices import BOARD_J, CORE_J, MATRIX_J, work_s
from charllm.simulate.steady import LEAST_ROUND_S, build_machine, simulate_once, start_state
from charllm.spec.request import merge
from charllm.workload.step import build_step
from tests.gpu.heat_balance import heat_to_air_w
from tests.simulate.runs import GPT3, REPLICAS, Done, cooled, ran, under
from tests.simulate.test_stragglers import row_of

CASES: dict[str, dict[str, Any]] = {
    "as delivered": {},
    "at the lowest cap": under(power_cap_w=200.0),
    "hot": cooled(inlet_c=55.0),
    "one braked node": under(braked_nodes=[1]),
    "silicon spread": under(silicon_spread_fraction=0.05),
}


@pytest.mark.parametrize("case", CASES)
def test_energy_is_the_integral_of_power(case: str) -> None:
    machine = ran(CASES[case]).machine
    state = start_state(machine)
    simulated_step = simulate_once(machine, state, sink_target_k(machine, np.full(len(state), 500.0)))
    repeats = max(1, int(np.ceil(LEAST_ROUND_S / machine.open_s)))
    boxes_j = simulated_step.series[:, :, 0].sum(axis=1) * simulated_step.box_s
    # What the last, unfinished box took is not in the series.
    whole_j = boxes_j + state[: len(boxes_j), step_loop.BOX_J]
    assert whole_j == pytest.approx(repeats * simulated_step.sums[: len(boxes_j), step_loop.ENERGY], rel=1e-9)


@pytest.mark.parametrize("base", [GPT3, REPLICAS], ids=["one replica", "four replicas"])
def test_the_cluster_draws_what_its_gpus_draw(base: dict[str, Any]) -> None:
    found = ran(base=base)
    machine, simulated_step = found.machine, found.simulated_step
    weights = np.tile(machine.fold.weights, machine.run.parallelism.pp)
    together_w = (weights[:, None] * simulated_step.series[:, :, 0]).sum(axis=0)
    assert simulated_step.cluster_w == pytest.approx(together_w, rel=1e-9)
    assert weights.sum() == machine.run.cluster.gpus


@pytest.mark.parametrize("case", CASES)
def test_metrics_of_energy_agree_with_each_other(case: str) -> None:
    found = ran(CASES[case])
    metrics, step_s = found.metrics, found.metrics["step_time_s"]
    each_w = [row["power_mean_w"] for row in found.gpus]
    assert metrics["energy_per_step_j"] == pytest.approx(sum(each_w) * step_s, rel=1e-9)
    assert metrics["power_mean_w"] == pytest.approx(np.mean(each_w), rel=1e-9)
    assert metrics["tokens_per_j"] == pytest.approx(32 * 2048 / metrics["energy_per_step_j"], rel=1e-9)
    boxes_w = found.simulated_step.cluster_w[1:-1]
    assert boxes_w.mean() == pytest.approx(sum(each_w), rel=0.02)
    assert min(each_w) <= metrics["power_mean_w"] <= metrics["power_peak_sensor_w"] <= metrics["power_peak_w"] + 1e-9
    nodes = found.whole.result.nodes
    assert sum(node["gpu_power_mean_w"] for node in nodes) == pytest.approx(sum(each_w), rel=1e-9)
    assert metrics["node_power_mean_w"] == pytest.approx(np.mean([node["power_mean_w"] for node in nodes]), rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_heat_out_equals_heat_in_at_steady_state(case: str) -> None:
    found = ran(CASES[case])
    machine, simulated_step = found.machine, found.simulated_step
    cluster = machine.run.cluster
    net = network(cluster.node, cluster.cooling)
    shape = (cluster.nodes, cluster.node.gpus)
    power_w = (simulated_step.sums[:, step_loop.ENERGY] / simulated_step.step_time_s)[machine.representatives].reshape(
        shape
    )
    sink_k = simulated_step.sink_k[machine.representatives].reshape(shape)
    steady = steady_state_k(power_w, net)
    assert np.max(np.abs(sink_k - steady[..., SINK])) < 0.1
    steady[..., SINK] = sink_k
    # Sinks are settled to 0.05 K, which is some 1.2 W of a GPU at the lowest cap.
    assert heat_to_air_w(steady, power_w, net).sum() == pytest.approx(power_w.sum(), rel=6e-3)


def test_dies_are_as_warm_as_the_power_that_passes_them() -> None:
    found = ran()
    cluster = found.machine.run.cluster
    net = network(cluster.node, cluster.cooling)
    for row in found.gpus[:8]:
        rises = net.resistance_k_per_w[row["slot"], :SINK].sum() * row["power_mean_w"]
        air_c = cluster.cooling.inlet_c + found.simulated_step.sink_k[row["rank"]]
        # Heat of memory stacks never reaches the die: some per cent of a board's power.
        assert air_c + 0.9 * rises - 0.2 < row["temperature_mean_c"] < air_c + rises + 0.2


SLICED: dict[str, dict[str, Any]] = {
    "dense": GPT3,
    "replicas": REPLICAS,
    "experts": {
        "model": "mixtral-8x7b", "cluster": "charllm-ppt-h200", "parallelism": {"pp": 4, "ep": 8},
        "training": {"global_batch_size": 32},
    },
    "overlapped": merge(GPT3, {"parallelism": {"overlap": ["tp", "pp"]}, "training": {"recompute": "full"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", SLICED)
def test_slices_hold_the_seconds_and_joules_of_their_ops(name: str) -> None:
    run = resolve_run(SLICED[name])
    machine = build_machine(build_step(run))
    slices, knots, place = machine.slices, machine.knots[0], 3
    timed = machine.priced[0].times[place]
    costs = timed.costs
    passes = [one[kind] for kind in range(3) for one in timed.passes]
    for number, part in enumerate(passes):
        items = [(item, span.repeats) for span in part.spans for item in span.items if item.op is not None]
        rows = np.zeros(slices.table.shape[2:])
        for begin, end, repeats in slices.spans[slices.first[number] : slices.first[number + 1]]:
            rows += repeats * slices.table[0, begin:end].sum(axis=0)
        seconds = float(work_s(rows, knots, costs.clock_hz))
        assert seconds == pytest.approx(sum(item.seconds * repeats for item, repeats in items), rel=1e-9)
        joules = sum((repeats * costs.cells(item.op)[3:] for item, repeats in items if item.op), np.zeros(3))
        assert rows[place][[MATRIX_J, CORE_J, BOARD_J]] == pytest.approx(joules, rel=1e-9)


def test_memory_that_draws_nothing_heats_nothing_and_cools_nothing() -> None:
    free = {"cluster": {"node": {"gpu": {"power": {"memory_byte_j": 0.0}}}}}
    metrics = ran(free).metrics
    assert metrics["temperature_mean_c"] > 25.0


def hot(sink_fraction: float, **cooling: float) -> Done:
    return ran({**under(hot_gpus=[3], hot_sink_fraction=sink_fraction), **cooled(**cooling)})


def test_a_gpu_with_a_poor_sink_is_held_below_its_slowdown_at_whatever_clock_that_takes() -> None:
    found = hot(8.0)
    row = row_of(found, 3)
    assert found.metrics["shutdown"] is False
    assert found.machine.run.cluster.gpu.max_operating_temperature_c < row["temperature_peak_c"] < 90
    assert row["clock_mean_hz"] < 0.5 * max(one["clock_mean_hz"] for one in found.gpus)
    assert found.metrics["step_time_s"] > 1.7 * ran().metrics["step_time_s"]


def test_a_gpu_that_its_lowest_clock_does_not_cool_turns_itself_off() -> None:
    found = hot(20.0)
    assert found.metrics["shutdown"] is True
    # No sensor shows more than that, whatever the loop would reach.
    assert row_of(found, 3)["temperature_peak_c"] == found.machine.run.cluster.gpu.shutdown_temperature_c
    assert any("turns itself off, which ends the run" in warning for warning in found.whole.result.warnings)


def test_a_run_from_cold_ends_when_a_gpu_turns_itself_off() -> None:
    at_end = ran(under(hot_gpus=[3], hot_sink_fraction=20.0, seconds_s=3600.0))
    assert at_end.metrics["shutdown"] is True
    # It ends within minutes: a GPU that is cooled like the others never does.
    assert seconds_to_shutdown(at_end.machine) == pytest.approx(400, rel=0.5)
    assert seconds_to_shutdown(ran().machine) is None


def test_memory_is_as_warm_as_its_sink_its_board_and_its_traffic_make_it() -> None:
    found = ran()
    machine, sums, step_s = found.machine, found.simulated_step.sums, found.simulated_step.step_time_s
    heat, power_w = machine.run.cluster.gpu.heat, sums[:, step_loop.ENERGY] / step_s
    least_c = 25 + found.simulated_step.sink_k + heat.memory_board_resistance_k_per_w * power_w
    above_k = sums[:, step_loop.MEMORY_HEAT_S] / step_s - least_c
    # The rest is traffic: between none and all that a copy reaches, at 47 pJ a byte.
    assert np.all(above_k > 0.5)
    assert np.all(above_k < heat.memory_resistance_k_per_w * 47e-12 * 4.8e12)
    assert np.all(sums[:, step_loop.MEMORY_HOT_C] >= sums[:, step_loop.MEMORY_HEAT_S] / step_s)


def test_memory_above_its_limit_takes_clock_until_it_is_there() -> None:
    limit_c = ran().metrics["memory_temperature_peak_c"] - 5
    found = ran({"cluster": {"node": {"gpu": {"memory_operating_temperature_c": limit_c}}}})
    assert found.metrics["clock_loss_fraction"]["thermal"] > 0.05
    assert limit_c < found.metrics["memory_temperature_peak_c"] < limit_c + 2
    assert found.metrics["temperature_peak_c"] < ran().metrics["temperature_peak_c"] - 2
    assert any("memory is at its limit" in warning for warning in found.whole.result.warnings)
