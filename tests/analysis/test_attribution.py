"""Joules, watts and lost clock of a measured run by class: a recording of an H200 with two traced steps."""

import gzip
import json
import shutil
from functools import cache
from pathlib import Path

import pytest

import charllm
from charllm.api.report import page_of
from charllm.api.trace import Traced
from charllm.errors import SpecError

EXAMPLE = Path(__file__).parents[2] / "examples" / "h200-moe"


@cache
def traced() -> Traced:
    return charllm.trace(EXAMPLE)


def test_energy_by_class_predicts_bins_that_it_has_not_seen() -> None:
    (found,) = traced()["energy"]
    assert found["held_out_fraction"] < 0.03
    assert found["unknown_fraction"] < 0.01
    assert found["clock_error_s"] < 1e-5
    assert sum(row["energy_j"] for row in found["classes"]) == pytest.approx(found["energy_j"], rel=0.01)
    assert sum(row["seconds_s"] for row in found["classes"]) == pytest.approx(found["step_time_s"], rel=0.01)


def test_the_update_draws_less_than_the_backward_pass() -> None:
    (found,) = traced()["energy"]
    phases = {row["name"]: row for row in found["phases"]}
    assert phases["update"]["power_high_w"] < phases["backward"]["power_low_w"]
    optimizer = next(row for row in found["classes"] if row["name"] == "optimizer")
    assert optimizer["told_with"] == []
    assert 450 < optimizer["power_w"] < 580
    kernels = [row for row in found["kernels"] if row["class"] == "optimizer"]
    assert sum(row["energy_j"] for row in kernels) == pytest.approx(optimizer["energy_j"], rel=0.05)
    assert "separated" in str(traced())


def test_a_trace_that_is_cut_short_counts_the_steps_that_it_has(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    path = run / "kineto-rank-0.json.gz"
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[: int(0.6 * len(text))], 1))
    (found,) = charllm.trace(run)["energy"]
    assert found["traced_steps"] == 1
    assert found["held_out_fraction"] < 0.03


def test_a_trace_without_readings_is_told_as_such(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "kineto-rank-0.json.gz", tmp_path)
    assert charllm.trace(tmp_path)["energy"] == []
    with pytest.raises(SpecError, match="clock_full"):
        charllm.replay(tmp_path, clock_full=[0])
    assert charllm.replay(EXAMPLE, clock_full=[0]).found.change_fraction < -0.05


def test_one_view_holds_kernels_and_watts_on_one_clock(tmp_path: Path) -> None:
    charllm.trace(EXAMPLE, perfetto=tmp_path / "view.json")
    events = json.loads((tmp_path / "view.json").read_text())["traceEvents"]
    kernels = [event for event in events if event["ph"] == "X"]
    watts = [event for event in events if event["ph"] == "C" and event["name"] == "power W"]
    first, last = (min(event["ts"] for event in kernels), max(event["ts"] + event["dur"] for event in kernels))
    assert len(watts) >= 2
    assert all(first - 1e5 < event["ts"] < last + 1e6 for event in watts)
    assert {event["name"] for event in events if event["ph"] == "C"} == {"power W", "temperature C", "clock MHz"}


def test_the_page_of_the_run_has_its_kernels(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    figures = {figure.name: figure for section in page_of(run).sections for figure in section.figures}
    assert "gemm takes" in figures["kernel-classes"].message
    assert len(figures["kernels"].columns["kernel"].values) > 10
