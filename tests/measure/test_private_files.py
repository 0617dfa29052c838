"""Files that hold a token, or a command with all its words, are private from the moment at which they are created."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from charllm.measure.client import HEAD_FILE
from charllm.measure.launchers.plan import Plan
from charllm.measure.launchers.slurm import SCRIPT, SETUP_FAILED, setup_lines, start
from charllm.measure.launchers.task import TASK_FILE, Task
from charllm.measure.rendezvous import Rendezvous
from charllm.measure.settings import MeasureSettings
from charllm.result.store import READABLE, write_text

TASK = Task(("train", "--token=x"), Plan("slurm", setup=("export HF_TOKEN=x",)), MeasureSettings(telemetry="none"))


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The modes that files were created with, by name, where no umask takes anything away."""
    modes: dict[str, int] = {}
    real = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **others: Any) -> int:
        file = real(path, flags, mode, **others)
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL
            modes[Path(path).name] = os.fstat(file).st_mode & 0o777
        return file

    monkeypatch.setattr(os, "open", watched)
    before = os.umask(0)
    yield modes
    os.umask(before)


def write_task(folder: Path) -> None:
    TASK.write(folder)


def open_head(folder: Path) -> None:
    Rendezvous(folder, 1, addresses=["127.0.0.1"]).close(0.0)


def start_job(folder: Path) -> None:
    start(TASK, folder, {"SLURM_JOB_ID": "1"})[0].cancel()


@pytest.mark.parametrize(
    ("write", "file"),
    [(write_task, TASK_FILE), (open_head, HEAD_FILE), (start_job, SCRIPT)],
    ids=["task", "head", "script"],
)
def test_nobody_else_may_ever_read_it(
    tmp_path: Path, created: dict[str, int], write: Callable[[Path], None], file: str
) -> None:
    write(tmp_path)
    assert created[f".{file}.draft"] == 0o600
    assert (tmp_path / file).stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_for_all_is_as_the_umask_has_it(tmp_path: Path, created: dict[str, int]) -> None:
    write_text("x", tmp_path / "result.json")
    assert created == {".result.json.draft": READABLE}


def test_a_draft_that_was_left_or_put_there_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / f".{TASK_FILE}.draft").symlink_to(tmp_path / "other")
    write_task(tmp_path)
    assert (tmp_path / "other").read_text() == "kept"
    assert not (tmp_path / TASK_FILE).is_symlink()


def test_the_line_of_a_setup_that_failed_is_private(tmp_path: Path) -> None:
    script = "\n".join(["umask 0", *setup_lines(["false # HF_TOKEN=x"], tmp_path)])
    assert subprocess.run(["bash", "-c", script], check=False).returncode == 2
    assert (tmp_path / SETUP_FAILED).stat().st_mode & 0o077 == 0
    assert "HF_TOKEN" in (tmp_path / SETUP_FAILED).read_text()
