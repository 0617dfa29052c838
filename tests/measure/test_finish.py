"""A record is finished from what is on disk: after the job, after a kill, and looked at while it grows."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from charllm.measure.finish import finish_record, is_record
from charllm.measure.job import Job, measure_job
from charllm.measure.record import JOB_FILE, JobRecord
from charllm.measure.recording import is_growing, read_recording
from charllm.measure.settings import MeasureSettings
from charllm.result.files import SAMPLES_FILE
from charllm.result.store import RESULT_FILE, load_run
from tests.measure.readings import await_readings
from tests.measure.replayed import CAPTURE, STEPS_S
from tests.measure.replays import find_sampler, make_replay

STEPS = """
import time, charllm.mark as mark
mark.step(tokens=0)
for number in range(1000):
    time.sleep(0.05)
    mark.step(number, tokens=100)
"""
END_S = 120.0


def start(folder: Path, telemetry: str) -> "subprocess.Popen[bytes]":
    """Start a measured job that steps until it is killed; return when it has stepped for a while."""
    words = ["measure", "--idle", "0.2", "--out", str(folder), "--telemetry", telemetry, "--"]
    command = [sys.executable, "-m", "charllm", *words, sys.executable, "-c", STEPS]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    end_s = time.monotonic() + END_S
    while sum(len(path.read_bytes().splitlines()) for path in folder.glob("marks-*.csv")) < 20:
        assert time.monotonic() < end_s
        time.sleep(0.05)
    return process


def kill_all(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Kill the command, its recorder and its sampler, as a machine that goes down does."""
    sampler = find_sampler(folder)
    os.killpg(process.pid, signal.SIGKILL)
    if sampler is not None:
        os.kill(sampler, signal.SIGKILL)
    process.wait(END_S)
    end_s = time.monotonic() + END_S
    # Its files are closed a moment after it has left the list of processes.
    while find_sampler(folder) is not None or is_growing(folder):
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_killed_job_is_summarised_until_the_kill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder, make_replay(tmp_path / "loaded"))
    assert is_growing(folder)
    seen = finish_record(folder)
    assert seen.warnings[0] == "still recording: metrics describe the time until now"
    assert not (folder / RESULT_FILE).exists()
    kill_all(process, folder)
    assert not is_growing(folder)
    result = finish_record(folder)
    assert result.warnings[0].startswith("interrupted: metrics describe the ")
    assert 0.05 <= result.metrics["step_time_s"] < 1.0
    assert result.metrics["power_mean_w"] > 200
    assert result.spec["command"][1] == "-c"
    assert result.provenance["measurement"]["exit_code"] is None
    assert load_run(folder) == result


def test_steps_after_the_last_reading_are_kept_without_energy(tmp_path: Path) -> None:
    folder = shutil.copytree(CAPTURE, tmp_path / "run")
    (folder / JOB_FILE).unlink(missing_ok=True)
    (marks,) = folder.glob("marks-*.csv")
    before = finish_record(folder).table("steps")
    last_ns, wall_ns = (int(cell) for cell in marks.read_text().splitlines()[-1].split(",")[:2])
    late = "".join(f"{last_ns + after * 10**11},{wall_ns + after * 10**11},step,,100\n" for after in (1, 2))
    marks.write_text(marks.read_text() + late)
    table = finish_record(folder).table("steps")
    assert before is not None
    assert table is not None
    assert len(table["start_s"]) == len(table["energy_j"]) == len(before["start_s"]) + 2
    assert table["energy_j"][-1] is None
    assert table["energy_j"][0] > 0


def test_a_kill_before_the_command_began_says_so(tmp_path: Path) -> None:
    words = [
        "measure",
        "--idle",
        "60",
        "--out",
        str(tmp_path / "run"),
        "--telemetry",
        f"replay:{CAPTURE}",
        "--",
        "true",
    ]
    process = subprocess.Popen([sys.executable, "-m", "charllm", *words], start_new_session=True)
    await_readings(tmp_path / "run")
    kill_all(process, tmp_path / "run")
    result = finish_record(tmp_path / "run")
    assert result.warnings[0] == "interrupted before the job began; metrics describe the idle machine"
    assert 50 < result.metrics["power_mean_w"] < 120


def copy_capture(folder: Path) -> Path:
    shutil.copytree(CAPTURE, folder)
    return folder


def test_a_record_of_which_nothing_else_is_known_is_summarised_whole(tmp_path: Path) -> None:
    folder = copy_capture(tmp_path / "run")
    result = finish_record(folder)
    assert (result.origin, result.warnings[0][:12]) == ("measured", f"no {JOB_FILE}:")
    assert result.metrics["power_mean_w"] > 100


@pytest.mark.parametrize("text", ["", "[]", "null", '{"new": 1}'])
def test_a_job_file_that_cannot_be_read_is_as_none(tmp_path: Path, text: str) -> None:
    folder = copy_capture(tmp_path / "run")
    (folder / JOB_FILE).write_text(text)
    assert finish_record(folder).metrics["power_mean_w"] > 100


def test_a_killed_emulation_keeps_its_origin_and_spec(tmp_path: Path) -> None:
    folder = copy_capture(tmp_path / "run")
    details = {"rank": 3, "steps_emulated": None}
    JobRecord("emulated", {"mine": 1}, None, 100.0, details, {"command": [STEPS_S[0]]}).write(folder)
    result = finish_record(folder)
    assert (result.origin, result.spec) == ("emulated", {"mine": 1})
    assert result.provenance["measurement"]["rank"] == 3
    assert result.warnings[0].startswith("interrupted: metrics describe the ")


def test_a_row_cut_short_is_removed_when_a_killed_record_is_finished(tmp_path: Path) -> None:
    folder = copy_capture(tmp_path / "run")
    whole = (folder / SAMPLES_FILE).read_bytes()
    (folder / SAMPLES_FILE).write_bytes(whole + whole.splitlines()[-1][:40])
    finish_record(folder)
    assert (folder / SAMPLES_FILE).read_bytes() == whole


def test_killed_repeats_are_combined(tmp_path: Path) -> None:
    measure_job(
        Job(("sleep", "0.3"), tmp_path / "repeat-0", MeasureSettings(telemetry=f"replay:{CAPTURE}", idle_s=0.0)), {}
    )
    copy_capture(tmp_path / "repeat-1")
    assert is_record(tmp_path)
    result = finish_record(tmp_path)
    assert result.provenance["measurement"]["repeats"] == 2
    assert load_run(tmp_path).metrics == result.metrics
    assert (tmp_path / "repeat-1" / RESULT_FILE).exists()
    assert json.loads((tmp_path / "repeat-0" / JOB_FILE).read_text())["ended"] is True
    assert len(read_recording(tmp_path / "repeat-1").fast(0).times_s) == 2295
