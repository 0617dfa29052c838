"""Programs without marks, and preflight, on a real Slurm cluster of two nodes."""

import json
import sys

import pytest

from charllm.result.store import load_run
from tests.slurm.cluster import NODES
from tests.slurm.test_slurm import Charllm, charllm, ended, measure

__all__ = ["charllm"]
TALK = """
import os, time
for number in range(1, 21):
    time.sleep(0.05)
    if os.environ["RANK"] == "1":
        print(f" iteration {number:8d}/      20 | consumed samples: {number * 8:12d} | "
              "elapsed time per iteration (ms): 50.0 | "
              f"global batch size:     8 | lm loss: {9 - number / 10:.6E} | loss scale: 1.0 |")
"""
"""As Megatron-LM does, the last rank reports."""


def test_steps_of_a_program_on_two_nodes_come_from_its_log(charllm: Charllm, replay: str) -> None:
    charllm.script("talk.py", TALK)
    words = ["--ranks-per-node", "1", "--", "env", sys.executable, "talk.py"]
    code, _, err = charllm.run(*measure(replay, *words))
    assert code == 0, err
    result = load_run(charllm.place / "run")
    assert result.provenance["measurement"]["steps"] >= 5
    assert result.metrics["step_time_s"] == pytest.approx(0.06, abs=0.03)


def test_preflight_looks_at_every_node_of_the_allocation(charllm: Charllm, replay: str) -> None:
    words = ("preflight", "--nodes", "2", "--telemetry", "none", "--out", str(charllm.place), "--json")
    code, out, err = ended(charllm.start(*words, inside=True))
    assert code == 0, out + err
    answer = json.loads(out)
    assert [node["node"] for node in answer["nodes"]] == list(NODES)
    found = {check["name"]: check for check in answer["checks"]}
    assert found["equal: python version"]["state"] == "ok"
    assert found["all-reduce"]["found"].startswith("2 ranks over gloo")
    assert found["shared folder"]["state"] == "ok"
