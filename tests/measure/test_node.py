"""Agents of nodes without a batch system: two of them on this machine make one run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from charllm.measure.finish import finish_record
from charllm.measure.launchers.plan import Plan
from charllm.measure.launchers.task import Task, read_task
from charllm.measure.node import UNSEEN, command_on_node
from charllm.measure.record import NODES, JobRecord
from charllm.measure.settings import MeasureSettings
from tests.measure.replays import make_replay

END_S = 60.0


def start(run: Path, rank: int) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "charllm.measure.node", str(run), "--name", f"n{rank}", "--rank", str(rank)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)


def attend(run: Path, command: tuple[str, ...], telemetry: str, **plan: Any) -> Any:
    """Run a command on two nodes and return its result."""
    (run / NODES).mkdir(parents=True)
    task = Task(
        command, Plan("slurm", nodes=2, **plan), MeasureSettings(telemetry=telemetry, idle_s=0.0, cooldown_s=0.1)
    )
    task.write(run)
    assert read_task(run) == task
    agents = [start(run, rank) for rank in range(2)]
    assert [(agent.communicate(timeout=END_S)[1], agent.returncode) for agent in agents] == [("", 0)] * 2
    JobRecord(details={"nodes": 2}, ended=True).write(run)
    return finish_record(run)


def test_a_node_that_fails_ends_the_other_and_is_named(tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "one")
    script = "echo node {node_rank} of {nodes} with $RANK/$WORLD_SIZE; test {node_rank} = 0 || exit 9"
    result = attend(tmp_path / "run", ("sh", "-c", script), telemetry)
    failure = result.provenance["measurement"]["failure"]
    assert (failure["kind"], failure["node"], failure["code"]) == ("crash", "n1", 9)
    log = (tmp_path / "run" / NODES / "n1" / "command.log").read_text()
    assert log == "node 1 of 2 with 1/2\n"
    assert [row["name"] for row in result.nodes] == ["n0", "n1"]


def test_gpus_other_than_those_of_the_spec_are_refused_before_the_command_runs(tmp_path: Path) -> None:
    result = attend(tmp_path / "run", ("touch", str(tmp_path / "ran")), make_replay(tmp_path / "one"), gpu="h100")
    failure = result.provenance["measurement"]["failure"]
    assert (failure["kind"], failure["code"]) == ("refused", 2)
    assert failure["message"] == "another GPU: the spec names h100; n0 has NVIDIA H200; n1 has NVIDIA H200"
    assert not (tmp_path / "ran").exists()


def test_a_node_that_cannot_see_the_folder_says_so(tmp_path: Path) -> None:
    agent = start(tmp_path / "nowhere", 0)
    said = agent.communicate(timeout=END_S)[1]
    assert (agent.returncode, "cannot see the folder" in said) == (UNSEEN, True)


def test_python_is_started_by_torchrun_and_a_template_as_it_is(tmp_path: Path) -> None:
    plan = Plan("slurm", nodes=2, ranks_per_node=4)
    words, more = command_on_node(Task(("t.py",), plan, MeasureSettings(telemetry="none")), 1, "n1", 2950, tmp_path)
    assert "--nproc_per_node=4" in words
    assert more == {}
    template = ("python", "t.py", "{node_rank}", "{head}:{port}", "{ranks}")
    words, more = command_on_node(Task(template, plan, MeasureSettings(telemetry="none")), 1, "n1", 2950, tmp_path)
    assert words == ["python", "t.py", "1", "n1:2950", "8"]
    assert more == {"MASTER_ADDR": "n1", "MASTER_PORT": "2950"}
