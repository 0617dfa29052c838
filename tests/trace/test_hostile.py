"""Traces that state or unpack to far more than they hold are read in bounded time and memory."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from charllm.trace.execution import read_execution_trace
from charllm.trace.run import read_run
from charllm.trace.summary import summarize
from tests.trace.made import GEMM, collective, event, kernel

STEP = event("ProfilerStep#1", "user_annotation", 0, 90)


def summary(folder: Path, events: list[dict[str, Any]]) -> dict[str, Any]:
    path = folder / "rank-0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return summarize(read_run([path]))


@pytest.mark.parametrize(
    ("head", "piece", "told"),
    [
        ('{"traceEvents": [', " ", "250 times"),
        ('{"traceEvents": [', '{"ph":1},', "250 times"),
        ('{"traceEvents": [{"name": "', "x", "250 times"),
        ('{"traceEvents": [', "},{", "250 times"),
    ],
)
def test_a_packed_trace_is_read_up_to_what_a_real_one_unpacks_to(
    tmp_path: Path, head: str, piece: str, told: str
) -> None:
    path, block = tmp_path / "rank-0.json.gz", (piece * (1 << 20))[: 1 << 20].encode()
    with gzip.open(path, "wb", 9) as file:
        file.write(head.encode())
        for _ in range(300):
            file.write(block)
    start_s = time.process_time()
    run = read_run([path])
    assert time.process_time() - start_s < 20
    assert told in run.warnings[0]


def test_times_steps_and_messages_beyond_all_bounds_are_left_out_or_kept_as_they_are(tmp_path: Path) -> None:
    events = [
        STEP, kernel(GEMM, 5, 30), kernel(GEMM, 1e18, 1e18),
        event("ProfilerStep#" + "9" * 5000, "user_annotation", 95, 9),
        event("charllm_clock:" + "9" * 5000, "user_annotation", 1, 1),
        collective("ncclDevKernel_AllReduce", 20, 30, ranks=(0, 1), elements=2**62),
    ]  # fmt: skip
    found = summary(tmp_path, events)
    assert {row["name"] for row in found["kernels"]} == {GEMM, "ncclDevKernel_ncclDevKernel_AllReduce"}


def test_as_many_groups_streams_and_names_as_events_take_time_in_proportion(tmp_path: Path) -> None:
    count = 6000
    events = [
        STEP,
        *(collective("ncclDevKernel_AllReduce", at, 1, ranks=(at, at + 1), group=str(at)) for at in range(count)),
    ]
    events += [kernel(f"strange{at}", at, 1, stream=at) for at in range(count)]
    start_s = time.process_time()
    summary(tmp_path, events)
    assert time.process_time() - start_s < 10


def write_execution(folder: Path, nodes: list[dict[str, Any]]) -> Path:
    path = folder / "rank-0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra", "nodes": nodes}))
    return path


def test_ranges_inside_each_other_are_followed_once(tmp_path: Path) -> None:
    nested = [{"id": at, "name": "charllm group 1", "ctrl_deps": at - 1} for at in range(1, 30_000)]
    start_s = time.process_time()
    assert read_execution_trace(write_execution(tmp_path, nested)).steps == {0: {}}
    assert time.process_time() - start_s < 5
