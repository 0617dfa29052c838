from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.engine import simulate_schedule
from charllm.timeline.schedules import BACKWARD, FORWARD, ORDERS, WEIGHT, Order, order_arrays
from charllm.workload.liveness import in_flight

DEGREES = (st.sampled_from(sorted(SCHEDULES)), st.integers(1, 9), st.integers(1, 5), st.integers(1, 30))


def chunks_of(schedule: str, vpp: int) -> int:
    """Only interleaved stages, and those without a backward pass, hold several chunks."""
    return vpp if SCHEDULES[schedule].interleaves else 1


def passes_of(schedule: str) -> tuple[int, ...]:
    if not SCHEDULES[schedule].trains:
        return (FORWARD,)
    return (FORWARD, BACKWARD, WEIGHT) if SCHEDULES[schedule].puts_off_weights else (FORWARD, BACKWARD)


def orders(schedule: str, pp: int, vpp: int, microbatches: int) -> list[Order]:
    return [ORDERS[schedule](pp, stage, vpp, microbatches) for stage in range(pp)]


def test_every_schedule_a_spec_may_name_has_an_order() -> None:
    assert set(ORDERS) == set(SCHEDULES)


@given(*DEGREES)
def test_every_pass_of_every_chunk_and_microbatch_is_done_once(
    schedule: str, pp: int, vpp: int, microbatches: int
) -> None:
    vpp = chunks_of(schedule, vpp)
    expected = {(kind, chunk, mb) for kind in passes_of(schedule) for chunk in range(vpp) for mb in range(microbatches)}
    for order in orders(schedule, pp, vpp, microbatches):
        assert set(order) == expected
        assert max(Counter(order).values()) == 1


@given(*DEGREES)
def test_backward_follows_forward_and_weights_follow_backward(
    schedule: str, pp: int, vpp: int, microbatches: int
) -> None:
    vpp = chunks_of(schedule, vpp)
    for order in orders(schedule, pp, vpp, microbatches):
        place = {item: index for index, item in enumerate(order)}
        for kind, chunk, mb in order:
            if kind != FORWARD:
                assert place[kind, chunk, mb] > place[kind - 1, chunk, mb]


@settings(max_examples=300)
@given(*DEGREES)
def test_no_schedule_waits_for_itself(schedule: str, pp: int, vpp: int, microbatches: int) -> None:
    vpp = chunks_of(schedule, vpp)
    order = order_arrays(schedule, pp, vpp, microbatches)
    races = np.ones((3, pp * vpp, 4))
    events = simulate_schedule(order, races, np.ones(pp), blocking=True, chunks=pp * vpp, microbatches=microbatches)
    assert np.isfinite(events.end_s).all()
    assert (events.end_s > 0).all()


@pytest.mark.parametrize(("pp", "vpp", "microbatches"), [(4, 3, 5), (5, 2, 7), (5, 3, 12), (6, 3, 13), (8, 2, 3)])
def test_microbatches_that_do_not_divide_still_end(pp: int, vpp: int, microbatches: int) -> None:
    order = order_arrays("interleaved", pp, vpp, microbatches)
    races = np.ones((3, pp * vpp, 4))
    simulate_schedule(order, races, np.zeros(pp), blocking=False, chunks=pp * vpp, microbatches=microbatches)


def most_held(order: Order, until: int) -> int:
    """Most forwards of a stage's chunks, all together, that wait for a later pass of theirs."""
    return int(np.cumsum([{FORWARD: 1, until: -1}.get(kind, 0) for kind, _, _ in order]).max())


@settings(max_examples=60)
@given(
    # Memory knows both ends of a DualPipe, its order of passes only one.
    st.sampled_from(sorted(set(SCHEDULES) - {"dualpipe", "forward-only"})),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([2, 3, 6]),
    st.integers(1, 24),
)
def test_every_stage_holds_what_memory_was_counted_for(schedule: str, pp: int, vpp: int, microbatches: int) -> None:
    vpp = chunks_of(schedule, vpp if pp > 1 else 1)
    if schedule == "interleaved":
        assume(pp > 1)
        microbatches *= pp
    dp = 32 // pp
    request = {
        "model": {"base": "gpt3-175b", "layers": 144},
        "cluster": "charllm-ppt-h200",
        "parallelism": {"pp": pp, "vpp": vpp, "schedule": schedule},
        "training": {"global_batch_size": microbatches * dp},
    }
    run = resolve_run(request)
    for stage, order in enumerate(orders(schedule, pp, vpp, microbatches)):
        released = WEIGHT if SCHEDULES[schedule].puts_off_weights else BACKWARD
        assert most_held(order, released) == sum(sum(flight) for flight in in_flight(run, stage))


@given(st.integers(1, 9), st.integers(1, 30))
def test_weight_gradients_put_off_hold_no_more_than_1f1bs_first_stage(pp: int, microbatches: int) -> None:
    for order in orders("zero-bubble", pp, 1, microbatches):
        assert most_held(order, WEIGHT) <= min(pp, microbatches)


def test_a_stage_holds_no_more_microbatches_than_stages_follow_it() -> None:
    for schedule in ("1f1b", "zero-bubble"):
        for stage, order in enumerate(orders(schedule, 4, 1, 12)):
            held = np.cumsum([{FORWARD: 1, BACKWARD: -1}.get(kind, 0) for kind, _, _ in order])
            assert held.max() == 4 - stage


def test_global_chunks_go_round_the_stages() -> None:
    table = order_arrays("interleaved", 2, 2, 2)
    assert [sorted(set(stage[:, 1].tolist())) for stage in table] == [[0, 2], [1, 3]]
    assert not table.flags.writeable
