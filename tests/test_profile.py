"""Marked steps drive torch's profiler: a trace beside the marks, on their clock."""

import os
import sys
from pathlib import Path

import pytest
import torch

import charllm
from charllm import mark
from charllm.errors import SpecError
from charllm.measure.hooked import hook_in
from charllm.measure.marks import find_phases, find_steps, read_marks
from charllm.measure.profiled import part_profiled
from charllm.profile import PHASE, ProfiledSteps, StepProfiler, parse_profile, trace_path
from charllm.trace.clock import read_clock
from charllm.trace.run import read_run


def test_what_is_asked_is_steps_and_perhaps_the_first() -> None:
    assert parse_profile("3") == ProfiledSteps(3)
    assert str(parse_profile("3@20")) == "3@20"
    for text in ("", "0", "3@", "a", "-1"):
        with pytest.raises(SpecError, match="--profile"):
            parse_profile(text)


def test_a_few_marked_steps_are_traced_at_a_known_cost(tmp_path: Path) -> None:
    weight = torch.randn(64, 64)
    profiler = StepProfiler(ProfiledSteps(2, 4), trace_path(tmp_path, 0))
    with mark.recording_to(str(tmp_path)), mark.profiling_by(profiler):
        for number in range(14):
            (weight @ weight).sum().item()
            mark.step(number, tokens=64)
    (marks,) = read_marks(tmp_path).values()
    assert len(find_phases(marks)[PHASE]) == 1
    profiled = part_profiled(find_steps(marks), marks)
    assert len(profiled.recorded) == 2
    assert [len(stretch) for stretch in profiled.others] == [3, 6]
    assert profiled.as_table()["cost_fraction"] is not None
    (rank,) = read_run([tmp_path]).ranks
    assert len(rank.windows) == 2
    clock = read_clock(rank.trace)
    assert clock is not None
    start_s, end_s = (float(clock.monotonic_s(rank.trace.events.start_s)[place]) for place in (0, -1))
    (window,) = find_phases(marks)[PHASE]
    assert window[0] <= start_s <= end_s <= window[1]
    assert clock.error_s < 1e-3


PLAIN_JOB = """
import torch
weight = torch.nn.Parameter(torch.randn(32, 32))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(12):
    (torch.randn(8, 32) @ weight).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_script_that_marks_nothing_is_traced_by_its_optimizers_steps(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PLAIN_JOB)
    command = [sys.executable, str(tmp_path / "job.py")]
    run = tmp_path / "run"
    charllm.measure_command(command, run, telemetry="none", host="none", idle=0, cooldown=0, profile="2@4")
    (marks,) = read_marks(run).values()
    profiled = part_profiled(find_steps(marks), marks)
    assert len(profiled.recorded) == 2
    (rank,) = read_run([run]).ranks
    assert len(rank.windows) == 2


def test_only_scripts_of_python_and_torchrun_are_hooked_in() -> None:
    here = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    module = ["-m", "charllm.measure.hooked"]
    assert hook_in([sys.executable, "-u", "a.py", "-m"], here) == [sys.executable, "-u", *module, "a.py", "-m"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "a.py"]
    assert hook_in(torchrun, here) == [*torchrun[:-1], *module, "a.py"]
    for command in (["sleep", "1"], [sys.executable, "-m", "charllm", "train"], ["./train.sh", "a.py"]):
        assert hook_in(command, here) == command
