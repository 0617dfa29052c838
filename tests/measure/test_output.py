"""The output of a command is shown, kept, and stamped with the time it came."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from charllm.measure.launch import run_command
from charllm.measure.logs import LoggedStep
from charllm.measure.marks import FROM_LOG, find_steps, mark_logged, read_marks
from charllm.measure.output import LOG_FILE, TIMES_FILE, ArrivalTimes, kept_output

STEPS = 20
# Each line waits until the one before it has come: lines that are read late do not come together.
TALK = f"""
import os, pathlib, sys, time
log, written = pathlib.Path(os.environ["CHARLLM_MARKS"]) / "{LOG_FILE}", 0
for number in range(1, {STEPS} + 1):
    line = f"iter {{number}}: loss {{5 - number / 10:.4f}}, time 40.00ms"
    print(line)
    written += len(line) + 1
    while log.stat().st_size < written:
        time.sleep(0.002)
    time.sleep(0.04)
print("gone", file=sys.stderr)
"""


def run(folder: Path, *command: str) -> int:
    folder.mkdir(exist_ok=True)
    return run_command(command, folder, dict(os.environ)).exit_code


def test_output_is_shown_and_kept_with_the_times_it_came(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    start_s = time.monotonic()
    assert run(tmp_path / "run", sys.executable, "-c", TALK) == 0
    shown = capfd.readouterr()
    log = (tmp_path / "run" / LOG_FILE).read_text()
    assert shown.out.count("iter") == log.count("iter") == STEPS
    assert shown.err == "gone\n"
    assert log.endswith("gone\n")
    arrivals = ArrivalTimes(tmp_path / "run")
    first, last = arrivals.of(log.index("\n")), arrivals.of(len(log))
    assert first is not None
    assert last is not None
    assert start_s < first < last < time.monotonic()
    assert last - first > 0.04 * STEPS


def test_steps_of_a_job_without_marks_come_from_its_log(tmp_path: Path) -> None:
    run(tmp_path / "run", sys.executable, "-c", TALK)
    marks = read_marks(tmp_path / "run")
    steps = find_steps(marks[FROM_LOG])
    assert len(steps) == STEPS
    # A busy machine lengthens some of them, hardly all.
    assert 0.03 < min(step.end_s - step.start_s for step in steps) < 0.07
    assert next(mark.value for mark in marks[FROM_LOG] if mark.kind == "point") == "4.9"


def test_marks_of_the_job_itself_win_over_its_log(tmp_path: Path) -> None:
    marking = "import charllm.mark as mark\nfor n in range(3): mark.step(n); print(f'iter {n}: loss 1.0, time 1.00ms')"
    run(tmp_path / "run", sys.executable, "-c", marking)
    marks = read_marks(tmp_path / "run")
    assert FROM_LOG not in marks
    assert len(marks) == 1


def test_a_pattern_in_the_record_says_how_the_log_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(folder, "sh", "-c", "echo tick 1; sleep 0.1; echo tick 2")
    assert read_marks(folder) == {}
    (folder / "job.json").write_text('{"details": {"log": {"kind": "auto", "pattern": "tick (?P<number>\\\\d+)"}}}')
    assert len(find_steps(read_marks(folder)[FROM_LOG])) == 1


def test_a_line_that_covers_ten_steps_is_ten_marks() -> None:
    marks = mark_logged([(LoggedStep(number=10, steps=10, seconds=0.5, tokens=64.0), 100.0)])
    steps = find_steps(marks)
    assert len(steps) == 10
    assert (steps[0].start_s, steps[-1].end_s, steps[-1].tokens) == (95.0, 100.0, 64)
    later = mark_logged(
        [(LoggedStep(number=1), 10.0), (LoggedStep(number=3, steps=2), 14.0), (LoggedStep(number=4), None)]
    )
    assert [step.end_s for step in find_steps(later)] == [12.0, 14.0]


def test_a_child_left_behind_does_not_keep_the_command(tmp_path: Path) -> None:
    start_s = time.monotonic()
    assert run(tmp_path / "run", "sh", "-c", "sleep 90 & echo done") == 0
    assert time.monotonic() - start_s < 45


def test_a_command_on_a_terminal_sees_one(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    tell = "import sys; print(sys.stdout.isatty(), flush=True)"
    code = (
        "import os, sys; from pathlib import Path; from charllm.measure.launch import run_command; "
        f"run_command([sys.executable, '-c', {tell!r}], Path({str(tmp_path)!r}), dict(os.environ))"
    )
    subprocess.run([sys.executable, "-c", code], stdout=theirs, check=True, timeout=60)
    os.close(theirs)
    assert os.read(ours, 100).strip() == b"True"
    assert (tmp_path / LOG_FILE).read_bytes() == b"True\n"
    os.close(ours)


def test_times_cut_short_are_ignored(tmp_path: Path) -> None:
    with kept_output(tmp_path) as streams:
        os.write(streams.stdout, b"one line\n")
    with (tmp_path / TIMES_FILE).open("a") as file:
        file.write("9,12345")
    arrivals = ArrivalTimes(tmp_path)
    assert arrivals.of(0) is None
    assert arrivals.of(20) == arrivals.of(5) is not None
