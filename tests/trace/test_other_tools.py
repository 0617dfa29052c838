"""Traces of other profilers: read as Kineto's, or named with what converts them."""

import json
import pickle
import sqlite3
from pathlib import Path

import pytest

from charllm.cli import main
from charllm.errors import SpecError
from charllm.trace.run import TracedRank, TracedRun, read_run

GEMM, REDUCE = "nvjet_hsh_256x128", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
MS = 1_000_000


def nsight(path: Path, gpus: int = 1) -> Path:
    """Write what `nsys export --type sqlite` does: two steps of a GEMM of 6 ms and an all-reduce of 2 ms."""
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE StringIds (id INT, value TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT, "
            "correlationId INT, demangledName INT, shortName INT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, "
            "correlationId INT, copyKind INT, bytes INT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, "
            "nameId INT);"
            "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);"
        )
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(1, GEMM), (2, REDUCE), (3, "cudaLaunchKernel_v7000")]
        )
        for step in range(2):
            at = step * 10 * MS
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, NULL, 7)", (at, at + 9 * MS, f"step {step}"))
            for gpu in range(gpus):
                for place, (name, start, spent) in enumerate([(1, 1, 6), (2, 7, 2 - gpu)]):
                    number = 100 * step + 10 * gpu + place
                    launch = (at + place * 1000, at + place * 1000 + 500, 7, number, 3)
                    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", launch)
                    kernel = (at + start * MS, at + (start + spent) * MS, gpu, 1, place, number, name, name)
                    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?)", kernel)
    return path


def rocprof_csv(path: Path) -> Path:
    rows = ['"Kind","Agent_Id","Queue_Id","Stream_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"']
    for step in range(2):
        for name, start, spent in ((GEMM, 1, 6), (REDUCE, 7, 2)):
            at = (step * 10 + start) * MS
            rows.append(f'"KERNEL_DISPATCH","Agent 4",1,0,"{name}",{step},{at},{at + spent * MS}')
    path.write_text("\n".join(rows) + "\n")
    return path


def rocprof_json(path: Path) -> Path:
    dispatches = [
        {
            "start_timestamp": (step * 10 + start) * MS, "end_timestamp": (step * 10 + start + spent) * MS,
            "correlation_id": {"internal": step, "external": 0},
            "dispatch_info": {"agent_id": {"handle": 99}, "queue_id": {"handle": 1}, "kernel_id": kernel},
        }
        for step in range(2) for kernel, start, spent in ((1, 1, 6), (2, 7, 2))
    ]  # fmt: skip
    tool = {
        "agents": [{"id": {"handle": 99}, "logical_node_type_id": 0}],
        "kernel_symbols": [{"kernel_id": 1, "formatted_kernel_name": GEMM},
                           {"kernel_id": 2, "formatted_kernel_name": REDUCE}],
        "buffer_records": {"kernel_dispatch": dispatches, "memory_copy": []},
    }  # fmt: skip
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))
    return path


def seconds(run: TracedRun) -> dict[str, float]:
    (rank,) = run.ranks
    return seconds_of(rank)


def seconds_of(rank: TracedRank) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, work in enumerate(rank.activity.works):
        own = rank.activity.work == number
        found[work.name] = float((rank.activity.end_s - rank.activity.start_s)[own].sum())
    return found


@pytest.mark.parametrize("write", [nsight, rocprof_csv, rocprof_json])
def test_kernels_of_other_profilers_have_their_time_and_class(write: object, tmp_path: Path) -> None:
    name = {nsight: "a.sqlite", rocprof_csv: "1_kernel_trace.csv", rocprof_json: "1_results.json"}[write]  # type: ignore[index]
    run = read_run([write(tmp_path / name)])  # type: ignore[operator]
    assert seconds(run) == {"gemm": pytest.approx(0.012), "all_reduce": pytest.approx(0.004)}


def test_ranges_of_nvtx_are_steps(tmp_path: Path) -> None:
    (rank,) = read_run([nsight(tmp_path / "a.sqlite")]).ranks
    assert [window.number for window in rank.windows] == [0, 1]
    assert [window.seconds for window in rank.windows] == pytest.approx([0.010, 0.009], rel=1e-6)


def test_each_gpu_of_a_report_is_a_rank_with_its_own_launches(tmp_path: Path) -> None:
    run = read_run([nsight(tmp_path / "a.sqlite", gpus=2)])
    assert [rank.rank for rank in run.ranks] == [0, 1]
    for rank, exchanged_s in zip(run.ranks, (0.004, 0.002), strict=True):
        assert seconds_of(rank)["all_reduce"] == pytest.approx(exchanged_s)
        assert (rank.activity.call >= 0).all()
        assert len(rank.windows) == 2
    assert "a.sqlite: 2 GPUs, counted as ranks 0 to 1" in run.warnings


def test_what_is_not_read_is_named_with_what_converts_it(tmp_path: Path) -> None:
    files = {
        "a.nsys-rep": (b"\x00\x01", "nsys export --type sqlite a.nsys-rep"),
        "host.xplane.pb": (b"\x0a\x05", "a whole XPlane"),
        "a.pftrace": (b"\x0a\x05", "traceconv json"),
        "trace_view.json": (
            b'[{"ph": "M", "name": "process_name", "pid": 4, "tid": 0, "args": {"name": "Ascend Hardware"}}, '
            b'{"ph": "X", "name": "aten::mm", "cat": "cpu_op", "ts": "1699529623106750.1", "dur": 9, "pid": 1}]',
            "Ascend's profiler.*no NPU is read",
        ),
        "a.cpuprofile": (b'{"nodes": [{"callFrame": {}}], "timeDeltas": []}', "CPU profile of V8.*torch.profiler"),
        "b.json": (b'{"traceEvents": [{"cat": "toplevel", "name": "RunTask", "ph": "X"}]}', "a trace of a browser"),
        "steps.log": (b" iteration        1/      50 | consumed samples:", "no JSON.*torch.profiler"),
        "snapshot.pickle": (pickle.dumps({"segments": []}), "pickle.*charllm trace --memory"),
    }
    for name, (data, told) in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(SpecError, match=told):
            read_run([tmp_path / name])
        assert main(["trace", str(tmp_path / name)]) == 2
    with sqlite3.connect(tmp_path / "a_results.db") as database:
        database.execute("CREATE TABLE rocpd_kernel_dispatch (id INT)")
    with pytest.raises(SpecError, match="rocpd convert"):
        read_run([tmp_path / "a_results.db"])
    with sqlite3.connect(tmp_path / "b.sqlite") as database:
        database.execute("CREATE TABLE other (id INT)")
    with pytest.raises(SpecError, match="CUPTI_ACTIVITY_KIND_KERNEL"):
        read_run([tmp_path / "b.sqlite"])
    (tmp_path / "c.sqlite").write_bytes((tmp_path / "b.sqlite").read_bytes()[:100] + b"\xff" * 500)
    with pytest.raises(SpecError, match="Nsight"):
        read_run([tmp_path / "c.sqlite"])


def test_a_picture_for_perfetto_is_told_from_a_profile(tmp_path: Path) -> None:
    events = [{"ph": "X", "ts": 1, "dur": 5, "pid": 0, "tid": 0, "name": "forward"}]
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": events}))
    run = read_run([tmp_path / "a.json"])
    assert not run.ranks
    assert any("a picture for Perfetto" in warning for warning in run.warnings)
