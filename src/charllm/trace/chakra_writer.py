"""Nodes of a simulated rank in the two forms of a Chakra trace: JSON as torch writes it, and protobuf messages.

Protobuf needs no library here: a field is its number and type, then a variable-length number or a length and bytes
(protobuf.dev/programming-guides/encoding).
"""

import json
from collections.abc import Sequence
from typing import Any

from charllm.trace.chakra_nodes import Node
from charllm.trace.execution import COMMUNICATION, GROUPS_NODE, STEP_RANGE
from charllm.units import MICRO

SCHEMA = "1.1.1-chakra.0.0.4"
COMP, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of nodes in et_def.proto."""
POINT_TYPES = {"send": SEND, "recv": RECEIVE}
COLLECTIVE_TYPES = {"all_reduce": 0, "all_gather": 2, "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7}
RECORDED = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "broadcast": "broadcast", "send": "send",
            "all_to_all": "all_to_all", "reduce_scatter": "_reduce_scatter_base", "recv": "recv"}  # fmt: skip
"""Kind of a message: what torch records it as."""
Groups = dict[tuple[str, tuple[int, ...]], int]


def group_numbers(nodes: Sequence[Node]) -> Groups:
    """Number the process groups of a rank."""
    found: Groups = {}
    for node in nodes:
        if node.message is not None:
            found.setdefault(node.message[:2], len(found))
    return found


def to_json(nodes: Sequence[Node]) -> str:
    """Write the nodes of a rank as torch's execution trace does; group, size and type of a message are attributes."""
    groups = group_numbers(nodes)
    listed = [
        {"pg_name": str(number), "pg_desc": name, "ranks": list(ranks), "group_size": len(ranks)}
        for (name, ranks), number in groups.items()
    ]
    tables = [_table(1, "[pytorch|profiler|execution_trace|process]", 1)]
    tables.append({**_table(2, GROUPS_NODE, 1), "inputs": _values([json.dumps(listed)])})
    tables.append(_table(3, f"{STEP_RANGE}0", 1))
    for place, node in enumerate(nodes):
        table = _table(place + 4, node.name if node.message is None else COMMUNICATION, 3)
        tables.append({**table, "attrs": _attributes(node, groups), "dur": node.seconds / MICRO})
    return json.dumps({"schema": SCHEMA, "pid": 0, "nodes": tables})


def _table(number: int, name: str, parent: int) -> dict[str, Any]:
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": _values([]), "outputs": _values([]), "attrs": []}


def _values(values: list[Any]) -> dict[str, Any]:
    return {"values": values, "shapes": [[] for _ in values], "types": ["String" for _ in values]}


def _attributes(node: Node, groups: Groups) -> list[dict[str, Any]]:
    message = node.message
    if message is None:
        told: dict[str, Any] = {"flop": node.op.flop, "bytes": node.op.read_bytes + node.op.written_bytes}
    else:
        told = {
            "collective_name": RECORDED[message.kind],
            "in_msg_nelems": message.message_bytes,
            "out_msg_nelems": message.message_bytes,
            "dtype": "Byte",
            "pg_name": str(groups[message[:2]]),
        }
    return [{"name": name, "type": "string", "value": value} for name, value in told.items()]


def to_protobuf(nodes: Sequence[Node]) -> bytes:
    """Write the nodes of a rank as Chakra's protobuf messages, metadata first, each behind its length."""
    groups = group_numbers(nodes)
    parts = [_delimited(_text(1, "0.0.4"))]
    start_s = 0.0
    for place, node in enumerate(nodes):
        parts.append(_delimited(_node(place, node, start_s, groups)))
        start_s += node.seconds
    return b"".join(parts)


def _node(place: int, node: Node, start_s: float, groups: Groups) -> bytes:
    message = node.message
    kind = COMP if message is None else POINT_TYPES.get(message.kind, COLLECTIVE)
    fields = [_whole(1, place), _text(2, node.name), _whole(3, kind)]
    if place:
        fields.append(_packed(5, [place - 1]))
    fields += [_whole(6, round(start_s / MICRO)), _whole(7, max(1, round(node.seconds / MICRO)))]
    fields.append(_block(10, _text(1, "is_cpu_op") + _whole(27, 0)))
    if message is None:
        fields.append(_block(10, _text(1, "num_ops") + _whole(9, round(node.op.flop))))
        moved = round(node.op.read_bytes + node.op.written_bytes)
        fields.append(_block(10, _text(1, "tensor_size") + _whole(13, moved)))
    else:
        fields.append(_block(10, _text(1, "comm_size") + _whole(9, message.message_bytes)))
        fields.append(_block(10, _text(1, "pg_name") + _text(29, str(groups[message[:2]]))))
        if message.kind in COLLECTIVE_TYPES:
            fields.append(_block(10, _text(1, "comm_type") + _whole(9, COLLECTIVE_TYPES[message.kind])))
        if node.peer is not None:
            side = "comm_dst" if message.kind == "send" else "comm_src"
            fields.append(_block(10, _text(1, side) + _whole(7, node.peer)))
    return b"".join(fields)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _delimited(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _whole(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _block(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _delimited(data)


def _text(field: int, text: str) -> bytes:
    return _block(field, text.encode())


def _packed(field: int, numbers: Sequence[int]) -> bytes:
    return _block(field, b"".join(map(_varint, numbers)))
