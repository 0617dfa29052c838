"""Runs on a real Slurm cluster of two nodes: recorded as one, and kept whatever happens to a node or a sampler."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from charllm.measure.client import HEAD_FILE
from charllm.measure.finish import finish_record
from charllm.measure.launchers.slurm import SCRIPT
from charllm.measure.launchers.task import TASK_FILE
from charllm.measure.marks import Mark
from charllm.measure.parts import read_parts
from charllm.measure.record import read_job
from charllm.result.metrics import COLUMNS
from charllm.result.store import load_run
from tests.measure.replays import find_sampler
from tests.slurm.cluster import NODES, Cluster

ROOT = Path(__file__).parent.parent.parent
END_S = 120.0
STEPS = """
import pathlib, sys, time
import charllm.mark as mark
held = pathlib.Path("hold-" + "".join(sys.argv[2:]))
mark.step(tokens=0)
for number in range(int(sys.argv[1])):
    time.sleep(0.05)
    while number == 15 and held.exists():
        time.sleep(0.05)
    mark.step(number, tokens=100)
    # The kernel's own clock, which nobody can set for one process, and how long it took to read and mark it.
    before_s = time.monotonic()
    mark.point("uptime", float(open("/proc/uptime").read().split()[0]))
    mark.point("took", time.monotonic() - before_s)
"""
GLOO = """
import sys, time
import torch
import torch.distributed as dist
import charllm.mark as mark

dist.init_process_group("gloo")
mark.step(tokens=0)
for number in range(40):
    found = torch.ones(1) * dist.get_rank()
    dist.all_reduce(found)
    time.sleep(0.05)
    mark.step(number, tokens=100)
print("sum", float(found), flush=True)
dist.destroy_process_group()
"""
SKEW = """#!/bin/sh
if [ "$SLURMD_NODENAME" = n2 ]; then exec faketime -f '+100.5s x1.01' "$@"; fi
exec "$@"
"""
BLIND = """#!/bin/sh
if [ "$SLURMD_NODENAME" = n2 ]; then exec "$1" "$2" "$3" "$4.elsewhere"; fi
exec "$@"
"""


@pytest.fixture
def charllm(cluster: Cluster, tmp_path: Path) -> "Charllm":
    cluster.await_free()
    return Charllm(cluster, tmp_path)


class Charllm:
    """The command line, where the cluster is."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.place = place
        (place / "steps.py").write_text(STEPS)
        (place / "gloo.py").write_text(GLOO)
        paths = f"{ROOT / 'src'}:{ROOT}"
        self.environment = {
            **cluster.environment,
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }

    def start(self, *words: str, inside: bool = False) -> "subprocess.Popen[str]":
        """Start a command; inside an allocation of both nodes, where asked."""
        held = ["salloc", "--nodes=2", "--exclusive", "--gres=gpu:2"] if inside else []
        return subprocess.Popen(
            [*held, sys.executable, "-m", "charllm", *words],
            env=self.environment,
            cwd=self.place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        return ended(self.start(*words))

    def script(self, name: str, text: str) -> str:
        path = self.place / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=END_S)
    return process.returncode, out, err


def measure(replay: str, *more: str) -> list[str]:
    words = ["measure", "--launcher", "slurm", "--nodes", "2", "--gpus-per-node", "2", "--telemetry", replay]
    return [*words, "--idle", "0.1", "--cooldown", "0.2", "--out", "run", *more]


def steps(number: int) -> list[str]:
    """A light command: one process on each node that marks its steps."""
    return ["--ranks-per-node", "1", "--", "env", sys.executable, "steps.py", str(number)]


def await_steps(run: Path, number: int) -> None:
    """Wait until every node has marked some steps."""
    await_true(lambda: all(marked(run / "nodes" / node) > number for node in NODES))


def marked(folder: Path) -> int:
    return max((path.read_bytes().count(b",step,") for path in folder.glob("marks-*.csv")), default=0)


def await_true(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + END_S
    while not is_so():
        assert time.monotonic() < end_s, "not within the time given"
        time.sleep(0.05)


def has_ended(job: str) -> bool:
    """Tell whether a job that Slurm describes has ended, well or not."""
    return "JobState=" in job and not any(state in job for state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"))


def failure(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = load_run(run).provenance["measurement"]["failure"]
    return found


def test_four_gloo_ranks_on_two_nodes_are_one_run_and_a_killed_sampler_is_started_again(
    charllm: Charllm, replay: str
) -> None:
    run = charllm.place / "run"
    process = charllm.start(*measure(replay, "--", "gloo.py"))
    await_steps(run, 3)
    sampler = find_sampler(run / "nodes" / "n2")
    assert sampler is not None
    os.kill(sampler, signal.SIGKILL)
    code, _, err = ended(process)
    assert code == 0, err
    result = load_run(run)
    assert [(row["node"], row["rank"]) for row in result.gpus] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert [row["name"] for row in result.nodes] == list(NODES)
    assert all(row["power_mean_w"] > 100 for row in result.gpus)
    assert 0.05 <= result.metrics["step_time_s"] < 1.0
    assert result.provenance["measurement"]["failure"] is None
    logs = [path.read_text() for path in run.glob("nodes/*/logs/*/attempt_0/*/stdout.log")]
    assert logs == ["sum 6.0\n"] * 4
    (told,) = [warning for warning in result.warnings if "sampler" in warning]
    assert told.startswith("node n2: the sampler was killed by SIGKILL and started again: no readings for ")


def uptimes(marks: list[Mark]) -> list[tuple[float, float]]:
    """Return the times of marks with what the kernel's clock showed, where nothing came between the two."""
    shown = [(mark.time_s, float(mark.value)) for mark in marks if mark.name == "uptime"]
    took_s = [float(mark.value) for mark in marks if mark.name == "took"]
    return [pair for pair, span_s in zip(shown, took_s, strict=True) if span_s < 0.005]


def test_inside_an_allocation_clocks_that_are_off_and_drift_are_brought_onto_one_time_line(
    charllm: Charllm, replay: str
) -> None:
    run = charllm.place / "run"
    words = measure(replay, "--prefix", charllm.script("skew", SKEW), *steps(60))
    code, _, err = ended(charllm.start(*words, inside=True))
    assert code == 0, err
    parts = read_parts(run, read_job(run))
    clock = parts[1].clock
    assert clock.start is not None
    assert clock.start.wall_s < -100.4
    assert clock.end is not None
    unsure_s = clock.start.uncertainty_s + clock.end.uncertainty_s
    unsure = unsure_s / (clock.end.at_s - clock.start.at_s)
    assert clock.drift_fraction == pytest.approx(-0.0099, abs=max(0.001, unsure))
    # Each mark against the kernel's clock, which has steps of 10 ms: both nodes are on the head's.
    early = [[time_s - uptime_s for time_s, uptime_s in uptimes(*part.marks.values())] for part in parts]
    assert min(early[0]) == pytest.approx(min(early[1]), abs=0.01)
    assert max(early[0]) == pytest.approx(max(early[1]), abs=0.02)
    result = load_run(run)
    assert result.metrics["power_mean_w"] > 100
    told = result.provenance["measurement"]["nodes"][1]["clock"]
    assert 0 < told["uncertainty_s"] < 0.05


def test_a_lost_node_is_named_and_what_was_recorded_is_kept(charllm: Charllm, cluster: Cluster, replay: str) -> None:
    run = charllm.place / "run"
    process = charllm.start(*measure(replay, *steps(2000)))
    await_steps(run, 20)
    cluster.kill("n2")
    code, _, err = ended(process)
    cluster.bring_back("n2")
    assert code == 1, err
    assert "node loss: node n2 was lost" in err
    assert (failure(run)["kind"], failure(run)["node"]) == ("node_loss", "n2")
    result = load_run(run)
    assert result.metrics["step_time_s"] < 1.0
    assert result.metrics["power_mean_w"] > 100
    assert {row["node"] for row in result.gpus} == {0, 1}


def test_an_interrupt_ends_the_job_and_keeps_what_was_recorded(charllm: Charllm, cluster: Cluster, replay: str) -> None:
    run = charllm.place / "run"
    process = charllm.start(*measure(replay, *steps(2000)))
    await_steps(run, 5)
    # The head listens on the interface of the job's nodes only, and its file is private.
    head = run / "nodes" / HEAD_FILE
    assert [address for address, _port in json.loads(head.read_text())["addresses"]] == ["127.0.0.1"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (head, run / TASK_FILE, run / SCRIPT))
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130, err
    assert failure(run)["kind"] == "cancelled"
    assert load_run(run).metrics["step_time_s"] < 1.0
    assert cluster.ask("squeue", "-h", "-t", "RUNNING") == ""


def test_a_job_that_nobody_waits_for_is_finished_later(charllm: Charllm, cluster: Cluster, replay: str) -> None:
    run = charllm.place / "run"
    crash = ["--time-limit", "60", "--ranks-per-node", "1", "--", "sh", "-c", "test {node_rank} = 0 || exit 7"]
    code, out, err = charllm.run(*measure(replay, "--submit-only", *crash))
    assert code == 0, err
    assert out.strip().isdecimal()
    assert "charllm show run" in err
    await_true(lambda: has_ended(cluster.ask("scontrol", "show", "job", "-o", out.strip())))
    os.environ["SLURM_CONF"] = cluster.environment["SLURM_CONF"]
    try:
        result = finish_record(run)
    finally:
        del os.environ["SLURM_CONF"]
    assert result.provenance["measurement"]["exit_code"] == 7
    assert failure(run)["kind"] == "crash"
    assert failure(run)["message"] == "crash: the command on node n2 ended with exit code 7"


STUDY = """
request = { model = "gpt2", framework = "pytorch-eager" }
[[groups]]
request = { cluster = { base = "h200x1", name = "h200x2", nodes = 2, fabric = "ib-100g-per-node" } }
axes.mbs = { field = "training.micro_batch_size", values = [1, 2] }
[[groups]]
request = { cluster = { base = "h200x1", name = "h200x16", nodes = 16, fabric = "ib-100g-per-node" } }
axes.ranks = { "sixteen ranks" = { parallelism = { dp = 16 } } }
"""


def test_a_study_that_lost_a_node_ends_with_the_same_table(charllm: Charllm, cluster: Cluster, steady: str) -> None:
    (charllm.place / "study.toml").write_text(STUDY)
    command = f"env {sys.executable} steps.py {{steps}} {{mbs}}"
    words = ["sweep", "study.toml", "--measure", "--runner", "slurm", "--nodes", "2", "--command", command]
    words += ["--steps", "25", "--telemetry", steady, "--idle", "0", "--cooldown", "0.2", "--json"]
    code, whole, err = charllm.run(*words, "--out", "whole")
    assert code == 0, err
    # The second case goes on until its node is lost.
    (charllm.place / "hold-2").touch()
    disturbed = charllm.start(*words, "--out", "disturbed")
    await_steps(charllm.place / "disturbed" / "runs" / ".0001", 10)
    cluster.kill("n2")
    (charllm.place / "hold-2").unlink()
    cluster.bring_back("n2")
    code, _, err = ended(disturbed)
    assert code == 1, err
    assert "1 of them failed; try again with: charllm sweep" in err
    code, resumed, err = charllm.run(*words, "--out", "disturbed", "--resume")
    assert code == 0, err
    same_table(whole, resumed)


def settings(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row["summary"].items() if name not in COLUMNS}


def same_table(first: str, second: str) -> None:
    """Compare two measured studies: cases, settings, verdicts and powers are the same, times as near as sleeps are."""
    rows = [[json.loads(line) for line in text.splitlines()] for text in (first, second)]
    assert [row["exit_code"] for row in rows[0]] == [0, 0, 2]
    for before, after in zip(*rows, strict=True):
        assert (before["case"], before["exit_code"]) == (after["case"], after["exit_code"])
        assert settings(before) == settings(after)
        if before["exit_code"] == 0:
            assert after["summary"]["power_mean_w"] == pytest.approx(before["summary"]["power_mean_w"], rel=0.02)
            assert all(0.05 <= row["summary"]["step_time_s"] < 0.5 for row in (before, after))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--partition", "mian"], "did you mean main?"),
        (["--time", "soon"], "Slurm rejected the job: Invalid --time specification"),
        (["--setup", "module load cuda/99"], "--setup failed: module load cuda/99: "),
        (["--prefix", "./blind"], "expected a folder that every node of the job can see"),
    ],
    ids=["partition", "time", "module", "folder"],
)
def test_what_a_cluster_cannot_do_is_refused(charllm: Charllm, replay: str, words: list[str], said: str) -> None:
    charllm.script("blind", BLIND)
    code, _, err = charllm.run(*measure(replay, *words, *steps(1)))
    assert code == 2, err
    assert said in err
