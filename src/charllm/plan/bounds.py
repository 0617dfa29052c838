"""Lower bounds of memory, step time and energy for many strategies of one share at once.

Equations, for three stages s of a pipeline (plan/composition.py), m microbatches and a clock f:
    need   >= what stage s holds all through a step + activations of its microbatches in flight;
    time   >= jitter (fill_s(f) + m busy_s(f) + drain_s(f) + exchanged_s + update(f)), the largest over s,
where a microbatch passes all earlier stages before it first reaches s (fill) and after it last left it (drain; weight
gradients that are put off may fill that), busy is kernels and the communication that no overlap can hide, and what is
exchanged of gradients and weights hides at most under the last backward and the first forward passes. f is at or above
the clock at which the step settles: the governor's condition (simulate/one_clock.py) on the stage's kernels and its
update, were all communication exposed, which only leaves more room below the power cap.
Source: simulate/one_clock.py, timeline/step_time.py, workload/memory.py, whose equations these bound from below.
Ignores, each of which only adds: hosts that launch late, latency of exchanges, unequal stages beyond the three.
MARGIN_FRACTION covers the interpolation between clocks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.physics import Energy, board_of, dynamic_j, operating_point, standing_w, working_w
from charllm.plan.rows import Links, Rows
from charllm.plan.share import ShareBlocks, ShareCosts, least_exposed
from charllm.simulate.one_clock import WARM_C
from charllm.spec.run import RunSpec
from charllm.timeline.arrival import slowest_of
from charllm.timeline.constants import TIMELINE
from charllm.timeline.costs import BOARD_J, CORE_J, FIXED, MATRIX, MATRIX_J, OTHER
from charllm.workload.memory import FRAGMENTATION, WORKSPACE_BYTES
from charllm.workload.sync import gradient_bytes, optimizer_bytes, stored_bytes

MARGIN_FRACTION = 0.005
"""How much lower than computed a bound is taken: kernels are priced at 13 clocks and interpolated between them."""
IN_PASSES = frozenset({"tp", "ep"})
"""Axes whose hiding changes what a pass takes."""


def least_need_bytes(blocks: ShareBlocks, rows: Rows) -> Floats:
    """Return for each strategy a lower bound of what its worst rank needs (result/memory_verdict.py)."""
    step, framework, training = blocks.step, blocks.step.run.framework, blocks.step.run.training
    dense, expert, frozen = (rows.held @ elements for elements in blocks.weights())
    whole, zero = dense + expert, rows.zero[:, None]
    ranks = rows.shard_ranks[:, None]
    sharded = dense / ranks + expert / rows.expert_shard_ranks[:, None]
    # FSDP's second stage may shard weights, too.
    held = np.where(zero >= (2 if framework.unit_gather or framework.reduces_once else 3), sharded, whole)
    held = held + np.where(zero == 3, frozen / ranks, frozen)
    gathered = (whole + frozen) * step.cut.gathered_bytes + whole * step.cut.reduced_bytes
    states = held * stored_bytes(step) + np.where((rows.pp[:, None] > 1) & (zero == 3), gathered, 0.0)
    if framework.persistent_gradients:
        states = states + np.where(zero >= 2, sharded, whole) * gradient_bytes(step)
    states = states + sharded * (1 - training.optimizer_offload_fraction) * optimizer_bytes(step)
    allocated = states + rows.flying @ blocks.kept_bytes() + WORKSPACE_BYTES
    return np.asarray((allocated * (1 + FRAGMENTATION)).max(axis=1) + rows.outside_bytes)


class TimeBounds(NamedTuple):
    """Least step time, and least energy of one GPU, for each strategy and each set of hidden axes."""

    step_time_s: Floats
    """[hidden set, row]"""
    energy_j: Floats
    clock_hz: Floats
    """[row] at or above the clock at which the step settles."""
    exposed: dict[frozenset[str], list[tuple[Floats, Floats]]]
    """Hidden axes: [plain, weight gradients put off] what stays exposed of each column, forward and in all.

    The second only where a strategy puts them off."""


def least_times(
    run: RunSpec, costs: ShareCosts, blocks: ShareBlocks, rows: Rows, links: Links,
    hidden_sets: Sequence[frozenset[str]],
) -> TimeBounds:  # fmt: skip
    """Return the least step time and energy under the caps of a run, for each set of hidden axes."""
    stages = _stages(run, costs, blocks, rows, links)
    slowest = max(0, int(np.searchsorted(costs.clocks_hz, stages.calm_hz.min(), side="right")) - 1)
    puts_off = bool((rows.drains == 0).any())
    exposed = {
        hidden: [least_exposed(run, costs, hidden, slowest, split=split) for split in ((False, True)[: 1 + puts_off])]
        for hidden in {one & IN_PASSES for one in hidden_sets}
    }
    energy_j = _least_energy(run, costs, rows, stages)
    times_s = [
        _least_time(run, costs, rows, links, stages, hidden, exposed[hidden & IN_PASSES]) for hidden in hidden_sets
    ]
    low_hz = np.minimum(stages.calm_hz, stages.clock_hz)
    board = board_of(run.cluster.gpu)
    standing = standing_w(board, operating_point(board, low_hz, low_hz).level, WARM_C)
    return TimeBounds(
        np.stack(times_s), np.stack([standing * time_s + energy_j for time_s in times_s]), stages.clock_hz, exposed
    )


class _Stages(NamedTuple):
    """Three stages of each strategy, at each clock."""

    rows: Floats
    """[row, stage, clock, cost] of one microbatch, with its part of the update."""
    busy_s: Floats
    """[row, stage, clock] kernels of one microbatch."""
    forward_s: Floats
    fill_s: Floats
    drain_s: Floats
    update_s: Floats
    gradients_s: Floats
    """[row, stage] exchange of gradients, of weights, and of both with every microbatch."""
    weights_s: Floats
    gathered_s: Floats
    clock_hz: Floats
    """[row] at or above the clock at which the step settles, and at or below it."""
    calm_hz: Floats


def _stages(run: RunSpec, costs: ShareCosts, blocks: ShareBlocks, rows: Rows, links: Links) -> _Stages:
    dense, expert, _frozen = (rows.held @ elements for elements in blocks.weights())
    updated = dense / rows.shard_ranks[:, None] + expert / rows.expert_shard_ranks[:, None]
    each = updated / rows.microbatches[:, None]
    stage_rows = np.einsum("nsc,cgk->nsgk", rows.held, costs.rows) + each[:, :, None, None] * costs.update_rows
    gradients_s, weights_s, gathered_s = (
        dense * links.rates[:, kind, 0, None] + expert * links.rates[:, kind, 1, None] for kind in range(3)
    )
    return _Stages(
        stage_rows,
        rows.held @ costs.total_s,
        rows.held @ costs.forward_s,
        rows.before @ costs.forward_s,
        rows.before @ (costs.total_s - costs.forward_s) * rows.drains[:, None, None],
        updated[:, :, None] * costs.update_s,
        gradients_s,
        weights_s,
        gathered_s,
        _settled_hz(run, costs.clocks_hz, stage_rows, rows.held @ costs.exchanged_s),
        _settled_hz(run, costs.clocks_hz, stage_rows, np.zeros(updated.shape)),
    )


def _least_time(
    run: RunSpec, costs: ShareCosts, rows: Rows, links: Links, stages: _Stages, hidden: frozenset[str],
    exposed: list[tuple[Floats, Floats]],
) -> Floats:  # fmt: skip
    """Return the least step time for one set of hidden axes."""
    count, hop_s = rows.microbatches[:, None], links.hop_s[:, None]
    split = rows.drains[:, None] == 0
    before_s, before_all_s, alone_s = (
        np.where(split, blocks @ exposed[-1][part], blocks @ exposed[0][part])
        for blocks, part in ((rows.before, 0), (rows.before, 1), (rows.held, 1))
    )
    alone_s = alone_s + (0.0 if "pp" in hidden else rows.sends * hop_s)
    fill_s = stages.fill_s + (before_s + rows.hops * hop_s)[:, :, None]
    drain_s = (before_all_s - before_s + rows.hops * hop_s) * rows.drains[:, None]
    passes_s = fill_s + count[:, :, None] * (stages.busy_s + alone_s[:, :, None])
    drained_s = passes_s + stages.drain_s + drain_s[:, :, None]
    ends_s, update_s = _ends(run, rows, stages, passes_s, alone_s, hidden)
    round_s = _rounds(rows, links, stages)
    spent_s = np.maximum(np.maximum(drained_s, ends_s).max(axis=1), round_s) + update_s.max(axis=1)
    step_s = at_clock(costs.clocks_hz, spent_s, stages.clock_hz)
    # Without a pipeline kernels alone, held at the cap, are a bound, too. Where layers gather weights, how much of that
    # is exposed is not known, and so the clock only below its highest.
    kernels_s = (count[:, :, None] * stages.busy_s + stages.update_s).max(axis=1)
    calm_s = at_clock(costs.clocks_hz, kernels_s, stages.calm_hz)
    gathers = (rows.pp == 1) & (rows.zero >= 2)
    fastest_s = at_clock(
        costs.clocks_hz, spent_s, np.full(len(spent_s), board_of(run.cluster.gpu, run.conditions).asked_clock_hz)
    )
    step_s = np.where(gathers, fastest_s, step_s)
    step_s = np.maximum(step_s, np.where(rows.pp == 1, calm_s, 0.0))
    step_s = np.maximum(step_s, rows.microbatches * stages.gathered_s.max(axis=1))
    return np.asarray(step_s * least_jitter(run))


def least_jitter(run: RunSpec) -> float:
    """Return what stragglers add to a step, less the margin of bounds."""
    return (1 + TIMELINE.straggler_fraction * slowest_of(run.parallelism.world)) * (1 - MARGIN_FRACTION)


def _rounds(rows: Rows, links: Links, stages: _Stages) -> Floats:
    """Return what interleaving takes at least: a microbatch passes all stages before it reaches the next chunk.

    On the first stage m / pp groups of microbatches come one after another, each with vpp - 1 such rounds of pp passes
    and hops; the same holds backward on the last stage.
    """
    rounds = (rows.microbatches * (rows.vpp - 1))[:, None]
    longer_s = np.maximum(stages.forward_s.min(axis=1), (stages.busy_s - stages.forward_s).min(axis=1))
    return np.asarray(rounds * (longer_s / rows.vpp[:, None] + links.hop_s[:, None]))


def _ends(
    run: RunSpec, rows: Rows, stages: _Stages, passes_s: Floats, alone_s: Floats, hidden: frozenset[str]
) -> tuple[Floats, Floats]:
    """Return when a stage has exchanged its gradients, and how long its update with the exchange of weights takes.

    Where dp is overlapped, gradients leave from the last backward pass of a chunk on: with one chunk that is one pass
    before the end, with several at most pp of each.
    """
    gradients_s, weights_s = stages.gradients_s[:, :, None], stages.weights_s[:, :, None]
    if "dp" not in hidden:
        return passes_s + gradients_s, stages.update_s + weights_s
    last = np.where(rows.vpp == 1, 1.0, rows.pp)[:, None, None]
    room_s = last * (stages.busy_s - stages.forward_s + alone_s[:, :, None])
    if run.framework.weight_exchange == "all-gather":
        # A pipeline's first passes wait for each other, which leaves weights as much room as they need.
        one_stage = rows.pp[:, None, None] == 1
        weights_s = np.where(one_stage, np.maximum(0.0, weights_s - stages.forward_s - alone_s[:, :, None]), 0.0)
    return passes_s - room_s + gradients_s, stages.update_s + weights_s


def _least_energy(run: RunSpec, costs: ShareCosts, rows: Rows, stages: _Stages) -> Floats:
    """Return the energy of a GPU's work, without what it draws all the time."""
    count = rows.microbatches[:, None]
    worked_s = at_clock(costs.clocks_hz, stages.busy_s.min(axis=1) * count, stages.clock_hz)
    dynamic_j = _dynamic_j(run, costs.clocks_hz, stages.rows).min(axis=1) * count
    work_j = run.cluster.gpu.power.active_w * worked_s + at_clock(costs.clocks_hz, dynamic_j, stages.calm_hz)
    return np.asarray((1 - MARGIN_FRACTION) * work_j)


def at_clock(clocks_hz: Floats, values: Floats, clock_hz: Floats) -> Floats:
    """Interpolate [row, clock] values at a clock for each row; in seconds a cycle kernels are nearly linear."""
    cycle_s = 1 / clocks_hz
    wanted_s = np.clip(1 / clock_hz, cycle_s[-1], cycle_s[0])
    upper = np.clip(len(clocks_hz) - np.searchsorted(cycle_s[::-1], wanted_s, side="left"), 1, len(clocks_hz) - 1)
    lower, each = upper - 1, np.arange(len(values))
    share = (wanted_s - cycle_s[upper]) / (cycle_s[lower] - cycle_s[upper])
    return np.asarray(values[each, upper] + share * (values[each, lower] - values[each, upper]))


def _settled_hz(run: RunSpec, clocks_hz: Floats, stage_rows: Floats, extra_s: Floats) -> Floats:
    """Return the clock at which the busiest of three stages stays at what the governor holds."""
    board = board_of(run.cluster.gpu, run.conditions)
    matrix = np.minimum(clocks_hz, board.matrix_clock_hz)
    seconds = stage_rows[..., MATRIX] / matrix + stage_rows[..., OTHER] / clocks_hz + stage_rows[..., FIXED]
    seconds = seconds + extra_s[:, :, None]
    at = operating_point(board, clocks_hz, matrix)
    over_w = working_w(board, at, WARM_C, _energy_of(stage_rows), np.maximum(seconds, 1e-12)) - board.hold_w
    over_w = over_w.max(axis=1)
    fits = over_w <= 0
    last = len(clocks_hz) - 1 - np.argmax(fits[:, ::-1], axis=1)
    lower = np.where(fits.any(axis=1), np.minimum(last, len(clocks_hz) - 2), 0)
    each = np.arange(len(over_w))
    below, above = over_w[each, lower], over_w[each, lower + 1]
    share = np.clip(-below / np.maximum(above - below, 1e-9), 0.0, 1.0)
    found = clocks_hz[lower] + share * (clocks_hz[lower + 1] - clocks_hz[lower])
    return np.asarray(np.minimum(np.where(above <= 0, clocks_hz[lower + 1], found), board.asked_clock_hz))


def _dynamic_j(run: RunSpec, clocks_hz: Floats, rows: Floats) -> Floats:
    """Return the joules of work at the voltage of each clock."""
    board = board_of(run.cluster.gpu)
    at = operating_point(board, clocks_hz, np.minimum(clocks_hz, board.matrix_clock_hz))
    return np.asarray(dynamic_j(at, _energy_of(rows)))


def _energy_of(rows: Floats) -> Energy:
    return Energy(rows[..., MATRIX_J], rows[..., CORE_J], rows[..., BOARD_J])
