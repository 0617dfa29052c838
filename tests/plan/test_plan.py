"""What a plan says of itself, of candidates that were simulated before."""

from typing import Any

import charllm
from charllm.plan.objectives import OBJECTIVES
from charllm.plan.plan import Counts, Plan
from charllm.report.page.plan import plan_page
from charllm.report.plan import render_plan
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


def test_a_plan_is_headed_by_its_job_and_says_which_of_its_batch_is_a_default() -> None:
    job: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x16", "tp": 2, "pp": 1, "cp": 1, "mbs": 1, "zero": 1}
    found = charllm.plan(**job, recompute="none", overlap="dp", top=1, seq_length=4096).as_table()
    head = " ".join(render_plan(found, "").split()).partition(": strategies for throughput")[0]
    assert head == (
        "llama3-8b on h200x16 (2 nodes x 8 h200; ib-8x400g: 8 x 400 Gb/s per node), megatron, bf16; "
        "batch of 128 sequences (default; --gbs sets it) of 4,096 tokens"
    )
    assert plan_page(found).further == [f"{found['run']}."]
    stated = charllm.plan(**job, recompute="none", overlap="dp", top=1, gbs=64).as_table()
    assert stated["run"].endswith("batch of 64 sequences of 8,192 tokens (default; --seq-length sets it)")


def test_a_plan_without_a_strategy_has_no_metrics_and_says_so() -> None:
    empty = Plan(objective=THROUGHPUT, counts=Counts(3, 0, 3, 0, 0, 0), elapsed_s=0.1, best=[])
    assert dict(empty.metrics) == {}
    assert empty.as_table()["run"] == ""
    assert repr(empty) == "Plan(throughput: none; 3 strategies considered)"
