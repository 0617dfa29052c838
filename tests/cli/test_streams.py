"""Pipes that close, disks that are full, files that never end, and interrupts: a message and an exit code each."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHARLLM = [sys.executable, "-m", "charllm"]
SIMULATE = ["simulate", "--model", "llama3-8b", "--cluster", "h200x8"]


def ended(command: str) -> subprocess.CompletedProcess[str]:
    program = " ".join(CHARLLM)
    return subprocess.run(
        ["bash", "-c", command.replace("charllm", program, 1)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("charllm catalog models > /dev/full", 1, "No space left on device"),
        ("charllm catalog models | true; exit ${PIPESTATUS[0]}", 141, "the output was closed"),
        ("charllm simulate --help | true; exit ${PIPESTATUS[0]}", None, ""),
        ("charllm catalog models >&-", 0, ""),
        ("charllm catalog modles 2> /dev/full", 2, ""),
        ("charllm catalog modles 2>&-", 2, ""),
        ("charllm simulate - <&-", 2, "model: got nothing"),
        ("charllm simulate /dev/zero", 2, "a device"),
        ("charllm simulate /dev/stdin < /dev/zero", 2, "a device"),
        ("charllm simulate $'a\\xff'", 2, "No such file"),
    ],
)
def test_a_stream_that_fails_ends_in_a_message(command: str, code: int | None, message: str) -> None:
    done = ended(command)
    assert code is None or done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1


@pytest.mark.parametrize("flag", ["--out", "--perfetto"])
def test_a_place_that_cannot_be_written_is_named(flag: str) -> None:
    done = ended(f"charllm {' '.join(SIMULATE)} --json {flag} /dev/full/here")
    assert done.returncode == 2
    assert f"{flag}: got '/dev/full/here'" in done.stderr


def test_a_device_is_written_to_and_not_replaced() -> None:
    done = ended(f"charllm {' '.join(SIMULATE)} --json --perfetto /dev/full")
    assert (done.returncode, "No space left" in done.stderr) == (2, True)
    assert not Path("/dev/full").is_file()


def test_a_spec_comes_through_standard_input() -> None:
    done = subprocess.run(
        [*CHARLLM, "simulate", "-", "--json"], input='model = "llama3-8b"\ncluster = "h200x8"\n', text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0


# Says when Python comes to the first line of the program that an interrupt must be answered in.
BEGUN = """
import runpy, sys

class Begun:
    def find_spec(name, path=None, target=None):
        if name == "charllm.cli":
            print("begun", flush=True)

sys.meta_path.insert(0, Begun)
runpy.run_module("charllm", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("after_s", [0.0, 0.2, 1.0])
def test_an_interrupt_ends_in_one_line(after_s: float, tmp_path: Path) -> None:
    fifo = tmp_path / "never"
    os.mkfifo(fifo)
    # A writer that says nothing keeps standard input open.
    writer = os.open(fifo, os.O_RDWR)
    with fifo.open("rb") as silent:
        command = [sys.executable, "-c", BEGUN, "simulate", "-"]
        pipe = subprocess.PIPE
        program = subprocess.Popen(command, stdin=silent, stdout=pipe, stderr=pipe, text=True)
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        time.sleep(after_s)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=30)
    os.close(writer)
    assert (program.returncode, said) == (130, "charllm: interrupted\n")
