"""A linear model of where ranks sit, how layers are divided and how power limits are shifted, from simulated figures.

Equation: a unit u of stage s takes t_u = load_s(layers) slowness(GPUs, limits) + its sends for one microbatch; a line
of units takes fill sum t_u + (m - 1) max t_u for m microbatches, with fill 1 / vpp; the step takes the longest line and
the longest end of a stage (gradient exchange and update). Slowness is that of the slowest GPU of a unit (see
plan/slowness.py). Loads, sends and ends are the prices of the simulator's own kernels and links.
Source: timeline/step_time.py for the schedule, plan/uneven.py for loads, plan/slowness.py for GPUs.
Ignores: that a GPU is warmed by, and waits for, other ranks after a move than before it; warm-up phases of schedules
other than 1F1B; placements that move a gradient exchange from a node's links to its NICs (they are not tried).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.layout.hops import StageHop, stage_hops
from charllm.layout.placement import place_ranks
from charllm.network.collectives import send_seconds
from charllm.plan.cap_shift import CapTable, slowness_at, with_caps
from charllm.plan.placement_slots import SlotGroup, Units, cut_slot_groups, find_units, place_units
from charllm.plan.uneven import LayerTable, tabulate_layers
from charllm.simulate.predict import Simulation
from charllm.spec.run import RunSpec
from charllm.timeline.passes import hidden_axes


class Model(NamedTuple):
    """All that a decision is priced with."""

    run: RunSpec
    units: Units
    slot_groups: tuple[SlotGroup, ...]
    """Where units may sit; as many as units. Where ranks stay, slot group i is that of unit i."""
    movable: bool
    """Whether units may change slot groups."""
    role: Floats
    """[stage] slowness of its work on a GPU like all others."""
    slowness: Floats
    """[GPU] its own over that, at the present limits."""
    layers: list[LayerTable]
    """Of each chunk; one entry where layers stay."""
    caps: CapTable | None
    """None where limits stay."""
    inside_s: float
    """Of a send within a node."""
    outside_s: float
    """Of a send between nodes."""

    @property
    def lines(self) -> int:
        """Pipelines of units side by side."""
        return int(self.units.ranks.shape[1])

    @property
    def blocking(self) -> bool:
        """Whether a send keeps its stage."""
        return "pp" not in hidden_axes(self.run)


class Decision(NamedTuple):
    """A point of the space."""

    slot_groups: tuple[SlotGroup, ...]
    """Of each unit, stage after stage."""
    layers: tuple[int, ...]
    """Of each chunk."""
    caps_w: tuple[float, ...] = ()
    """Of each GPU (its package); empty: as they are."""


def build_model(
    found: Simulation, role: Floats, slowness: Floats, *, ranks: bool, layers: bool, caps: CapTable | None
) -> Model:
    """Read a model off a simulated run whose ranks form units."""
    run, timed, units = found.step.run, found.timed, find_units(found.step.run)
    assert units is not None
    assert timed is not None
    movable = ranks and run.parallelism.pp > 1
    slot_groups = cut_slot_groups(run, units.size, slowness) if movable else present_slot_groups(run, units)
    boundary_bytes = sum(op.sent_bytes for op in found.step.boundary_ops) if run.parallelism.pp > 1 else 0.0
    hops = stage_hops(run)
    leaving = max(units.size, *(hop.leaving for hop in hops)) if run.cluster.nodes > 1 else 0
    between = (StageHop(), StageHop(leaving, any(hop.core for hop in hops)))
    sends = [send_seconds(boundary_bytes, hop, run) if boundary_bytes else 0.0 for hop in between]
    return Model(
        run, units, tuple(slot_groups), movable, role, slowness, tabulate_layers(run, timed.costs, movable=layers),
        caps, sends[0], sends[1],
    )  # fmt: skip


def present_slot_groups(run: RunSpec, units: Units) -> list[SlotGroup]:
    """Return where the units of a run sit."""
    placed, per_node = place_ranks(run), run.cluster.node.gpus
    gpus = placed[units.ranks.reshape(-1, units.size)]
    return [SlotGroup(int(one[0]) // per_node, tuple(one.tolist())) for one in gpus]


def present_decision(model: Model) -> Decision:
    """Return the run as it is."""
    slot_groups = present_slot_groups(model.run, model.units)
    return Decision(tuple(slot_groups), model.run.parallelism.layers_per_stage)


def model_seconds(model: Model, decision: Decision) -> float:
    """Return the step time that the model gives a decision."""
    run = model.run
    pp, chunks = run.parallelism.pp, len(decision.layers)
    loads = [_entry(model.layers[one], decision.layers[one]) for one in range(chunks)]
    stage_s = model.role * [sum(loads[chunk][0] for chunk in range(stage, chunks, pp)) for stage in range(pp)]
    slow = np.array([_group_slowness(model, decision, group) for group in decision.slot_groups]).reshape(pp, -1)
    nodes = np.array([group.node for group in decision.slot_groups]).reshape(pp, -1)
    unit_s = stage_s[:, None] * slow
    hops_s = np.where(nodes[1:] != nodes[:-1], model.outside_s, model.inside_s)
    fill_s = 2 * hops_s.sum(axis=0)
    if model.blocking:
        unit_s[:-1] += hops_s
        unit_s[1:] += hops_s
        fill_s = 0.0 * fill_s
    lines_s = fill_s + unit_s.sum(axis=0) / run.parallelism.vpp + (run.microbatches - 1) * unit_s.max(axis=0)
    return float(lines_s.max() + max(load[1] for load in loads))


def _entry(table: LayerTable, layers: int) -> tuple[float, float]:
    place = table.layers.index(layers)
    return table.pass_s[place], table.tail_s[place]


def _group_slowness(model: Model, decision: Decision, group: SlotGroup) -> float:
    each = slowness_at(model.caps, decision.caps_w) if model.caps and decision.caps_w else model.slowness
    return float(each[list(group.gpus)].max())


def decided_run(model: Model, decision: Decision) -> RunSpec:
    """Return the run that a decision describes."""
    run = model.run
    degrees = replace(run.parallelism, layers_per_stage=decision.layers)
    placed = place_units(run, model.units, list(decision.slot_groups))
    if placed != tuple(place_ranks(run).tolist()):
        run = replace(run, conditions=replace(run.conditions, gpu_of_rank=placed, placement="decided.toml"))
    run = replace(run, parallelism=degrees)
    return with_caps(run, np.array(decision.caps_w)) if decision.caps_w else run
