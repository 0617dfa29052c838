"""A trace that Perfetto opens: whole events, slices that nest or stand apart, an end where the step ends."""

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from charllm.report.perfetto import MAX_EVENTS, Trace
from charllm.simulate.perfetto import COUNTERS, PART_NAMES, PASSES, WAITS, trace_step
from charllm.timeline.step_time import StepTime
from charllm.units import MICRO
from charllm.workload.step import Step, build_step
from tests.simulate.test_rank_timeline import GRIDS, small
from tests.timeline.unlimited import time_at_highest_clock

ROUNDING_US = 1e-3
Event = dict[str, Any]


@cache
def timed(name: str) -> tuple[Step, StepTime]:
    step = build_step(small(name))
    return step, time_at_highest_clock(step)


def events_of(trace: Trace) -> list[Event]:
    table = json.loads(trace.to_text())
    events: list[Event] = table["traceEvents"]
    return events


def slices(events: list[Event], stage: int, thread: int) -> list[Event]:
    return [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (stage, thread)]


def count_rows(trace: Trace, stage: int) -> int:
    """Count the events of a stage that are neither layers nor ops."""
    return sum(
        event["ph"] != "X" or " mb " in event["name"] or event["name"] in PART_NAMES.values()
        for event in trace.events
        if event["pid"] == stage
    )


@pytest.mark.parametrize("name", GRIDS)
def test_every_event_is_whole(name: str) -> None:
    events = events_of(trace_step(*timed(name)))
    for event in events:
        assert {"ph", "ts", "pid", "tid", "name"} <= set(event)
        assert event["ph"] in ("X", "C", "M")
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
    named = {event["pid"] for event in events if event["name"] == "process_name"}
    assert named == set(range(small(name).parallelism.pp))


@pytest.mark.parametrize("name", GRIDS)
def test_slices_of_a_thread_nest_or_stand_apart_and_end_with_the_step(name: str) -> None:
    step, time = timed(name)
    events = events_of(trace_step(step, time))
    end_us = time.step_time_s / MICRO
    for stage in range(step.run.parallelism.pp):
        for thread in (PASSES, WAITS):
            _check_nesting(slices(events, stage, thread))
        ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X" and event["pid"] == stage]
        assert max(ends) == pytest.approx(end_us, abs=ROUNDING_US)


def _check_nesting(rows: list[Event]) -> None:
    around: list[float] = []
    for row in sorted(rows, key=lambda row: (row["ts"], -row["dur"])):
        end_us = row["ts"] + row["dur"]
        while around and around[-1] <= row["ts"] + ROUNDING_US / 2:
            around.pop()
        assert not around or end_us <= around[-1] + ROUNDING_US / 2, row
        around.append(end_us)


def test_passes_and_their_ops_are_named() -> None:
    step, time = timed("pp4-dp2")
    rows = slices(events_of(trace_step(step, time)), 1, PASSES)
    names = {row["name"] for row in rows}
    assert {"forward mb 0", "backward mb 7", "dense layer", "qkv", "qkv wgrad", "update"} <= names
    assert len([row for row in rows if row["name"] == "qkv"]) == step.run.microbatches
    waits = {row["name"] for row in slices(events_of(trace_step(step, time)), 1, WAITS)}
    assert waits == {"bubble", "transfer", "wait for other stages"}


def test_chunks_and_weight_passes_are_told_apart() -> None:
    chunks = {row["name"] for row in slices(events_of(trace_step(*timed("interleaved"))), 1, PASSES)}
    assert {"forward mb 0 chunk 1", "backward mb 3 chunk 3"} <= chunks
    assert "weight mb 2" in {row["name"] for row in slices(events_of(trace_step(*timed("zero bubble"))), 0, PASSES)}


@pytest.mark.parametrize("name", ["pp4-dp2", "experts", "zero bubble", "overlap"])
def test_counters_add_up_to_the_labels_of_a_stage(name: str) -> None:
    step, time = timed(name)
    counters = [event for event in events_of(trace_step(step, time)) if event["ph"] == "C" and event["pid"] == 0]
    assert {event["tid"] for event in counters} == {COUNTERS}
    used = {label for label, seconds in time.stages[0].items() if seconds}
    assert set(counters[0]["args"]) == used | {"bubble", "straggler_wait"}
    spent = dict.fromkeys(time.stages[0], 0.0)
    for event, after in pairwise(counters):
        assert sum(event["args"].values()) == pytest.approx(1.0, abs=1e-3)
        for label, share in event["args"].items():
            spent[label] += share * (after["ts"] - event["ts"]) * MICRO
    assert set(counters[-1]["args"].values()) == {0.0}
    for label in ("compute", "optimizer", "tp_exposed", "pp_exposed", "dp_exposed", "ep_exposed", "overhead"):
        assert spent[label] == pytest.approx(time.stages[0][label], abs=1e-3 * time.step_time_s), label


def test_a_long_step_leaves_ops_out_and_says_so() -> None:
    step, time = timed("pp4-dp2")
    whole = trace_step(step, time)
    assert (whole.left_out, len(whole.events) < MAX_EVENTS) == ("", True)
    once = trace_step(step, time, len(whole.events) - 1)
    assert "those of the first pass of each kind are shown" in once.left_out
    rows = slices(events_of(once), 1, PASSES)
    assert len([row for row in rows if row["name"] == "qkv"]) == 1
    none = trace_step(step, time, sum(count_rows(whole, stage) for stage in range(4)))
    assert "only passes are shown" in none.left_out
    names = {row["name"] for row in slices(events_of(none), 1, PASSES)}
    assert "qkv" not in names
    assert "backward mb 7" in names
    for trace in (once, none):
        assert len(trace.events) < len(whole.events)


def test_a_trace_too_long_for_all_stages_shows_both_ends() -> None:
    step, time = timed("pp4-dp2")
    trace = trace_step(step, time, 2 * count_rows(trace_step(step, time), 0))
    assert "2 of 4 stages are shown" in trace.left_out
    assert {event["pid"] for event in events_of(trace)} == {0, 3}
    assert {event["pid"] for event in events_of(trace_step(step, time, 1))} == {0}
