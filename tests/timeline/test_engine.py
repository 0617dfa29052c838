import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.arrays import Floats
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.engine import Events, simulate_schedule
from charllm.timeline.host_race import NOTHING
from charllm.timeline.schedules import order_arrays

SHORT = st.floats(0.1, 5)
NAMES = st.sampled_from(sorted(SCHEDULES))


def run(
    schedule: str,
    pp: int,
    microbatches: int,
    lengths: tuple[float, float, float],
    *,
    vpp: int = 1,
    send_s: float = 0.0,
    blocking: bool = False,
    slower: dict[int, float] | None = None,
    launch_s: float = 0.0,
) -> Events:
    """Play equal chunks of the given lengths (forward, backward, weight); `slower` adds to a chunk's passes."""
    vpp = vpp if schedule == "interleaved" else 1
    races: Floats = np.array(
        [
            [NOTHING.launch(length + (slower or {}).get(chunk, 0.0), launch_s) for chunk in range(pp * vpp)]
            for length in lengths
        ]
    )
    order = order_arrays(schedule, pp, vpp, microbatches)
    return simulate_schedule(
        order, races, np.full(pp, send_s), blocking=blocking, chunks=pp * vpp, microbatches=microbatches
    )


def length(events: Events) -> float:
    return float(events.free_s.max())


@given(st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 8), st.integers(1, 20), SHORT, SHORT)
def test_the_bubble_of_gpipe_and_1f1b_is_p_minus_one_passes(
    schedule: str, pp: int, microbatches: int, forward: float, backward: float
) -> None:
    ended = length(run(schedule, pp, microbatches, (forward, backward, 0.0)))
    assert ended == pytest.approx((microbatches + pp - 1) * (forward + backward))


@given(st.integers(2, 8), st.integers(2, 5), st.integers(1, 4), SHORT, SHORT)
def test_the_bubble_of_interleaved_stages_is_as_many_times_shorter(
    pp: int, vpp: int, rounds: int, forward: float, backward: float
) -> None:
    microbatches = rounds * pp
    # Lengths are a stage's: each of its chunks takes a part.
    ended = length(run("interleaved", pp, microbatches, (forward / vpp, backward / vpp, 0.0), vpp=vpp))
    assert ended == pytest.approx(microbatches * (forward + backward) + (pp - 1) * (forward + backward) / vpp)


@given(st.integers(1, 8), st.integers(0, 12), SHORT)
def test_the_bubble_of_zero_bubble_is_p_minus_one_times_f_plus_b_minus_w(pp: int, more: int, each: float) -> None:
    microbatches = pp + more
    ended = length(run("zero-bubble", pp, microbatches, (each, each, each)))
    assert ended == pytest.approx(microbatches * 3 * each + (pp - 1) * (each + each - each))


@given(st.integers(1, 8), st.integers(1, 16), SHORT, st.floats(0, 3), st.floats(0, 3))
def test_the_bubble_of_zero_bubble_for_unequal_parts(
    pp: int, microbatches: int, weight: float, forward_more: float, backward_more: float
) -> None:
    # While no weight gradient takes longer than the forward and backward it fills in for; with fewer microbatches than
    # stages there are fewer to put off.
    forward, backward = weight + forward_more, weight + backward_more
    ended = length(run("zero-bubble", pp, microbatches, (forward, backward, weight)))
    busy = microbatches * (forward + backward + weight)
    assert ended == pytest.approx(busy + (pp - 1) * (forward + backward) - (min(pp, microbatches) - 1) * weight)


@given(st.integers(2, 8), st.integers(0, 12), SHORT)
def test_zero_bubble_is_faster_than_1f1b(pp: int, more: int, each: float) -> None:
    split = length(run("zero-bubble", pp, pp + more, (each, each, each)))
    whole = length(run("1f1b", pp, pp + more, (each, 2 * each, 0.0)))
    assert split < whole


@given(NAMES, st.integers(1, 6), st.integers(1, 12), st.integers(1, 3), st.booleans(), SHORT, SHORT)
def test_a_longer_send_is_never_faster(
    schedule: str, pp: int, microbatches: int, vpp: int, blocking: bool, send_s: float, more_s: float
) -> None:
    lengths = (1.0, 1.5, 0.5)
    near = run(schedule, pp, microbatches, lengths, vpp=vpp, send_s=send_s, blocking=blocking)
    far = run(schedule, pp, microbatches, lengths, vpp=vpp, send_s=send_s + more_s, blocking=blocking)
    assert (far.end_s >= near.end_s - 1e-9).all()


@given(NAMES, st.integers(1, 6), st.integers(1, 12), st.integers(1, 3), SHORT)
def test_a_send_that_blocks_is_never_faster(schedule: str, pp: int, microbatches: int, vpp: int, send_s: float) -> None:
    overlapped, blocking = (
        run(schedule, pp, microbatches, (1.0, 1.5, 0.5), vpp=vpp, send_s=send_s, blocking=blocks)
        for blocks in (False, True)
    )
    assert (blocking.end_s >= overlapped.end_s - 1e-9).all()
    assert not overlapped.held_s.any()


@given(NAMES, st.integers(1, 6), st.integers(1, 12), st.integers(1, 3), st.floats(0, 1))
def test_no_pass_begins_before_its_input_or_while_its_stage_works(
    schedule: str, pp: int, microbatches: int, vpp: int, send_s: float
) -> None:
    events = run(schedule, pp, microbatches, (1.0, 1.5, 0.5), vpp=vpp, send_s=send_s, blocking=True)
    assert (events.start_s >= events.arrival_s).all()
    assert (events.start_s[:, 1:] >= events.end_s[:, :-1] + events.held_s[:, :-1] - 1e-9).all()
    assert (events.free_s >= events.end_s[:, -1]).all()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_one_slower_stage_paces_all_microbatches(stage: int) -> None:
    # Four stages of (1, 2), one of them (1.5, 2.5): it works six microbatches without a gap once they reach it, and the
    # first one's way through the other three, down and up, is the bubble. Equal stages would need 6 x 3 + 3 x 3.
    ended = length(run("gpipe", 4, 6, (1.0, 2.0, 0.0), slower={stage: 0.5}))
    assert ended == pytest.approx(6 * 4.0 + 3 * 3.0)


def test_a_slower_stage_makes_its_neighbours_wait_by_hand() -> None:
    # Three stages, three microbatches, 1F1B with forward and backward of 1 s; the middle one takes 2 s for each.
    events = run("1f1b", 3, 3, (1.0, 1.0, 0.0), slower={1: 1.0})
    # Stage 1: F0 1-3, F1 3-5, B0 5-7 (its gradient is there at 5), F2 7-9, B1 9-11, B2 11-13.
    assert events.start_s[1].tolist() == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
    assert events.end_s[1].tolist() == [3.0, 5.0, 7.0, 9.0, 11.0, 13.0]
    # Stage 0: F0 0-1, F1 1-2, F2 2-3, then B0, B1 and B2 each when stage 1 has done its own: at 7, 11 and 13.
    assert events.start_s[0].tolist() == [0.0, 1.0, 2.0, 7.0, 11.0, 13.0]
    # Stage 2: F0 3-4, B0 4-5, F1 5-6, B1 6-7, F2 9-10, B2 10-11.
    assert events.start_s[2].tolist() == [3.0, 4.0, 5.0, 6.0, 9.0, 10.0]
    # The step lengthens by 4 s to 14 s, not by the 6 s that stage 1 works longer: its bubble shrinks.
    assert length(events) == 14.0
    assert length(run("1f1b", 3, 3, (1.0, 1.0, 0.0))) == 10.0
    # Between its first and last pass stage 0 is idle for 8 s, stage 2 for 2 s, and stage 1 never.
    idle = [float((events.start_s[at, 1:] - events.end_s[at, :-1]).sum()) for at in range(3)]
    assert idle == [8.0, 0.0, 2.0]


def test_a_send_is_waited_for_by_hand() -> None:
    # Two stages, one microbatch: forward, hop, forward, backward, hop, backward.
    assert length(run("1f1b", 2, 1, (1.0, 2.0, 0.0), send_s=0.25)) == pytest.approx(1 + 0.25 + 1 + 2 + 0.25 + 2)


def test_blocking_sends_hold_the_stage_by_hand() -> None:
    events = run("gpipe", 2, 2, (1.0, 1.0, 0.0), send_s=0.5, blocking=True)
    # Stage 0: forward 0-1, sends until 1.5, forward 1.5-2.5, sends until 3.
    assert events.start_s[0, :2].tolist() == [0.0, 1.5]
    assert events.held_s[0].tolist() == [0.5, 0.5, 0.0, 0.0]
    # Stage 1: forward 1.5-2.5 and 3-4, backward 4-5, sends until 5.5, backward 5.5-6.5, sends until 7.
    assert events.start_s[1].tolist() == [1.5, 3.0, 4.0, 5.5]
    assert length(events) == pytest.approx(8.0)


def test_the_host_of_a_stage_launches_passes_in_order() -> None:
    # The second launch waits for the first: 3 s each, so that the GPU is idle between passes of 1 s.
    events = run("1f1b", 1, 2, (1.0, 1.0, 0.0), launch_s=3.0)
    assert events.end_s[0].tolist() == [4.0, 7.0, 10.0, 13.0]


def test_an_order_that_can_never_start_is_refused() -> None:
    backwards_first = np.array([[[1, 0, 0], [0, 0, 0]]])
    with pytest.raises(ValueError, match="deadlocks"):
        simulate_schedule(backwards_first, np.ones((3, 1, 4)), np.zeros(1), blocking=False, chunks=1, microbatches=1)
