"""Chakra traces of both formats become the same events."""

import json
from pathlib import Path

import numpy as np

from charllm.trace.chakra import read_chakra
from charllm.trace.open import read_traces
from charllm.trace.run import read_run


def varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(data: bytes) -> bytes:
    return varint(len(data)) + data


def attribute(name: str, number: int, value: int | bytes) -> bytes:
    return field(10, field(1, name.encode()) + field(number, value))


def protobuf() -> bytes:
    nodes = [
        field(1, 1) + field(2, b"aten::mm") + field(3, 4) + field(7, 300) + attribute("is_cpu_op", 27, 1),
        field(1, 2) + field(2, b"nvjet_gemm") + field(3, 4) + field(5, varint(1)) + field(7, 200),
        field(1, 3) + field(2, b"nccl") + field(3, 7) + field(5, varint(2)) + field(7, 100)
        + attribute("comm_type", 9, 0) + attribute("comm_size", 13, 4096) + attribute("pg_name", 29, b"1"),
    ]  # fmt: skip
    return message(field(1, b"0.0.4")) + b"".join(map(message, nodes))


def test_nodes_run_after_those_they_depend_on(tmp_path: Path) -> None:
    path = tmp_path / "chakra.0.et"
    path.write_bytes(protobuf())
    (trace,) = read_traces(path)
    assert [round(start * 1e6) for start in trace.events.start_s] == [0, 300, 500]
    assert (trace.collectives[0].name, trace.collectives[0].in_elements) == ("all_reduce", 4096)
    assert "nodes have no start" in trace.warnings[0]
    (rank,) = read_run([path]).ranks
    assert [work.name for work in rank.activity.works] == ["gemm", "other communication", "all_reduce"]


def test_json_holds_the_same_nodes(tmp_path: Path) -> None:
    nodes = [
        {"Id": 1, "Name": "aten::mm", "NodeType": 4, "runtime": 300, "data_deps": [], "is_cpu_op": True},
        {"Id": 2, "Name": "nvjet_gemm", "NodeType": 4, "runtime": 200, "data_deps": [1], "is_cpu_op": False},
    ]
    path = tmp_path / "chakra.0.json"
    path.write_text(json.dumps({"workload_graph": nodes, "ngpus": 8}))
    assert np.allclose(read_traces(path)[0].events.start_s, [0, 300e-6])


def test_a_file_that_ends_inside_a_node_keeps_those_before(tmp_path: Path) -> None:
    for cut in range(len(protobuf())):
        path = tmp_path / "cut.et"
        path.write_bytes(protobuf()[:cut])
        assert read_chakra(path).events.size <= 2
    path.write_bytes(protobuf()[:-5])
    assert "it ends inside a message" in read_chakra(path).warnings[0]
