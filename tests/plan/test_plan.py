"""What a plan says of itself, of candidates that were simulated before."""

from charllm.plan.objectives import OBJECTIVES
from charllm.plan.plan import Counts, Plan
from tests.plan.candidates import candidates

THROUGHPUT = OBJECTIVES["throughput"]


def plan(**settings: object) -> Plan:
    counts = Counts(visited=100, pruned_invalid=7, pruned_memory=30, pruned_bound=50, priced=20, simulated=5)
    ranked = sorted(candidates(), key=lambda one: THROUGHPUT.key(one.metrics))
    return Plan(objective=THROUGHPUT, counts=counts, elapsed_s=2.5, best=ranked[:2], **settings)  # type: ignore[arg-type]


def test_probabilities_are_told_where_they_are_known() -> None:
    assert [one["probability_best"] for one in plan().as_table()["best"]] == [None, None]
    known = plan(probability_best=[0.75, 0.25]).as_table()["best"]
    assert [one["probability_best"] for one in known] == [0.75, 0.25]


def test_only_the_winner_says_why_it_is_the_best() -> None:
    assert [one["why"] for one in plan(why=["It is faster."]).as_table()["best"]] == [["It is faster."], []]


def test_what_fits_is_what_was_visited_less_what_memory_ruled_out() -> None:
    table = plan().as_table()
    assert (table["evaluated"], table["feasible"], table["elapsed_s"]) == (100, 70, 2.5)
    assert table["counts"]["pruned_bound"] == 50


def test_the_own_strategy_is_told_with_its_rank_and_the_others_by_the_flags_that_differ() -> None:
    own = candidates()[-1]
    table = plan(own=own, own_rank=4).as_table()
    assert table["own"]["rank"] == 4
    assert table["own"]["diff"] == []
    assert {change["flag"] for change in table["best"][0]["diff"]} >= {"--tp"}
    assert plan().as_table()["own"] is None


def test_a_plan_without_a_strategy_has_no_metrics_and_says_so() -> None:
    empty = Plan(objective=THROUGHPUT, counts=Counts(3, 0, 3, 0, 0, 0), elapsed_s=0.1, best=[])
    assert dict(empty.metrics) == {}
    assert empty.as_table()["run"] == ""
    assert repr(empty) == "Plan(throughput: none; 3 strategies considered)"
