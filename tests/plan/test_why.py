import re

from charllm.plan.candidate import Candidate
from charllm.plan.objectives import OBJECTIVES
from charllm.plan.why import explain_better, explain_winner
from tests.plan.candidates import candidates

THROUGHPUT = OBJECTIVES["throughput"]


def ranked() -> list[Candidate]:
    return sorted(candidates(), key=lambda one: THROUGHPUT.key(one.metrics))


def test_the_seconds_that_are_named_are_those_of_the_breakdowns() -> None:
    first, last = ranked()[0], ranked()[-1]
    (sentence,) = [each for each in explain_better(first, last, THROUGHPUT, "x") if each.startswith("Its step takes")]
    saved = last.metrics["breakdown_s"]["dp_exposed"] - first.metrics["breakdown_s"]["dp_exposed"]
    assert f"{saved:.2f} s less exposed dp communication" in sentence
    assert f"{first.metrics['step_time_s']:.3f} s against {last.metrics['step_time_s']:.2f} s" in sentence


def test_the_winner_is_told_from_the_runner_up_and_from_the_own_strategy() -> None:
    first, second, *_, last = ranked()
    text = " ".join(explain_winner(first, [second], own=last))
    gain = first.metrics["tokens_per_s"] / second.metrics["tokens_per_s"] - 1
    assert f"{100 * gain:.1f} % better in tokens_per_s than the next row" in text
    assert "than your own strategy" in text
    assert re.search(r"needs [\d.]+ of 140\.4 GiB", text)


def test_a_strategy_is_not_compared_with_itself() -> None:
    first = ranked()[0]
    assert "your own" not in " ".join(explain_winner(first, ranked()[1:], own=first))
    assert "No strategy was found" in explain_winner(first, [])[0]


def test_metrics_of_the_fast_path_are_enough() -> None:
    first, second, *_ = ranked()
    known = {name: value for name, value in second.metrics.items() if "throttled" not in name and "link" not in name}
    assert explain_winner(first, [second._replace(metrics=known, coupled=False)])


def test_a_lead_of_more_than_all_of_the_other_is_told_as_times() -> None:
    first, last = ranked()[0], ranked()[-1]

    def lead(tokens_per_s: float) -> str:
        ours = first._replace(metrics={**first.metrics, "tokens_per_s": tokens_per_s})
        theirs = last._replace(metrics={**last.metrics, "tokens_per_s": 100.0})
        return explain_better(ours, theirs, THROUGHPUT, "x")[0]

    assert "is 90.0 % better in tokens_per_s" in lead(190.0)
    assert "is 2.50 times better in tokens_per_s" in lead(250.0)
    assert "is 10.0 % worse in tokens_per_s" in lead(90.0)


def test_a_candidate_is_short_in_words() -> None:
    assert len(repr(ranked())) < 200 * len(ranked())
    assert "tokens/s" in repr(ranked()[0])
