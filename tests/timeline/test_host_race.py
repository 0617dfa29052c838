from functools import reduce
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.timeline.host_race import NOTHING, SYNC, Race, host_only

SECONDS = st.floats(0, 100, allow_nan=False)


class Event(NamedTuple):
    """A kernel, host work or a sync, as the race sees it."""

    kind: str
    seconds: float = 0.0
    launch_s: float = 0.0


EVENTS = st.lists(
    st.builds(Event, st.sampled_from(["kernel", "kernel", "host", "sync"]), SECONDS, SECONDS), max_size=30
)


def as_race(event: Event) -> Race:
    if event.kind == "sync":
        return SYNC
    return host_only(event.launch_s) if event.kind == "host" else NOTHING.launch(event.seconds, event.launch_s)


def compose(events: list[Event]) -> Race:
    return reduce(Race.then, map(as_race, events), NOTHING)


def apply(race: Race, gpu: float, host: float) -> tuple[float, float]:
    return max(race.gg + gpu, race.gh + host), max(race.hg + gpu, race.hh + host)


def walk(events: list[Event], gpu: float, host: float) -> tuple[float, float]:
    """Follow GPU and host op by op."""
    for event in events:
        if event.kind == "sync":
            host = max(host, gpu)
        elif event.kind == "host":
            host += event.launch_s
        else:
            host += event.launch_s
            gpu = max(gpu, host) + event.seconds
    return gpu, host


@given(EVENTS, SECONDS, SECONDS)
def test_the_product_of_matrices_is_the_simulation_op_by_op(events: list[Event], gpu: float, host: float) -> None:
    assert apply(compose(events), gpu, host) == pytest.approx(walk(events, gpu, host))


@given(EVENTS, EVENTS, EVENTS)
def test_composing_does_not_depend_on_how_ops_are_grouped(
    first: list[Event], second: list[Event], third: list[Event]
) -> None:
    one, two, three = compose(first), compose(second), compose(third)
    assert one.then(two).then(three) == pytest.approx(one.then(two.then(three)))


@given(EVENTS, st.integers(0, 20))
def test_repeating_is_composing_as_often(events: list[Event], times: int) -> None:
    race = compose(events)
    assert race.repeated(times) == pytest.approx(reduce(Race.then, [race] * times, NOTHING))


@given(st.lists(SECONDS, max_size=30))
def test_without_launch_time_ops_take_their_sum(lengths: list[float]) -> None:
    assert apply(compose([Event("kernel", seconds) for seconds in lengths]), 0.0, 0.0)[0] == pytest.approx(sum(lengths))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_a_slow_host_sets_the_pace(lengths: list[float]) -> None:
    gpu, host = apply(compose([Event("kernel", seconds, 1000.0) for seconds in lengths]), 0.0, 0.0)
    assert host == pytest.approx(1000.0 * len(lengths))
    assert gpu == pytest.approx(host + lengths[-1])


@given(EVENTS, st.integers(0, 30), SECONDS, SECONDS)
def test_a_sync_makes_nothing_earlier(events: list[Event], place: int, gpu: float, host: float) -> None:
    waited = apply(compose([*events[:place], Event("sync"), *events[place:]]), gpu, host)
    freely = apply(compose(events), gpu, host)
    assert all(late >= early - 1e-9 for late, early in zip(waited, freely, strict=True))


def test_a_host_that_waits_exposes_its_next_launch() -> None:
    ops = [Event("kernel", 5.0, 1.0), Event("kernel", 5.0, 1.0)]
    assert walk(ops, 0.0, 0.0)[0] == 11.0
    assert apply(compose([ops[0], Event("sync"), ops[1]]), 0.0, 0.0)[0] == 12.0


@given(SECONDS, SECONDS, st.integers(1, 200))
def test_an_op_of_many_kernels_is_that_many_ops(seconds: float, launch_s: float, launches: int) -> None:
    each = NOTHING.launch(seconds / launches, launch_s / launches)
    assert NOTHING.launch(seconds, launch_s, launches) == pytest.approx(each.repeated(launches))


def test_a_gpu_works_on_the_first_kernels_of_an_op_while_its_host_launches_the_rest() -> None:
    # Ten launches of 1 s: the GPU begins after the first, or has the last kernel of 0.4 s left after the tenth.
    assert apply(NOTHING.launch(40.0, 10.0, 10), 0.0, 0.0) == pytest.approx((41.0, 10.0))
    assert apply(NOTHING.launch(4.0, 10.0, 10), 0.0, 0.0) == pytest.approx((10.4, 10.0))
