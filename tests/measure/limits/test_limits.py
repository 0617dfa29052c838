"""Limits through the real pynvml with NVIDIA's C library replaced: set, held, and put back whatever happens."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

import charllm
from charllm.api.limits import read_caps
from charllm.cli import main
from charllm.errors import SpecError
from charllm.result.store import load_run

FREE, HELD = [(650_000, 0), (700_000, 0)], (500_000, 1500)
WAIT_S = 60.0


@cache
def library() -> Path:
    folder = Path(mkdtemp(prefix="nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = Path(__file__).with_name("nvml_library.c")
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1")]
    subprocess.run([*command, str(source)], check=True)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return what a process needs to find GPUs whose first has another limit than the board's highest."""
    (folder / "state").write_text("".join(f"{power} {clock}\n" for power, clock in FREE))
    return {**os.environ, "LD_LIBRARY_PATH": str(library()), "LIMITS_STATE": str(folder / "state"), **more}


def state(folder: Path) -> list[tuple[int, int]]:
    return [(int(power), int(clock)) for power, clock in map(str.split, (folder / "state").read_text().splitlines())]


def apply(folder: Path, *words: str, by: str = "apply", **more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "charllm", by, *words]
    return subprocess.Popen(command, cwd=folder, env=environment(folder, **more), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def waits_for(folder: Path, expected: list[tuple[int, int]]) -> bool:
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if state(folder) == expected:
            return True
        time.sleep(0.02)
    return False


LIMITS = ("--power", "500", "--clock", "1500", "--out", "run")


def test_limits_hold_while_a_command_runs_and_are_put_back(tmp_path: Path) -> None:
    code = "import os; print('SEEN', open(os.environ['LIMITS_STATE']).read().split())"
    process = apply(tmp_path, *LIMITS, "--", sys.executable, "-c", code)
    out, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert f"SEEN {[str(value) for value in (*HELD, *HELD)]}" in out
    assert state(tmp_path) == FREE
    assert load_run(tmp_path / "run").origin == "measured"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_limits_are_put_back_when_charllm_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    process = apply(tmp_path, *LIMITS, "--", "sleep", "60")
    assert waits_for(tmp_path, [HELD, HELD])
    process.send_signal(number)
    assert waits_for(tmp_path, FREE)
    process.communicate(timeout=WAIT_S)
    assert process.returncode != 0


def test_a_dry_run_prints_commands_and_sets_nothing(tmp_path: Path) -> None:
    process = apply(tmp_path, "--power", "500", "--clock", "1500", "--gpus", "0", "--dry-run")
    out, _ = process.communicate(timeout=WAIT_S)
    assert out.splitlines() == [
        "nvidia-smi -i GPU-0 -pl 500", "nvidia-smi -i GPU-0 -lgc 0,1500", "# the command",
        "nvidia-smi -i GPU-0 -pl 650", "nvidia-smi -i GPU-0 -rgc",
    ]  # fmt: skip
    assert state(tmp_path) == FREE


@pytest.mark.parametrize(
    ("words", "more", "told"),
    [
        (("--power", "900", "--out", "run", "--", "true"), {}, "--power: got 900.0; expected 200 to 700 W"),
        (("--power", "500", "--out", "run", "--", "true"), {"LIMITS_DENIED": "1"}, "limits are set by root"),
        (("--power", "500", "--gpus", "7", "--dry-run"), {}, "--gpus: got 7; expected numbers of GPUs: 0, 1"),
        (("--power", "500"), {}, "COMMAND: "),
        (("--dry-run",), {}, "a plan, --power W or --clock MHZ"),
    ],
)
def test_what_cannot_be_set_is_refused(words: tuple[str, ...], more: dict[str, str], told: str, tmp_path: Path) -> None:
    process = apply(tmp_path, *words, **more)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert told in errors
    assert state(tmp_path) == FREE


SLOW = """
import time
import charllm.mark as mark
for step in range(400):
    time.sleep(0.05)
    mark.step(tokens=100)
    if open("state").read().split()[0] == "650000":
        break
"""


def test_a_job_that_is_slower_than_promised_gets_its_limits_back(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SLOW)
    words = ("--power", "500", "--tokens-per-s", "100000", "--out", "run", "--", sys.executable, "job.py")
    process = apply(tmp_path, *words)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert "limits are put back" in errors
    assert state(tmp_path) == FREE


def test_a_plan_is_the_knee_of_a_table_of_caps(tmp_path: Path) -> None:
    table = {"per": "gpu", "knees": {"knee": 1, "least money": 0},
             "points": [{"cap_w": 700.0, "tokens_per_s": 10.0}, {"cap_w": 500.0, "tokens_per_s": 9.0}]}  # fmt: skip
    (tmp_path / "caps.json").write_text(json.dumps(table))
    limits, promised = read_caps(tmp_path / "caps.json")
    assert (limits.power_w, limits.clock_hz, promised) == (500.0, None, 9.0)
    process = apply(tmp_path, "--knee", "least money", "--dry-run", "caps.json")
    out, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert "nvidia-smi -i GPU-0 -pl 700" in out
    with pytest.raises(SpecError, match="--knee: got 'best'"):
        read_caps(tmp_path / "caps.json", "best")
    for text in ("[]", "{", json.dumps({**table, "points": []}), json.dumps({**table, "per": "stage"})):
        (tmp_path / "caps.json").write_text(text)
        with pytest.raises(SpecError, match="PLAN"):
            read_caps(tmp_path / "caps.json")


def test_limits_of_a_stored_run_and_of_a_plan_s_best_strategy_are_applied(tmp_path: Path) -> None:
    run = charllm.simulate(model="llama3-8b", cluster="h200x8", gbs=8, power_cap=500)
    folder, table = run.save(tmp_path / "run"), json.loads(run.to_json())
    (tmp_path / "plan.json").write_text(json.dumps({"best": [table, {}]}))
    for plan in (folder, tmp_path / "plan.json"):
        limits, promised = read_caps(plan)
        assert (limits.power_w, limits.clock_hz, promised) == (500.0, None, run.metrics.tokens_per_s)
    table["spec"]["conditions"]["power_cap_w"] = "much"
    (tmp_path / "plan.json").write_text(json.dumps(table))
    with pytest.raises(SpecError, match="expected a simulated run, with its conditions"):
        read_caps(tmp_path / "plan.json")
    del table["spec"]["conditions"]["power_cap_w"]
    (tmp_path / "plan.json").write_text(json.dumps(table))
    with pytest.raises(SpecError, match="without a limit'; expected a run with --power-cap"):
        read_caps(tmp_path / "plan.json")


CAPS = ("--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--gbs", "16")


def test_the_knee_of_caps_holds_while_a_command_runs(tmp_path: Path) -> None:
    code = "import os, sys; print('SEEN', open(os.environ['LIMITS_STATE']).read().split(), sys.argv[1:])"
    at = ("--clock", "--at", "1980,1500,1000")
    words = (*CAPS, *at, "--apply", "--", sys.executable, "-c", code, "--clock", "--", "-h")
    process = apply(tmp_path, *words, by="caps")
    out, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert "SEEN ['650000', '1500', '700000', '1500'] ['--clock', '--', '-h']" in out
    assert "clock caps of every GPU" in errors
    assert "clock caps of every GPU" not in out
    assert state(tmp_path) == FREE
    (folder,) = (tmp_path / "charllm-runs").iterdir()
    assert load_run(folder).origin == "measured"


def test_a_job_slower_than_the_knee_promises_gets_its_limits_back(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SLOW)
    words = (*CAPS, "--at", "500", "--apply", "--within", "0.5", "--out", "run", "--", sys.executable, "job.py")
    process = apply(tmp_path, *words, by="caps")
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    promised = charllm.caps(model="llama3-8b", cluster="h200x8", tp=2, gbs=16, at=[500]).points[0]["tokens_per_s"]
    assert f"below {0.5 * promised:.6g}: limits are put back" in errors
    assert state(tmp_path) == FREE


def test_a_dry_run_of_caps_prints_only_the_commands(tmp_path: Path) -> None:
    at = ("--clock", "--at", "1980,1500,1000")
    process = apply(tmp_path, *CAPS, *at, "--apply", "--dry-run", by="caps")
    out, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert out.splitlines() == [
        "nvidia-smi -i GPU-0 -lgc 0,1500", "nvidia-smi -i GPU-1 -lgc 0,1500", "# the command",
        "nvidia-smi -i GPU-0 -rgc", "nvidia-smi -i GPU-1 -rgc",
    ]  # fmt: skip
    assert state(tmp_path) == FREE


def test_caps_takes_a_command_beside_a_spec_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('model = "llama3-8b"\ncluster = "h200x8"\n[parallelism]\ntp = 2\n')
    words = ("run.toml", "--gbs", "16", "--at", "600", "--apply", "--out", "run", "--", "sh", "-c", "exit 3")
    process = apply(tmp_path, *words, by="caps")
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 3, errors
    assert load_run(tmp_path / "run").origin == "measured"
    assert state(tmp_path) == FREE


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--apply",), "COMMAND: got nothing; expected a command behind --, or --dry-run"),
        (("--apply", "--"), "COMMAND: got nothing"),
        (("--apply", "--per", "stage", "--", "true"), "--apply: got '--per stage'; expected caps of all GPUs alike"),
        (("--apply", "--json", "--", "true"), "--apply: got '--json'"),
        (("--apply", "--within", "1", "--", "true"), "--within: got 1.0"),
        (("--at", "600", "--apply", "--knee", "best", "--dry-run"), "--knee: got 'best'; expected one of knee, most"),
        (("--", "true"), "--apply: got nothing"),
        (("--dry-run",), "--apply: got nothing"),
    ],
)
def test_caps_says_what_it_cannot_apply(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caps", *CAPS, *words]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


def test_a_knee_at_the_highest_cap_is_not_applied(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caps", *CAPS, "--at", "700,500", "--apply", "--dry-run"]) == 2
    assert "--apply: got knee at the highest cap, which saves nothing; expected a knee below" in capsys.readouterr().err


def test_a_plan_may_stand_before_flags(tmp_path: Path) -> None:
    table = {"per": "gpu", "knees": {"knee": 0}, "points": [{"cap_w": 500.0, "tokens_per_s": 9.0}]}
    (tmp_path / "caps.json").write_text(json.dumps(table))
    process = apply(tmp_path, "caps.json", "--dry-run", "--gpus", "1")
    out, errors = process.communicate(timeout=WAIT_S)
    assert out.splitlines()[0] == "nvidia-smi -i GPU-1 -pl 500", errors
