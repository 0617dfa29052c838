"""What a plan recommends runs: a few of `benchmarks.plan_winners`."""

import pytest

from benchmarks.plan_problems import draw_problem
from benchmarks.plan_winners import winner_warnings


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_the_winner_of_a_plan_simulates_without_a_memory_warning(seed: int) -> None:
    assert winner_warnings(draw_problem(seed)) == []
