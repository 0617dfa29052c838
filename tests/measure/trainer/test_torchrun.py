"""charllm train under torchrun, as a user starts it: four gloo ranks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.cli import main
from charllm.cli.train import with_gpus_at_hand
from charllm.errors import SpecError
from charllm.measure.trainer.place import read_launch

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guides" / "train.md").read_text(encoding="utf-8")
(SHOWN,) = [
    block.replace("\\\n", " ").split()
    for block in re.findall(r"```\w*\n(.*?)```", GUIDE, flags=re.DOTALL)
    if "--device cpu" in block
]
LAYOUT = ["--tp", "2", "--pp", "2", "--sp"]
TRAIN = SHOWN[SHOWN.index("train") : SHOWN.index(LAYOUT[0])]


def started(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CHARLLM_MARKS": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_four_ranks_print_the_steps_of_one_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TRAIN) == 0
    expected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert SHOWN[0] == "torchrun"
    assert SHOWN[-len(LAYOUT) :] == LAYOUT
    done = started(SHOWN[1:], tmp_path)
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


def test_two_nodes_of_eight_processes_are_a_cluster_of_sixteen_gpus() -> None:
    launch = read_launch({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"})
    assert (launch.process, launch.processes, launch.local) == (9, 16, 1)
    run = resolve_run(with_gpus_at_hand({"model": "llama3-8b", "parallelism": {"tp": 8}}, "cpu", launch))
    assert (run.cluster.nodes, run.cluster.node.gpus, run.cluster.name) == (2, 8, "h200x16")
    assert run.parallelism.dp == 2


def test_an_environment_that_torchrun_did_not_make_is_refused() -> None:
    with pytest.raises(SpecError, match="whole numbers, as torchrun sets them"):
        read_launch({"RANK": "first"})
