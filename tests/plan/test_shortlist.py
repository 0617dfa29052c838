"""Which strategies are simulated: risks, rankings under each pair of caps, and whose turn it is."""

from typing import Any

import pytest

from charllm.api.plan import build_space
from charllm.plan import shortlist
from charllm.plan.feasible import Feasible, divide_space
from charllm.plan.metrics import USUAL
from charllm.plan.objectives import parse_objective
from charllm.plan.rank import Caps, Ranking
from charllm.plan.shortlist import loosest
from charllm.tracking import untracked

TINY: dict[str, Any] = {
    "model": "llama3-8b", "cluster": "h200x8", "gbs": 16, "tp": 1, "pp": 1, "cp": 1, "mbs": 1, "zero": 1,
    "recompute": "none",
}  # fmt: skip


def test_rankings_take_turns_and_the_loosest_caps_hold_least() -> None:
    assert shortlist._in_turn([["a", "b", "c"], [], ["d"], ["e", "f"]]) == ["a", "d", "e", "b", "f", "c"]  # type: ignore[list-item, comparison-overlap]
    assert loosest([(400.0, None), (700.0, 1e9), (700.0, None), (500.0, None)]) == (700.0, None)
    assert loosest([(400.0, 1e9), (None, 1e9), (None, 1.5e9)]) == (None, 1.5e9)


def test_a_risk_is_doubled_until_any_run_that_fits_is_taken() -> None:
    assert shortlist._risks(0.01) == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5]
    assert shortlist._risks(0.5) == [0.5]


def test_under_caps_with_limits_each_pair_has_its_own_ranking_of_eight_or_more(monkeypatch: pytest.MonkeyPatch) -> None:
    space = build_space(None, {"power_cap": [400, 700, "none"], "clock_cap": ["none"]}, TINY).space
    asked: list[tuple[list[Caps], int]] = []

    def note(_feasible: Feasible, _score: object, caps: list[Caps], top: int, *_rest: object) -> Ranking:
        asked.append((caps, top))
        return Ranking([], 0, 0)

    monkeypatch.setattr(shortlist, "rank", note)
    feasible = divide_space(space)

    def ask(objective: str, top: int, *, capped: bool) -> list[tuple[list[Caps], int]]:
        asked.clear()
        shortlist._rank_all(feasible, parse_objective(objective), USUAL, (), top, untracked, capped=capped)
        return list(asked)

    pairs = list(space.caps)
    assert len(pairs) == 3
    assert ask("throughput", 5, capped=False) == [([(None, None)], 5)]
    assert ask("tokens-per-joule", 5, capped=False) == [(pairs, 5)]
    # At least two of each pair are simulated, and four times as many are ready where limits reject these.
    assert ask("throughput", 5, capped=True) == [([pair], 8) for pair in pairs]
    assert ask("throughput", 10, capped=True) == [([pair], 16) for pair in pairs]
