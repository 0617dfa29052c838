"""The sampler and a command beside each other: exit codes, signals, secrets, visible GPUs."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.mark import FOLDER_VARIABLE
from charllm.measure.launch import (
    PASSED,
    CommandError,
    Ended,
    cool_down,
    run_command,
    visible_gpus,
    wait_idle,
)
from tests.measure.readings import await_true

PATH = {"PATH": os.environ["PATH"]}
UUIDS = ["GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3"]


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9), ("kill -TERM $$", 128 + 15), ("kill -INT $$", 128 + 2)],
)
def test_a_command_ends_with_its_own_code_or_128_and_its_signal(script: str, code: int, tmp_path: Path) -> None:
    assert run_command(["sh", "-c", script], tmp_path, PATH) == Ended(code, interrupted=False)


def test_a_command_that_is_not_there_is_127(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="command not found: no-such-thing") as caught:
        run_command(["no-such-thing"], tmp_path, PATH)
    assert caught.value.exit_code == 127


@pytest.mark.parametrize("what", ["a text", "a folder", "no program"])
def test_a_command_that_cannot_be_run_is_126(what: str, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    if what == "a folder":
        path.mkdir()
    else:
        path.write_text("nothing to run")
        path.chmod(0o755 if what == "no program" else 0o644)
    with pytest.raises(CommandError, match="cannot run") as caught:
        run_command([str(path)], tmp_path, PATH)
    assert caught.value.exit_code == 126


def test_a_command_is_told_where_marks_go(tmp_path: Path) -> None:
    script = f'test "$MINE" = 1 && test "${FOLDER_VARIABLE}" = "{tmp_path}"'
    assert run_command(["sh", "-c", script], tmp_path, {**PATH, "MINE": "1"}).exit_code == 0


def test_marks_of_a_job_that_changes_its_directory_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marks").mkdir()
    script = 'cd / && test -d "$CHARLLM_MARKS" && touch "$CHARLLM_MARKS/seen"'
    assert run_command(["sh", "-c", script], Path("marks"), PATH).exit_code == 0
    assert (tmp_path / "marks" / "seen").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_that_comes_before_the_command_has_started_is_kept_for_it(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def interrupted_start(*words: Any, **settings: Any) -> Any:
        signal.raise_signal(number)
        return start(*words, **settings)

    monkeypatch.setattr(subprocess, "Popen", interrupted_start)
    ended = run_command(["sleep", "20"], tmp_path, PATH)
    assert ended == Ended(128 + number, interrupted=number != signal.SIGUSR1)


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in PASSED]
    run_command(["true"], tmp_path, PATH)
    with pytest.raises(CommandError):
        run_command(["no-such-thing"], tmp_path, PATH)
    cool_down(0.0)
    assert [signal.getsignal(number) for number in PASSED] == before


def test_idle_and_cool_down_are_windows_of_the_monotonic_clock() -> None:
    before_s = time.monotonic()
    idle, (cooldown, cut_short) = wait_idle(0.05), cool_down(0.05)
    assert before_s <= idle[0] < idle[1] <= cooldown[0] < cooldown[1] <= time.monotonic()
    assert all(end_s - start_s >= 0.05 for start_s, end_s in (idle, cooldown))
    assert not cut_short


def test_a_signal_cuts_the_cool_down_short() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def interrupt() -> None:
        await_true(lambda: signal.getsignal(signal.SIGTERM) != before)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    (start_s, end_s), cut_short = cool_down(300.0)
    thread.join()
    assert end_s - start_s < 100.0
    assert cut_short


@pytest.mark.parametrize(
    ("asked", "places"),
    [
        (None, [0, 1, 2]),
        ("0,2", [0, 2]),
        (" 2 , 0 ", [2, 0]),
        ("GPU-cccc-3", [2]),
        ("GPU-cc", [2]),
        ("1,GPU-aaaa", [1, 0]),
        ("0,0", [0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("7", []),
        ("1,7,0", [1]),
        ("GPU-aa", []),
        ("GPU-dddd", []),
    ],
)
def test_gpus_are_visible_as_cuda_sees_them(asked: str | None, places: list[int]) -> None:
    environment = {} if asked is None else {"CUDA_VISIBLE_DEVICES": asked}
    assert visible_gpus(environment, UUIDS) == [UUIDS[place] for place in places]


def test_a_slice_of_a_gpu_is_refused() -> None:
    with pytest.raises(SpecError, match="a MIG slice has no power reading"):
        visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-aaaa-1"}, UUIDS)


@pytest.mark.parametrize(
    ("environment", "seen"),
    [
        ({}, "abcd"),
        ({"HIP_VISIBLE_DEVICES": "1,3"}, "bd"),
        ({"CUDA_VISIBLE_DEVICES": "2"}, "c"),
        # HIP's own variable counts before the one it shares with CUDA.
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "2"}, "a"),
        ({"ROCR_VISIBLE_DEVICES": "1,2,3", "HIP_VISIBLE_DEVICES": "0,2"}, "bd"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-c,0"}, "ca"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-c,0", "HIP_VISIBLE_DEVICES": "GPU-a"}, "a"),
        ({"HIP_VISIBLE_DEVICES": ""}, ""),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, "a"),
    ],
)
def test_the_variables_of_rocm_hide_gpus_one_after_the_other(environment: dict[str, str], seen: str) -> None:
    uuids = [f"GPU-{letter}" for letter in "abcd"]
    assert visible_gpus(environment, uuids, "amdsmi") == [f"GPU-{letter}" for letter in seen]


def test_the_variables_of_rocm_mean_nothing_to_nvidia() -> None:
    assert visible_gpus({"HIP_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "0"}, ["a", "b"]) == ["a", "b"]
