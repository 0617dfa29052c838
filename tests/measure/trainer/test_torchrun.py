"""charllm train under torchrun, as a user starts it: four gloo ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from charllm.cli import main

TRAIN = [
    "train", "--model", "llama3-8b", "--set", "model.layers=2", "--set", "model.hidden=32", "--set", "model.ffn=64",
    "--set", "model.heads=4", "--set", "model.kv_heads=2", "--set", "model.head_dim=8", "--set", "model.vocab=64",
    "--seq", "16", "--mbs", "1", "--gbs", "4", "--precision", "fp32", "--device", "cpu", "--steps", "20",
]  # fmt: skip
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "-m", "charllm"]


def started(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CHARLLM_MARKS": str(folder)}
    return subprocess.run(
        [*TORCHRUN, *words], env=variables, capture_output=True, text=True, timeout=240, check=False
    )


def test_four_ranks_print_the_steps_of_one_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TRAIN) == 0
    expected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    done = started([*TRAIN, "--tp", "2", "--pp", "2", "--sp"], tmp_path)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["number"] for step in steps] == list(range(1, 21))
    assert [step["loss"] for step in steps] == pytest.approx([step["loss"] for step in expected], abs=1e-5)
    assert all(step["tokens_per_s"] == pytest.approx(64 / step["seconds_s"]) for step in steps)
    assert sorted(file.name.split("-")[1] for file in tmp_path.glob("marks-*.csv")) == ["0", "1", "2", "3"]
    degrees = json.loads((tmp_path / "spec.json").read_text())["parallelism"]
    assert (degrees["tp"], degrees["pp"], degrees["dp"]) == (2, 2, 1)


def test_a_cluster_of_other_size_than_the_ranks_ends_in_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert main([*TRAIN, "--cluster", "h200x8", "--tp", "4", "--gbs", "16"]) == 2
    told = capsys.readouterr().err
    assert "parallelism: got '8 ranks'; expected 4 ranks, one for each process" in told
    assert "torchrun --nproc-per-node=8" in told
