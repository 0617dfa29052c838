"""Flows on one link, against sums done by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.network.sharing import shared_ends

FLOWS = st.lists(st.tuples(st.floats(0, 10), st.floats(1e-3, 10)), min_size=1, max_size=5)


def test_a_flow_alone_takes_its_own_time() -> None:
    assert shared_ends([(2.0, 3.0)]) == [5.0]
    assert shared_ends([(0.0, 1.0), (1.0, 2.0)]) == [1.0, 3.0]


def test_flows_that_share_a_link_half_the_time_cost_what_hand_calculation_says() -> None:
    # The first runs alone for 1 s; then both have half: 1 s of work each takes 2 s.
    assert shared_ends([(0.0, 2.0), (1.0, 1.0)]) == [3.0, 3.0]
    # The second has 2 s of work left when the first ends, and the link to itself.
    assert shared_ends([(0.0, 2.0), (1.0, 3.0)]) == [3.0, 5.0]


def test_equal_flows_at_once_end_together_after_the_sum_of_their_times() -> None:
    assert shared_ends([(0.0, 1.0)] * 4) == pytest.approx([4.0] * 4)


def test_nothing_to_send_ends_where_it_begins() -> None:
    assert shared_ends([(3.0, 0.0), (0.0, 1.0)]) == [3.0, 1.0]


@given(FLOWS)
def test_a_link_is_never_idle_while_there_is_something_to_send(flows: list[tuple[float, float]]) -> None:
    ends = shared_ends(flows)
    busy, now = 0.0, 0.0
    for start, alone in sorted(flows):
        now = max(now, start)
        now += alone
        busy += alone
    assert max(ends) == pytest.approx(now, rel=1e-6)
    assert all(end >= start + alone - 1e-6 for end, (start, alone) in zip(ends, flows, strict=True))
