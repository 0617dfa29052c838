"""Runs side by side: what the answer says, ratios, errors of predictions."""

from dataclasses import replace

import pytest

from charllm.report.page.cases import StudiedCase, case_of_run
from charllm.report.page.comparison import comparison_page
from charllm.report.page.prediction import prediction_figure
from charllm.report.page.predictions import predictions, told_errors
from charllm.report.page.sides import compare_metric, sides, write_change
from charllm.report.page.view import RunView
from tests.report.page.made_cases import make_case, reject, view

FAST = make_case("m tp4", 10.0, label="m tp4")
SLOW = make_case("m tp8", 16.0, label="m tp8", power_mean_w=580.0, temperature_peak_c=67.0)


def answer(*runs: StudiedCase) -> str:
    return comparison_page(runs, {"parallelism.tp": [4] * len(runs)}).answer[0]


def test_it_opens_with_who_is_faster_why_and_what_it_draws() -> None:
    page = comparison_page([FAST, SLOW], {"parallelism.tp": [4, 8]})
    assert page.title == "m: tp4 against tp8"
    assert page.answer == [
        "tp8 is 38 % slower than tp4 (62.5 tokens/s/GPU against 100 tokens/s/GPU), because exposed tp communication "
        "takes 11 s instead of 5 s, 69 % of its step (1 TB in all, 2.60 GB/s a GPU); it draws the same power within "
        "the error (580 W per GPU); "
        "it peaks 3.0 K cooler.",
        "Settings that differ: tp (4 against 8).",
    ]
    assert answer(SLOW, FAST).startswith(
        "tp4 is 60 % faster than tp8 (100 tokens/s/GPU against 62.5 tokens/s/GPU), because in tp8 exposed tp "
    )
    assert [fact.note for fact in page.facts[:1]] == ["+60.0 % (10 s in tp4)"]


def test_its_figures_speak_of_runs() -> None:
    base = replace(FAST, name="base case", label="base case")
    figures = [figure for section in comparison_page([base, SLOW], {}).sections for figure in section.figures]
    assert "Where does the time of each run go?" in [figure.question for figure in figures]
    labels = [column.label for figure in figures for column in figure.columns.values()]
    texts = [text for figure in figures for text in (figure.question, figure.message, figure.missing)]
    assert "run" in labels
    assert not [text for text in (*labels, *texts) if "case" in text.replace("base case", "")]
    assert any("base case" in text for text in texts)


def test_equal_runs_are_called_equal() -> None:
    assert "is as fast as tp4" in answer(FAST, make_case("m other", 10.0, label="m other"))


def test_a_run_that_does_not_fit_is_named() -> None:
    assert answer(FAST, replace(reject("big", "no"), label="big")) == "big has no step time (does not fit)."


def test_three_runs_have_a_ratio_each_to_the_first() -> None:
    page = comparison_page([FAST, SLOW, make_case("m tp2", 20.0, label="m tp2")], {})
    table = page.sections[-1].figures[0].columns
    row = list(table["metric"].values).index("step time")
    assert [table[name].values[row] for name in ("run0", "run1", "run2")] == [10.0, 16.0, 20.0]
    assert [table[name].values[row] for name in ("ratio1", "ratio2")] == [1.6, 2.0]
    assert len(page.answer) == 3


def test_warnings_of_all_runs_are_said_once() -> None:
    same = [make_case(f"m {name}", 10.0, label=f"m {name}", warnings=["w"]) for name in "xy"]
    page = comparison_page([*same, make_case("m z", 10.0, label="m z", warnings=["w", "v"])], {})
    assert page.warnings == ["w", "z: v"]


def test_a_prediction_beside_a_measured_run_has_errors_and_another_shape() -> None:
    measured = case_of_run(
        "run",
        view("measured", step_time_s=10.0, power_mean_w=500.0, temperature_peak_c=60.0),
        {"step_time_s": (9.9, 10.1)},
    )
    predicted = case_of_run("sim", view(step_time_s=11.0, power_mean_w=450.0, temperature_peak_c=62.0))
    told = answer(measured, predicted)
    assert told.startswith("sim (simulated) predicts step time 11 s where 10 s was measured (+10.0 %)")
    figure = sides([measured, predicted])
    assert figure.columns["origin"].values[:2] == ["measured", "simulated"]
    assert figure.columns["error"].values[:4] == [None, "+10.0 %", None, "-10.0 %"]
    assert figure.columns["low"].values[0] == 9.9
    assert "peak temperature +2.0 K" in figure.message


def test_ratios_are_to_the_first_run_that_knows_a_metric() -> None:
    rows = compare_metric(
        [make_case("x", 10.0, mfu=None), make_case("y", 10.0, mfu=0.4), make_case("z", 10.0, mfu=0.2)], "mfu"
    )
    assert [row.ratio for row in rows] == [None, 0.5]


@pytest.mark.parametrize(
    ("metric", "value", "before", "text"),
    [
        ("step_time_s", 11.0, 10.0, "+10.0 %"),
        ("step_time_s", 34.0, 10.0, "3.40 times"),
        ("temperature_peak_c", 58.8, 60.0, "-1.2 K"),
        ("clock_loss", 0.13, 0.1, "+3.0 points"),
    ],
)
def test_changes_are_written_in_the_unit_that_says_most(metric: str, value: float, before: float, text: str) -> None:
    assert write_change(metric, value, before) == text.replace("3.40", "3.4")


def test_a_measured_run_shows_its_prediction_and_a_simulated_one_has_none() -> None:
    guess = view(step_time_s=12.0).result
    figure = prediction_figure(RunView(view("measured", step_time_s=10.0).result, prediction=guess))
    assert figure is not None
    assert figure.columns["error"].values == [None, "+20.0 %"]
    assert prediction_figure(RunView(guess)) is None
    assert prediction_figure(view("measured", step_time_s=10.0)) is None


def test_a_measured_study_says_how_far_its_predictions_are_off() -> None:
    cases = [
        make_case("a x", 10.0, 0, origin="measured"),
        make_case("a y", 20.0, 1, origin="measured"),
        make_case("a x", 11.0, 0, is_prediction=True),
        make_case("a y", 19.0, 1, is_prediction=True),
    ]
    assert told_errors(cases).startswith(
        "Simulated beside measured, 2 cases: step time off by a median of 7.5 % (at most 10.0 %)"
    )
    figure = predictions(cases)
    assert figure.columns["measured"].values == [10.0, 20.0]
    assert figure.columns["step_time_s.error"].values == ["+10.0 %", "-5.0 %"]
    assert told_errors(cases[:2]) == ""
