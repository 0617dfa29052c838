"""Errors of differences: widths of pairs, held out by source."""

import numpy as np
import pytest

from charllm.evaluate.difference_errors import derive, gather
from charllm.evaluate.differences import Pair


def pairs(change: str, board: str, error: float, count: int = 40, slope: float = 0.0) -> list[Pair]:
    """Return pairs whose errors are normal around zero, each of two runs of its own."""
    draw = np.random.default_rng(len(board) + len(change))
    effects = np.linspace(-1, 1, count)
    errors = draw.normal(size=count) * np.hypot(error, slope * effects)
    return [Pair("training", board, change, "step time", f"{board}{at}", f"{board}{at}'", effect, effect - off, 0.0, ())
            for at, (effect, off) in enumerate(zip(effects.tolist(), errors.tolist(), strict=True))]  # fmt: skip


def test_widths_are_the_ninetieth_percentile_of_errors() -> None:
    found = derive([*pairs("microbatch", "one", 0.02, 200), *pairs("microbatch", "another", 0.02, 200)])
    row = next(row for row in found["errors"] if row["change"] == "microbatch")
    assert row["reach"] * row["floor"] == pytest.approx(1.645 * 0.02, rel=0.25)
    assert row["slope"] < 0.05
    (together, *_) = found["held_out"]
    assert 0.85 <= together["covered_fraction"] <= 0.95


def test_errors_that_grow_with_the_effect_have_a_slope() -> None:
    found = derive([*pairs("microbatch", "one", 0.005, 200, 0.3), *pairs("microbatch", "another", 0.005, 200, 0.3)])
    row = next(row for row in found["errors"] if row["change"] == "microbatch")
    assert row["slope"] * row["reach"] == pytest.approx(1.645 * 0.3, rel=0.3)
    assert row["floor"] < 0.05


def test_pairs_of_few_runs_weigh_as_many_as_are_independent() -> None:
    ladder = [Pair("training", "one", "microbatch", "step time", first, second, 0.1, 0.1, 0.0, (first, second))
              for first, second in ("ab", "ac", "ad", "bc", "bd", "cd")]  # fmt: skip
    assert gather(ladder)["step time"].weights.sum() == pytest.approx(3)


def test_hosts_that_were_not_tuned_are_left_out() -> None:
    one = pairs("microbatch", "one", 0.02)
    untuned = [pair._replace(data="published, untuned hosts") for pair in pairs("microbatch", "other", 1.0)]
    assert gather([*one, *untuned])["step time"].pairs == gather(one)["step time"].pairs
