"""What one rank of a stage does in a step, and when: passes with their ops, waits, and what ends the step.

Everything is taken from a simulated step (`step_time`); nothing is priced again. An op's place inside its pass is its
share of the pass's seconds, so that time lost to the host is spread over the pass.
"""

from typing import NamedTuple

from charllm.timeline.engine import Events
from charllm.timeline.passes import Pass
from charllm.timeline.schedules import FORWARD, order_arrays
from charllm.timeline.step_time import StepTime
from charllm.workload.op import Op
from charllm.workload.step import Step

DIRECTIONS = ("forward", "backward", "weight")
"""Names of the passes, by their number in a schedule."""


class PlacedPass(NamedTuple):
    """One pass of one microbatch where it ran."""

    kind: int
    """FORWARD, BACKWARD or WEIGHT."""
    chunk: int
    """In model order."""
    microbatch: int
    start_s: float
    end_s: float


class PlacedPart(NamedTuple):
    """A stretch of a stage's time under one label: a wait, or what ends a step."""

    label: str
    start_s: float
    end_s: float


class BlockOps(NamedTuple):
    """The ops of one block in one direction, and how often they come in a pass."""

    name: str
    repeats: int
    ops: tuple[tuple[Op, float, float], ...]
    """In order, each with its seconds on the compute stream, and how long of them it waits for the slowest host."""

    @property
    def seconds(self) -> float:
        """Time of one repeat."""
        return sum(seconds for _op, seconds, _late_s in self.ops)


class StagePlan(NamedTuple):
    """One step of one stage, from its first wait to the end of the step."""

    stage: int
    passes: list[PlacedPass]
    waits: list[PlacedPart]
    """In order, between passes and after them."""
    ending: list[PlacedPart]
    """Exchange of gradients, update, host, exchange of weights."""


def plan_stage(step: Step, timed: StepTime, stage: int) -> StagePlan:
    """Place what a stage does."""
    degrees, events = step.run.parallelism, timed.events
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches)[stage]
    passes = [
        PlacedPass(kind, chunk, microbatch, start_s, end_s)
        for (kind, chunk, microbatch), start_s, end_s in zip(
            order.tolist(), events.start_s[stage].tolist(), events.end_s[stage].tolist(), strict=True
        )
    ]
    waits = _waits(passes, events, stage)
    ending, others, last = _ending(timed, stage)
    idle_s = sum(wait.end_s - wait.start_s for wait in waits if wait.label == "bubble")
    # What is left of the schedule's own bubble is its drain; the rest is waiting for slower GPUs.
    drained_s = min(others.end_s, others.start_s + max(0.0, timed.stages[stage]["bubble"] - idle_s))
    drain = others._replace(label="bubble", end_s=drained_s)
    waits += [drain, others._replace(start_s=drained_s), last]
    return StagePlan(stage, passes, [wait for wait in waits if wait.end_s > wait.start_s], ending)


def _waits(passes: list[PlacedPass], events: Events, stage: int) -> list[PlacedPart]:
    """Split what lies between passes: a blocking send, nothing to do, and the next input on its way."""
    waits, ended_s, sent_s = [], 0.0, 0.0
    transfers, sends = events.transfer_s[stage].tolist(), events.held_s[stage].tolist()
    for one, transfer_s, send_s in zip(passes, transfers, sends, strict=True):
        arriving_s = max(sent_s, one.start_s - transfer_s)
        waits += [
            PlacedPart("pp_exposed", ended_s, sent_s),
            PlacedPart("bubble", sent_s, arriving_s),
            PlacedPart("pp_exposed", arriving_s, one.start_s),
        ]
        ended_s, sent_s = one.end_s, one.end_s + send_s
    return [*waits, PlacedPart("pp_exposed", ended_s, float(events.free_s[stage]))]


def _ending(timed: StepTime, stage: int) -> tuple[list[PlacedPart], PlacedPart, PlacedPart]:
    """Place what follows the last pass; and the waits for gradients of other stages and for the last GPU."""
    own, free_s = timed.endings[stage], timed.events.free_s
    gradients_at_s = max(float(at_s) + one.gradients_s for at_s, one in zip(free_s, timed.endings, strict=True))
    exchanged_s = float(free_s[stage]) + own.gradients_s
    ending, at_s = [PlacedPart("dp_exposed", float(free_s[stage]), exchanged_s)], gradients_at_s
    for label, seconds in (("optimizer", own.update_s), ("overhead", own.host_s), ("dp_exposed", own.weights_s)):
        ended_s = min(timed.step_time_s, at_s + seconds)
        ending.append(PlacedPart(label, at_s, ended_s))
        at_s = ended_s
    others = PlacedPart("straggler_wait", exchanged_s, gradients_at_s)
    last = PlacedPart("straggler_wait", at_s, timed.step_time_s)
    return [part for part in ending if part.end_s > part.start_s], others, last


def pass_of(timed: StepTime, kind: int, chunk: int) -> Pass:
    """Return the priced pass of a chunk."""
    return timed.passes[chunk][kind]


def pass_ops(step: Step, timed: StepTime, kind: int, chunk: int) -> list[BlockOps]:
    """List the ops of a pass in the order in which they run."""
    blocks = step.chunks[chunk].blocks
    # What the host does before the first block is a span of its own.
    spans = pass_of(timed, kind, chunk).spans[-len(blocks) :]
    found = []
    for block, span in zip(blocks if kind == FORWARD else reversed(blocks), spans, strict=True):
        ops = tuple((item.op, item.seconds, item.late_s) for item in span.items if item.op is not None)
        found.append(BlockOps(block.name, span.repeats, ops))
    return found
