"""What was not read of a run is told: in its JSON, in its answer, and in the intervals of its means."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import charllm
from charllm.measure.measured import Measured
from charllm.measure.recording import read_recording
from charllm.measure.summary import summarise
from charllm.report.page.answer import answer_sentences
from charllm.report.page.view import RunView
from charllm.result.answers import answer_gaps
from charllm.result.result import RunResult
from charllm.result.store import load_run
from charllm.units import NANO
from tests.coverage_off import without_coverage
from tests.measure.convert import texts
from tests.measure.readings import await_readings, await_true
from tests.measure.replayed import STEPS_S, marks, recording, samples, write_copy
from tests.measure.replays import REPLAY, await_file, find_sampler

RUN_S = (41.8, 48.0)


def without(start_s: float, end_s: float, *beats: str) -> bytes:
    """Return the capture's rows but those of a span, and of some beats."""
    names, *rows = samples().decode().splitlines()
    kept = [
        row for row in rows if not start_s <= int(row.split(",")[2]) * NANO < end_s and row.split(",")[0] not in beats
    ]
    return "".join(f"{row}\n" for row in [names, *kept]).encode()


def summarised(folder: Path, *cut: Any) -> RunResult:
    return summarise(Measured(read_recording(write_copy(folder, without(*cut))), marks(), *RUN_S), "measured", {}, {})


def measurement(result: RunResult) -> Any:
    return result.provenance["measurement"]


def gap_warnings(result: RunResult) -> list[str]:
    return [warning for warning in result.warnings if warning.startswith("gaps:")]


def test_a_run_without_gaps_says_nothing_of_them() -> None:
    result = summarise(Measured(recording(), marks(), *RUN_S), "measured", {}, {})
    assert measurement(result)["gaps"]["number"] == 0
    assert (gap_warnings(result), answer_gaps(result)) == ([], "")
    assert set(measurement(result)["intervals"]) <= {"step_time_s", "power_mean_w"}


@pytest.mark.parametrize("counter", [True, False], ids=["with the counter", "from readings"])
def test_what_was_not_read_is_in_every_mean_and_energy(tmp_path: Path, counter: bool) -> None:
    whole = summarise(Measured(recording(), marks(), *RUN_S), "measured", {}, {}).metrics
    result = summarised(tmp_path, STEPS_S[0] + 0.5, STEPS_S[0] + 1.5, *(() if counter else ("energy",)))
    gaps = measurement(result)["gaps"]
    assert gaps["number"] == 1
    assert gaps["unread_s"] == gaps["longest_s"] == pytest.approx(1.0, abs=0.02)
    assert gaps["unread_fraction"] == pytest.approx(1.0 / 6.2, abs=0.005)
    (warning,) = gap_warnings(result)
    assert warning.startswith("gaps: 1 gap between readings: 1.0")
    assert "s of 6.2 s (16." in warning
    assert answer_gaps(result).startswith("1 gap between readings: 1.0")
    assert " per GPU" in answer_gaps(result)
    assert f"Not all of the time was read: {answer_gaps(result)}." in answer_sentences(RunView(result))
    for name in ("power_mean_w", "energy_per_step_j", "tokens_per_j", "temperature_mean_c", "clock_mean_hz"):
        low, high = measurement(result)["intervals"][name]
        assert low < result.metrics[name] < high
        assert low <= whole[name] <= high


def test_a_counter_that_goes_on_while_nobody_reads_it_leaves_less_open(tmp_path: Path) -> None:
    span = (STEPS_S[0] + 0.5, STEPS_S[0] + 1.5)
    results = [summarised(tmp_path / "with", *span), summarised(tmp_path / "without", *span, "energy")]
    known, bounded = (np.ptp(measurement(result)["intervals"]["power_mean_w"]) for result in results)
    assert known < bounded


def test_means_of_time_that_was_mostly_not_read_have_that_for_a_reason(tmp_path: Path) -> None:
    result = summarised(tmp_path, RUN_S[0] + 0.2, RUN_S[1] - 0.5, "energy")
    assert result.metrics["power_mean_w"] is None
    unread = measurement(result)["gaps"]["described_unread_fraction"]
    assert unread > 0.5
    for name in ("power_mean_w", "temperature_mean_c", "clock_mean_hz", "energy_per_step_j"):
        assert f"{name}: no readings for {100 * unread:.1f} % of the time" in result.warnings


def test_a_short_gap_is_counted_and_not_warned_of(tmp_path: Path) -> None:
    result = summarised(tmp_path, 43.0, 43.4)
    measured = measurement(result)["gaps"]
    assert measured["number"] == 1
    assert answer_gaps(result)
    assert bool(gap_warnings(result)) == (measured["unread_fraction"] >= 0.02)
    long = Measured(read_recording(tmp_path), marks(), 28.0, 48.0)
    assert measurement(summarise(long, "measured", {}, {}))["gaps"]["unread_fraction"] < 0.025


def test_gaps_of_a_converted_log_are_told_and_the_mean_is_between_its_bounds(tmp_path: Path) -> None:
    names, *rows = texts.nvidia_smi().splitlines()
    cut = [row for row in rows if not 30 <= int(row.split(",")[0].split(":")[2][:2]) < 47]
    (tmp_path / "log.csv").write_text("\n".join([names, *cut]) + "\n")
    result = charllm.convert("nvidia-smi", tmp_path / "log.csv", tmp_path / "run")
    gaps = measurement(result)["gaps"]
    assert gaps["number"] >= 1
    assert gaps["unread_fraction"] >= 0.15
    assert gap_warnings(result)
    low, high = measurement(result)["intervals"]["power_mean_w"]
    assert low <= texts.WORK_W + 5 <= high


def test_readings_once_a_second_have_no_gaps(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(texts.nvidia_smi())
    result = charllm.convert("nvidia-smi", tmp_path / "log.csv", tmp_path / "run")
    assert measurement(result)["gaps"]["number"] == 0
    assert not gap_warnings(result)


def are_stopped(process: int) -> bool:
    """Tell whether all threads of a process are stopped."""
    tasks = Path(f"/proc/{process}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def test_a_run_that_was_suspended_says_for_how_long_it_was_not_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    script = f"touch {tmp_path}/up; until test -e {tmp_path}/done; do sleep 0.05; done"
    flags = ["--out", str(run), "--telemetry", REPLAY, "--idle", "0", "--cooldown", "0.1", "--host", "none"]
    words = [sys.executable, "-m", "charllm", "measure", *flags, "--", "sh", "-c", script]
    with subprocess.Popen(words, env=without_coverage(), stderr=subprocess.PIPE, text=True) as process:
        await_file(tmp_path / "up")
        await_readings(run)
        sampler = find_sampler(run)
        assert sampler is not None
        # One who would let the sampler go on is suspended first.
        os.kill(process.pid, signal.SIGSTOP)
        await_true(lambda: are_stopped(process.pid))
        os.kill(sampler, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(sampler, signal.SIGCONT)
        os.kill(process.pid, signal.SIGCONT)
        await_readings(run)
        (tmp_path / "done").touch()
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    gaps = measurement(load_run(run))["gaps"]
    assert gaps["number"] >= 1
    assert 1.3 < gaps["longest_s"] < 60.0
    assert "charllm: gaps: " in said
    assert " s at once" in said or "1 gap between readings: " in said
