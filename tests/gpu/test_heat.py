from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_cluster
from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.gpu.heat import (
    SINK,
    advance,
    check_cooling,
    fan_flow,
    idle_temperature_c,
    network,
    poles,
    preheat_matrix,
    sink_rise_k,
    steady_state_k,
    steady_temperature_c,
    temperature_c,
)
from charllm.spec.cooling import COOLINGS, Cooling
from charllm.spec.hardware import Node
from tests.gpu.heat_balance import heat_capacity_j_per_k, heat_to_air_w, mean_state_k

AIR = Cooling()
HGX = resolve_cluster("h100x8").node
MI250 = resolve_cluster("charllm-ppt-mi250").node
ONE = resolve_cluster("h200x1").node
CLUSTERS = ["h200x1", "h100x8", "h200x8", "charllm-ppt-mi250", "b200x8", "a100x8", "mi300x8", "gb200x4"]
watts = st.lists(st.floats(0, 1000), min_size=8, max_size=8).map(np.array)


@pytest.mark.parametrize("kind", COOLINGS)
@pytest.mark.parametrize("name", CLUSTERS)
def test_heat_out_equals_heat_in_at_steady_state(name: str, kind: str) -> None:
    node = resolve_cluster(name).node
    net = network(node, Cooling(kind=kind, flow_fraction=0.7))
    power = np.linspace(100, 600, node.gpus)
    out = heat_to_air_w(steady_state_k(power, net), power, net)
    assert out.sum() == pytest.approx(power.sum(), rel=1e-12)
    package = node.gpu.package_gpus
    assert out.reshape(-1, package).sum(1) == pytest.approx(power.reshape(-1, package).sum(1))


@given(power=watts, parts=st.integers(2, 50), seconds=st.floats(1e-3, 300))
@settings(max_examples=50, deadline=None)
def test_the_result_does_not_depend_on_the_step(power: np.ndarray, parts: int, seconds: float) -> None:
    net = network(HGX, AIR)
    start = steady_state_k(power[::-1], net)
    whole = advance(start, power, seconds, net, 1e12)
    state = start
    for _ in range(parts):
        state = advance(state, power, seconds / parts, net, 1e12)
    assert np.abs(state - whole).max() < 1e-9


def test_heat_is_stored_or_carried_away() -> None:
    net = network(HGX, AIR)
    power, state, out, step = np.linspace(200, 700, 8), np.zeros((8, 3)), np.zeros(8), 0.25
    for _ in range(400):
        out += heat_to_air_w(mean_state_k(state, power, step, net), power, net) * step
        state = advance(state, power, step, net)
    stored = heat_capacity_j_per_k(net) * state[:, SINK]
    assert out + stored == pytest.approx(power * 100.0, rel=1e-9)


def test_a_mean_is_the_mean_of_many_moments() -> None:
    net, power = network(HGX, AIR), np.full(8, 500.0)
    start = np.zeros((8, 3))
    moments = np.mean([advance(start, power, (index + 0.5) / 1000 * 7.0, net) for index in range(1000)], axis=0)
    assert mean_state_k(start, power, 7.0, net) == pytest.approx(moments, rel=1e-4)


def test_constant_power_ends_in_the_steady_state() -> None:
    net, power = network(MI250, AIR), np.linspace(100, 250, 8)
    assert advance(np.zeros((8, 3)), power, 1e5, net) == pytest.approx(steady_state_k(power, net))


@given(power=watts, more=watts)
@settings(max_examples=50, deadline=None)
def test_more_power_is_never_cooler(power: np.ndarray, more: np.ndarray) -> None:
    net = network(HGX, AIR)
    assert (steady_temperature_c(power + more, net, 25.0) >= steady_temperature_c(power, net, 25.0) - 1e-9).all()


@given(power=watts, flow=st.floats(0.2, 2), faster=st.floats(1, 2))
@settings(max_examples=50, deadline=None)
def test_better_cooling_is_never_hotter(power: np.ndarray, flow: float, faster: float) -> None:
    slow, fast = (network(HGX, Cooling(flow_fraction=value)) for value in (flow, flow * faster))
    assert (steady_temperature_c(power, fast, 25.0) <= steady_temperature_c(power, slow, 25.0) + 1e-9).all()


@given(power=watts, flow=st.floats(0.2, 2), faster=st.floats(1, 2), seconds=st.floats(0.01, 500))
@settings(max_examples=50, deadline=None)
def test_better_cooling_is_never_hotter_on_the_way(
    power: np.ndarray, flow: float, faster: float, seconds: float
) -> None:
    # Without preheat: a sink colder than its air warms faster in a stronger stream.
    node = replace(HGX, preheat_k_per_w=0.0)
    slow, fast = (network(node, Cooling(flow_fraction=value)) for value in (flow, flow * faster))
    state = steady_state_k(np.full(8, 300.0), slow)
    after = [temperature_c(advance(state, power, seconds, net), 25.0) for net in (fast, slow)]
    assert (after[0] <= after[1] + 1e-9).all()


@pytest.mark.parametrize("name", CLUSTERS)
def test_liquid_is_cooler_than_immersion_and_that_than_air(name: str) -> None:
    node = resolve_cluster(name).node
    power = np.full(node.gpus, 400.0)
    air, immersed, liquid = (
        steady_temperature_c(power, network(node, Cooling(kind=kind)), 25.0) for kind in ("air", "immersion", "liquid")
    )
    assert (liquid < immersed).all()
    assert (immersed < air).all()


def test_a_warmer_inlet_warms_every_gpu_by_as_much() -> None:
    net, power = network(HGX, AIR), np.linspace(100, 700, 8)
    assert steady_temperature_c(power, net, 35.0) - steady_temperature_c(power, net, 25.0) == pytest.approx(10.0)


@pytest.mark.parametrize("slot", range(8))
def test_preheat_warms_those_downstream_and_nobody_else(slot: int) -> None:
    net, power = network(HGX, AIR), np.full(8, 300.0)
    more = power.copy()
    more[slot] += 100
    warmer = steady_temperature_c(more, net, 25.0) - steady_temperature_c(power, net, 25.0)
    behind = {other for other in range(8) if slot in HGX.upstream_slots(other)}
    assert {other for other in range(8) if other != slot and warmer[other] > 1e-9} == behind
    for other in behind:
        assert warmer[other] == pytest.approx(100 * HGX.preheat_k_per_w)


def test_cold_plates_and_baths_have_no_preheat() -> None:
    for kind in ("liquid", "immersion"):
        assert not preheat_matrix(HGX, Cooling(kind=kind)).any()


def test_a_chain_of_slots_adds_up() -> None:
    node = replace(HGX, gpus=4, upstream=(-1, 0, 1, 2))
    assert (preheat_matrix(node, AIR) > 0).sum(axis=1).tolist() == [0, 1, 2, 3]


def test_a_ring_of_air_does_not_warm_itself() -> None:
    node = replace(HGX, gpus=2, upstream=(1, 0))
    assert np.diag(preheat_matrix(node, AIR)).tolist() == [0.0, 0.0]


def test_the_dies_of_a_package_share_its_sink() -> None:
    net = network(MI250, AIR)
    power = np.zeros(8)
    power[0] = 250.0
    rise = steady_state_k(power, net)
    assert rise[1, SINK] == pytest.approx(250 * net.resistance_k_per_w[1, SINK])
    assert rise[1, :SINK] == pytest.approx(0.0)
    assert rise[2].sum() == 0.0
    # Who of the two draws the watts does not matter to the sink.
    swapped = steady_state_k(np.roll(power, 1), net)
    assert swapped[1, SINK] == pytest.approx(rise[1, SINK])


def test_the_dies_of_a_package_differ_by_five_to_ten_degrees() -> None:
    shown = steady_temperature_c(np.full(8, 250.0), network(MI250, AIR), 25.0).reshape(4, 2)
    assert ((shown[:, 1] - shown[:, 0] > 5) & (shown[:, 1] - shown[:, 0] < 10)).all()


def test_traffic_heats_the_sink_but_not_the_die() -> None:
    net, power = network(ONE, AIR), np.array([600.0])
    quiet, busy = steady_state_k(power, net), steady_state_k(power, net, 4e12)
    off_die_w = 4e12 * ONE.gpu.heat.memory_byte_heat_j
    assert quiet[0, SINK] == busy[0, SINK]
    lost = (quiet - busy)[0, :SINK].sum()
    assert lost == pytest.approx(off_die_w * net.resistance_k_per_w[0, :SINK].sum())
    assert 6 < lost < 9


def test_many_nodes_step_at_once() -> None:
    net = network(HGX, AIR)
    power = np.linspace(100, 700, 40).reshape(5, 8)
    together = advance(np.zeros((5, 8, 3)), power, 3.0, net)
    for index in range(5):
        assert together[index] == pytest.approx(advance(np.zeros((8, 3)), power[index], 3.0, net))


def test_a_node_may_cool_its_gpus_otherwise_than_they_were_measured() -> None:
    alone, among = poles(ONE, AIR), poles(resolve_cluster("h200x8").node, AIR)
    assert alone.resistance_k_per_w[0, 0] == among.resistance_k_per_w[0, 0]
    assert alone.resistance_k_per_w.sum() == pytest.approx(0.0406, abs=0.001)
    assert among.resistance_k_per_w.sum(axis=1).min() == pytest.approx(0.055, abs=0.002)


def test_an_h200_alone_rests_at_forty_degrees_and_works_at_sixty_one() -> None:
    cluster = resolve_cluster("h200x1")
    net, inlet = network(cluster.node, cluster.cooling), cluster.cooling.inlet_c
    assert steady_temperature_c([124.0], net, inlet)[0] == pytest.approx(40.0, abs=0.5)
    # 8192-cubes at the cap read 0.75 TB/s: evaluate/h200/readings/ops.csv, the soak.
    assert steady_temperature_c([690.6], net, inlet, 0.75e12)[0] == pytest.approx(61.0, abs=1.0)


def test_hot_slots_are_hotter_by_what_the_public_node_shows() -> None:
    net = network(HGX, AIR)
    shown = steady_temperature_c(np.full(8, 690.0), net, 18.5, 0.8e12)
    rear = [slot for slot in range(8) if HGX.upstream_slots(slot)]
    front = [slot for slot in range(8) if slot not in rear]
    assert shown[rear].mean() - shown[front].mean() == pytest.approx(11.5, abs=1.0)
    assert shown[front].mean() == pytest.approx(55.0, abs=2.0)


def test_a_networks_arrays_cannot_be_changed_by_accident() -> None:
    net = network(HGX, AIR)
    with pytest.raises(ValueError, match="read-only"):
        net.time_s[0, 0] = 1.0
    assert network(HGX, AIR) is net


SEEN_TO_SLOW_W = {"v100x16": 281.0}
"""Power at which full machines were seen to settle below their clock for heat (evaluate/clock_locked.py)."""


@pytest.mark.parametrize("name", sorted(entries("clusters")))
def test_every_machine_of_the_catalog_stays_below_its_limit_at_full_power_unless_it_was_seen_to_slow(name: str) -> None:
    cluster = resolve_cluster(name)
    node: Node = cluster.node
    power_w = SEEN_TO_SLOW_W.get(name, node.gpu.power_cap_w / node.gpu.package_gpus)
    shown = steady_temperature_c(np.full(node.gpus, power_w), network(node, cluster.cooling), 25.0)
    assert shown.min() > 25
    assert (shown.max() >= node.gpu.max_operating_temperature_c) == (name in SEEN_TO_SLOW_W)


@pytest.mark.parametrize("name", sorted(entries("clusters")))
def test_every_machine_of_the_catalog_is_cool_when_idle(name: str) -> None:
    cluster = resolve_cluster(name)
    check_cooling(cluster)
    idle_c = idle_temperature_c(cluster.node, cluster.cooling)
    assert idle_c is not None
    # Leakage is part of it: the temperature is that of the power drawn at it.
    power = cluster.gpu.power
    drawn_w = cluster.gpu.idle_draw_w / cluster.gpu.package_gpus + power.leakage_w_per_k * (idle_c - power.reference_c)
    shown = steady_temperature_c(drawn_w, network(cluster.node, cluster.cooling), cluster.cooling.inlet_c)
    assert shown == pytest.approx(idle_c, abs=1e-6)


@pytest.mark.parametrize(
    ("resistance", "why"), [(0.4, "an idle GPU reaches"), (0.9, "runs away because leakage grows")]
)
def test_a_sink_that_cannot_keep_an_idle_gpu_cool_is_refused(resistance: float, why: str) -> None:
    cluster = resolve_cluster("h200x8")
    hot = replace(cluster, node=replace(cluster.node, sink_resistance_k_per_w=resistance))
    with pytest.raises(SpecError, match=why) as caught:
        check_cooling(hot)
    assert caught.value.field == "cluster.node.sink_resistance_k_per_w"


@pytest.mark.parametrize(
    ("cooling", "field", "possible"),
    [
        (Cooling(inlet_c=75.0, flow_fraction=0.1), "inlet_c", "at most 62 C at a flow of 0.1"),
        (Cooling(inlet_c=(25.0, 75.0), flow_fraction=(1.0, 0.1)), "inlet_c", "at most 62 C at a flow of 0.1"),
    ],
)
def test_air_that_cannot_keep_an_idle_gpu_cool_is_refused_by_its_field(
    cooling: Cooling, field: str, possible: str
) -> None:
    cluster = resolve_cluster("h100x16")
    with pytest.raises(SpecError) as caught:
        check_cooling(replace(cluster, cooling=cooling))
    assert caught.value.field == f"cluster.cooling.{field}"
    assert possible in str(caught.value)


def test_a_node_is_as_hot_as_the_air_of_its_own_rack() -> None:
    # The hot inlet meets normal flow, the low flow a cool inlet: neither is refused.
    check_cooling(replace(resolve_cluster("h100x16"), cooling=Cooling(inlet_c=(75.0, 25.0), flow_fraction=(1.0, 0.1))))


def test_fans_follow_the_hottest_gpu_up_to_its_operating_limit() -> None:
    cooling = Cooling(fans="following", fan_start_c=60.0, fan_most_fraction=1.5)
    hottest_c, limit_c = np.array([20.0, 60.0, 70.0, 80.0, 95.0]), np.full(5, 80.0)
    assert fan_flow(cooling, np.ones(5), hottest_c, limit_c) == pytest.approx([1.0, 1.0, 1.25, 1.5, 1.5])


def test_sinks_at_a_flow_are_those_of_a_network_at_that_flow() -> None:
    power = np.stack([np.linspace(200, 700, 8), np.full(8, 600.0)])
    found = sink_rise_k(power, network(HGX, AIR), np.array([0.6, 1.3]))
    for row, flow in enumerate((0.6, 1.3)):
        there = network(HGX, Cooling(flow_fraction=flow))
        assert found[row] == pytest.approx(steady_state_k(power[row], there)[:, SINK])


# Flow of half: sinks conduct by 0.5^-0.8 = 1.741 worse (Dittus and Boelter), air warms twice as much. Cold plates and
# baths: fractions of gpu/heat.py, from arXiv:2507.16781 (0.035 K/W in all) and assumed.
BY_HAND = {
    ("air", 0.5): (1.0, 1.0, 1.741101, 2.0),
    ("air", 2.0): (1.0, 1.0, 0.574349, 0.5),
    ("liquid", 1.0): (1.0, 0.25, 0.25, 0.0),
    ("liquid", 0.5): (1.0, 0.25, 0.435275, 0.0),
    ("immersion", 1.0): (1.0, 1.0, 0.7, 0.0),
}


@pytest.mark.parametrize(("kind", "flow"), BY_HAND)
def test_a_cooling_changes_resistances_times_and_preheat_by_what_a_hand_makes_them(kind: str, flow: float) -> None:
    usual, cooling = poles(HGX, AIR), Cooling(kind=kind, flow_fraction=flow)
    found, factors = poles(HGX, cooling), BY_HAND[kind, flow]
    assert found.resistance_k_per_w / usual.resistance_k_per_w == pytest.approx(np.array([factors[:3]] * 8), rel=1e-5)
    # Heat capacities stay: a pole that conducts worse is slower by as much.
    assert found.time_s / usual.time_s == pytest.approx(np.array([factors[:3]] * 8), rel=1e-5)
    assert preheat_matrix(HGX, cooling) == pytest.approx(preheat_matrix(HGX, AIR) * factors[3])


def test_the_slots_of_a_node_have_the_sinks_that_it_gives_them() -> None:
    plain = replace(HGX, rear_sink_fraction=1.0, package_skew_fraction=0.0)
    rear = replace(plain, rear_sink_fraction=1.2)
    behind = np.array([bool(HGX.upstream_slots(slot)) for slot in range(8)])
    factors = poles(rear, AIR).resistance_k_per_w / poles(plain, AIR).resistance_k_per_w
    assert factors[:, SINK] == pytest.approx(np.where(behind, 1.2, 1.0))
    assert factors[:, :SINK] == pytest.approx(1.0)
    # Two dies of a package that differ by 0.4 of their mean: 0.8 and 1.2 of it.
    pair = replace(MI250, rear_sink_fraction=1.0, package_skew_fraction=0.4)
    even = replace(pair, package_skew_fraction=0.0)
    found = poles(pair, AIR).resistance_k_per_w / poles(even, AIR).resistance_k_per_w
    assert found[:, SINK] == pytest.approx([0.8, 1.2] * 4)


def test_an_idle_gpu_with_leakage_is_as_warm_as_a_hand_makes_it() -> None:
    # One GPU of 0.1 K/W in all: T = 25 + 0.1 (100 + 2 (T - 45)) gives T = (25 + 10 - 9) / (1 - 0.2) = 32.5.
    cluster = resolve_cluster("h200x1")
    heat = replace(cluster.gpu.heat, die_resistance_k_per_w=0.02)
    power = replace(cluster.gpu.power, static_w=100.0, context_w=0.0, leakage_w_per_k=2.0, reference_c=45.0)
    gpu = replace(cluster.gpu, heat=heat, power=power)
    node = replace(cluster.node, gpu=gpu, base_resistance_k_per_w=0.03, sink_resistance_k_per_w=0.05)
    one = replace(cluster, node=node, cooling=Cooling(inlet_c=25.0))
    assert idle_temperature_c(one.node, one.cooling) == pytest.approx([32.5])


def test_a_difference_falls_to_one_over_e_in_a_time_constant() -> None:
    net = network(ONE, AIR)
    state = steady_state_k([500.0], net)
    for pole in range(3):
        left = advance(state, [0.0], float(net.time_s[0, pole]), net)[0, pole] / state[0, pole]
        assert left == pytest.approx(np.exp(-1))
