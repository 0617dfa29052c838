"""Sweeps as a user meets them: what is printed, interrupted, killed, out of room."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.interruptions import left_behind, workers_of
from tests.coverage_off import without_coverage
from tests.program import charllm

STUDY = """
request = { cluster = "h200x8", model = "llama3-8b" }
[[groups]]
axes.tp = { field = "parallelism.tp", values = [1, 2, 3] }
axes.cap = { field = "conditions.power_cap_kw", values = [0.5, 0.7] }
"""
SLOW = 'groups = [{ request = { model = "gpt3-175b", cluster = { base = "charllm-ppt-h200", nodes = 512 } } }]\n'
END_S = 120.0


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a study that was swept by two workers."""
    place = tmp_path_factory.mktemp("swept")
    (place / "study.toml").write_text(STUDY)
    done = charllm("sweep", str(place / "study.toml"), "--workers", "2", "--out", str(place / "out"), "--json")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 6
    (place / "printed").write_text(done.stdout)
    return place


def test_show_prints_a_study_as_the_sweep_did(swept: Path) -> None:
    assert charllm("show", str(swept / "out"), "--json").stdout == (swept / "printed").read_text()
    text = charllm("show", str(swept / "out")).stdout
    assert text.splitlines()[1].split()[:3] == ["case", "tp", "power_cap_w"]


def test_csv_has_every_swept_field_and_every_metric(swept: Path) -> None:
    done = charllm("show", str(swept / "out"), "--csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["parallelism.tp"] for row in rows] == ["1", "1", "2", "2", "3", "3"]
    assert {row["conditions.power_cap_w"] for row in rows} == {"500.0", "700.0"}
    assert float(rows[0]["link_bytes.nvlink"]) > 0
    assert (rows[4]["exit_code"], rows[4]["step_time_s"]) == ("2", "")
    assert "6 of 6 cases are stored" in done.stderr


def start_slow(place: Path, *flags: str) -> "subprocess.Popen[str]":
    """Start a sweep whose one case takes longer than any test."""
    (place / "slow.toml").write_text(SLOW)
    words = ["sweep", str(place / "slow.toml"), "--workers", "2", "--out", str(place / "out"), *flags]
    process = subprocess.Popen(
        [sys.executable, "-m", "charllm", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end_s = time.monotonic() + END_S
    while not workers_of(process.pid):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_reaches_only_the_parent_ends_all(tmp_path: Path, number: int) -> None:
    with start_slow(tmp_path) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=END_S)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("charllm: interrupted; 0 of 1 cases are stored in ")
    assert f"--out {tmp_path / 'out'} --resume --workers 2" in errors
    assert "Traceback" not in errors
    assert left_behind(tmp_path / "out") == []


def test_a_killed_worker_fails_its_case(tmp_path: Path) -> None:
    with start_slow(tmp_path, "--json") as process:
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        printed, errors = process.communicate(timeout=END_S)
    assert process.returncode == 1
    (row,) = map(json.loads, printed.splitlines())
    assert (row["exit_code"], row["message"]) == (1, "the worker process was killed by SIGKILL (out of memory?)")
    assert "1 of them failed; try again with: charllm sweep" in errors
    assert list((tmp_path / "out" / "runs").iterdir()) == []


def test_a_disk_without_room_ends_in_1_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    words = f"-m charllm sweep {tmp_path}/study.toml --workers 2 --out {tmp_path}/out"
    command = ["bash", "-c", f"ulimit -f 4; exec {sys.executable} {words}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=False, env=without_coverage())
    assert done.returncode == 1
    assert "charllm: cannot write" in done.stderr
    assert "charllm: stopped; " in done.stderr
    assert "Traceback" not in done.stderr
    assert left_behind(tmp_path / "out") == []
