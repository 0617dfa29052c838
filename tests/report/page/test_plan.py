from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.report.figure import Figure, Page
from charllm.report.page.plan import plan_page
from charllm.report.page.planned import check_plan, is_plan
from charllm.report.web.html import pack
from tests.report.page.plans import plan_table
from tests.report.page.runs import rows_of

PAGE = plan_page(plan_table())


def figures(page: Page = PAGE) -> dict[str, Figure]:
    return {figure.name: figure for section in page.sections for figure in section.figures}


def test_it_opens_with_the_best_strategy_how_sure_that_is_and_how_the_own_one_compares() -> None:
    told = " ".join(PAGE.answer)
    assert PAGE.title == "Plan of llama3-70b on charllm-ppt-h200"
    assert PAGE.answer[0].startswith(
        "Best strategy (highest throughput): tp 4 x pp 4 x dp 2, microbatch 1: 29.4 s a step"
    )
    assert "probability of 61 %. It may also be 2: tp 4 x pp 8 x dp 1 (30 %)" in told
    assert "Your own strategy (number 6) is tp 8 x pp 4 x dp 1: the best is 21 % better" in told
    assert "memory_peak_gib<130 (1)" in told
    assert "1 of 2 changes of the machine; not with NICs half as fast (3.2 % behind)" in told
    assert "All 120,000 valid strategies were considered in 4.2 s: 1,000 were evaluated and 20 simulated" in told
    assert [fact.note for fact in PAGE.facts][:2] == ["your own: 875 tokens/s/GPU", ""]
    assert {fact.link for fact in PAGE.facts} <= set(figures())


def test_every_strategy_is_a_point_once_and_limits_are_sliders_at_their_values() -> None:
    front = figures()["front"]
    rows = rows_of(front)
    assert [row["case"][:14] for row in rows] == [
        "1: tp 4 x pp 4", "2: tp 4 x pp 8", "3: tp 2 x pp 1", "tp 1 x pp 8 x ", "tp 2 x pp 8 x ", "own: tp 8 x pp"
    ]  # fmt: skip
    assert [row["standing"] for row in rows] == [
        *["keeps every limit"] * 3, "breaks a limit", "keeps every limit", "your own"
    ]  # fmt: skip
    assert front.options["limits"][0] == {"column": "memory_peak_bytes", "sense": "most", "value": 130.0}
    assert {limit["column"] for limit in front.options["limits"]} == {
        "memory_peak_bytes", "power_peak_sensor_w", "temperature_peak_c"
    }  # fmt: skip
    assert front.options["best"] == "tokens_per_s"
    assert "tp" in front.options["filters"]
    assert rows[0]["details"]["command"].startswith("charllm simulate --model llama3-70b --cluster charllm-ppt-h200")


def test_the_commands_hold_what_changes_in_the_users_own_program() -> None:
    texts = {row["label"]: row["text"] for row in rows_of(figures()["commands"])}
    assert texts["Settings to change for megatron"] == "--tensor-model-parallel-size 4 --overlap-grad-reduce"
    assert [(row["before"], row["after"]) for row in rows_of(figures()["diff"])][2:] == [
        ("not set", "set"), ("set", "not set")
    ]  # fmt: skip


def test_another_objective_stands_on_an_axis_and_among_the_numbers() -> None:
    objective = {"name": "temperature", "metric": "temperature_peak_c", "better": "lower", "meaning": "coolest GPU"}
    page = plan_page(plan_table(goal=objective))
    assert figures(page)["front"].options["y"] == "temperature_peak_c"
    assert "peak temperature 64 C" in page.answer[0]


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"best": [], "pareto": [], "own": None}, ("shortlist", "reasons", "commands")),
        ({"sensitivity": []}, ("sensitivity",)),
        ({"counts": {"visited": 0, "priced": 0, "simulated": 0}}, ("counts",)),
    ],
)
def test_what_a_plan_does_not_say_is_missing_with_a_reason(changes: dict[str, Any], absent: tuple[str, ...]) -> None:
    page = plan_page(plan_table(**changes))
    assert {name for name, figure in figures(page).items() if figure.missing} >= set(absent)
    assert page.answer
    pack(page)


def test_a_damaged_plan_is_refused() -> None:
    assert not is_plan({"best": []})
    with pytest.raises(SpecError, match="what `charllm plan --json` prints"):
        plan_page(plan_table(best=[{"strategy": "x"}]))
    with pytest.raises(SpecError, match=r"counts\.priced: got nothing; expected a whole number"):
        check_plan(plan_table(counts={"visited": 9, "simulated": 3}), "plan.json")
