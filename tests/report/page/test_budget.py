"""The page of a budget."""

import charllm
from charllm.report.page.budget import budget_page

PINNED = {"gbs": 32, "tp": 2, "pp": 1, "cp": 1, "mbs": 1, "zero": 1, "recompute": "none", "overlap": "dp", "top": 1}


def test_every_machine_is_a_point_and_those_that_none_beats_are_the_front() -> None:
    machines = ["h200x8", "h100x8", "h200x16"]
    found = charllm.budget(model="llama3-8b", cluster=machines, limit="facility_power_mean_w<15kW", **PINNED)  # type: ignore[arg-type]
    page = budget_page(found.as_table())
    front, table = (section.figures[0] for section in page.sections)
    assert list(front.columns["cluster"].values) == machines
    days, money, best = (list(front.columns[name].values) for name in ("days", "money", "front"))
    assert best == [not any(days[b] <= days[a] and money[b] <= money[a] for b in range(3) if b != a) for a in range(3)]
    assert any(best)
    assert front.columns["meets"].values[2] == "breaks facility_power_mean_w<15kW"
    assert front.columns["money"].unit == "USD"
    assert str(table.columns["command"].values[0]).startswith("charllm simulate --model llama3-8b --cluster h200x8")
    assert page.answer[0].startswith("Cheapest for its tokens within the limits: h")
    assert page.further[-1].startswith("Prices: 2 USD for a GPU-hour")


def test_a_job_that_fits_nowhere_has_a_page() -> None:
    found = charllm.budget(model="llama3-405b", cluster=["h100x8", "a100x8"], gbs=32, lora=8)
    page = budget_page(found.as_table())
    assert page.sections[0].figures[0].missing == "The job fits on none of the machines."
    assert page.facts == []
