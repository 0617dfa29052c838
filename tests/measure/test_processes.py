"""The processes of a job are found wherever they went, and ended with it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from charllm.mark import FOLDER_VARIABLE
from charllm.measure import launch
from charllm.measure import processes as module
from charllm.measure.launch import TIMED_OUT, Ended, run_command
from charllm.measure.processes import JobProcesses
from tests.measure.readings import END_S, await_true
from tests.measure.replays import is_gone

PATH = {"PATH": os.environ["PATH"]}
STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
NOTE = r'sh -c "echo \$\$ > pid; exec sleep 600"'
NESTED = r'setsid sh -c "env -i sh -c \"echo \\\$\\\$ > pid; exec sleep 600\" & exec sleep 600" &'
FORMS = {
    "in its process group": f"{NOTE} &",
    "in a session of its own": f"setsid {NOTE} &",
    "an orphan": f"(setsid {NOTE} &)",
    "without its environment": f"env -i setsid {NOTE} &",
    "of a session that another has opened": NESTED,
    "stopped": f"setsid {NOTE} & until test -s pid; do sleep 0.05; done; kill -STOP $(cat pid)",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work where processes leave their numbers, and end what a test has left."""
    monkeypatch.chdir(tmp_path)
    yield
    for file in tmp_path.glob("pid*"):
        if not is_gone(int(file.read_text())):
            os.kill(int(file.read_text()), signal.SIGKILL)


def started(folder: Path) -> int:
    """Return the process that a command has started, once it runs."""
    await_true(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
    return int((folder / "pid").read_text())


def send_when_started(folder: Path, number: int, late_s: float = 0.0) -> threading.Thread:
    def send() -> None:
        started(folder)
        time.sleep(late_s)
        if callable(signal.getsignal(number)):
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_time_limit_ends_what_the_command_has_started(tmp_path: Path, form: str) -> None:
    ended = run_command(
        ["sh", "-c", f"{form}\nuntil test -s pid; do sleep 0.05; done; exec sleep 600"], tmp_path, PATH, 1.5
    )
    assert (ended.exit_code, ended.timed_out) == (TIMED_OUT, True)
    assert is_gone(started(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_command_and_what_it_has_started(tmp_path: Path, number: signal.Signals) -> None:
    thread = send_when_started(tmp_path, number)
    ended = run_command(["sh", "-c", f"{FORMS['an orphan']}\nsleep 600 & wait"], tmp_path, PATH, END_S)
    thread.join()
    left = started(tmp_path)
    assert is_gone(left)
    assert ended == Ended(128 + number, interrupted=True, ended_processes=f"sleep ({left})")


def test_a_stubborn_process_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.3)
    script = f"setsid sh -c 'echo $$ > pid; {STUBBORN.replace(chr(39), chr(34))}' & exec sleep 600"
    thread = send_when_started(tmp_path, signal.SIGTERM)
    ended = run_command(["sh", "-c", script], tmp_path, PATH, END_S)
    thread.join()
    assert is_gone(started(tmp_path))
    assert f"sh ({started(tmp_path)})" in ended.ended_processes
    assert not ended.left_processes


def test_a_second_signal_ends_a_command_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.3)
    monkeypatch.setattr(launch, "AGAIN_S", 0.2)
    threads = [send_when_started(tmp_path, signal.SIGTERM, late_s) for late_s in (0.0, 0.0, 0.6)]
    ended = run_command(["sh", "-c", f"echo $$ > pid; {STUBBORN}"], tmp_path, PATH, END_S)
    for thread in threads:
        thread.join()
    assert (ended.exit_code, ended.interrupted, ended.left_processes) == (128 + 9, True, "")


def test_a_command_that_handles_a_signal_is_given_the_time_it_takes(tmp_path: Path) -> None:
    script = "trap 'sleep 0.5; echo saved > saved; exit 3' TERM; echo $$ > pid; while :; do sleep 0.05; done"
    thread = send_when_started(tmp_path, signal.SIGTERM)
    ended = run_command(["sh", "-c", script], tmp_path, PATH, END_S)
    thread.join()
    assert (ended.exit_code, ended.interrupted) == (3, True)
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_what_a_command_that_ends_by_itself_leaves_behind_goes_on(tmp_path: Path) -> None:
    ended = run_command(
        ["sh", "-c", f"{FORMS['an orphan']}\nuntil test -s pid; do sleep 0.05; done"], tmp_path, PATH, END_S
    )
    assert ended == Ended(0)
    assert not is_gone(started(tmp_path))


def test_processes_of_others_are_not_of_the_job(tmp_path: Path) -> None:
    """Not our own, not those of another job, not those of a session that was there before."""
    with (
        subprocess.Popen(["sleep", "600"], start_new_session=True) as other,
        subprocess.Popen(["sleep", "600"], env={**PATH, FOLDER_VARIABLE: f"{tmp_path}-2"}) as second,
        subprocess.Popen(["sleep", "600"], env={**PATH, FOLDER_VARIABLE: str(tmp_path)}) as command,
    ):
        try:
            found = {process.number for process in JobProcesses(command.pid, tmp_path).find()}
        finally:
            for process in (other, second, command):
                process.kill()
    assert found == {command.pid}


def test_a_number_that_another_process_has_now_is_not_the_job(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as command:
        pass
    processes = JobProcesses(command.pid, tmp_path)
    with subprocess.Popen(["sleep", "600"]) as later:
        processes._known = {(later.pid, 0)}
        try:
            assert processes.find() == []
        finally:
            later.kill()


def test_the_names_of_processes_hold_no_arguments(tmp_path: Path) -> None:
    code = "import os, sys, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    thread = send_when_started(tmp_path, signal.SIGTERM)
    ended = run_command(
        ["sh", "-c", f'setsid {sys.executable} -c "{code}" --token=secret & exec sleep 600'], tmp_path, PATH
    )
    thread.join()
    assert ended.ended_processes
    assert "secret" not in str(ended)
