"""Power, links, changes, trust and assumptions of one run as figures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from charllm.analysis.comment import ask_what_if
from charllm.api.report import view_run
from charllm.catalog.resolve import resolve_run
from charllm.report.figure import Figure
from charllm.report.page.assumptions import FIRST, assumptions_figure
from charllm.report.page.changes import changes_figure
from charllm.report.page.links import links_figure
from charllm.report.page.power import cluster_figure, power_figure, warm_up_figure
from charllm.report.page.series import cut_bins, decimate
from charllm.report.page.trust import intervals_figure, trust_figure
from charllm.report.page.view import RunView
from charllm.report.web.html import pack
from charllm.result.metrics import Metrics
from charllm.result.provenance import figure_sources
from charllm.result.result import RunResult
from charllm.simulate.predict import predict
from tests.report.page.runs import measured, with_steps

REQUEST = {
    "model": "llama3-8b",
    "cluster": "h200x8",
    "parallelism": {"tp": 2, "pp": 2},
    "training": {"global_batch_size": 16},
}
FOUND = predict(resolve_run(REQUEST))
VIEW = view_run(ask_what_if(FOUND))
METRICS = FOUND.result.metrics


def column(figure: Figure | None, name: str) -> list[Any]:
    assert figure is not None
    return list(figure.columns[name].values)


def test_decimation_keeps_every_peak() -> None:
    times_s = np.arange(10_000) / 100
    values = np.sin(times_s)
    values[[17, 5_003]] = 9.0, -9.0
    bins = cut_bins(times_s, 50)
    band = decimate(bins, values)
    assert len(band.low) == 50
    assert band.high.max() == 9.0
    assert band.low.min() == -9.0
    assert np.all(band.low <= band.mean)
    assert np.all(band.mean <= band.high)


def test_few_readings_have_a_bin_each_and_gaps_stay_gaps() -> None:
    times_s, values = np.array([0.0, 1.0, 2.0, 3.0]), np.array([5.0, np.nan, 7.0, 8.0])
    bins = cut_bins(times_s)
    assert bins.middle_s.tolist() == pytest.approx([0.0, 1.0, 2.0, 3.0])
    assert decimate(bins, values).mean.tolist() == pytest.approx([5.0, np.nan, 7.0, 8.0], nan_ok=True)


def test_power_within_a_step_has_its_limit_and_what_the_sensor_shows() -> None:
    figure = power_figure(VIEW)
    assert [panel["unit"] for panel in figure.options["panels"]] == ["W", "MHz", "C"]
    assert figure.options["panels"][0]["lines"] == [{"label": "limit 700 W", "value": 700.0}]
    assert figure.options["panels"][0]["dots"] == "power_shown"
    # The figure shows one round of those that the peak is the highest of.
    highest_w = max(column(figure, "power_high"))
    assert 0.95 * METRICS["power_peak_sensor_w"] < highest_w <= METRICS["power_peak_sensor_w"]
    shown = [value for value in column(figure, "power_shown") if value is not None]
    assert 0 < len(shown) < len(column(figure, "t"))
    assert max(shown) <= max(column(figure, "power_high"))


def test_power_is_drawn_without_a_sensor_that_was_never_read() -> None:
    empty: dict[str, list[Any]] = {name: [] for name in VIEW.table("sensor") or ()}
    figure = power_figure(RunView(replace(VIEW.result, tables={**VIEW.result.tables, "sensor": lambda: empty})))
    assert "dots" not in figure.options["panels"][0]
    assert column(figure, "power_high") == column(power_figure(VIEW), "power_high")


def test_short_measured_steps_are_shown_together() -> None:
    times_s = [0.1 * at for at in range(40)]
    signals: dict[str, list[Any]] = {
        "gpu": [0] * 40,
        "monotonic_s": times_s,
        "power_instant_w": [500.0 + at % 7 for at in range(40)],
    }
    steps_s = [(0.08 * at, 0.08 * (at + 1)) for at in range(1, 40)]
    figure = power_figure(with_steps(measured(nodes=1, gpus=1, signals=signals), steps_s))
    assert "the last 38 of 39 marked steps" in figure.message
    assert len(column(figure, "t")) > 20


def test_cluster_power_is_that_of_all_gpus() -> None:
    figure = cluster_figure(VIEW)
    mean_kw = np.mean([value for value in column(figure, "power_mean") if value is not None])
    assert mean_kw * 1e3 == pytest.approx(8 * METRICS["power_mean_w"], rel=0.05)


def test_a_warm_up_that_was_not_computed_says_why() -> None:
    assert warm_up_figure(VIEW) is not None
    figure = warm_up_figure(
        RunView(replace(VIEW.result, tables={"reasons": lambda: {"table": ["warm_up"], "reason": ["too long"]}}))
    )
    assert figure is not None
    assert figure.missing == "too long"


def test_links_name_what_takes_most_time_first() -> None:
    figure = links_figure(VIEW)
    totals = column(figure, "total")
    assert totals == sorted(totals, reverse=True)
    assert figure is not None
    assert figure.message.count("GB/s") >= 1
    peaks = [line for line in figure.options["lines"] if "y" in line]
    assert all(
        achieved <= peak for achieved, peak in zip(column(figure, "achieved"), column(figure, "peak"), strict=True)
    )
    assert {line["y"] for line in peaks} == set(column(figure, "peak"))
    assert "0.000 s a step" not in figure.message


def test_changes_that_do_not_fit_stand_last_with_what_they_need() -> None:
    small = predict(resolve_run({**REQUEST, "cluster": {"base": "h200x8", "node": {"gpu": {"memory_gib": 60}}}}))
    figure = changes_figure(view_run(ask_what_if(small)))
    fits = column(figure, "fits")
    assert fits == sorted(fits, reverse=True)
    for fit, note in zip(fits, column(figure, "note"), strict=True):
        assert bool(note) != fit
    for low, effect, high in zip(*(column(figure, name) for name in ("low", "effect", "high")), strict=True):
        assert low <= effect <= high


def test_a_simulated_run_stands_among_the_published_ones_with_its_interval() -> None:
    figure = trust_figure(VIEW)
    this = column(figure, "this")
    assert len(this) > 900
    assert this.count(True) == 1
    place = this.index(True)
    assert column(figure, "low")[place] < METRICS["step_time_s"] < column(figure, "high")[place]
    assert "rests on measured figures" in column(figure, "name")[place]


def test_preheating_is_told_with_its_sensitivity() -> None:
    figure = intervals_figure(VIEW)
    assert figure is not None
    none, double = VIEW.rows("preheating")
    assert f"{none['temperature_peak_c']:.1f} C" in figure.message
    assert f"{double['temperature_peak_c']:.1f} C" in figure.message


def test_every_figure_behind_a_run_is_listed_with_its_source() -> None:
    figure = assumptions_figure(VIEW)
    fields = {f"{part}.{name}" for part, name in zip(column(figure, "part"), column(figure, "figure"), strict=True)}
    assert set(figure_sources(FOUND.step.run)) <= fields
    standings = column(figure, "standing")
    assert [FIRST.index(word) for word in standings] == sorted(FIRST.index(word) for word in standings)
    assert "fitted" in standings


def test_a_measured_run_without_a_spec_has_no_simulated_figures() -> None:
    metrics = Metrics(dict.fromkeys(METRICS))
    view = RunView(RunResult("measured", {"command": ["train"]}, metrics, gpus=[{"rank": 0}, {"rank": 1}]))
    assert [draw(view) for draw in (changes_figure, trust_figure, intervals_figure, warm_up_figure, links_figure)] == [
        None
    ] * 5
    assert all(figure.missing for figure in (power_figure(view), cluster_figure(view), assumptions_figure(view)))


def test_figures_can_be_packed() -> None:
    for draw in (
        power_figure,
        cluster_figure,
        warm_up_figure,
        links_figure,
        changes_figure,
        trust_figure,
        assumptions_figure,
    ):
        assert pack(draw(VIEW))["columns"]
