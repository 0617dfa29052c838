"""Ray with two workers gives the table of one process, and continues what another runner began."""

import subprocess
import sys
from pathlib import Path

import pytest

from charllm.errors import CharllmError, SpecError
from charllm.sweep.case import Task
from charllm.sweep.folder import case_folder
from charllm.sweep.run import run_study
from charllm.sweep.runners.ray import run_chunk
from charllm.sweep.runners.work import Engine
from tests.program import charllm
from tests.sweep.test_run import SMALL, interrupted

STUDY = """
request = { cluster = "h200x8", model = "llama3-8b" }
[[groups]]
axes.tp = { field = "parallelism.tp", values = [1, 2, 3] }
"""


def test_ray_continues_a_local_sweep_and_ends_with_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(STUDY)
    with pytest.raises(KeyboardInterrupt):
        run_study(SMALL, out=tmp_path / "out", progress=interrupted)
    words = ("sweep", str(tmp_path / "small.toml"), "--out", str(tmp_path / "out"), "--resume", "--json")
    done = charllm(*words, "--runner", "ray", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [outcome.to_line() for outcome in run_study(SMALL).outcomes]
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 3


SWEEP = """
import os, subprocess, sys
from charllm.sweep.runners.ray import run_on_ray
from charllm.sweep.runners.work import Engine, Work
from tests.sweep.test_run import SMALL

STRANGER = (
    "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR');"
    "print('ran', ray.get(ray.remote(lambda: 42).remote()))"
)
before = dict(os.environ)
runner = run_on_ray(Work(SMALL, [0, 1], Engine("ray", workers=1)))
next(runner)
import ray
found = ray.get_runtime_context().gcs_address
bare = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
guessed = {**bare, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
for environment in (bare, guessed, os.environ):
    tried = [sys.executable, "-W", "ignore", "-c", STRANGER, found]
    done = subprocess.run(tried, env=environment, capture_output=True, text=True, timeout=120)
    print(done.stdout.strip() if done.returncode == 0 else "refused" if "Failed to connect" in done.stderr else "?")
print(len(list(runner)), {name for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN") if name in os.environ})
"""


def test_a_ray_that_is_started_here_runs_nothing_for_strangers() -> None:
    """Another user of the machine finds the port, but not the token; only processes of the sweep have it."""
    done = subprocess.run([sys.executable, "-c", SWEEP], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines()[-4:] == ["refused", "refused", "ran 42", "1 set()"], done.stderr


def test_a_task_that_is_run_again_keeps_what_it_has_stored(tmp_path: Path) -> None:
    chunk = [(number, Task(SMALL.cases[number], case_folder(tmp_path, number))) for number in (0, 1)]
    first, _ = run_chunk(chunk[:1])
    written = (case_folder(tmp_path, 0) / "case.json").stat().st_mtime_ns
    again, error = run_chunk(chunk)
    assert again[0] == first[0]
    assert error is None
    assert (case_folder(tmp_path, 0) / "case.json").stat().st_mtime_ns == written


def test_a_disk_without_room_is_told_beside_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in the way")
    ended, error = run_chunk([(0, Task(SMALL.cases[0], case_folder(tmp_path, 0)))])
    assert ended == []
    assert error is not None
    assert "--out" in error


def test_a_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CharllmError, match=r"pip install 'charllm\[ray\]'"):
        run_study(SMALL, engine=Engine("ray"))


def test_an_address_that_nobody_answers_is_refused() -> None:
    with pytest.raises(SpecError, match=r"--address: got '127\.0\.0\.1:1'; expected the address of a Ray cluster"):
        run_study(SMALL, engine=Engine("ray", address="127.0.0.1:1"))
