from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from charllm.plan.pareto import front

TABLES = st.integers(1, 4).flatmap(
    lambda metrics: st.lists(st.lists(st.integers(-3, 3), min_size=metrics, max_size=metrics), max_size=30)
)


@given(TABLES, st.lists(st.sampled_from(["higher", "lower"]), min_size=4, max_size=4))
def test_the_front_is_what_no_other_row_dominates(table: list[list[int]], ways: list[str]) -> None:
    axes = dict(zip("abcd", ways, strict=True)) if not table else dict(zip("abcd"[: len(table[0])], ways, strict=False))
    rows = [dict(zip(axes, values, strict=True)) for values in table]
    signs = np.array([1 if better == "lower" else -1 for better in axes.values()])
    costs = np.array(table).reshape(len(table), len(axes)) * signs

    def dominated(place: int) -> bool:
        better = (costs <= costs[place]).all(axis=1) & (costs < costs[place]).any(axis=1)
        return bool(better.any())

    assert front(rows, axes) == [place for place in range(len(rows)) if not dominated(place)]


def test_a_row_without_a_metric_is_not_on_the_front() -> None:
    rows: list[dict[str, Any]] = [{"a": 1.0, "b": None}, {"a": 2.0, "b": 1.0}, {"a": 2.0, "b": {"x": 1.0}}]
    assert front(rows[:2], {"a": "lower", "b": "lower"}) == [1]
    assert front(rows[2:], {"a": "lower", "b.x": "lower"}) == [0]
    assert front([], {"a": "lower"}) == []
