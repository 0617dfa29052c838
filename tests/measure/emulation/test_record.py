"""A played rank as a record and a result."""

from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.measure.emulation.record import emulate
from charllm.measure.telemetry.source import TelemetryError
from charllm.report.run import render_run
from charllm.result.result import all_finite
from charllm.result.store import load_run
from charllm.timeline.rank_timeline import Item, RankTimeline, Segment, read_timeline
from tests.measure.replays import make_replay, uuid

ITEMS = (
    Item("kernel", "a", shape=("gemm", (1, 8, 8, 8), "bf16")),
    Item("communication", "b", duration_s=0.02, blocks=24),
    Item("wait", "c", duration_s=0.03),
)
TIMELINE = RankTimeline(5, {"command": ["tiny"]}, (Segment("all", 2, ITEMS),), 640)


def test_a_trained_rank_is_an_emulated_result_of_the_gpu_it_ran_on(tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "two", gpus=2)
    result = emulate(TIMELINE, tmp_path / "run", telemetry, "cpu", 1.5, [uuid(1)], {"power_mean_w": 500.0})
    assert result.origin == "emulated"
    assert result.spec == TIMELINE.spec
    assert [row["uuid"] for row in result.gpus] == [uuid(1)]
    assert 0.1 <= result.metrics["step_time_s"] < 2.0
    assert result.metrics["tokens_per_s"] == pytest.approx(640 / result.metrics["step_time_s"])
    assert result.metrics["power_mean_w"] > 200
    measurement = result.provenance["measurement"]
    assert (measurement["rank"], measurement["planned_communication_s"]) == (5, pytest.approx(0.04))
    assert measurement["planned_wait_s"] == pytest.approx(0.06)
    assert measurement["steps_emulated"] >= 2
    assert set(measurement["phases_s"]) == {"all"}
    stored = load_run(tmp_path / "run")
    assert stored.metrics == result.metrics
    assert "Predicted and emulated" in render_run(result)
    assert render_run(stored) == render_run(result)
    assert read_timeline(tmp_path / "run" / "timeline.json") == TIMELINE
    assert all_finite(result.as_table())


def test_what_cannot_be_played_leaves_no_record(tmp_path: Path) -> None:
    unknown = TIMELINE._replace(segments=(Segment("x", 1, (Item("kernel", "a", shape=("conv", (1,), "bf16")),)),))
    with pytest.raises(SpecError, match="conv"):
        emulate(unknown, tmp_path / "run", "none", "cpu", 0.1, [], {})
    assert not (tmp_path / "run").exists()


def test_a_full_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(SpecError, match="--out"):
        emulate(TIMELINE, tmp_path, "none", "cpu", 0.1, [], {})


def test_telemetry_that_cannot_be_used_is_told_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(TelemetryError, match="the sampler did not start"):
        emulate(TIMELINE, tmp_path / "run", "replay:/nowhere", "cpu", 60.0, [], {})
