"""measure, bench, train and emulate as a user meets them; a real recording of an H200 stands for the GPU."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from charllm.cli import main
from charllm.cli.progress import track
from charllm.measure.bench.table import COLUMNS
from charllm.measure.recording import read_recording
from charllm.result.store import load_run
from charllm.timeline.rank_timeline import read_timeline
from tests import program
from tests.coverage_off import without_coverage
from tests.measure.readings import END_S, await_readings, await_true, until_read
from tests.measure.replays import (
    CAPTURE,
    REPLAY,
    await_file,
    find_sampler,
    hide_driver,
    is_gone,
    make_replay,
    quiet_environment,
    uuid,
)

CHARLLM = [sys.executable, "-m", "charllm"]
QUICK = ["--idle", "0", "--cooldown", "0"]
TINY = [
    "--model", "llama3-8b", "--set", "model.layers=2", "--set", "model.hidden=32", "--set", "model.ffn=64",
    "--set", "model.heads=4", "--set", "model.kv_heads=2", "--set", "model.head_dim=8", "--set", "model.vocab=64",
    "--seq", "16",
]  # fmt: skip
TRAIN = ["train", *TINY, "--mbs", "2", "--gbs", "4", "--device", "cpu"]
EMULATE = ["emulate", *TINY, "--cluster", "h200x8", "--tp", "2", "--pp", "2", "--gbs", "8"]


def charllm(*words: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return program.charllm(*words, folder=folder, variables=quiet_environment(**variables))


def measure(run: Path, *words: str, flags: list[str] | None = None, **settings: Any) -> Any:
    return charllm("measure", *QUICK, "--out", str(run), *(flags or ["--telemetry", REPLAY]), "--", *words, **settings)


def start_measuring(run: Path, script: str, *flags: str) -> "subprocess.Popen[str]":
    """Start a shell script under measure, away from any terminal."""
    return subprocess.Popen(
        [
            *CHARLLM,
            "measure",
            "--idle",
            "0",
            "--out",
            str(run),
            "--telemetry",
            REPLAY,
            *flags,
            "--",
            "sh",
            "-c",
            script,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must end in 2 with one line on stderr and nothing on stdout; return that line."""
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("charllm: ")
    return line


@pytest.fixture
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no driver, and torch finds no GPU."""
    hide_driver(tmp_path, monkeypatch)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


# measure: output, codes, signals


def test_output_and_exit_code_pass_through(tmp_path: Path) -> None:
    script = "cat; echo out; echo err >&2; exit 7"
    command = [*CHARLLM, "measure", *QUICK, "--out", str(tmp_path / "run"), "--telemetry", REPLAY, "--"]
    done = subprocess.run([*command, "sh", "-c", script], input="in\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "in\nout\n")
    first, last = done.stderr.splitlines()
    assert first == "err"
    assert last.startswith("charllm: ")
    assert last.endswith(f"recorded in {tmp_path / 'run'}")
    assert load_run(tmp_path / "run").provenance["measurement"]["exit_code"] == 7


def test_a_death_by_signal_is_128_and_its_number(tmp_path: Path) -> None:
    done = measure(tmp_path / "run", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + 9
    assert (tmp_path / "run" / "result.json").exists()


def test_a_command_keeps_its_own_dashes(tmp_path: Path) -> None:
    done = measure(tmp_path / "run", "echo", "--rate", "--", "-x", flags=["--telemetry", "none"])
    assert (done.returncode, done.stdout) == (0, "--rate -- -x\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reaches_the_command_and_the_record_stays_whole(number: signal.Signals, tmp_path: Path) -> None:
    word = number.name.removeprefix("SIG")
    script = f"trap 'echo caught; exit 9' {word}; touch {tmp_path}/up; while :; do sleep 0.05; done"
    process = start_measuring(tmp_path / "run", script, "--cooldown", "0.5")
    await_file(tmp_path / "up")
    await_readings(tmp_path / "run")
    process.send_signal(number)
    out, err = process.communicate(timeout=END_S)
    assert (process.returncode, out) == (9, "caught\n")
    assert "Traceback" not in err
    result = load_run(tmp_path / "run")
    assert result.metrics["power_mean_w"] > 0
    assert result.provenance["measurement"]["sampler"]["rows"] >= 20
    assert find_sampler(tmp_path / "run") is None


def test_a_signal_to_the_whole_group_does_not_end_the_sampler(tmp_path: Path) -> None:
    script = f"trap '' TERM; touch {tmp_path}/up; sleep 1.5; exit 4"
    process = start_measuring(tmp_path / "run", script)
    await_file(tmp_path / "up")
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=END_S)
    assert process.returncode == 4
    start_s, end_s = load_run(tmp_path / "run").provenance["measurement"]["windows_s"]["command"]
    assert end_s - start_s > 1.4
    assert read_recording(tmp_path / "run").fast(0).times_s[-1] > end_s - 0.3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, None], ids=["TERM", "QUIT", "time limit"])
def test_what_a_job_has_started_elsewhere_ends_with_it_and_is_named(
    number: signal.Signals | None, tmp_path: Path
) -> None:
    script = f"(setsid sleep 300 & echo $! > {tmp_path}/left)\ntouch {tmp_path}/up; sleep 300"
    flags = ["--cooldown", "0", *(["--time-limit", "1.5"] if number is None else [])]
    process = start_measuring(tmp_path / "run", script, *flags)
    await_file(tmp_path / "up")
    if number is not None:
        process.send_signal(number)
    _, err = process.communicate(timeout=END_S)
    assert process.returncode == (124 if number is None else 128 + number)
    left = (tmp_path / "left").read_text().strip()
    assert is_gone(int(left))
    told = "the command had started processes in other process groups, which were ended after it"
    assert f"charllm: {told}: sleep ({left})" in err
    assert f"{told}: sleep ({left})" in load_run(tmp_path / "run").warnings


def test_a_command_that_does_not_catch_it_dies_by_it(tmp_path: Path) -> None:
    process = start_measuring(tmp_path / "run", f"touch {tmp_path}/up; exec sleep 300", "--cooldown", "0")
    await_file(tmp_path / "up")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=END_S)
    assert process.returncode == 128 + 15
    assert (tmp_path / "run" / "result.json").exists()


def is_cooling_down(process: int) -> bool:
    """Tell by the signals that it handles: all that end a job, and none that a command alone would get."""
    handled = int(re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text())[0], 16)
    return bool(handled >> (signal.SIGTERM - 1) & 1) and not handled >> (signal.SIGUSR1 - 1) & 1


def test_an_interrupt_while_cooling_down_keeps_the_result(tmp_path: Path) -> None:
    process = start_measuring(tmp_path / "run", shlex.join(until_read()), "--cooldown", "300")
    await_true(lambda: is_cooling_down(process.pid))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=END_S)
    assert process.returncode == 0
    assert load_run(tmp_path / "run").metrics["power_mean_w"] > 0


COUNTS_INTERRUPTS = """
import pathlib, signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
pathlib.Path(sys.argv[1]).touch()
end_s = time.monotonic() + 100
while not seen and time.monotonic() < end_s:
    time.sleep(0.01)
time.sleep(0.5)
sys.exit(40 + len(seen))
"""
IN_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def test_ctrl_c_in_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    command = [*CHARLLM, "measure", *QUICK, "--out", str(tmp_path / "run"), "--telemetry", "none", "--"]
    command += [sys.executable, "-c", COUNTS_INTERRUPTS, str(tmp_path / "up")]
    terminal = [sys.executable, "-c", IN_A_TERMINAL, *command]
    process = subprocess.Popen(terminal, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0)
    await_file(tmp_path / "up")
    assert process.stdin is not None
    process.stdin.write(b"\x03")
    assert process.wait(END_S) == 41
    process.stdin.close()
    assert (tmp_path / "run" / "result.json").exists()


# measure: what is refused


def test_a_command_that_is_not_there_ends_in_127(tmp_path: Path) -> None:
    done = measure(tmp_path / "run", "no-such-command", flags=["--telemetry", "none"])
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "charllm: command not found: no-such-command\n"


def test_a_command_that_cannot_be_run_ends_in_126(tmp_path: Path) -> None:
    done = measure(tmp_path / "run", str(CAPTURE / "recording.json"), flags=["--telemetry", "none"])
    assert done.returncode == 126
    assert done.stderr == f"charllm: cannot run {CAPTURE / 'recording.json'}: Permission denied\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rate", "0"], "--rate: got 0.0; expected a number from 0.1 to 1,000"),
        (["--rate", "5000"], "--rate: got 5000.0"),
        (["--rate", "nan"], "--rate: got nan"),
        (["--repeats", "0"], "--repeats: got 0; expected a whole number from 1 to 1,000"),
        (["--repeats", "1001"], "--repeats"),
        (["--idle", "-1"], "--idle: got -1.0"),
        (["--cooldown", "inf"], "--cooldown: got inf"),
        (["--telemetry", "amd"], "--telemetry: got 'amd'"),
        (["--telemetry", "replay:"], "replay:FOLDER"),
        (["--telemetry", "replay:/nowhere"], "recording"),
        (["--telemetry", "nvml"], "no usable NVIDIA driver"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_wrong_settings_end_in_2_before_the_command_runs(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["measure", *QUICK, "--out", str(tmp_path / "run"), *flags, "--", "touch", str(tmp_path / "ran")]
    assert message in failure(capsys, *words)
    assert not (tmp_path / "ran").exists()


def test_no_command_ends_in_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--"]):
        line = failure(capsys, "measure", "--out", str(tmp_path / "run"), *words)
        assert "charllm measure [flags] -- COMMAND" in line
    assert not (tmp_path / "run").exists()


def test_a_number_that_is_none_is_explained() -> None:
    done = charllm("measure", "--rate", "fast", "--", "true")
    assert done.returncode == 2
    assert "expected a number" in done.stderr


@pytest.mark.parametrize("place", ["file", "full", "/proc/charllm-run", "file/run"])
def test_a_folder_that_cannot_be_used_ends_in_2_before_the_command_runs(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full" / "thing").mkdir(parents=True)
    words = ["measure", "--out", str(tmp_path / place), "--telemetry", "none", "--", "touch", str(tmp_path / "ran")]
    assert "--out: got" in failure(capsys, *words)
    assert not (tmp_path / "ran").exists()


def test_a_full_disk_ends_in_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("charllm.measure.job.SMALLEST_DISK_BYTES", 1 << 80)
    words = ["measure", "--out", str(tmp_path / "run"), "--telemetry", "none", "--", "touch", str(tmp_path / "ran")]
    assert "a disk with room" in failure(capsys, *words)
    assert not (tmp_path / "ran").exists()


def test_a_disk_that_fills_up_leaves_the_command_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*CHARLLM, "measure", *QUICK, "--out", str(run), "--telemetry", REPLAY, "--rate", "1000", "--"]
    script = 'ulimit -f 32; exec "$@"'
    until_full = "until grep -q 'File too large' $CHARLLM_MARKS/sampler.log; do sleep 0.05; done"
    command = ["bash", "-c", script, "bash", *words, "sh", "-c", f"{until_full}; sleep 1.6; echo done; exit 6"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_coverage())
    assert (done.returncode, done.stdout) == (6, "done\n")
    result = load_run(run)
    assert result.warnings[0].startswith("sampling stopped")
    assert done.stderr.splitlines()[0] == f"charllm: {result.warnings[0]}"
    assert "Traceback" not in done.stderr
    assert result.metrics["power_mean_w"] > 0
    assert "File too large" in (run / "sampler.log").read_text()


# measure: GPUs, secrets, models


@pytest.mark.usefixtures("no_gpu")
def test_without_a_driver_auto_runs_the_command_and_says_why_nothing_was_read(tmp_path: Path) -> None:
    done = measure(tmp_path / "run", "sh", "-c", "echo ran; exit 3", flags=["--telemetry", "auto"])
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert "nothing was read" in done.stderr
    result = load_run(tmp_path / "run")
    # What the machine's network has sent is known without a GPU.
    assert {name for name, value in result.metrics.items() if value is not None} <= {"link_bytes"}
    assert {warning.split(":")[0] for warning in result.warnings} >= set(result.metrics) - {"link_bytes"}
    assert "no usable NVIDIA driver" in result.provenance["telemetry"]["reason"]


@pytest.mark.parametrize(
    ("asked", "seen"),
    [("1", [1]), (f"{uuid(2)},0", [0, 2]), ("GPU-00000001", [1]), ("", []), ("9", []), ("2,9,0", [2])],
)
def test_gpus_that_the_command_cannot_see_are_not_read(asked: str, seen: list[int], tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "three", gpus=3)
    done = measure(tmp_path / "run", "true", flags=["--telemetry", telemetry], CUDA_VISIBLE_DEVICES=asked)
    assert done.returncode == 0
    recording = read_recording(tmp_path / "run")
    assert [gpu for gpu in recording.series if len(recording.fast(gpu).times_s)] == seen
    assert [row["slot"] for row in load_run(tmp_path / "run").gpus] == seen


def test_a_slice_of_a_gpu_ends_in_2(tmp_path: Path) -> None:
    done = measure(tmp_path / "run", "touch", str(tmp_path / "ran"), CUDA_VISIBLE_DEVICES="MIG-1234")
    assert done.returncode == 2
    assert "a MIG slice has no power reading" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_no_secret_is_anywhere_in_the_record(tmp_path: Path) -> None:
    secrets = [f"Q7secret{number}x" for number in range(8)]
    words = [
        f"--api-key={secrets[0]}", "--password", secrets[1], f"HF_TOKEN={secrets[2]}", f"https://me:{secrets[3]}@host",
        f"export AUTH='{secrets[4]}'", secrets[5],
    ]  # fmt: skip
    variables: dict[str, Any] = {
        "MY_TOKEN": secrets[5],
        "NCCL_SECRET_KEY": secrets[6],
        "NCCL_NET": f"x{secrets[7]}",
        "A_KEY": secrets[7],
    }
    done = measure(tmp_path / "run", "true", *words, NCCL_DEBUG="WARN", **variables)
    assert done.returncode == 0
    for path in (tmp_path / "run").rglob("*"):
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], path
    kept = load_run(tmp_path / "run").provenance["measurement"]["environment"]
    assert (kept["NCCL_DEBUG"], kept["NCCL_NET"]) == ("WARN", "x***")


def test_a_real_training_job_gives_steps_tokens_spec_and_mfu(tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "loaded")
    train = [*CHARLLM, *TRAIN, "--steps", "40"]
    done = measure(tmp_path / "run", *train, flags=["--telemetry", telemetry])
    assert done.returncode == 0
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["number"] for step in steps] == list(range(1, 41))
    result = load_run(tmp_path / "run")
    metrics = result.metrics
    assert metrics["tokens_per_s"] == pytest.approx(4 * 16 / metrics["step_time_s"])
    assert result.spec["model"]["hidden"] == 32
    assert result.spec["cluster"]["name"] == "h200x1"
    assert 0 < metrics["mfu"] < 1e-3
    assert metrics["mfu"] == pytest.approx(metrics["model_flop"] / metrics["step_time_s"] / 989.4e12)
    assert metrics["parameters"] == 2 * (32 * 64 + 32 * 32 + 3 * 32 * 64 + 2 * 32) + 2 * 64 * 32 + 32
    assert set(result.provenance["measurement"]["phases_s"]) == {"forward-backward", "update"}
    assert "s per step" in done.stderr


def test_repeats_are_folders_beside_their_mean(tmp_path: Path) -> None:
    done = measure(tmp_path / "run", *until_read(), flags=["--telemetry", REPLAY, "--repeats", "2"])
    assert done.returncode == 0
    single = [load_run(tmp_path / "run" / f"repeat-{number}").metrics["power_mean_w"] for number in range(2)]
    result = load_run(tmp_path / "run")
    assert result.metrics["power_mean_w"] == pytest.approx(np.mean(single))
    low, high = result.provenance["measurement"]["intervals"]["power_mean_w"]
    assert low <= min(single) <= max(single) <= high


def test_a_record_has_a_place_of_its_own_unless_it_is_given_one(tmp_path: Path) -> None:
    assert charllm("measure", *QUICK, "--telemetry", "none", "--", "true", folder=tmp_path).returncode == 0
    assert len(list((tmp_path / "charllm-runs").glob("2*/result.json"))) == 1


# bench


def test_the_bench_writes_a_row_for_every_op_also_for_one_that_fails(tmp_path: Path) -> None:
    run = tmp_path / "run"
    only = "square.512,copy.16MiB,spin.16,idle"
    flags = ["--telemetry", make_replay(tmp_path / "loaded"), "--scale", "0.05", "--device", "cpu"]
    done = charllm("bench", "ops", "--out", str(run), "--only", only, *flags)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"ops": 5, "failed": 2, "folder": str(run)}
    assert "charllm: spin.16: spin.16: needs a GPU" in done.stderr
    with (run / "ops.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert tuple(rows["idle"]) == COLUMNS
    assert list(rows)[-1] == "idle"
    assert rows["spin.16"]["error"] == "spin.16: needs a GPU"
    assert rows["spin.16"]["mean_w"] == ""
    assert (rows["gemm+spin.16"]["kind"], rows["gemm+spin.16"]["calls"]) == ("gemm", "0")
    gemm = rows["square.512"]
    assert float(gemm["mean_w"]) > 100
    assert float(gemm["tflops_or_tbps"]) == pytest.approx(2 * 512**3 / float(gemm["s_per_call"]) / 1e12, rel=1e-4)
    assert float(gemm["t1"]) - float(gemm["t0"]) == pytest.approx(float(gemm["window_s"]), rel=1e-3)


def test_an_interrupted_bench_keeps_the_ops_so_far(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["bench", "ops", "--out", str(run), "--only", "square.512,cool-down", "--telemetry", REPLAY]
    process = subprocess.Popen(
        [*CHARLLM, *words, "--device", "cpu", "--scale", "0.5"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background has them ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    await_file(run / "ops.jsonl")
    while not (run / "ops.jsonl").read_text():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=END_S)
    assert process.returncode == 130
    assert json.loads(out)["ops"] == 1
    assert "square.512" in (run / "ops.csv").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--only", "no-such-op"], "--only: got 'no-such-op'"),
        (["--skip", "e,o,a,s"], "part of a group or name"),
        (["--scale", "0"], "--scale"),
        (["--scale", "nan"], "--scale"),
        (["--telemetry", "nvml"], "no usable NVIDIA driver"),
        (["--device", "cuda"], "--device: got 'cuda'; expected cpu: torch finds no GPU here"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_a_bench_that_cannot_be_ends_in_2(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "ops", "--out", str(tmp_path / "run"), "--device", "cpu", "--only", "idle", *flags]
    assert message in failure(capsys, *words)
    assert not (tmp_path / "run" / "ops.csv").exists()


# train


def tokens_file(path: Path, tokens: list[int]) -> str:
    np.array(tokens, dtype=np.uint16).tofile(path)
    return str(path)


def test_training_reads_tokens_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tokens_file(tmp_path / "tokens.bin", [number % 64 for number in range(200)])
    assert main([*TRAIN, "--steps", "3", "--data", data]) == 0
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(step["number"], step["tokens"]) for step in steps] == [(1, 64), (2, 64), (3, 64)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "{short}"], "more than 16 tokens, it has 16"),
        (["--data", "{foreign}"], "tokens below the vocabulary of 64, it has 64"),
        (["--data", "{odd}"], "a file of uint16 tokens"),
        (["--data", "/nowhere"], "No such file"),
        (["--set", "model.attention_sinks=true"], "model.attention_sinks"),
        (["--set", "model.mtp_layers=1"], "model.mtp_layers"),
        (["--set", "model.vocab=0"], "model.vocab"),
        (["--set", "model.head_dim=7"], "model.head_dim"),
        (["--precision", "fp8"], "training.precision"),
        (["--cluster", "h200x8", "--gbs", "16"], "parallelism: got '8 ranks'; expected 1 rank"),
        (["--steps", "0"], "--steps: got 0"),
        (["--seconds", "-1"], "--seconds: got -1.0"),
        (["--device", "cuda"], "torch finds no GPU here"),
        (["--set", "model.colour=red"], "model.colour"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_training_that_cannot_be_ends_in_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "short": tokens_file(tmp_path / "short", [1] * 16),
        "foreign": tokens_file(tmp_path / "foreign", [64] * 100),
        "odd": str(tmp_path / "odd"),
    }
    (tmp_path / "odd").write_bytes(b"12345")
    assert message in failure(capsys, *TRAIN, *(word.format(**files) for word in words))


# emulate


def test_a_printed_timeline_plays_as_the_spec_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rank.json"
    printed = charllm(*EMULATE, "--rank", "4", "--print-timeline")
    file.write_text(printed.stdout)
    flags = ["--device", "cpu", "--seconds", "0.8", "--telemetry", make_replay(tmp_path / "loaded")]
    done = charllm(*EMULATE, "--rank", "4", *flags, "--out", str(tmp_path / "spec"), "--json")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"charllm: recorded in {tmp_path / 'spec'}")
    assert json.loads(done.stdout)["metrics"] == load_run(tmp_path / "spec").metrics
    predicted = json.loads((tmp_path / "spec" / "predicted.json").read_text())
    asked = charllm(*EMULATE, "--rank", "4", "--seconds", "0.8", "--predict", "--json")
    assert json.loads(asked.stdout) == predicted
    assert 100 < predicted["power_mean_w"] <= predicted["power_peak_sensor_w"] < 1200
    capsys.readouterr()
    assert main(["emulate", "--timeline", str(file), *flags, "--out", str(tmp_path / "file"), "--plots"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("emulated run: llama3-8b on h200x8")
    assert re.search(r"^power_mean_w +[\d.]+ +[\d.]+$", shown, flags=re.MULTILINE)
    assert "power, W" in shown
    for name in ("spec", "file"):
        result = load_run(tmp_path / name)
        assert result.origin == "emulated"
        assert result.provenance["measurement"]["rank"] == 4
        assert result.metrics["power_mean_w"] > 100
        assert result.metrics["step_time_s"] > 0
        assert read_timeline(tmp_path / name / "timeline.json") == read_timeline(file)
    assert result.spec["parallelism"]["pp"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rank", "8"], "--rank: got 8; expected 0 to 7"),
        (["--rank", "-1"], "--rank: got -1"),
        (["--device", "cuda"], "torch finds no GPU here"),
        (["--timeline", "/nowhere"], "No such file"),
        (["--telemetry", "nvml"], "no usable NVIDIA driver"),
        (["--tp", "3"], "parallelism"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_a_rank_that_cannot_be_played_ends_in_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert message in failure(capsys, *EMULATE, "--device", "cpu", "--out", str(run), *words)
    assert not run.exists()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (["conv", [1, 2], "bf16"], "--timeline: got 'conv'"),
        (["gemm", [1, 2], "bf16"], "4 dimensions of at least 1"),
        (["gemm", [1, 2, 3, 0], "bf16"], "4 dimensions of at least 1"),
        (["gemm", [1, 2, 3, "4"], "bf16"], "4 dimensions of at least 1"),
        (["gemm", [1, 2, 3, 4], "int3"], "--timeline: got 'int3'"),
        (["gemm"], "kind, dimensions, precision"),
        (["gemm", 7, "bf16"], "4 dimensions of at least 1"),
    ],
)
def test_a_timeline_of_unknown_kernels_ends_in_2(
    shape: list[Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {
        "format": "charllm-timeline", "version": 1, "rank": 0, "tokens": 1, "spec": {}, "order": [[0, 1]],
        "segments": [{"label": "a", "items": [{"kind": "kernel", "name": "k", "shape": shape}]}],
    }  # fmt: skip
    file, run = tmp_path / "timeline.json", tmp_path / "run"
    file.write_text(json.dumps(table))
    words = ["emulate", "--timeline", str(file), "--device", "cpu", "--telemetry", "none", "--out", str(run)]
    assert message in failure(capsys, *words)
    assert not run.exists()


def test_progress_is_shown_where_someone_is_watching(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(track(iter("abc"), 3, "ops")) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(track(iter("abc"), 3, "ops")) == ["a", "b", "c"]
    printed = capsys.readouterr()
    assert "ops" in printed.err
    assert printed.out == ""


def test_torch_is_asked_for_by_name_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for words in (TRAIN, [*EMULATE, "--device", "cpu"], ["bench", "ops", "--device", "cpu"]):
        assert main(words) == 2
        assert capsys.readouterr().err == "charllm: running kernels needs torch: pip install 'charllm[torch]'\n"
