"""Simulated studies as array jobs of a real Slurm cluster of two nodes: the same table as on one machine."""

import json
import signal

import pytest

from charllm.sweep.run import run_study
from charllm.sweep.study import load_study
from tests.coverage_off import STARTS_COVERAGE
from tests.slurm.cluster import Cluster
from tests.slurm.test_slurm import Charllm, await_true, charllm, ended
from tests.sweep.test_run import interrupted

__all__ = ["charllm"]
STUDY = """
request = { cluster = "h200x8", model = "llama3-8b" }
[[groups]]
axes.tp = { field = "parallelism.tp", values = [1, 2, 3] }
"""
SLURM = ["--runner", "slurm", "--workers", "2", "--json"]


@pytest.fixture
def study(charllm: Charllm) -> list[str]:
    (charllm.place / "study.toml").write_text(STUDY)
    return ["sweep", "study.toml"]


def running(cluster: Cluster) -> str:
    return cluster.ask("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i")


def test_an_array_continues_a_local_sweep_loses_a_task_and_ends_with_the_table_of_one_machine(
    charllm: Charllm, cluster: Cluster, study: list[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_study(load_study(str(charllm.place / "study.toml")), out=charllm.place / "out", progress=interrupted)
    process = charllm.start(*study, *SLURM, "--setup", "sleep 5", "--out", "out", "--resume")
    await_true(lambda: "_0" in running(cluster))
    cluster.ask("scancel", next(word for word in running(cluster).split() if word.endswith("_0")))
    code, swept, err = ended(process)
    assert code == 0, err
    assert "has lost 1 case" in err
    assert "; submitting again" in err
    assert not (charllm.place / "out" / ".slurm").exists()
    code, local, err = charllm.run(*study, "--json")
    assert code == 0, err
    assert swept == local


def test_a_killed_sweep_leaves_no_job_behind_when_another_runner_continues_it(
    charllm: Charllm, cluster: Cluster, study: list[str]
) -> None:
    process = charllm.start(*study, *SLURM, "--setup", "sleep 60", "--out", "out")
    await_true(lambda: running(cluster) != "")
    process.kill()
    ended(process)
    code, swept, err = charllm.run(*study, "--json", "--out", "out", "--resume")
    assert code == 0, err
    assert [json.loads(line)["exit_code"] for line in swept.splitlines()] == [0, 0, 2]
    assert running(cluster) == ""


def test_an_interrupt_cancels_the_array(charllm: Charllm, cluster: Cluster, study: list[str]) -> None:
    process = charllm.start(*study, *SLURM, "--setup", "sleep 60", "--out", "out")
    await_true(lambda: running(cluster) != "")
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert "0 of 3 cases are stored in out; continue with: charllm sweep study.toml --out out --resume" in err
    assert "--runner slurm --workers 2 --setup 'sleep 60'" in err
    await_true(lambda: running(cluster) == "")


def test_a_setup_that_fails_is_refused(charllm: Charllm, study: list[str]) -> None:
    code, _, err = charllm.run(*study, *SLURM, "--setup", "false", "--out", "out")
    assert code == 2, err
    assert err.splitlines()[-1] == "charllm: --setup failed: false:"


def test_a_full_disk_is_told_once(charllm: Charllm, study: list[str]) -> None:
    for variable in STARTS_COVERAGE:
        charllm.environment.pop(variable, None)
    code, _, err = charllm.run(*study, *SLURM, "--setup", "ulimit -f 4", "--out", "out")
    assert code == 1, err
    assert "charllm: cannot write" in err
    assert "submitting again" not in err
