"""XPlanes, Perfetto's protobuf and pictures of other tools, written here field by field."""

import gzip
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from charllm.cli import main
from charllm.errors import SpecError
from charllm.trace.run import TracedRank, read_run
from charllm.trace.summary import summarize

GEMM, REDUCE = "gemm_fusion_dot_2", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
MS, PS = 1_000_000, 1000
Shown = tuple[str, float, float, dict[str, Any]]
EPOCH = 1_790_000_000_000_000_000
"""Nanoseconds since 1970, so large that floats lose fractions of microseconds."""


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def message(*fields: tuple[int, int | bytes | str | float]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def plane(name: str, lines: Mapping[str, Sequence[Shown]]) -> bytes:
    """Write a plane; events are a name, start and duration in milliseconds, and statistics."""
    names = sorted({event[0] for events in lines.values() for event in events})
    stats = sorted({key for events in lines.values() for event in events for key in event[3]})
    texts = sorted({str(value) for events in lines.values() for event in events for value in event[3].values()})
    known = {text: 1 + place for place, text in enumerate([*stats, *texts])}
    fields: list[tuple[int, int | bytes | str | float]] = [(2, name)]
    for thread, events in lines.items():
        rows: list[tuple[int, int | bytes | str | float]] = [(2, thread), (3, EPOCH)]
        for shown, start, spent, args in events:
            told = [
                (4, message((1, known[key]), (4, value) if isinstance(value, int) else (7, known[value])))
                for key, value in args.items()
            ]
            at = ((1, 1 + names.index(shown)), (2, round(start * MS * PS)), (3, round(spent * MS * PS)))
            rows.append((4, message(*at, *told)))
        fields.append((3, message(*rows)))
    fields += [(4, message((1, 1 + at), (2, message((1, 1 + at), (2, text))))) for at, text in enumerate(names)]
    fields += [(5, message((1, at), (2, message((1, at), (2, text))))) for text, at in known.items()]
    return message(*fields)


def seconds(rank: TracedRank) -> dict[str, float]:
    activity = rank.activity
    sums: dict[str, float] = {}
    for at, length in zip(activity.work.tolist(), activity.seconds.tolist(), strict=True):
        sums[activity.works[at].name] = sums.get(activity.works[at].name, 0.0) + length
    return sums


def test_an_xplane_of_gpus_has_a_rank_for_each_with_its_launches_and_steps(tmp_path: Path) -> None:
    calls = [("cuLaunchKernel", 10 * step + gpu, 0.001, {"correlation_id": 10 * step + gpu + 1})
             for step in range(2) for gpu in range(2)]  # fmt: skip
    steps = [("train", 10.0 * step, 9.5, {"step_num": step, "_r": 1}) for step in range(2)]
    data = [(1, plane("/host:CPU", {"python": [*steps, *calls]}))]
    for gpu in range(2):
        done = [(GEMM, 10 * step + gpu + 0.5, 0.00296, {"correlation_id": 10 * step + gpu + 1}) for step in range(2)]
        derived: list[Shown] = [("jit_step", 0.0, 20.0, {})]
        data.append((1, plane(f"/device:GPU:{gpu}", {"Stream #7(Kernel)": done, "XLA Modules": derived})))
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(message(*data))
    run = read_run([path])
    assert [rank.rank for rank in run.ranks] == [0, 1]
    for rank in run.ranks:
        assert seconds(rank) == {"gemm": pytest.approx(2 * 2.96e-6, rel=1e-9)}
        assert (rank.activity.call >= 0).all()
        assert [window.number for window in rank.windows] == [0, 1]
        assert rank.windows[0].seconds == pytest.approx(0.010, rel=1e-6)
    assert run.ranks[0].trace.origin_ns == EPOCH
    (tmp_path / "packed.xplane.pb.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert seconds(read_run([tmp_path / "packed.xplane.pb.gz"]).ranks[1]) == seconds(run.ranks[1])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SpecError, match="a whole XPlane"):
        read_run([path])


def test_operations_of_a_tpu_have_the_class_that_xla_states_and_loops_count_once(tmp_path: Path) -> None:
    ops = [
        ("while.1", 0.0, 9.0, {"hlo_category": "while"}),
        ("fusion.3", 0.0, 6.0, {"hlo_category": "convolution fusion"}),
        ("fusion.4", 6.0, 1.0, {"hlo_category": "loop fusion"}),
        ("all-reduce.9", 7.0, 2.0, {"hlo_category": "all-reduce fusion"}),
    ]
    steps: list[Shown] = [("12", 0.0, 9.5, {})]
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(message((1, plane("/device:TPU:0", {"XLA Ops": ops, "Steps": steps}))))
    (rank,) = read_run([path]).ranks
    found = {name: round(spent, 9) for name, spent in seconds(rank).items()}
    assert found == {"gemm": 0.006, "elementwise": 0.001, "all_reduce": 0.002}
    assert [window.number for window in rank.windows] == [12]


def test_slices_of_rocprofv3_in_perfettos_protobuf_are_kernels_on_an_incremental_clock(tmp_path: Path) -> None:
    tracks = {11: "COMPUTE AGENT [4] QUEUE [0] (GPU)", 12: "THREAD 0 (77)"}
    clock = message((1, message((1, 64), (2, 5 * MS), (3, 1))))
    texts = message((1, message((1, 1), (2, "kernel_dispatch"))), (2, message((1, 1), (2, REDUCE))),
                    (3, message((1, 1), (2, "corr_id"))))  # fmt: skip
    packets = [message((10, 3), (13, 1), (6, clock), (12, texts), (59, message((58, 64), (11, message((11, 11))))))]
    packets += [message((10, 3), (60, message((1, track), (2, name)))) for track, name in tracks.items()]
    launch = message((9, 1), (11, 12), (22, "hip_api"), (23, "hipLaunchKernel"), (4, message((10, "corr_id"), (3, 9))))
    packets += [
        message((10, 3), (8, 1 * MS), (11, launch)),
        message((10, 3), (8, 1000), (11, message((9, 2), (11, 12)))),
    ]
    kernel = message((9, 1), (3, 1), (10, 1), (4, message((1, 1), (3, 9))))
    packets += [message((10, 3), (8, 2 * MS), (11, kernel)), message((10, 3), (8, 4 * MS), (11, message((9, 2))))]
    path = tmp_path / "results.pftrace"
    path.write_bytes(b"".join(message((1, packet)) for packet in packets))
    (rank,) = read_run([path]).ranks
    assert seconds(rank) == {"all_reduce": pytest.approx(0.004, rel=1e-9)}
    launched = rank.activity.start_s[0] - rank.trace.events.start_s[rank.activity.call[0]]
    assert launched == pytest.approx(0.002001, rel=1e-9)
    path.write_bytes(path.read_bytes() + b"\x0a\x7f")
    assert any("ends inside a packet; what comes before was read" in text for text in read_run([path]).warnings)
    other = message((1, message((10, 1), (8, 5), (11, message((9, 1), (23, "sched"))))))
    path.write_bytes(other)
    with pytest.raises(SpecError, match="slices of rocprofv3, JAX or charllm"):
        read_run([path])


def test_a_trace_of_jax_in_chromes_json_is_read_by_its_processes(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0 NVIDIA H100"}},
        {"ph": "M", "pid": 1, "tid": 7, "name": "thread_name", "args": {"name": "Stream #7(MemcpyD2D,Compute)"}},
        {"ph": "M", "pid": 1, "tid": 8, "name": "thread_name", "args": {"name": "XLA Ops"}},
        {"ph": "X", "pid": 1, "tid": 7, "ts": 10.5, "dur": 6.25, "name": GEMM, "args": {"hlo_op": "dot"}},
        {"ph": "X", "pid": 1, "tid": 7, "ts": 17.0, "dur": 2.0, "name": "MemcpyD2D"},
        {"ph": "X", "pid": 1, "tid": 8, "ts": 10.5, "dur": 9.0, "name": "dot.5"},
        {"ph": "C", "pid": 1, "ts": 1, "name": "power", "args": {"W": 5}},
    ]
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    (rank,) = read_run([tmp_path / "trace.json.gz"]).ranks
    assert seconds(rank) == {"gemm": pytest.approx(6.25e-6), "memcpy": pytest.approx(2e-6)}


def test_the_picture_of_a_simulated_step_gives_its_own_breakdown_and_says_what_it_is(tmp_path: Path) -> None:
    asked = ["--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--pp", "2", "--gbs", "32", "--mbs", "4"]
    files = ["--perfetto", str(tmp_path / "step.json"), "--out", str(tmp_path / "run")]
    assert main(["simulate", *asked, *files]) == 0
    metrics = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]
    run = read_run([tmp_path / "step.json"])
    found = summarize(run)
    assert found["step_time_s"] == pytest.approx(metrics["step_time_s"], rel=0.01)
    exposed_s = found["exposed_communication_s"]
    assert exposed_s["tp"] == pytest.approx(metrics["breakdown_s"]["tp_exposed"], rel=0.1)
    assert found["unknown_fraction"] == 0
    assert found["classes"]["gemm"]["share"] > 0.5
    assert any("nothing was measured" in text for text in found["warnings"])
