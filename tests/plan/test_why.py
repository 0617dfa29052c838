import re
from typing import Any

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


def sentences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    first, last = ranked()[0], ranked()[-1]
    bare = {"tokens_per_s": 2.0, "step_time_s": 10.0}
    return explain_better(
        first._replace(metrics={**bare, **ours}), last._replace(metrics={**bare, **theirs}), THROUGHPUT, "x"
    )[1:]


def test_what_is_not_known_of_both_or_hardly_differs_is_not_told() -> None:
    assert sentences({}, {}) == []
    assert sentences({"breakdown_s": {"compute": 9.0}}, {}) == []
    assert sentences({}, {"breakdown_s": {"compute": 9.0}}) == []
    assert sentences({"clock_mean_hz": 1.5e9}, {"clock_mean_hz": 1.49e9}) == []
    assert sentences({"tokens_per_j": 1.0, "power_mean_w": 1}, {}) == []


def test_the_largest_three_differences_of_each_kind_are_told_from_a_two_hundredth_of_the_step_on() -> None:
    ours = {"compute": 5.0, "recompute": 0.04, "bubble": 1.0, "tp_exposed": 1.0, "pp_exposed": 1.0, "optimizer": 2.0}
    theirs = {"compute": 5.0, "recompute": 0.0, "bubble": 2.0, "tp_exposed": 1.5, "pp_exposed": 1.2, "optimizer": 1.0}
    (told,) = sentences({"breakdown_s": ours}, {"breakdown_s": theirs})
    assert told.endswith(
        ": 1.000 s less pipeline bubble, 0.5000 s less exposed tp communication, 0.2000 s less exposed pp transfers, "
        "but 1.000 s more optimizer."
    )
    fourth = {**theirs, "compute": 5.1}
    (told,) = sentences({"breakdown_s": ours}, {"breakdown_s": fourth})
    assert "compute" not in told


def test_clock_power_and_links_are_told_with_both_figures() -> None:
    ours = {
        "clock_mean_hz": 1.5e9, "throttled_time_fraction": {"power": 0.25}, "tokens_per_j": 4.0, "power_mean_w": 500.0,
        "link_bytes": {"nic": 2e9, "nvlink": 1e9}, "link_utilization_fraction": {"nic": 0.5, "nvlink": 0.1},
        "fits": True,
    }  # fmt: skip
    theirs = {
        "clock_mean_hz": 1.2e9, "throttled_time_fraction": {"power": 0.75}, "tokens_per_j": 2.0, "power_mean_w": 600.0,
        "link_bytes": {"nic": 4e9, "nvlink": 3e9}, "link_utilization_fraction": {"nic": 0.8, "nvlink": 0.3},
        "fits": False,
    }  # fmt: skip
    clock, power, links, room = sentences(ours, theirs)
    assert clock.startswith("Its GPUs run at 1,500 MHz against 1,200 MHz")
    assert "power-throttled 25.0 % against 75.0 % of the time" in clock
    assert power == "A GPU draws 500 W against 600 W, which gives 4 against 2 tokens per joule."
    assert links == "It sends 2 GB against 4 GB a step over NICs (50.0 % against 80.0 % of what NICs can carry)."
    assert room == "It fits in memory, which x does not."
