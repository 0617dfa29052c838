from hypothesis import given
from hypothesis import strategies as st

from charllm.measure.counters import Unwrapped

RANGE = 2.0**16


@given(st.lists(st.integers(0, int(RANGE) // 2), min_size=1, max_size=30), st.integers(0, int(RANGE) - 1))
def test_growth_is_kept_over_the_end_of_the_range(steps: list[int], start: int) -> None:
    count, truth = Unwrapped(RANGE), start
    found = count.add(float(truth))
    for step in steps:
        truth += step
        after = count.add(float(truth % int(RANGE)))
        assert after - found == step
        found = after


def test_a_reset_begins_a_new_count_on_top_of_the_old() -> None:
    count = Unwrapped(RANGE)
    assert [count.add(value) for value in (10.0, 100.0, 5.0, 6.0)] == [10.0, 100.0, 105.0, 106.0]


def test_a_wider_register_is_never_taken_to_have_gone_round() -> None:
    count = Unwrapped(RANGE)
    count.add(10 * RANGE)
    assert count.add(3.0) == 10 * RANGE + 3.0
