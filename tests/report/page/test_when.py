from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from charllm.gpu.limits import LIMITS
from charllm.report.page import when
from charllm.report.page.view import RunView
from charllm.report.page.when import Span, when_figure
from tests.report.page.runs import measured, misfit, pipeline, table_rows, with_steps


def test_a_lane_for_each_stage_is_filled_from_begin_to_end_of_the_step() -> None:
    figure = when_figure(pipeline())
    assert figure.options["lanes"] == ["stage 0", "stage 1"]
    step_s = pipeline().result.metrics["step_time_s"]
    for lane in figure.options["lanes"]:
        spans = [span for span in table_rows(figure.tables["spans"]) if span["lane"] == lane]
        assert sum(span["end"] - span["start"] for span in spans) == pytest.approx(step_s)
        assert spans[-1]["end"] == pytest.approx(step_s)


def test_waits_of_the_timeline_are_those_of_the_breakdown() -> None:
    spans = table_rows(when_figure(pipeline()).tables["spans"])
    table = pipeline().table("breakdown")
    assert table is not None
    for stage, label, seconds in zip(table["stage"], table["label"], table["seconds"], strict=True):
        if label in ("bubble", "optimizer"):
            mine = [span for span in spans if (span["lane"], span["part"]) == (f"stage {stage}", label)]
            shown_s = sum(span["end"] - span["start"] for span in mine)
            assert shown_s == pytest.approx(seconds, abs=0.01 * pipeline().result.metrics["step_time_s"])


def test_the_chosen_gpu_is_the_one_that_paces_the_job() -> None:
    figure = when_figure(pipeline())
    first = pipeline().result.metrics["critical_path"][0]
    assert figure.options["gpu"].startswith(f"node {first['node']} slot ")
    assert figure.options["gpu"] in figure.options["gpus"]


def test_shaded_time_is_throttled_time() -> None:
    figure = when_figure(pipeline())
    name = figure.options["gpu"]
    place = name.partition(",")[0]
    (row,) = [row for row in pipeline().result.gpus if f"node {row['node']} slot {row['slot']}" == place]
    held_s = sum(one["end"] - one["start"] for one in table_rows(figure.tables["limits"]) if one["gpu"] == name)
    step_s = pipeline().result.metrics["step_time_s"]
    assert held_s / step_s == pytest.approx(row["throttled_power_fraction"], abs=0.03)


def test_decimation_keeps_every_peak() -> None:
    times_s = np.linspace(0, 100, 10_000)
    power_w = np.full(10_000, 300.0)
    power_w[[17, 6203]] = 900.0, 80.0
    rows = {"t_s": times_s, "power_w": power_w, "clock_hz": power_w * 1e6, "temperature_c": times_s, "limits": times_s}
    kept = when._decimate(rows, 400)
    assert len(kept["t_s"]) <= 400 + 2
    assert (kept["power_w"].max(), kept["power_w"].min()) == (900.0, 80.0)
    assert list(kept["t_s"]) == sorted(kept["t_s"])


def test_short_spans_are_joined_and_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(when, "MOST_SPANS", 100)
    spans = [
        Span("a", ("forward", "bubble")[at % 2], at * 0.01, at * 0.01 + (0.008, 0.01)[at % 2], "") for at in range(1000)
    ]
    spans.append(Span("a", "optimizer", 10.0, 20.0, ""))
    joined = when._merge(spans, 20.0)
    assert len(joined) < 150
    assert joined[-1] == spans[-1]
    assert {span.part for span in joined[:-1]} == {"bubble"}
    assert joined[0].start_s == 0.0
    for before, after in pairwise(joined):
        assert after.start_s - before.end_s < 0.011


def test_a_measured_run_shows_its_steps_and_readings() -> None:
    signals: dict[str, list[Any]] = {
        "gpu": [0] * 5,
        "monotonic_s": [100.0, 101.0, 102.0, 103.0, 104.0],
        "power_instant_w": [100.0, 650.0, 700.0, None, 120.0],
        "temperature_c": [40.0, 50.0, 55.0, 56.0, 50.0],
        "clock_hz": [1.98e9, 1.5e9, 1.5e9, 1.6e9, 1.98e9],
        "limits": [float(LIMITS["idle"]), float(LIMITS["power"]), float(LIMITS["power"]), 0.0, 0.0],
    }
    run = with_steps(measured(nodes=1, gpus=1, signals=signals), [(1.0, 2.0), (2.0, 3.0)])
    figure = when_figure(run)
    assert [(span["start"], span["end"]) for span in table_rows(figure.tables["spans"])] == [(1.0, 2.0), (2.0, 3.0)]
    assert [row["power"] for row in table_rows(figure.tables["signals"])] == [100.0, 650.0, 700.0, None, 120.0]
    assert [(one["start"], one["end"], one["cause"]) for one in table_rows(figure.tables["limits"])] == [
        (1.0, 3.0, "power")
    ]
    assert "2 marked steps within 4 s" in figure.message


def test_what_cannot_be_drawn_says_why() -> None:
    assert "does not fit" in when_figure(misfit()).missing
    assert "no readings" in when_figure(RunView(measured())).missing
