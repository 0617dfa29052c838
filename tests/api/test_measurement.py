"""Code of this process under the sampler; a real recording of an H200 stands for the GPU."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

import charllm
import charllm.mark as mark
from charllm.measure.marks import read_marks
from tests.api.tiny import RUN
from tests.measure.readings import ENOUGH, await_readings, count_readings
from tests.measure.replays import REPLAY, find_sampler

QUICK: dict[str, Any] = {"telemetry": REPLAY, "idle": 0, "cooldown": 0.2}


def test_a_block_is_measured_by_its_steps(tmp_path: Path) -> None:
    with charllm.measure(tmp_path / "run", **QUICK) as job:
        for number in itertools.count():
            with job.phase("work"):
                time.sleep(0.05)
            job.point("loss", 1.5)
            job.step(tokens=100)
            if number == 3:
                half_ns = time.monotonic_ns()
            if number > 6 and count_readings(tmp_path / "run", half_ns) >= ENOUGH:
                break
        with pytest.raises(charllm.CharllmError, match="with block"):
            _ = job.result
    result = job.result
    assert result.origin == "measured"
    assert 0.05 <= result.metrics["step_time_s"] < 0.5
    assert result.metrics["tokens_per_s"] == pytest.approx(100 / result.metrics["step_time_s"])
    assert result.metrics["power_mean_w"] > 0
    measurement = result.provenance["measurement"]
    assert measurement["exit_code"] == 0
    assert measurement["phases_s"]["work"] >= 0.05
    assert charllm.load(tmp_path / "run") == result
    signals = result.signals
    assert signals is not None
    simulated = charllm.simulate(**RUN).signals
    assert simulated is not None
    assert set(simulated) <= set(signals)
    assert signals["t_s"][0] == 0
    assert max(signals["power_w"]) > 50
    assert find_sampler(tmp_path / "run") is None


def test_marks_outside_the_block_go_nowhere(tmp_path: Path) -> None:
    mark.step()
    with charllm.measure(tmp_path / "run", telemetry="none", idle=0, cooldown=0):
        mark.step()
    mark.step()
    (marks,) = read_marks(tmp_path / "run").values()
    assert [found.kind for found in marks] == ["step"]


def test_the_mfu_is_known_where_the_spec_is(tmp_path: Path) -> None:
    simulated = charllm.simulate(**RUN)
    with charllm.measure(tmp_path / "run", telemetry="none", idle=0, cooldown=0, spec=simulated) as job:
        for _ in range(4):
            time.sleep(0.01)
            job.step()
    ratio = simulated.metrics["step_time_s"] / job.result.metrics["step_time_s"]
    assert job.result.metrics["mfu"] == pytest.approx(simulated.metrics["mfu"] * ratio)
    assert job.result.spec == simulated.spec


def test_an_exception_passes_and_the_record_is_kept(tmp_path: Path) -> None:
    measuring = charllm.measure(tmp_path / "run", **QUICK)
    job = measuring.__enter__()
    await_readings(tmp_path / "run")
    failure = ZeroDivisionError("inside the block")
    assert not measuring.__exit__(ZeroDivisionError, failure, None)
    assert job.result.provenance["measurement"]["exit_code"] == 1
    assert job.result.metrics["power_mean_w"] > 0
    assert charllm.load(tmp_path / "run") == job.result


def test_a_command_is_measured_as_the_command_line_does(tmp_path: Path) -> None:
    result = charllm.measure_command(["sh", "-c", "sleep 0.3; exit 3"], tmp_path / "run", **QUICK)
    assert result.provenance["measurement"]["exit_code"] == 3
    assert charllm.load(tmp_path / "run") == result


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"idle": -1}, "idle"),
        ({"cooldown": float("inf")}, "cooldown"),
        ({"telemetry": 5}, "telemetry"),
        ({"telemetry": "amd"}, "telemetry"),
        ({"out": 5}, "out"),
        ({"rates": 5}, "rates"),
        ({"spec": {"model": "no-such-model", "cluster": "h200x1"}}, "model"),
    ],
)
def test_wrong_settings_are_refused_before_the_block_runs(settings: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(charllm.SpecError) as caught:
        charllm.measure(**{"out": tmp_path / "run", **settings})
    assert caught.value.field == field
    assert not (tmp_path / "run").exists()


def test_a_command_is_a_list_of_words(tmp_path: Path) -> None:
    for command in ("echo", [], [5]):
        with pytest.raises(charllm.SpecError, match="COMMAND"):
            charllm.measure_command(command, tmp_path / "run")  # type: ignore[arg-type]
