import numpy as np
import pytest

import charllm.plan.rank as ranking
from charllm.api.plan import build_space
from charllm.plan.feasible import divide_space
from charllm.plan.metrics import Economics
from charllm.plan.objectives import parse_objective
from charllm.plan.rank import _Search
from charllm.plan.scores import score_of

WORDS = {"model": "llama3-8b", "cluster": "h100x8", "gbs": 16}


def search(objective: str) -> _Search:
    axes = {"tp": [2], "pp": [2], "mbs": [1], "recompute": ["none"], "zero": [1], "overlap": ["none"]}
    space = build_space(None, axes, WORDS).space
    score = score_of(space.base, parse_objective(objective), Economics())
    found = _Search(divide_space(space), score, [(None, None)], lambda _metrics: True)
    found.open_share(0)
    return found


def test_a_bound_rises_to_that_of_its_own_schedule_and_stays_below_the_price() -> None:
    found = search("throughput")
    first = float(found.items[0].score[0])
    raised, priced = found.raise_bound((0, 0)), found.price((0, 0))
    assert raised is not None
    assert priced is not None
    assert 0.7 * priced.score < first < raised <= priced.score
    assert raised > 1.005 * first


def test_a_bound_of_too_many_passes_and_an_estimate_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    estimated = search("temperature")
    assert estimated.raise_bound((0, 0)) == float(estimated.items[0].score[0])
    monkeypatch.setattr(ranking, "MOST_PASSES", 10)
    found = search("throughput")
    assert found.raise_bound((0, 0)) == float(found.items[0].score[0])


def test_a_share_is_bound_by_its_kernels_and_an_empty_one_by_nothing() -> None:
    found = search("throughput")
    share = found.feasible.shares[0]
    assert found.bound_share(0) == float(share.least_time_s) <= float(found.items[0].score.min())
    assert search("tokens-per-joule").bound_share(0) > 0
    assert ranking.NOTHING.score.min(initial=np.inf) == np.inf


def test_a_strategy_that_does_not_fit_is_counted_once_for_each_time_it_comes_up() -> None:
    found = search("throughput")
    found.accept = lambda _metrics: False
    assert found.raise_bound((0, 0)) is None
    assert found.raise_bound((0, 0)) is None
    assert found.misfits == 2
