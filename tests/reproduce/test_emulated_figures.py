"""Emulated ranks over simulated points: the same rank and batch, or the same configuration at another batch."""

import pytest

from charllm.report.figure import Figure
from charllm.report.page.cases import StudiedCase, group_cases
from charllm.report.page.strategies import multiples
from charllm.reproduce.figures.emulated import emulated, emulated_runs, with_emulated
from charllm.reproduce.looks import key_of, look
from charllm.reproduce.paper import H200, MICROBATCH, Request, run_of
from charllm.sweep.axes import list_settings
from tests.report.page.made_cases import make_case

METRICS = ("step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_hz")


def shown(*cases: StudiedCase) -> Figure:
    listed = group_cases(cases)
    return with_emulated(multiples(listed, METRICS, "figure", "How fast?", "Fast.", ""), listed)


def case_of(study: str, name: str) -> StudiedCase:
    return make_case(name, 10.0, settings=list_settings(run_of(study, name)), power_peak_sensor_w=800.0)


def test_a_rank_is_predicted_for_the_batch_at_which_it_was_emulated() -> None:
    request: Request = next(run for run in emulated_runs() if run["model"] == "gpt3-175b")
    row = look(request)
    (figure,) = emulated({}, {key_of(request): row})
    assert figure.columns["origin"].values == ["simulated", "emulated"]
    simulated_s, emulated_s = figure.columns["step_time_s"].values
    assert simulated_s == pytest.approx(row["step_time_s"])
    assert emulated_s == pytest.approx(simulated_s, rel=0.2)
    assert request["training"]["global_batch_size"] in (32, 64)


def test_a_rank_of_the_same_configuration_is_drawn_where_the_batch_does_not_matter() -> None:
    for study, name in ((H200, "gpt3-175b tp8-pp4 / base"), (MICROBATCH, "gpt3-175b tp8-pp4 / mbs 8")):
        figure = shown(case_of(study, name))
        assert figure.columns["origin"].values == ["simulated", "emulated"]
        assert figure.columns["case"].values[0] == figure.columns["case"].values[1]
        assert figure.columns["power_peak_sensor_w"].values[1] > 700
        assert figure.columns["step_time_s"].values[1] is None
        assert figure.columns["power_mean_w"].values[1] is None
        assert figure.options["shape"] == "origin"


def test_other_configurations_have_no_emulated_point() -> None:
    # Recomputation, overlap of other messages and other kernels of experts are other runs.
    for name in ("gpt3-175b tp8-pp4 / act", "gpt3-175b tp8-pp4 / cc", "mixtral-8x7b ep8-tp1 / base"):
        assert "origin" not in shown(case_of(H200, name)).columns


def test_the_clock_of_an_emulated_rank_is_drawn_where_its_bubble_is_short() -> None:
    short, long = case_of(H200, "gpt3-175b tp8-pp4 / base"), case_of(H200, "gpt3-175b tp2-pp16 / base")
    assert shown(short).columns["clock_mean_hz"].values[1] > 1000
    assert shown(long).columns["clock_mean_hz"].values[1] is None
    assert shown(long).columns["power_peak_sensor_w"].values[1] > 700
