import pytest

from charllm.report.figure import Figure
from charllm.report.page.seconds import MEAN, seconds_figure
from charllm.report.page.view import RunView
from charllm.timeline.labels import LABELS
from tests.report.page.runs import measured, pipeline, rows_of, view, with_steps


def drawn(run: RunView) -> Figure:
    figure = seconds_figure(run)
    assert figure is not None
    return figure


def test_the_parts_of_every_stage_add_up_to_the_step() -> None:
    figure = drawn(pipeline())
    sums: dict[str, float] = {}
    for row in rows_of(figure):
        sums[row["bar"]] = sums.get(row["bar"], 0.0) + row["seconds"]
    assert list(sums) == ["stage 0", "stage 1", MEAN]
    step_s = pipeline().result.metrics["step_time_s"]
    assert list(sums.values()) == pytest.approx([step_s] * 3)
    assert figure.options["order"] == [label for label in LABELS if label in figure.options["order"]]


def test_the_mean_is_the_breakdown_of_the_metrics() -> None:
    mean = {row["key"]: row["seconds"] for row in rows_of(drawn(pipeline())) if row["bar"] == MEAN}
    known = pipeline().result.metrics["breakdown_s"]
    assert mean == pytest.approx({label: known[label] for label in mean})
    assert sum(mean.values()) == pytest.approx(sum(known.values()))


def test_a_run_of_one_stage_has_one_bar() -> None:
    figure = drawn(view(cluster="h200x8", parallelism={"tp": 8, "pp": 1}))
    assert {row["bar"] for row in rows_of(figure)} == {"step"}


def test_the_caption_names_what_takes_most() -> None:
    figure = drawn(pipeline())
    breakdown_s = pipeline().result.metrics["breakdown_s"]
    assert max(breakdown_s, key=breakdown_s.__getitem__) == "dp_exposed"
    assert f"exposed dp communication {breakdown_s['dp_exposed']:.3f} s" in figure.message


def test_a_measured_run_shows_the_phases_that_its_host_has_marked() -> None:
    steps = [(at * 2.0, at * 2.0 + 2.0) for at in range(5)]
    figure = drawn(with_steps(measured(), steps, update=0.25, forward=1.5))
    assert {row["phase"]: row["time"] for row in rows_of(figure)} == {
        "forward": 1.5,
        "update": 0.25,
        "not marked": 0.25,
    }
    assert "needs a profiler trace" in figure.message


def test_a_measured_run_says_what_it_would_take() -> None:
    assert drawn(RunView(measured())).missing == "needs a profiler trace"
