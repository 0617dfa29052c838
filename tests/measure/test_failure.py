"""Why a run failed, told from what its nodes and Slurm have left on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from charllm.measure.failure import Failure, judge
from charllm.measure.launchers.slurm import END_FILE, SETUP_FAILED
from charllm.measure.output import LOG_FILE
from charllm.measure.parts import read_parts
from charllm.measure.record import NODES, JobRecord
from charllm.result.files import HEADER_FILE

ROOT_CAUSE = """
Root Cause (first observed failure):
[0]:
  time      : 2026-11-16_17:47:42
  host      : localhost
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 1234)
"""


class Run:
    """A run on two nodes, as it lies on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / NODES).mkdir(parents=True)

    def node(self, name: str, rank: int, log: str = "", **details: Any) -> None:
        place = self.folder / NODES / name
        (place / "logs").mkdir(parents=True)
        (place / LOG_FILE).write_text(log)
        ended = details.pop("ended", True)
        JobRecord(details={"node_rank": rank, "ranks_per_node": 2, **details}, ended=ended).write(place)

    def rank_log(self, name: str, local: int, text: str) -> None:
        place = self.folder / NODES / name / "logs" / "none_x" / "attempt_0" / str(local)
        place.mkdir(parents=True)
        (place / "stderr.log").write_text(text)

    def verdict(self, **verdict: Any) -> None:
        (self.folder / NODES / END_FILE).write_text(json.dumps({"kind": "", "events": [], **verdict}))

    def judge(self, state: str = "COMPLETED", *, ended: bool = True, **details: Any) -> Failure | None:
        job = JobRecord(details={"slurm": {"job_id": "7", "state": state}, **details}, ended=ended)
        return judge(self.folder, job, read_parts(self.folder, job))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def told(failure: Failure | None) -> tuple[str, str | None, int | None, int]:
    assert failure is not None
    return failure.kind, failure.node, failure.rank, failure.code


def test_nodes_that_ended_well_have_not_failed(run: Run) -> None:
    run.node("n1", 0, exit_code=0)
    run.node("n2", 1, exit_code=0)
    run.verdict()
    assert run.judge() is None


def test_out_of_memory_is_found_in_the_log_of_any_rank(run: Run) -> None:
    run.node("n1", 0, ROOT_CAUSE.format(rank=0, code=1), exit_code=1)
    run.node("n2", 1, ROOT_CAUSE.format(rank=3, code=1), exit_code=1)
    run.rank_log("n1", 0, "RuntimeError: Connection closed by peer")
    run.rank_log("n2", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n")
    run.verdict(events=[{"node": "n1"}, {"node": "n2"}])
    failure = run.judge()
    assert told(failure) == ("out_of_memory", "n2", 3, 1)
    assert failure is not None
    assert failure.message.startswith("out of memory: rank 3 on node n2: torch.OutOfMemoryError")


def test_the_rank_that_failed_first_is_named_and_not_those_that_lost_it(run: Run) -> None:
    run.node("n1", 0, ROOT_CAUSE.format(rank=1, code=1), exit_code=1)
    run.node("n2", 1, ROOT_CAUSE.format(rank=3, code=1), exit_code=1)
    run.rank_log("n1", 1, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]")
    run.rank_log("n2", 1, "Traceback\nValueError: no such thing\n")
    run.verdict(events=[{"node": "n1"}, {"node": "n2"}])
    failure = run.judge()
    assert told(failure) == ("crash", "n2", 3, 1)
    assert failure is not None
    assert failure.message == "crash: rank 3 on node n2 ended with exit code 1: ValueError: no such thing"


def test_a_signal_is_named(run: Run) -> None:
    run.node("n1", 0, ROOT_CAUSE.format(rank=1, code=-11), exit_code=1)
    run.verdict()
    failure = run.judge()
    assert failure is not None
    assert (failure.signal, failure.code) == ("SIGSEGV", 139)
    assert failure.message == "crash: rank 1 on node n1 was ended by SIGSEGV"


def test_a_node_that_was_stopped_is_not_the_one_that_failed(run: Run) -> None:
    run.node("n1", 0, exit_code=143, stopped="failed")
    run.node("n2", 1, "boom\n", exit_code=7)
    run.verdict()
    assert told(run.judge()) == ("crash", "n2", None, 7)


@pytest.mark.parametrize(
    ("state", "kind", "code"),
    [
        ("TIMEOUT", "time_out", 124),
        ("NODE_FAIL", "node_loss", 1),
        ("PREEMPTED", "preempted", 143),
        ("OUT_OF_MEMORY", "out_of_memory", 1),
        ("CANCELLED", "cancelled", 130),
    ],
)
def test_the_state_of_a_slurm_job_says_why_it_ended(run: Run, state: str, kind: str, code: int) -> None:
    run.node("n1", 0, exit_code=143, stopped="SIGTERM")
    run.verdict()
    failure = run.judge(state)
    assert failure is not None
    assert (failure.kind, failure.code) == (kind, code)
    assert failure.message.endswith(f"(job 7 is {state})")


@pytest.mark.parametrize(("kind", "code"), [("node_loss", 1), ("time_out", 124), ("cancelled", 130), ("refused", 2)])
def test_what_the_head_saw_comes_before_the_state_that_followed_from_it(run: Run, kind: str, code: int) -> None:
    run.node("n1", 0, exit_code=143, stopped=kind)
    run.verdict(kind=kind, node="n2", message="it was so")
    failure = run.judge("CANCELLED")
    assert failure is not None
    assert (failure.kind, failure.code) == (kind, code)


def test_a_node_that_fell_silent_with_its_head_is_lost(run: Run) -> None:
    run.node("n1", 0, exit_code=None, ended=False)
    run.node("n2", 1, exit_code=143, stopped="head_loss")
    assert told(run.judge("FAILED")) == ("node_loss", "n1", None, 1)


def test_a_folder_that_no_node_has_written_to_is_told(run: Run) -> None:
    (run.folder / "slurm.log").write_text("slurmstepd: error: no such folder\n")
    failure = run.judge("FAILED")
    assert told(failure) == ("refused", None, None, 2)
    assert failure is not None
    assert "last log line: slurmstepd: error: no such folder" in failure.message


def test_a_line_of_setup_that_failed_is_told(run: Run) -> None:
    (run.folder / SETUP_FAILED).write_text("module load cuda: not found\n")
    failure = run.judge("FAILED")
    assert failure is not None
    assert (failure.message, failure.code) == ("--setup failed: module load cuda: not found", 2)


def test_a_job_that_still_runs_has_not_failed(run: Run) -> None:
    run.node("n1", 0, exit_code=None, ended=False)
    assert run.judge("RUNNING", ended=False) is None


@pytest.mark.parametrize(
    ("details", "kind", "message"),
    [
        ({"exit_code": 0}, None, ""),
        ({"exit_code": None}, None, ""),
        ({"exit_code": 124, "timed_out": True}, "time_out", "time-out: the command was ended at its time limit"),
        ({"exit_code": 130, "interrupted": True}, "cancelled", "cancelled: the command was interrupted"),
        ({"exit_code": 7}, "crash", "crash: the command ended with exit code 7"),
        ({"exit_code": 143}, "crash", "crash: the command was ended by SIGTERM"),
    ],
)
def test_a_command_on_this_machine_is_judged_by_its_code(
    tmp_path: Path, details: dict[str, Any], kind: str | None, message: str
) -> None:
    (tmp_path / HEADER_FILE).write_text(
        json.dumps(
            {"format": "charllm-recording", "version": 2, "source": "none", "details": {}, "gpus": [], "beats": {},
             "capabilities": {}}
        )
    )  # fmt: skip
    job = JobRecord(details=details, ended=True)
    failure = judge(tmp_path, job, read_parts(tmp_path, job))
    assert (None if failure is None else failure.kind) == kind
    assert failure is None or failure.message == message
