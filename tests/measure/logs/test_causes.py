"""Why a job failed, told from what it printed."""

import pytest

from charllm.measure.logs.causes import KINDS, find_cause

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    step()\n{}\n'
CASES = {
    "out-of-memory": [
        TRACE.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        TRACE.format("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."),
        "node1:12:34 [0] transport.cc:10 NCCL WARN Cuda failure 2 'out of memory'\n",
        "ggml: cudaMalloc failed: out of memory\n",
        "charllm: llama3-8b does not fit on this GPU while it is trained\n",
    ],
    "host-out-of-memory": [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.\n",
        TRACE.format("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
    "gpu-lost": [
        "[ 12.3] NVRM: Xid (PCI:0000:0a:00): 79, pid=12, GPU has fallen off the bus.\n",
        TRACE.format("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ],
    "time-limit": ["slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"],
    "node-failure": [
        "srun: error: Node failure on n2\n",
        "*** JOB 7 ON n1 CANCELLED AT 2026 DUE TO NODE FAILURE ***\n",
    ],
    "preempted": ["slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n"],
    "cancelled": ["slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\n"],
    "disk-full": [TRACE.format("OSError: [Errno 28] No space left on device")],
    "driver": [TRACE.format("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).")],
    "no-gpu": [TRACE.format("RuntimeError: No CUDA GPUs are available")],
    "missing-module": [
        TRACE.format("ModuleNotFoundError: No module named 'transformer_engine'"),
        "bash: torchrun: command not found\n",
        "python: can't open file 'pretrain_gpt.py': [Errno 2] No such file or directory\n",
    ],
    "wrong-arguments": [
        "usage: pretrain_gpt.py [-h]\npretrain_gpt.py: error: unrecognized arguments: --tensor-parallel\n",
        "charllm: --tp: got 3; expected a divisor of 8\n",
    ],
    "nan-loss": [TRACE.format("RuntimeError: found NaN in local forward loss calculation. Device: 3")],
    "rendezvous": [TRACE.format("torch.distributed.DistStoreError: The client socket has timed out after 60s")],
    "collective-timeout": [
        "[rank3]:[E ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(\n"
    ],
    "collective-error": [
        TRACE.format("torch.distributed.DistBackendError: NCCL error in: x.cpp, ncclRemoteError: the other end is gone")
    ],
    "exception": [TRACE.format("ValueError: shapes do not match"), TRACE.format("AssertionError")],
    "crash": ["Fatal Python error: Segmentation fault\n"],
    "killed": ["Killed\n"],
    "unknown": ["all is well\n"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CASES.items() for text in texts])
def test_a_failure_is_told_by_its_words(kind: str, text: str) -> None:
    failure = find_cause([f"starting\nstep 1 loss 3.0\n{text}"], 1)
    assert failure is not None
    assert (failure.kind, failure.meaning) == (kind, KINDS[kind])
    assert failure.words


def test_every_kind_of_failure_is_tried_here() -> None:
    assert set(CASES) == set(KINDS)


def test_the_first_rank_that_failed_is_named_not_those_that_noticed() -> None:
    noticed = "[rank0]: " + TRACE.format("torch.distributed.DistBackendError: NCCL error").replace("\n", "\n[rank0]: ")
    cause = "[rank5]: " + TRACE.format("IndexError: token 50258").replace("\n", "\n[rank5]: ")
    failure = find_cause([f"{noticed}\n{cause}\n"], 1)
    assert failure is not None
    assert (failure.kind, failure.rank, failure.words) == ("exception", 5, "IndexError: token 50258")


def test_the_root_cause_of_torchrun_names_rank_and_node() -> None:
    report = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_00:00:00\n  host      : n7\n"
        "  rank      : 11 (local_rank: 3)\n  exitcode  : -9 (pid: 123)\n"
    )
    failure = find_cause([report], 1)
    assert failure is not None
    assert (failure.kind, failure.rank, failure.node) == ("killed", 11, "n7")


def test_an_exception_that_the_job_survived_is_not_the_reason() -> None:
    text = TRACE.format("ValueError: retried") + "iter 1: loss 3.0, time 10.00ms\n" + TRACE.format("KeyError: 'x'")
    failure = find_cause([text], 1)
    assert failure is not None
    assert failure.words == "KeyError: 'x'"


def test_slurm_states_and_exit_codes_speak_where_the_log_is_silent() -> None:
    cases: list[tuple[int | None, str | None, str]] = [
        (None, "NODE_FAIL", "node-failure"),
        (1, "TIMEOUT", "time-limit"),
        (1, "OUT_OF_MEMORY", "host-out-of-memory"),
    ]
    cases += [(137, None, "killed"), (139, None, "crash"), (127, None, "missing-module"), (0, "PREEMPTED", "preempted")]
    cases += [(None, None, "unknown"), (15, "CANCELLED by 0", "cancelled")]
    for code, state, kind in cases:
        failure = find_cause([], code, state)
        assert failure is not None
        assert failure.kind == kind
    assert find_cause(["CUDA out of memory"], 0) is None
    assert find_cause([], 0, "COMPLETED") is None


def test_logs_by_node_name_the_node() -> None:
    failure = find_cause({"n1": "fine\n", "n2": TRACE.format("RuntimeError: boom")}, 1)
    assert failure is not None
    assert failure.node == "n2"
