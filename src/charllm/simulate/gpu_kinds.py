"""The kinds of GPUs of a run: what their node is, how fast their host, links and adapters are, their power limit.

Most runs have one kind. Nodes of other types, and conditions that make a host, a link or a power limit differ, add
more: each kind has its own price of a step, and the others wait for the slower ones where they meet.
A collective moves at the pace of the slowest link of its group, for all members alike.
Source: a ring hands every byte over every link. Ignores: trees and exchanges that could go round a slow link.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats, Ints
from charllm.gpu.physics import Board
from charllm.layout.grid import GROUPS, Grid, cached_groups
from charllm.layout.nodes import node_kinds
from charllm.layout.placement import place_ranks
from charllm.simulate.knots import knots_hz
from charllm.simulate.one_clock import uniform_runs
from charllm.spec.run import Cap, Conditions, RunSpec
from charllm.timeline.constants import TIMELINE, TimelineConstants
from charllm.timeline.costs import StepKernels, cost_step, read_step
from charllm.timeline.step_time import StepTime, list_exchanges, time_step
from charllm.workload.op import Op
from charllm.workload.step import Step

BRAKE_FRACTION = 0.5
"""Clock that a power brake leaves, over the highest: "a factor of 2 or more" (NVML, clocks event reasons)."""


class GpuKind(NamedTuple):
    """What tells one GPU of a run from another."""

    node: int = 0
    """Its kind of node, a place in Cluster.kinds."""
    slow_nics: tuple[str, ...] = ()
    """Its groups with a member behind slow adapters."""
    slow_links: tuple[str, ...] = ()
    """Its groups with a member whose scale-up links are slow."""
    slow_host: bool = False
    cap: Cap = Cap()

    @property
    def usual(self) -> bool:
        """Whether it costs what its kind of node costs."""
        return not (self.slow_nics or self.slow_links or self.slow_host)

    def conditions(self, run: RunSpec) -> Conditions:
        """Return the conditions it works under: those of the run, with its own limits."""
        usual, (power_w, clock_hz) = run.conditions, self.cap
        return replace(
            usual,
            power_cap_w=usual.power_cap_w if power_w is None else power_w,
            clock_cap_hz=usual.clock_cap_hz if clock_hz is None else clock_hz,
        )


class PricedKind(NamedTuple):
    """One kind of GPU, and what a step takes where all are of it."""

    kind: GpuKind
    times: tuple[StepTime, ...]
    """At each knot of its clock (simulate/knots.py), highest first."""

    def near(self, clock_hz: float) -> StepTime:
        """Return the step at the knot next to a clock."""
        return min(self.times, key=lambda timed: abs(timed.costs.clock_hz - clock_hz))


def find_kinds(run: RunSpec, gpus: Ints) -> tuple[list[GpuKind], Ints]:
    """Return the kinds of some GPUs of the cluster, and which of them each is."""
    nodes = gpus // run.cluster.node.gpus
    kinds = node_kinds(run.cluster)[nodes]
    conditions = run.conditions
    if not conditions.has_faults:
        return [GpuKind(node) for node in range(len(run.cluster.kinds))], kinds
    nics = _touching(run, np.isin(np.arange(run.cluster.gpus) // run.cluster.node.gpus, conditions.slow_nic_nodes))
    links = _touching(run, np.isin(np.arange(run.cluster.gpus), conditions.slow_link_gpus))
    hosts, caps = np.isin(nodes, conditions.slow_host_nodes), run.caps
    each = [
        GpuKind(int(kind), nics[gpu], links[gpu], bool(host), caps.get(gpu, Cap()))
        for gpu, kind, host in zip(gpus.tolist(), kinds, hosts, strict=True)
    ]
    # The first kind is the usual one, whether or not a GPU is of it.
    places = {kind: place for place, kind in enumerate(dict.fromkeys([GpuKind(), *each]))}
    return list(places), np.array([places[kind] for kind in each], dtype=np.int64)


def _touching(run: RunSpec, slow: Bools) -> list[tuple[str, ...]]:
    """Return for each GPU of the cluster those of its groups that have a slow member; pipelines are told by hop."""
    found: list[tuple[str, ...]] = [()] * len(slow)
    if not slow.any():
        return found
    placed = place_ranks(run)
    for group in GROUPS:
        members = placed[cached_groups(run.parallelism, group)]
        if group == "pp" or members.shape[1] < 2:
            continue
        for gpu in members[slow[members].any(axis=1)].ravel().tolist():
            found[gpu] = (*found[gpu], group)
    return found


def price_kinds(step: Step, kinds: Sequence[GpuKind], timeline: TimelineConstants = TIMELINE) -> list[PricedKind]:
    """Price a step on each kind of GPU at the knots of its clock."""
    of_node = [replace(step, run=run) for run in uniform_runs(step.run)]
    kernels = [read_step(one) for one in of_node]
    # Limits change which clocks are reached and not what they cost.
    known = {
        one: _price(of_node[one.node], kernels[one.node], one, timeline)
        for one in dict.fromkeys(kind._replace(cap=Cap()) for kind in kinds)
    }
    return [PricedKind(kind, known[kind._replace(cap=Cap())]) for kind in kinds]


def _price(step: Step, kernels: StepKernels, kind: GpuKind, timeline: TimelineConstants) -> tuple[StepTime, ...]:
    run, conditions = step.run, step.run.conditions
    if kind.slow_host:
        speed = run.cluster.node.host_speed_fraction * conditions.slow_host_fraction
        run = replace(run, cluster=replace(run.cluster, node=replace(run.cluster.node, host_speed_fraction=speed)))
    slowed = {
        group: slow_run(run, nics=group in kind.slow_nics, links=group in kind.slow_links)
        for group in dict.fromkeys((*kind.slow_nics, *kind.slow_links))
    }
    own = replace(step, run=run)
    # No clock changes what a collective takes.
    collectives: dict[int, tuple[Op, float]] = {}
    costs = [
        cost_step(own, kernels, hertz, timeline=timeline)._replace(slow_links=slowed, collectives=collectives)
        for hertz in knots_hz(run.cluster.gpu).tolist()
    ]
    exchanges = list_exchanges(own, costs[0])
    return tuple(time_step(own, one, exchanges) for one in costs)


def slow_run(run: RunSpec, *, nics: bool, links: bool) -> RunSpec:
    """Return a run on adapters or links that are all as slow as the slow ones."""
    cluster, conditions = run.cluster, run.conditions
    node, fabric = cluster.node, cluster.fabric
    if nics:
        fabric = replace(
            fabric, nic_bandwidth_bytes_per_s=fabric.nic_bandwidth_bytes_per_s * conditions.slow_nic_fraction
        )
    if links:
        name = "link_bandwidth_bytes_per_s" if node.link_bandwidth_bytes_per_s else "pcie_bandwidth_bytes_per_s"
        node = replace(node, **{name: getattr(node, name) * conditions.slow_link_fraction})
    return replace(run, cluster=replace(cluster, node=node, fabric=fabric))


def slow_hops(run: RunSpec, positions: Ints) -> tuple[Bools, Bools]:
    """Return for [hop to the next stage, position] whether an end of it has slow adapters, and slow links."""
    pp, placed, grid = run.parallelism.pp, place_ranks(run), Grid(run.parallelism)
    stages = np.arange(pp)[:, None]
    ends = [placed[grid.rank(positions[None, :], (stages + more) % pp)] for more in (0, 1)]
    per_node, conditions = run.cluster.node.gpus, run.conditions
    nics = np.any([np.isin(end // per_node, conditions.slow_nic_nodes) for end in ends], axis=0)
    links = np.any([np.isin(end, conditions.slow_link_gpus) for end in ends], axis=0)
    return nics, links


def draw_silicon(run: RunSpec, gpus: Ints) -> Floats:
    """Draw each die's power over the typical; a GPU has the same die however many are simulated."""
    spread = run.conditions.silicon_spread_fraction
    drawn = np.random.default_rng(run.conditions.seed).standard_normal(run.cluster.gpus) if spread else None
    silicon = np.exp(spread * drawn) if drawn is not None else np.ones(run.cluster.gpus)
    factors = run.weak_factors
    silicon[list(factors)] *= list(factors.values())
    return silicon[gpus]


def brake_clocks_hz(run: RunSpec, gpus: Ints, boards: Sequence[Board], kind: Ints) -> Floats:
    """Return the clock that a brake leaves the GPUs of braked nodes; the others have the one asked for."""
    nodes, conditions = gpus // run.cluster.node.gpus, run.conditions
    asked_hz = np.array([one.asked_clock_hz for one in boards])[kind]
    highest_hz = np.array([node.gpu.clock_max_hz for node in run.cluster.kinds])[node_kinds(run.cluster)[nodes]]
    braked_hz = conditions.brake_clock_hz or BRAKE_FRACTION * highest_hz
    return np.where(np.isin(nodes, conditions.braked_nodes), np.minimum(braked_hz, asked_hz), asked_hz)
