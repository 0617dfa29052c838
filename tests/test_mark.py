"""Marks: cheap, harmless, and never a reason for a job to fail."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from charllm import mark
from charllm.measure.marks import Mark, read_marks

MARKS = 1000
MARK_MAX_S = 50e-6


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts like a process that has marked nothing yet, outside of a measured run."""
    monkeypatch.setattr(mark, "_files", {})
    monkeypatch.delenv(mark.FOLDER_VARIABLE, raising=False)
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(mark.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def read(folder: Path) -> list[Mark]:
    (marks,) = read_marks(folder).values()
    return marks


def test_a_mark_says_when_what_and_how_much(folder: Path) -> None:
    before_s = time.monotonic()
    mark.step(7, tokens=4096)
    with mark.phase("forward"):
        mark.point("loss", 2.5)
    after_s = time.monotonic()
    marks = read(folder)
    assert [found[1:] for found in marks] == [
        ("step", "7", "4096"), ("begin", "forward", ""), ("point", "loss", "2.5"), ("end", "forward", ""),
    ]  # fmt: skip
    times = [found.time_s for found in marks]
    assert times == sorted(times)
    assert before_s - 1e-6 <= times[0] <= times[-1] <= after_s + 1e-6


def test_what_is_not_given_stays_empty(folder: Path) -> None:
    mark.step()
    mark.point("epoch")
    assert [found[1:] for found in read(folder)] == [("step", "", ""), ("point", "epoch", "")]


def test_a_phase_ends_even_when_it_fails(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), mark.phase("update"):
        raise ZeroDivisionError
    assert [found.kind for found in read(folder)] == ["begin", "end"]


def test_a_mark_takes_microseconds(folder: Path) -> None:
    mark.step()
    start_s = time.process_time()
    for number in range(MARKS):
        mark.step(number, tokens=4096)
    assert (time.process_time() - start_s) / MARKS < MARK_MAX_S
    assert len(read(folder)) == MARKS + 1


def test_marking_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, charllm.mark; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_outside_of_a_measured_run_marks_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with mark.phase("forward"):
        mark.step(1, tokens=1)
    assert list(tmp_path.iterdir()) == []


def test_marks_can_be_sent_to_a_folder_by_hand(tmp_path: Path) -> None:
    mark.record_to(str(tmp_path))
    mark.step(1)
    assert [found.kind for found in read(tmp_path)] == ["step"]


def test_a_file_is_named_after_rank_and_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    mark.step()
    assert [path.name for path in folder.iterdir()] == [f"marks-3-{os.getpid()}.csv"]


def test_a_fork_gets_its_own_file(folder: Path) -> None:
    code = """if True:
        import os
        from charllm import mark
        mark.step(1)
        child = os.fork()
        mark.step(2 if child else 3)
        if child:
            os.waitpid(child, 0)
            print(os.getpid(), child)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    parent, child = done.stdout.split()
    numbers = {process: [found.name for found in marks] for process, marks in read_marks(folder).items()}
    assert numbers == {f"0-{parent}": ["1", "2"], f"0-{child}": ["3"]}


def test_a_folder_that_cannot_be_written_never_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(mark.FOLDER_VARIABLE, str(tmp_path / "file" / "nowhere"))
    with mark.phase("forward"):
        mark.step(1)


def test_a_full_disk_never_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(mark, "_files", {os.getpid(): full})
    with mark.phase("forward"):
        mark.step(1, tokens=1)
    os.close(full)


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("a,b", "a;b"),
        ("two\nlines", "two lines"),
        ("carriage\r\nreturn", "carriage return"),
        ("separator\u2028here", "separator here"),
        ("größer", "größer"),
        ("half a \ud83d surrogate", "half a ? surrogate"),
        ("", ""),
    ],
)
def test_a_name_never_breaks_its_row(folder: Path, name: str, clean: str) -> None:
    mark.point(name, 1.0)
    mark.point("after")
    assert [found.name for found in read(folder)] == [clean, "after"]
