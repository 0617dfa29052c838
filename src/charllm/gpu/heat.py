"""How warm the GPUs of a node become: a sum of first-order poles per GPU, slots joined by air and by shared sinks.

Equation: the sensor shows inlet + x_die + x_base + x_sink, and each rise follows what drives it,

    time_k dx_k/dt = target_k - x_k
    target_die, target_base = R_die, R_base  (P - memory_byte_heat B)
    target_sink = R_sink (sum of P over the package) + sum over upstream slots of preheat P
    target_memory = rest + R_board P + R_own memory_byte_heat B

with P the board's power and B its memory traffic in bytes per second: heat of memory stacks reaches the sink, not the
die's sensor. The stacks' own sensor shows inlet + x_sink + x_memory. Power that is constant over a step is carried
exactly, so the result does not depend on the step. Air passes a chassis in well under a second: what a GPU gives to it
reaches those downstream at once and warms their sinks with the sinks' own time.

Fans that follow the hottest GPU of their node turn the flow up in proportion to its distance from fan_start_c, to
fan_most_fraction at the GPU's operating limit.

Flow: a sink's resistance falls with flow^-0.8 (forced convection over fins and in channels, Dittus and Boelter 1930),
the air's warming with 1 / flow (its heat capacity); conduction through die and base does not care.

Source: poles of one H200 and of a public 8-GPU node (benchmarks/fit_heat.py); catalog/nodes for slots and preheat.
Ignores: hot spots within a die, heat stored upstream before it is given to the air, recirculation from outlet to inlet,
radiation, how long fans take to speed up (seconds), warming of coolant along cold plates in series.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from charllm.arrays import Floats
from charllm.errors import SpecError, Words
from charllm.gpu.physics import decay, relax
from charllm.spec.cooling import Cooling
from charllm.spec.hardware import Cluster, Node

POLE_NAMES = ("die", "base", "sink")
SINK = 2
"""The pole that hands heat over to air or coolant."""
FLOW_EXPONENT = -0.8


class Medium(NamedTuple):
    """What a cooling does to the resistances of an air-cooled node."""

    base_fraction: float
    sink_fraction: float
    preheat_fraction: float


MEDIA = {
    "air": Medium(1.0, 1.0, 1.0),
    # 8 H100 under cold plates at 600-690 W: 41-50 C with coolant near 25 C (arXiv:2507.16781), 0.035 K/W in all.
    "liquid": Medium(0.25, 0.25, 0.0),
    # Assumed: a bath takes heat from the same fins better than air does, and warms all slots alike.
    "immersion": Medium(1.0, 0.7, 0.0),
}


class MemoryHeat(NamedTuple):
    """How warm memory stacks become above the sink they share with the die."""

    rest_k: float
    board_k_per_w: float
    own_k_per_w: float
    time_s: float

    def target_k(self, power_w: ArrayLike, own_w: ArrayLike = 0.0) -> Floats:
        """Return the rise to which power of the board, and heat of traffic, drive them."""
        return np.asarray(self.rest_k + self.board_k_per_w * np.asarray(power_w) + self.own_k_per_w * np.asarray(own_w))


class Poles(NamedTuple):
    """Resistance and time constant of each pole of each slot, both [slots, poles]."""

    resistance_k_per_w: Floats
    time_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A node's heat as plain arrays; `neighbour_k_per_w[i, j]`: how far a watt in slot j warms the sink of slot i."""

    resistance_k_per_w: Floats
    time_s: Floats
    neighbour_k_per_w: Floats
    air_k_per_w: Floats
    memory_byte_heat_j: float
    package_gpus: int
    memory: MemoryHeat

    @property
    def slots(self) -> int:
        """GPUs of the node."""
        return len(self.resistance_k_per_w)


def poles(node: Node, cooling: Cooling) -> Poles:
    """Return the poles of each slot of a node under a cooling."""
    heat, medium = node.gpu.heat, MEDIA[cooling.kind]
    base, base_time = _given(node.base_resistance_k_per_w, heat.base_resistance_k_per_w), node.base_time_s
    sink, sink_time = _given(node.sink_resistance_k_per_w, heat.sink_resistance_k_per_w), node.sink_time_s
    base_fraction, sink_fraction = medium.base_fraction, medium.sink_fraction * cooling.flow_of(0) ** FLOW_EXPONENT
    slots = np.ones(node.gpus)
    resistance = np.stack(
        [
            slots * heat.die_resistance_k_per_w,
            slots * base * base_fraction,
            _slot_fractions(node) * sink * sink_fraction,
        ],
        axis=1,
    )
    # A metal's heat capacity stays when its resistance changes: the time constant is their product.
    time_s = np.stack(
        [
            slots * heat.die_time_s,
            slots * _given(base_time, heat.base_time_s) * base_fraction,
            slots * _given(sink_time, heat.sink_time_s) * sink_fraction,
        ],
        axis=1,
    )
    return Poles(resistance, time_s)


def preheat_matrix(node: Node, cooling: Cooling) -> Floats:
    """Return how far a watt in slot j warms the air of slot i, in K/W [slots, slots]."""
    each = node.preheat_k_per_w * MEDIA[cooling.kind].preheat_fraction / cooling.flow_of(0)
    matrix = np.zeros((node.gpus, node.gpus))
    for slot in range(node.gpus):
        for ahead in node.upstream_slots(slot):
            if ahead != slot:
                matrix[slot, ahead] = each
    return matrix


@lru_cache(maxsize=256)
def network(node: Node, cooling: Cooling) -> Network:
    """Return all that is needed to step a node's temperatures; built once for equal nodes."""
    resistance, time_s = poles(node, cooling)
    air = preheat_matrix(node, cooling)
    package = np.arange(node.gpus) // node.gpu.package_gpus
    mates = (package[:, None] == package[None, :]) & ~np.eye(node.gpus, dtype=bool)
    neighbour = air + np.where(mates, resistance[:, SINK, None], 0.0)
    for array in (resistance, time_s, air, neighbour):
        array.flags.writeable = False
    heat = node.gpu.heat
    # Stacks give their heat to the base beside the die.
    conducted = heat.memory_board_resistance_k_per_w * MEDIA[cooling.kind].base_fraction
    memory = MemoryHeat(heat.memory_rest_k, conducted, heat.memory_resistance_k_per_w, heat.memory_time_s)
    return Network(resistance, time_s, neighbour, air, heat.memory_byte_heat_j, node.gpu.package_gpus, memory)


def steady_state_k(power_w: ArrayLike, net: Network, memory_bytes_per_s: ArrayLike = 0.0) -> Floats:
    """Return the rises [..., slots, poles] at which heat out equals heat in, to which constant power drives them."""
    power = np.asarray(power_w, dtype=np.float64)
    on_die = np.maximum(power - net.memory_byte_heat_j * np.asarray(memory_bytes_per_s, dtype=np.float64), 0.0)
    target = net.resistance_k_per_w * on_die[..., None]
    target[..., SINK] = net.resistance_k_per_w[:, SINK] * power + power @ net.neighbour_k_per_w.T
    return target


def sink_rise_k(power_w: Floats, net: Network, flow_fraction: Floats) -> Floats:
    """Return the rises of sinks [node, slot] at the flow of each node, of a network at normal flow."""
    flow, air_k = flow_fraction[:, None], power_w @ net.air_k_per_w.T
    own_k = steady_state_k(power_w, net)[..., SINK] - air_k
    return np.asarray(own_k * flow**FLOW_EXPONENT + air_k / flow)


def fan_flow(cooling: Cooling, least_fraction: Floats, hottest_c: Floats, limit_c: Floats) -> Floats:
    """Return the flow of fans that follow the hottest GPU of their node, over normal."""
    share = np.clip((hottest_c - cooling.fan_start_c) / (limit_c - cooling.fan_start_c), 0.0, 1.0)
    return np.asarray(least_fraction + share * (cooling.fan_most_fraction - least_fraction))


def idle_temperature_c(node: Node, cooling: Cooling) -> Floats | None:
    """Return what the sensors of idle GPUs show once heat out equals heat in; None where they never do.

    Equation: T = inlet + M (idle_w + leakage (T - T_ref)), with M the resistances between the slots of a node. It has a
    solution only where leakage M is smaller than 1: otherwise each degree leaks more heat than leaves for it.
    """
    net, power = network(node, cooling), node.gpu.power
    warming = np.diag(net.resistance_k_per_w.sum(axis=1)) + net.neighbour_k_per_w
    gain = power.leakage_w_per_k * warming
    if np.max(np.abs(np.linalg.eigvals(gain))) >= 1:
        return None
    idle_w = node.gpu.idle_draw_w / node.gpu.package_gpus - power.leakage_w_per_k * power.reference_c
    start_c = cooling.inlet_of(0) + warming.sum(axis=1) * idle_w
    return np.asarray(np.linalg.solve(np.eye(net.slots) - gain, start_c))


def check_cooling(cluster: Cluster) -> None:
    """Refuse a cluster whose GPUs are too hot before they do anything."""
    for node, cooling in _kinds_and_coolings(cluster):
        if not _cools_idle(node, cooling):
            _refuse(node, cooling)


def _kinds_and_coolings(cluster: Cluster) -> Iterator[tuple[Node, Cooling]]:
    """Yield each kind of node with each kind of air, or coolant, that enters it."""
    cooling, places = cluster.cooling, {n: place for place, one in enumerate(cluster.mixed, 1) for n in one.nodes}
    if cooling.same_for_all:
        yield from ((node, cooling) for node in cluster.kinds)
        return
    numbers = {
        (places.get(number, 0), cooling.inlet_of(number), cooling.flow_of(number)): number
        for number in range(cluster.nodes)
    }
    yield from ((cluster.kinds[place], cooling.of(number)) for (place, _, _), number in numbers.items())


def _cools_idle(node: Node, cooling: Cooling) -> bool:
    idle_c = idle_temperature_c(node, cooling)
    return idle_c is not None and float(idle_c.max()) < node.gpu.slowdown_temperature_c


def _refuse(node: Node, cooling: Cooling) -> None:
    """Name the setting that leaves idle GPUs too hot, and what is possible in its place."""
    gpu, inlet_c, flow, idle_c = node.gpu, cooling.inlet_of(0), cooling.flow_of(0), idle_temperature_c(node, cooling)
    limit_c = gpu.slowdown_temperature_c
    why = (
        "temperature runs away because leakage grows faster than heat leaves"
        if idle_c is None
        else f"an idle GPU reaches {float(idle_c.max()):.0f} C, and slows down at {limit_c:g} C"
    )
    usual = Cooling()
    if inlet_c > usual.inlet_of(0) and _cools_idle(node, replace(cooling, inlet_c=usual.inlet_of(0))):
        most_c = _last(lambda each_c: _cools_idle(node, replace(cooling, inlet_c=each_c)), usual.inlet_of(0), inlet_c)
        raise SpecError("cluster.cooling.inlet_c", inlet_c, f"at most {most_c:.0f} C at a flow of {flow:g}: {why}")
    if flow < 1 and _cools_idle(node, cooling.at_flow(1.0)):
        least = _last(lambda each: _cools_idle(node, cooling.at_flow(each)), 1.0, flow)
        possible = f"at least {least:.2g} at an inlet of {inlet_c:g} C: {why}"
        raise SpecError("cluster.cooling.flow_fraction", flow, possible)
    resistance = float(poles(node, cooling).resistance_k_per_w.sum(axis=1).max())
    leaking_w = gpu.power.leakage_w_per_k * (limit_c - gpu.power.reference_c)
    most = max(0.0, (limit_c - inlet_c) / max(1.0, gpu.idle_draw_w / gpu.package_gpus + leaking_w))
    raise SpecError(
        "cluster.node.sink_resistance_k_per_w",
        Words(f"{resistance:.3g} K/W from die to inlet in the hottest slot"),
        f"less than about {most:.2g} K/W at an inlet of {inlet_c:g} C: {why}",
    )


def _last(holds: Callable[[float], bool], good: float, bad: float) -> float:
    """Return how far one may go from what holds towards what does not."""
    for _ in range(20):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def advance(
    state_k: Floats, power_w: ArrayLike, dt_s: float, net: Network, memory_bytes_per_s: ArrayLike = 0.0
) -> Floats:
    """Return the rises after a time of constant power."""
    target_k = steady_state_k(power_w, net, memory_bytes_per_s)
    return np.asarray(relax(state_k, target_k, decay(dt_s, net.time_s)))


def temperature_c(state_k: Floats, inlet_c: ArrayLike) -> Floats:
    """Return what the sensor of each GPU shows, [..., slots]."""
    return np.asarray(np.asarray(inlet_c, dtype=np.float64) + state_k.sum(axis=-1))


def steady_temperature_c(
    power_w: ArrayLike, net: Network, inlet_c: ArrayLike, memory_bytes_per_s: ArrayLike = 0.0
) -> Floats:
    """Return what the sensors show once heat out equals heat in."""
    return temperature_c(steady_state_k(power_w, net, memory_bytes_per_s), inlet_c)


def _slot_fractions(node: Node) -> Floats:
    """Return each slot's sink resistance over that of a front slot: rear rows differ, and the ends of a package."""
    rear = np.array([bool(node.upstream_slots(slot)) for slot in range(node.gpus)])
    fractions = np.where(rear, node.rear_sink_fraction, 1.0)
    size = node.gpu.package_gpus
    if size > 1:
        place = np.arange(node.gpus) % size / (size - 1)
        fractions = fractions * (1 + node.package_skew_fraction * (place - 0.5))
    return np.asarray(fractions)


def _given(own: float | None, otherwise: float) -> float:
    return otherwise if own is None else own
