"""One rank's share of a model, priced once: seconds, costs and bytes of each distinct block at a few clocks.

All strategies with the same tp, cp, ep, etp, sp and microbatch have the same blocks; they differ in how many of each a
stage holds. Kernels and collectives are priced by the functions that the simulator uses.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.network.constants import NETWORK
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TIMELINE
from charllm.timeline.costs import COLUMNS, Costs, StepKernels, cost_ops, read_ops
from charllm.timeline.passes import Pair, Pricer
from charllm.workload.cut import cut_run
from charllm.workload.op import Op, is_communication
from charllm.workload.recompute import policy_of, replay
from charllm.workload.step import Block, ModelBlocks, Step, model_blocks
from charllm.workload.sync import update_ops

CLOCK_FRACTIONS = np.linspace(0.4, 1.0, 13)
"""Clocks at which a share is priced, over the highest; between them seconds are interpolated."""
REFERENCE_ELEMENTS = 1e9
"""Weights whose update is priced; time and energy of an update grow in proportion to its weights."""
ENDLESS_BATCH = 2**24
"""Sequences of a step in which next to no pass fills or drains a pipeline."""
POLICIES = ("none", "selective", "full")
Collectives = dict[int, tuple[Op, float]]
"""Identity of a collective: itself, and its seconds."""


class ShareBlocks(NamedTuple):
    """The distinct blocks: for each kind of layer, plain and recomputed each way; opening; closing, each way."""

    step: Step
    """A step of one stage with these blocks' formats; what a stage holds is counted elsewhere."""
    layers: tuple[tuple[Block, ...], ...]
    """[kind][policy]"""
    opening: tuple[Block, ...]
    closing: tuple[tuple[Block, ...], ...]
    """[policy]"""

    @property
    def columns(self) -> list[tuple[Block, ...]]:
        """Blocks of each column, in the order in which plan/composition.py counts them."""
        return [(block,) for kind in self.layers for block in kind] + [self.opening, *self.closing]

    def weights(self) -> Floats:
        """Return dense, expert and frozen weights of each column."""
        return np.array([[sum(block.repeats * getattr(block.weights, kind) for block in listed)
                          for listed in self.columns] for kind in ("dense", "expert", "frozen")])  # fmt: skip

    def kept_bytes(self) -> Floats:
        """Return what each column keeps on the GPU from forward to backward."""
        here = 1 - self.step.run.training.activation_offload_fraction
        return np.array([
            sum(block.repeats * block.replay.kept_bytes * (here if block.is_layer else 1.0) for block in listed)
            for listed in self.columns
        ])  # fmt: skip


def share_blocks(run: RunSpec) -> ShareBlocks:
    """Describe the blocks of one rank's share."""
    plain = replace(run, training=replace(run.training, recompute="none", recompute_layers=None, recompute_modules=()))
    found = model_blocks(plain)
    layers = tuple(tuple(_with_policy(found, run, pair.plain, policy) for policy in POLICIES)
                   for kind, pair in found.layers.items() if kind in found.kinds)  # fmt: skip
    closing = tuple(
        tuple(_with_policy(found, run, block, policy) if block.is_layer else block for block in found.closing)
        for policy in POLICIES
    )
    return ShareBlocks(Step(plain, found.cut, ()), layers, found.opening, closing)


def _with_policy(found: ModelBlocks, run: RunSpec, block: Block, policy: str) -> Block:
    if policy == "none":
        return block
    training = replace(run.training, recompute=policy, recompute_layers=None,
                       recompute_modules=run.training.recompute_modules if policy == "selective" else ())  # fmt: skip
    cut = replace(found.cut, training=training)
    return block._replace(replay=replay(cut, block.modules, policy_of(cut)))


def least_pass_s(run: RunSpec) -> float:
    """Return the kernels of one microbatch through the whole model, forward and backward, at the highest clock.

    Nothing is recomputed or exchanged, so that no strategy with this share takes less.
    """
    found = model_blocks(replace(run, training=replace(run.training, recompute="none", recompute_layers=None)))
    counted = [(count, found.layers[kind].plain) for kind, count in Counter(found.kinds).items()]
    counted += [(1, block) for block in (*found.opening, *found.closing)]
    times: dict[int, tuple[Op, int]] = {}
    for count, block in counted:
        for op in (op for module in block.modules for op in (*module.forward, *module.backward)):
            if not is_communication(op):
                times[id(op)] = op, times.get(id(op), (op, 0))[1] + count * block.repeats
    kernels = read_ops([op for op, _count in times.values()], run)
    _rows, seconds = cost_ops(kernels, run.cluster.gpu, run.cluster.gpu.clock_max_hz)
    return float(sum(count * seconds[kernels.row_of[place]] for place, (_op, count) in times.items()))


class ShareCosts(NamedTuple):
    """What the columns of a share cost, at each clock."""

    clocks_hz: Floats
    forward_s: Floats
    """[column, clock] kernels of a forward pass."""
    weight_s: Floats
    """[column, clock] of a backward pass, kernels of weight gradients."""
    total_s: Floats
    """[column, clock] kernels of forward, backward and recomputation."""
    rows: Floats
    """[column, clock, cost] the same as costs (timeline/costs.py)."""
    exchanged_s: Floats
    """[column] communication of all passes, were nothing hidden."""
    update_s: Floats
    """[clock] update of one weight."""
    update_rows: Floats
    """[clock, cost]"""
    kernels: StepKernels
    op_s: Floats
    """[op, clock]"""
    parts: "list[Part]"
    collectives: Collectives
    """Seconds of collectives, which no overlap and no schedule changes."""


def price_share(run: RunSpec, blocks: ShareBlocks) -> ShareCosts:
    """Price the blocks of a share."""
    gpu, parts = run.cluster.gpu, _parts(blocks)
    updates = update_ops(blocks.step, REFERENCE_ELEMENTS)
    ops = {id(op): op for listed in (*(part.ops for part in parts), updates) for op in listed}
    kernels = read_ops([op for op in ops.values() if not is_communication(op)], run)
    clocks_hz = CLOCK_FRACTIONS * gpu.clock_max_hz
    priced = [cost_ops(kernels, gpu, clock_hz) for clock_hz in clocks_hz]
    tables, seconds = (np.stack(columns, axis=1) for columns in zip(*priced, strict=True))
    columns, collectives = len(blocks.columns), Collectives()
    forward_s, weight_s, total_s = (np.zeros((columns, len(clocks_hz))) for _ in range(3))
    rows = np.zeros((columns, *tables.shape[1:]))
    for part in parts:
        places = _places(kernels, part.ops)
        part_s = part.times * seconds[places].sum(axis=0)
        rows[part.column] += part.times * tables[places].sum(axis=0)
        total_s[part.column] += part_s
        forward_s[part.column] += part_s if part.forward else 0.0
        late = _places(kernels, tuple(op for op in part.ops if op.direction == "wgrad"))
        weight_s[part.column] += part.times * seconds[late].sum(axis=0)
    update = _places(kernels, updates)
    return ShareCosts(
        clocks_hz,
        forward_s,
        weight_s,
        total_s,
        rows,
        _exchanges(_costs(run, kernels, np.zeros(len(kernels.launch_s)), collectives), parts, columns),
        seconds[update].sum(axis=0) / REFERENCE_ELEMENTS,
        tables[update].sum(axis=0) / REFERENCE_ELEMENTS,
        kernels,
        seconds,
        parts,
        collectives,
    )


class Part(NamedTuple):
    """The ops of one pass through a column's blocks."""

    column: int
    forward: bool
    times: int
    ops: tuple[Op, ...]
    both: tuple[Op, ...]
    """Those of the block in both directions, beside which another microbatch's exchanges hide."""


def _parts(blocks: ShareBlocks) -> list[Part]:
    known: dict[tuple[int, bool], tuple[Op, ...]] = {}

    def ops_of(block: Block, *, forward: bool) -> tuple[Op, ...]:
        key = (id(block.modules), forward)
        if key not in known:
            modules = block.modules if forward else reversed(block.modules)
            known[key] = tuple(op for one in modules for op in (one.forward if forward else one.backward))
        return known[key]

    found = []
    for column, listed in enumerate(blocks.columns):
        for block in listed:
            ahead, replayed, back = ops_of(block, forward=True), tuple(block.replay.ops), ops_of(block, forward=False)
            both = (*ahead, *replayed, *back)
            found += [
                Part(column, True, block.repeats, ahead, both),
                Part(column, False, block.repeats, replayed, both),
                Part(column, False, block.repeats, back, both),
            ]
    return [part for part in found if part.ops]


def _places(kernels: StepKernels, ops: tuple[Op, ...]) -> list[int]:
    return [kernels.row_of[id(op)] for op in ops if not is_communication(op)]


def _exchanges(costs: Costs, parts: list[Part], columns: int) -> Floats:
    """Return the seconds of the communication of each column."""
    seconds = np.zeros(columns)
    for part in parts:
        own_s = sum(costs.collective_s(op) for op in part.ops if is_communication(op))
        seconds[part.column] += part.times * own_s
    return seconds


def hidden_sets(run: RunSpec) -> list[frozenset[str]]:
    """List the sets of axes whose hiding changes a pass: tp and ep, where they exchange anything."""
    degrees = run.parallelism
    able = [axis for axis, size in (("tp", degrees.tp if degrees.sp else 1), ("ep", degrees.ep)) if size > 1]
    return [frozenset(some) for size in range(len(able) + 1) for some in combinations(able, size)]


def least_exposed(
    run: RunSpec, costs: ShareCosts, hidden: frozenset[str], clock: int, *, split: bool
) -> tuple[Floats, Floats]:
    """Return for each column what communication stays exposed forward and in all, beside kernels at one of the clocks.

    With a schedule that puts weight gradients off (`split`) nothing hides under them. At a higher clock kernels are
    shorter and hide less; with fewer microbatches more of them run alone.
    """
    degrees = replace(run.parallelism, overlap=tuple(hidden), pp=1, vpp=1, schedule="1f1b", layers_per_stage=())
    own = replace(run, parallelism=degrees, training=replace(run.training, global_batch_size=ENDLESS_BATCH))
    pricer = Pricer(Step(own, cut_run(own), ()), _costs(own, costs.kernels, costs.op_s[:, clock], costs.collectives))
    forward, total = (np.zeros(len(costs.exchanged_s)) for _ in range(2))
    known: dict[tuple[int, int], float] = {}
    pairs: dict[int, Pair] = {}

    def left(ops: tuple[Op, ...]) -> list[Op]:
        return [op for op in ops if not (split and op.direction == "wgrad")]

    for part in costs.parts:
        # Only exchanges between expert ranks hide beside another microbatch.
        beside = id(part.both) if "ep" in hidden else 0
        if beside and beside not in pairs:
            pairs[beside] = pricer.pair(left(part.both))
        if (key := (id(part.ops), beside)) not in known:
            ops, pair = left(part.ops), pairs.get(beside, ALONE)
            places = [place for place, op in enumerate(ops) if is_communication(op)]
            timed = (pricer.exposed(ops, place, backward=not part.forward, pair=pair) for place in places)
            known[key] = sum(one.seconds for one in timed)
        total[part.column] += part.times * known[key]
        forward[part.column] += part.times * known[key] if part.forward else 0.0
    return forward, total


ALONE = Pair(0.0, 0.0)
"""Beside a part where nothing hides beside another microbatch."""


def _costs(run: RunSpec, kernels: StepKernels, op_s: Floats, collectives: Collectives) -> Costs:
    """Return costs with given seconds of kernels, for what depends on collectives and on what they hide under."""
    return Costs(run, kernels, 0.0, np.zeros((len(op_s), COLUMNS)), op_s, collectives, NETWORK, TIMELINE)
