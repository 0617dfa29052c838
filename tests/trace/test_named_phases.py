"""Phases that a program names in its trace."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from charllm.report.trace import render_trace
from charllm.trace.analyses.named_phases import phase_rows
from charllm.trace.summary import summarize
from tests.trace.made import GEMM, Event, event, launched, run_of, step


def phase(name: str, start_us: float, length_us: float) -> Event:
    return event(name, "user_annotation", start_us, length_us)


EVENTS = [
    step(1, 0, 1000),
    phase("rollout", 0, 400),
    phase("charllm.phase decode", 100, 50),
    *launched(GEMM, 10, 20, 60, 1),
    *launched(GEMM, 110, 120, 20, 2),
    *launched(GEMM, 130, 160, 40, 3),
    phase("charllm.phase decode", 200, 50),
    *launched(GEMM, 210, 220, 20, 4),
    phase("other", 500, 100),
    *launched(GEMM, 510, 520, 60, 5),
]


def test_work_belongs_to_the_innermost_named_phase_around_its_launch(tmp_path: Path) -> None:
    rollout, decode = phase_rows(run_of(tmp_path, EVENTS).ranks[0])
    assert (rollout.phase, rollout.times, decode.phase, decode.times) == ("rollout", 1, "decode", 2)
    assert (rollout.seconds, decode.seconds) == pytest.approx((60e-6, 100e-6))
    # From 120 to 200 us 60 are busy, from 220 to 240 us all.
    assert (rollout.busy_fraction, decode.busy_fraction) == pytest.approx((1.0, 0.8))
    assert (rollout.share, decode.share) == pytest.approx((60 / 200, 80 / 200))


def test_phases_stand_in_the_answer_and_their_table(tmp_path: Path) -> None:
    found = summarize(run_of(tmp_path, EVENTS))
    assert [row["phase"] for row in found["phases"]] == ["rollout", "decode"]
    assert "Phases that the program names" in render_trace(found)
    (tmp_path / "plain").mkdir()
    plain = summarize(run_of(tmp_path / "plain", [step(1, 0, 1000), *launched(GEMM, 10, 20, 60, 1)]))
    assert plain["phases"] == []
    assert "Phases that" not in render_trace(plain)


MARKED = """
import torch
import charllm.mark as mark

for _ in range(4):
    with mark.phase("decode"):
        torch.ones(64, 64) @ torch.ones(64, 64)
    mark.step()
"""


def test_a_marked_phase_is_a_range_of_the_trace_of_a_profiled_process(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(MARKED)
    command = [sys.executable, "-m", "charllm", "measure", "--telemetry", "none", "--profile", "1@1", "--out",
               str(tmp_path / "run"), "--", sys.executable, str(tmp_path / "job.py")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (trace,) = (tmp_path / "run").rglob("kineto-rank-0.json.gz")
    assert '"charllm.phase decode"' in gzip.decompress(trace.read_bytes()).decode()
