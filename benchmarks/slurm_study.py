"""A study of 12 cases measured on a real Slurm cluster by the reference trainer, and again with a node killed.

    python -m benchmarks.slurm_study

Two nodes on this machine, two gloo ranks on each, H200 captures replayed as their GPUs. It prints how long both took,
and whether the study that lost a node, once continued, has the same cases, settings and verdicts as the other.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from charllm.result.metrics import COLUMNS
from tests.measure.replays import make_replay
from tests.slurm.cluster import NODES, Cluster, running

STUDY = """
about = "Layouts of four ranks on two nodes"
[request]
framework = "pytorch-eager"
training = { seq_length = 32, global_batch_size = 8, precision = "fp32" }
cluster = { base = "h200x1", name = "four-h200", nodes = 4, fabric = "ib-100g-per-node" }
[request.model]
base = "gpt2"
name = "tiny"
layers = 4
hidden = 64
heads = 4
kv_heads = 4
ffn = 128
head_dim = 16
vocab = 256
[[groups]]
axes.mbs = { field = "training.micro_batch_size", values = [1, 2] }
[groups.axes.layout]
"dp4" = { parallelism = { dp = 4 } }
"tp2 dp2" = { parallelism = { tp = 2, dp = 2 } }
"tp4" = { parallelism = { tp = 4 } }
"pp2 dp2" = { parallelism = { pp = 2, dp = 2 } }
"tp2 pp2" = { parallelism = { tp = 2, pp = 2 } }
"fsdp4" = { parallelism = { dp = 4, zero = 3 } }
"""
KILLED_CASE, KILLED_STEP = 4, 2
COMMAND = "charllm train {spec} --device cpu --steps {steps}"
END_S = 3600.0
MEASURED = ("step_time_s", "tokens_per_s", "power_mean_w", "energy_per_step_j", "temperature_mean_c", "clock_mean_hz")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="charllm-slurm-") as folder:
        place = Path(folder)
        (place / "slurm").mkdir()
        (place / "study.toml").write_text(STUDY)
        replay = make_replay(place / "capture", gpus=2)
        with running(place / "slurm") as cluster:
            whole, whole_s = _sweep(cluster, place, replay, "whole")
            disturbed_s = _disturb(cluster, place, replay)
            resumed, resumed_s = _sweep(cluster, place, replay, "disturbed", "--resume")
    print(f"undisturbed: {len(whole)} cases in {whole_s:.0f} s")
    print(f"a node killed in case {KILLED_CASE}: {disturbed_s:.0f} s, then continued: {resumed_s:.0f} s")
    same = [_fixed(before) == _fixed(after) for before, after in zip(whole, resumed, strict=True)]
    print(f"same case, verdict, settings and known metrics: {sum(same)} of {len(same)}")
    for before, after in zip(whole, resumed, strict=True):
        step_s = [row["summary"]["step_time_s"] for row in (before, after)]
        print(f"  {before['case']:20} exit code {before['exit_code']}, s per step {step_s}")
    return 0 if all(same) and all(row["exit_code"] == 0 for row in whole) else 1


def _words(replay: str, out: str) -> list[str]:
    words = ["sweep", "study.toml", "--measure", "--launcher", "slurm", "--nodes", "2", "--gpus-per-node", "2"]
    words += ["--command", COMMAND, "--steps", "8", "--telemetry", replay, "--idle", "0", "--cooldown", "0.2"]
    return [*words, "--json", "--out", out]


def _start(cluster: Cluster, place: Path, words: list[str]) -> "subprocess.Popen[str]":
    root = Path(__file__).parent.parent
    variables = {"PYTHONPATH": f"{root / 'src'}:{root}", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        [sys.executable, "-m", "charllm", *words],
        env={**cluster.environment, **variables},
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("CHARLLM_TELL") else subprocess.PIPE,
        text=True,
    )


def _sweep(cluster: Cluster, place: Path, replay: str, out: str, *more: str) -> tuple[list[dict[str, Any]], float]:
    began_s = time.monotonic()
    process = _start(cluster, place, [*_words(replay, out), *more])
    found, told = process.communicate()
    if process.returncode:
        print(told)
    return [json.loads(line) for line in found.splitlines()], time.monotonic() - began_s


def _disturb(cluster: Cluster, place: Path, replay: str) -> float:
    """Sweep, kill a node in the middle of a case, and bring it back."""
    began_s = time.monotonic()
    process = _start(cluster, place, _words(replay, "disturbed"))
    case = place / "disturbed" / "runs" / f".{KILLED_CASE:04d}"
    while not all(_steps(case / "nodes" / node) >= KILLED_STEP for node in NODES):
        if process.poll() is not None or time.monotonic() - began_s > END_S:
            raise SystemExit(f"case {KILLED_CASE}, which is to be disturbed, never ran")
        time.sleep(0.02)
    cluster.kill("n2")
    cluster.bring_back("n2")
    process.communicate()
    if process.returncode != 1:
        raise SystemExit(f"expected one failed case, got exit code {process.returncode}")
    return time.monotonic() - began_s


def _steps(node: Path) -> int:
    return max((path.read_bytes().count(b",step,") for path in node.glob("marks-*.csv")), default=0)


def _fixed(row: dict[str, Any]) -> list[Any]:
    """Return what a rerun must repeat: name, verdict, settings, and that times and powers are known."""
    settings = {name: value for name, value in row["summary"].items() if name not in COLUMNS}
    known = {name: row["summary"][name] is not None for name in MEASURED}
    return [row["case"], row["exit_code"], settings, known]


if __name__ == "__main__":
    sys.exit(main())
