"""What a job takes on several machines."""

import re
from typing import Any

import pytest

import charllm
from charllm.errors import SpecError
from charllm.plan.budget import list_sizes
from charllm.report.budget import render_budget
from charllm.units import DAY_S

JOB: dict[str, Any] = {"model": "llama3-8b", "gbs": 64, "pp": 1, "cp": 1, "mbs": 1, "tp": 2, "zero": 1, "top": 1}


@pytest.mark.parametrize(
    ("nodes", "sizes"), [("4..256", [4, 8, 16, 32, 64, 128, 256]), ("3..10", [3, 6, 10]), ("2..2", [2]), (5, [5])]
)
def test_a_range_doubles_from_its_low_to_its_high_end(nodes: object, sizes: list[int]) -> None:
    assert list_sizes(nodes) == sizes


@pytest.mark.parametrize("nodes", ["8..4", "0..4", "4..", "many", 2.5, True])
def test_what_is_no_range_is_refused(nodes: object) -> None:
    with pytest.raises(SpecError, match="--nodes"):
        list_sizes(nodes)


def test_a_budget_adds_up() -> None:
    tariff = {"electricity_per_kwh": 0.1, "gpu_per_hour": 3.0, "pue": 1.5, "co2_kg_per_kwh": 0.4}
    found = charllm.budget(**JOB, gpu="h100", nodes="1..2", tariff=tariff, limit="facility_power_mean_w<14kW")
    one, two = found.rows
    assert (one["gpus"], two["gpus"], one["meets"], two["meets"]) == (8, 16, True, False)
    assert one["days"] == pytest.approx(1e12 / one["tokens_per_s"] / DAY_S)
    assert one["co2_t"] == pytest.approx(0.4 * one["energy_mwh"])
    hours = 24 * one["days"]
    assert one["energy_mwh"] == pytest.approx(one["power_mw"] * hours)
    assert one["money"] == pytest.approx(8 * 3.0 * hours + 100 * one["energy_mwh"])
    text = render_budget(found.as_table())
    assert "breaks" in text
    assert f"carries about {int(0.014 / one['power_mw'] * 8)} such GPUs" in text
    assert "3 USD for a GPU-hour" in text
    assert "PUE 1.5" in text
    assert len(found.to_frame()) == 2


def test_limits_that_no_machine_meets_are_named_with_the_nearest_that_one_meets() -> None:
    machines = ["h200x8", "h100x8"]
    found = charllm.budget(**JOB, cluster=machines, limit="facility_power_mean_w<1kW")
    least = min(found.rows, key=lambda row: row["power_mw"])
    asked = re.match(
        r"facility_power_mean_w<([\d.]+)kW \([\d.]+ % above\), met by (\w+), which of 2 machines", found.nearest
    )
    assert asked
    assert asked[2] == least["cluster"]
    assert 1e3 * least["power_mw"] < float(asked[1]) < 1.001e3 * least["power_mw"]
    text = " ".join(render_budget(found.as_table()).split())
    assert "No machine meets every limit; the nearest limits that one meets with its strategy: facility_power" in text
    nearest = charllm.budget(**JOB, cluster=machines, limit=f"facility_power_mean_w<{asked[1]}kW")
    assert asked[2] in [row["cluster"] for row in nearest.rows if row["meets"]]
    assert nearest.nearest == ""


def test_a_job_that_fits_on_no_machine_is_not_said_to_break_a_limit() -> None:
    tight = {"base": "h200x8", "node": {"gpu": {"memory_gib": 5.0}}}
    found = charllm.budget(**JOB, cluster=[tight, tight], limit="mfu>0.9")
    assert "The job fits on none of them." in render_budget(found.as_table())


def test_a_budget_says_which_batch_it_is_of() -> None:
    found = charllm.budget(**JOB, gpu="h200", nodes="1..1")
    assert found.job == "llama3-8b, bf16, batch of 64 sequences of 8,192 tokens (default; --seq-length sets it)"
    assert render_budget(found.as_table()).startswith("llama3-8b, bf16, batch of 64 sequences")


def test_a_run_of_so_many_days_trains_what_its_useful_share_leaves() -> None:
    tight = {"base": "h200x8", "node": {"gpu": {"memory_gib": 5.0}}}
    found = charllm.budget(**JOB, cluster=["h200x8", tight], whole_run={"days": 10})
    row, small = found.rows
    assert row["days"] == pytest.approx(10, rel=0.01)
    assert 0.97 * 10 * DAY_S * row["tokens_per_s"] < row["tokens"] < 10 * DAY_S * row["tokens_per_s"]
    assert (small["gpus"], small["meets"]) == (None, False)


@pytest.mark.parametrize("whole_run", [{"days": 0}, {"days": "soon"}, {"days": 3, "tokens": 1e12}])
def test_a_length_that_is_none_is_refused(whole_run: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="whole_run"):
        charllm.budget(**JOB, cluster="h200x8", whole_run=whole_run)
