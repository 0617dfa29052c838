"""Ranks of a script or module on one node."""

import os
import sys
from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.measure.job import Job, measure_job
from charllm.measure.launchers.plan import Plan
from charllm.measure.launchers.torchrun import alone, around, python_part, rank_logs, torchrun
from charllm.measure.settings import MeasureSettings
from tests.measure.replays import make_replay


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["train.py", "--lr", "1"], ["train.py", "--lr", "1"]),
        (["python3.12", "train.py"], ["train.py"]),
        (["/opt/bin/python", "-m", "mine", "x"], ["-m", "mine", "x"]),
        (["charllm", "train", "spec.toml"], ["-m", "charllm", "train", "spec.toml"]),
        (["bash", "run.sh"], None),
        (["python", "-c", "print()"], None),
    ],
)
def test_scripts_and_modules_are_found_in_a_command(command: list[str], part: list[str] | None) -> None:
    assert python_part(command) == part


def test_ranks_of_several_nodes_are_numbered_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    words = torchrun(["train.py"], 4, around("n1", 29500, 2, 1), tmp_path)
    assert {"--nnodes=2", "--node_rank=1", "--master_addr=n1", "--master_port=29500", "--nproc_per_node=4"} <= {*words}
    assert words[-1] == "train.py"


def test_what_is_not_python_is_refused() -> None:
    with pytest.raises(SpecError, match=r"COMMAND: got 'bash run\.sh'; expected a Python script"):
        torchrun(["bash", "run.sh"], 2, alone(), None)


RANK = """
import os, charllm.mark as mark
mark.step(tokens=0)
mark.step(1, tokens=10)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
assert os.environ["RANK"] != "1", "not me"
"""


def test_ranks_on_this_machine_are_measured_and_the_one_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANK)
    run = tmp_path / "run"
    telemetry = make_replay(tmp_path / "two", gpus=2)
    command = (sys.executable, str(tmp_path / "train.py"))
    settings = MeasureSettings(telemetry=telemetry, idle_s=0.0, cooldown_s=0.0)
    job = Job(command, run, settings, Plan("torchrun", ranks_per_node=2))
    result, code = measure_job(job, os.environ)
    failure = result.provenance["measurement"]["failure"]
    assert (code, failure["kind"], failure["rank"]) == (1, "crash", 1)
    assert failure["message"].startswith("crash: rank 1 ended with exit code 1")
    assert sorted(rank_logs(run, 0)) == [0, 1]
    assert {path.name.split("-")[1] for path in run.glob("marks-*.csv")} == {"0", "1"}
