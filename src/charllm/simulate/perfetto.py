"""A simulated step as a trace that Perfetto (ui.perfetto.dev) and Chrome open: one process a stage.

A stage is shown by one of its ranks, the others doing the same. Times are microseconds from the start of the step.
Watts, degrees and megahertz of that rank are counters of the stage, one value for each box of its sensor.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from charllm.arrays import Floats
from charllm.report.perfetto import MAX_EVENTS, Event, Trace
from charllm.timeline.labels import LABELS
from charllm.timeline.stage_plan import (
    DIRECTIONS,
    BlockOps,
    PlacedPass,
    StagePlan,
    pass_of,
    pass_ops,
    plan_stage,
)
from charllm.timeline.step_time import StepTime
from charllm.units import MEGA, MICRO
from charllm.workload.memory import first_rank
from charllm.workload.step import Step

COUNTERS, PASSES, WAITS = 0, 1, 2
"""Threads of a process."""
PART_NAMES = {
    "bubble": "bubble",
    "pp_exposed": "transfer",
    "straggler_wait": "wait for other stages",
    "dp_exposed": "exchange of gradients and weights",
    "optimizer": "update",
    "overhead": "host",
}
Ops = dict[tuple[int, int], list[BlockOps]]
"""Pass and chunk: the ops to show inside."""


class Signals(NamedTuple):
    """What each stage's rank shows: [stage, box, (watts, degrees, hertz)], and the length of a box."""

    series: Floats
    box_s: float


SIGNAL_NAMES = (("power W", 1.0), ("temperature C", 1.0), ("clock MHz", MEGA))


def trace_step(step: Step, timed: StepTime, max_events: int = MAX_EVENTS, signals: Signals | None = None) -> Trace:
    """Return the trace of a step: with the ops of every pass, of the first pass of each kind, or of none."""
    counters = [] if signals is None else list(_signal_events(timed, signals))
    trace = _trace_passes(step, timed, max_events - len(counters))
    shown = {event["pid"] for event in trace.events}
    return trace._replace(events=trace.events + [event for event in counters if event["pid"] in shown])


def _signal_events(timed: StepTime, signals: Signals) -> Iterator[Event]:
    """Show the signals of the first simulated step, a box at a time."""
    boxes = min(signals.series.shape[1], int(timed.step_time_s / signals.box_s))
    for stage, series in enumerate(signals.series):
        for box in range(boxes):
            for column, (name, unit) in enumerate(SIGNAL_NAMES):
                value = round(float(series[box, column]) / unit, 2)
                shown = {"name": name, "ph": "C", "ts": _microseconds(box * signals.box_s), "pid": stage}
                yield {**shown, "tid": COUNTERS, "args": {name: value}}


def _trace_passes(step: Step, timed: StepTime, max_events: int) -> Trace:
    """Return the passes, waits and labels of a step."""
    plans, left_out = _shown_stages(step, timed, max_events)
    ops = {
        key: pass_ops(step, timed, *key)
        for key in dict.fromkeys((one.kind, one.chunk) for plan in plans for one in plan.passes)
    }
    room = max_events - sum(_count_rows(plan) for plan in plans)
    every = sum(_count_ops(ops[one.kind, one.chunk]) for plan in plans for one in plan.passes)
    shown, once = ops, False
    if every > room:
        once = sum(map(_count_ops, ops.values())) <= room
        shown = ops if once else {}
        kept = "those of the first pass of each kind" if once else "only passes"
        left_out.append(f"{every:,} slices of ops are too many, {kept} are shown")
    events = [event for plan in plans for event in _stage_events(step, timed, plan, shown, once=once)]
    return Trace(events, "; ".join(left_out))


def _shown_stages(step: Step, timed: StepTime, max_events: int) -> tuple[list[StagePlan], list[str]]:
    """Plan every stage, or as many of them, evenly spread, as there is room for."""
    pp = step.run.parallelism.pp
    fitting = max(1, max_events // _count_rows(plan_stage(step, timed, 0)))
    if pp <= fitting:
        return [plan_stage(step, timed, stage) for stage in range(pp)], []
    stages = sorted({round(place * (pp - 1) / max(1, fitting - 1)) for place in range(fitting)})
    return [plan_stage(step, timed, stage) for stage in stages], [f"{len(stages)} of {pp} stages are shown"]


def _count_rows(plan: StagePlan) -> int:
    """Count the events of a stage without ops: names, slices, and a counter with each slice."""
    return 4 + 2 * (len(plan.passes) + len(plan.waits) + len(plan.ending)) + 1


def _count_ops(blocks: Sequence[BlockOps]) -> int:
    return sum(block.repeats * (1 + len(block.ops)) for block in blocks)


def _stage_events(step: Step, timed: StepTime, plan: StagePlan, ops: Ops, *, once: bool) -> Iterator[Event]:
    yield from _names(step, plan.stage)
    seen: set[tuple[int, int]] = set()
    for one in plan.passes:
        yield _slice(plan.stage, PASSES, _pass_name(step, one), one.start_s, one.end_s)
        key = (one.kind, one.chunk)
        if key in ops and not (once and key in seen):
            yield from _op_slices(plan.stage, one, ops[key])
        seen.add(key)
    for thread, parts in ((PASSES, plan.ending), (WAITS, plan.waits)):
        for part in parts:
            yield _slice(plan.stage, thread, PART_NAMES[part.label], part.start_s, part.end_s)
    yield from _counters(timed, plan)


def _names(step: Step, stage: int) -> Iterator[Event]:
    shown = {"ph": "M", "ts": 0, "pid": stage}
    process = f"stage {stage} (rank {first_rank(step.run, stage)})"
    yield {**shown, "tid": COUNTERS, "name": "process_name", "args": {"name": process}}
    yield {**shown, "tid": COUNTERS, "name": "process_sort_index", "args": {"sort_index": stage}}
    yield {**shown, "tid": PASSES, "name": "thread_name", "args": {"name": "passes"}}
    yield {**shown, "tid": WAITS, "name": "thread_name", "args": {"name": "waits"}}


def _pass_name(step: Step, one: PlacedPass) -> str:
    chunk = f" chunk {one.chunk}" if step.run.parallelism.vpp > 1 else ""
    return f"{DIRECTIONS[one.kind]} mb {one.microbatch}{chunk}"


def _op_slices(stage: int, one: PlacedPass, blocks: Sequence[BlockOps]) -> Iterator[Event]:
    """Lay layers and their ops inside a pass, stretched to the time it took."""
    total_s = sum(block.repeats * block.seconds for block in blocks)
    stretch = (one.end_s - one.start_s) / total_s if total_s else 0.0
    at_s = one.start_s
    for block in blocks:
        for _ in range(block.repeats):
            # Sums of many roundings may end a little after the pass does.
            layer_end_s = min(one.end_s, at_s + stretch * block.seconds)
            yield _slice(stage, PASSES, block.name, at_s, layer_end_s)
            for op, seconds, _late_s in block.ops:
                end_s = min(layer_end_s, at_s + stretch * seconds)
                yield _slice(stage, PASSES, op.name, at_s, end_s)
                at_s = end_s
            at_s = layer_end_s


def _slice(stage: int, thread: int, name: str, start_s: float, end_s: float) -> Event:
    start_us, end_us = _microseconds(start_s), _microseconds(end_s)
    length_us = round(end_us - start_us, 3)
    return {"name": name, "ph": "X", "ts": start_us, "dur": length_us, "pid": stage, "tid": thread}


def _counters(timed: StepTime, plan: StagePlan) -> Iterator[Event]:
    """Show under which labels the time passes: the share of each, from one slice to the next."""
    used = [label for label in LABELS if timed.stages[plan.stage][label] > 0 or label in ("bubble", "straggler_wait")]
    rows = [(one.start_s, _shares(timed, one)) for one in plan.passes]
    rows += [(part.start_s, {part.label: 1.0}) for part in (*plan.waits, *plan.ending)]
    for start_s, shares in [*sorted(rows, key=lambda row: row[0]), (timed.step_time_s, dict[str, float]())]:
        args = {label: round(shares.get(label, 0.0), 4) for label in used}
        yield {
            "name": "share of time",
            "ph": "C",
            "ts": _microseconds(start_s),
            "pid": plan.stage,
            "tid": COUNTERS,
            "args": args,
        }


def _shares(timed: StepTime, one: PlacedPass) -> dict[str, float]:
    """Return what a pass's time is charged to; what its ops do not explain is the host's."""
    length_s = one.end_s - one.start_s
    if length_s <= 0:
        return {}
    shares = {label: seconds / length_s for label, seconds in pass_of(timed, one.kind, one.chunk).labels.items()}
    return {**shares, "overhead": max(0.0, 1.0 - sum(shares.values()))}


def _microseconds(seconds: float) -> float:
    """Return microseconds, to the nanosecond."""
    return round(seconds / MICRO, 3)
