"""A simulated run as Python code sees it."""

import math
import pickle
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import charllm
from charllm.result.answers import ONLY_MEMORY
from tests.api.tiny import RUN, TOO_BIG


def test_metrics_are_read_as_attributes_and_by_name() -> None:
    metrics = charllm.simulate(**RUN).metrics
    assert metrics.step_time_s == metrics["step_time_s"] > 0
    assert "power_mean_w" in dir(metrics)
    with pytest.raises(AttributeError, match="did you mean step_time_s"):
        _ = getattr(metrics, "step_time")  # noqa: B009
    assert pickle.loads(pickle.dumps(metrics)) == metrics


def test_a_run_that_does_not_fit_has_memory_but_no_times() -> None:
    result = charllm.simulate(**TOO_BIG)
    assert result.metrics.fits is False
    assert result.metrics["memory_peak_bytes"] > 0
    assert result.metrics.step_time_s is None
    assert result.signals is result.timeline is None
    assert any(warning.startswith("memory: rank 0") for warning in result.warnings)
    assert ONLY_MEMORY in result.warnings
    assert "does not fit" in repr(result)
    assert charllm.simulate(**TOO_BIG, ignore_memory=True).metrics["step_time_s"] > 0


def test_the_timeline_of_a_stage_has_no_gaps_and_ends_with_the_step() -> None:
    result = charllm.simulate(**RUN)
    timeline = result.timeline
    assert timeline is not None
    rows = [dict(zip(timeline, row, strict=True)) for row in zip(*timeline.values(), strict=True)]
    for stage in (0, 1):
        mine = [row for row in rows if row["stage"] == stage]
        assert mine[-1]["end_s"] == pytest.approx(result.metrics.step_time_s)
        assert mine[0]["start_s"] == 0
        for before, after in pairwise(mine):
            assert after["start_s"] == pytest.approx(before["end_s"], abs=1e-9)
        for activity in ("forward", "backward"):
            done = [row["microbatch"] for row in mine if row["activity"] == activity]
            assert sorted(done) == list(range(result.metrics["microbatches"]))


def test_signals_agree_with_the_metrics() -> None:
    result = charllm.simulate(model="llama3-8b", cluster="h200x8", tp=2, pp=2, gbs=16)
    signals = result.signals
    assert signals is not None
    assert set(signals["rank"]) == set(range(8))
    mean_w = sum(signals["power_w"]) / len(signals["power_w"])
    assert mean_w == pytest.approx(result.metrics.power_mean_w, rel=0.02)
    assert max(signals["temperature_c"]) <= result.metrics["temperature_peak_c"] + 0.5


def test_a_stored_run_gives_its_tables_back(tmp_path: Path) -> None:
    result = charllm.simulate(**RUN)
    again = charllm.load(result.save(tmp_path / "run"))
    assert isinstance(again, charllm.RunResult)
    assert again == result
    assert again.signals == result.signals
    assert again.timeline == result.timeline
    assert {"ops", "memory", "breakdown", "timeline", "signals", "links", "cluster", "best_changes"} < set(again.tables)
    for name in result.tables:
        assert again.table(name) == result.table(name), name


def test_the_repr_tells_seconds_watts_degrees_memory_throttling_and_who_paces() -> None:
    result = charllm.simulate(model="llama3-70b", cluster="charllm-ppt-h200", tp=4, pp=4, gbs=128)
    lines = {line.split("  ")[1].strip(): line for line in repr(result).splitlines()[1:]}
    assert list(lines) == ["Run", "Step time", "If not tuned", "Breakdown", "Power", "Temperature", "Clock", "Memory",
                           "Bottleneck"]  # fmt: skip
    assert f"{result.metrics.step_time_s:#.4g} s" in lines["Step time"]
    assert " W per GPU" in lines["Power"]
    assert " C peak" in lines["Temperature"]
    assert "of 140.4 GiB" in lines["Memory"]
    assert "power-throttled" in lines["Clock"]
    assert "stage 3 on node 3" in lines["Bottleneck"]
    html = result._repr_html_()
    assert html.count("<tr>") == len(lines)
    assert "stage 3 on node 3" in html


def test_html_escapes_what_a_user_wrote() -> None:
    model = {"name": "<b>&", "layers": 2, "hidden": 64, "ffn": 64, "heads": 2, "vocab": 64, "seq_length": 32}
    html = charllm.simulate(model=model, cluster="h200x1", gbs=1)._repr_html_()
    assert "&lt;b&gt;&amp; on h200x1" in html


def test_steps_from_a_cold_start_are_cooler() -> None:
    cold, steady = charllm.simulate(**RUN, steps=1), charllm.simulate(**RUN)
    assert cold.metrics["temperature_mean_c"] < steady.metrics["temperature_mean_c"]
    assert math.isfinite(cold.metrics["step_time_s"])


def test_where_a_run_cannot_be_stored_nothing_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("charllm.api.simulation.predict", lambda *_, **__: pytest.fail("was simulated"))
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(charllm.SpecError, match="a folder that does not exist yet"):
        charllm.simulate(**RUN, out=tmp_path / "taken")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(charllm.CharllmError, match=r"charllm\[store\]"):
        charllm.simulate(**RUN, out=tmp_path / "run")
