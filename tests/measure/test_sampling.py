"""The sampler beside a job: one that is killed or stopped goes on, and when that was is kept."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from charllm.measure import sampling as module
from charllm.measure.recording import read_recording
from charllm.measure.sampling import read_restarts, sampling
from charllm.measure.settings import MeasureSettings
from charllm.measure.telemetry.source import TelemetryError
from tests.measure.readings import await_readings, await_true
from tests.measure.replays import REPLAY, find_sampler, hide_driver, make_replay, uuid


def test_the_sampler_has_its_own_session_and_ends_with_what_it_is_beside(tmp_path: Path) -> None:
    with sampling(tmp_path, MeasureSettings(telemetry=REPLAY)):
        found = find_sampler(tmp_path)
        assert found is not None
        assert os.getsid(found) == found
    assert find_sampler(tmp_path) is None
    with pytest.raises(ZeroDivisionError), sampling(tmp_path, MeasureSettings(telemetry=REPLAY)):
        1 / 0  # noqa: B018
    assert find_sampler(tmp_path) is None
    assert len(read_recording(tmp_path).fast(0).times_s) >= 1


def test_the_sampler_reads_only_the_gpus_it_is_told_to(tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "three", gpus=3)
    asked: dict[str, list[str] | None] = {"all": None, "one": [uuid(1)], "none": []}
    read = {}
    for name, gpus in asked.items():
        folder = tmp_path / name
        folder.mkdir()
        with sampling(folder, MeasureSettings(telemetry=telemetry), gpus):
            pass
        recording = read_recording(folder)
        read[name] = [gpu for gpu in recording.series if len(recording.fast(gpu).times_s)]
    assert read == {"all": [0, 1, 2], "one": [1], "none": []}


def test_a_sampler_that_cannot_start_says_why_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_driver(tmp_path, monkeypatch)
    with (
        pytest.raises(TelemetryError, match="the sampler did not start: no usable NVIDIA driver") as caught,
        sampling(tmp_path, MeasureSettings(telemetry="nvml")),
    ):
        pass
    assert "\n" not in str(caught.value)


def stand_in(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script stand for the sampler."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_sampler_that_says_nothing_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "exec sleep 60", monkeypatch)
    monkeypatch.setattr(module, "READY_S", 0.1)
    monkeypatch.setattr(module, "STOP_S", 0.1)
    with (
        pytest.raises(TelemetryError, match="it ended without a message"),
        sampling(tmp_path, MeasureSettings(telemetry="none")),
    ):
        pass


def test_a_sampler_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, f"echo $$ > {tmp_path}/pid; echo ready; exec sleep 60", monkeypatch)
    monkeypatch.setattr(module, "STOP_S", 0.1)
    with sampling(tmp_path, MeasureSettings(telemetry="none")):
        pass
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "the sampler was killed by SIGKILL and started again"),
        (signal.SIGSTOP, "the sampler was stopped, and went on"),
    ],
)
def test_a_sampler_that_is_killed_or_stopped_reads_on(tmp_path: Path, number: signal.Signals, said: str) -> None:
    with sampling(tmp_path, MeasureSettings(telemetry=REPLAY)):
        for _ in range(2):
            before = find_sampler(tmp_path)
            assert before is not None
            os.kill(before, number)
            await_readings(tmp_path)
            await_true(lambda: find_sampler(tmp_path) is not None)
    restarts = read_restarts(tmp_path)
    assert [restart.why for restart in restarts] == [said] * 2
    # Each lies where the readings have their gap, not after it.
    times_s = read_recording(tmp_path).fast(0).times_s
    around = [np.searchsorted(times_s, restart.at_s) for restart in restarts]
    longest = sorted(np.argsort(np.diff(times_s))[-2:] + 1)
    assert number == signal.SIGSTOP or around == longest
    # What it read meanwhile is not known; what it reads goes on.
    _, energy_j = read_recording(tmp_path).known(0, "energy_j")
    assert np.all(np.diff(energy_j) >= 0)
    assert find_sampler(tmp_path) is None


def test_a_sampler_that_cannot_be_started_again_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = f"if test -e {tmp_path}/was; then echo no driver >&2; exit 1; fi; touch {tmp_path}/was; echo ready"
    stand_in(tmp_path, once, monkeypatch)
    with sampling(tmp_path, MeasureSettings(telemetry="none")):
        await_true(lambda: read_restarts(tmp_path))
    said = "could not be started again (the sampler did not start: no driver)"
    assert [restart.why for restart in read_restarts(tmp_path)] == [
        f"the sampler was ended with exit code 0 and {said}"
    ]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"at_s": "x", "why": ""}]', '[{"why": ""}]'])
def test_restarts_that_cannot_be_read_are_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "sampler-restarts.json").write_text(text)
    assert read_restarts(tmp_path) == []
