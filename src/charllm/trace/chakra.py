"""Chakra traces (mlcommons/chakra): nodes with durations and dependencies, in protobuf (`.et`) or JSON.

A node that has a start keeps it. Where nodes have none, each begins as soon as those it depends on have ended and its
lane (host, compute stream, communication stream) is free: the order of a trace, not a measurement of it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from charllm.trace.event_columns import Columns
from charllm.trace.event_fields import ABSENT
from charllm.trace.events import RankTrace
from charllm.trace.json_events import Reading, read_batches, read_count
from charllm.trace.kineto import rank_of_file
from charllm.trace.protobuf import Fields, Truncated, read_fields, read_messages, unpack_numbers

COMPUTE_NODE, SEND_NODE, RECV_NODE, COLLECTIVE_NODE = 4, 5, 6, 7
"""Types of nodes (et_def.proto); others hold no work."""
KINDS = ("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
         "reduce_scatter", "barrier")  # fmt: skip
"""Names of collectives by number."""
LANES = {COMPUTE_NODE: 7, SEND_NODE: 21, RECV_NODE: 22, COLLECTIVE_NODE: 20}
"""Type of node: a stream for it."""
HOST_LANE = -1


@dataclass
class Node:
    """One node."""

    id: int = 0
    name: str = ""
    type: int = 0
    start_us: float = 0.0
    duration_us: float = 0.0
    dependencies: tuple[int, ...] = ()
    is_cpu_op: bool = False
    comm_type: int | None = None
    comm_bytes: int | None = None
    group: str = ""

    @property
    def lane(self) -> int:
        """The stream it runs on, or the host."""
        return HOST_LANE if self.is_cpu_op else LANES[self.type]


def read_chakra(path: Path) -> RankTrace:
    """Read one file of either format."""
    reading = Reading()
    nodes = list(_json_nodes(path, reading) if _is_json(path) else _protobuf_nodes(path, reading))
    warnings = [f"{path.name}: {reading.truncated}; what comes before was read"] if reading.truncated else []
    if reading.unreadable:
        warnings.append(f"{path.name}: {reading.unreadable:,} malformed nodes were left out")
    timed = [node for node in nodes if node.type in LANES and node.duration_us >= 0]
    if not any(node.start_us for node in timed):
        place_nodes(timed)
        warnings.append(f"{path.name}: nodes have no start; each is placed after those that it depends on")
    columns = Columns()
    columns.add([_event(node) for node in timed])
    origin_ns, events = columns.finish(0)
    return RankTrace(
        path, "chakra", rank_of_file(path), None, "", (), (), origin_ns, events, columns.names.texts(),
        columns.threads.texts(), columns.collectives.texts(), tuple(warnings),
    )  # fmt: skip


def place_nodes(nodes: Iterable[Node]) -> None:
    """Give each node a start: after those that it depends on, when its lane is free, in the order of the file."""
    ended_us: dict[int, float] = {}
    free_us: dict[int, float] = {}
    for node in nodes:
        ready_us = max((ended_us.get(one, 0.0) for one in node.dependencies), default=0.0)
        node.start_us = max(ready_us, free_us.get(node.lane, 0.0))
        ended_us[node.id] = free_us[node.lane] = node.start_us + node.duration_us


def _event(node: Node) -> Any:
    """Return a node in the form that columns take."""
    args = SimpleNamespace(**{**ABSENT, "device": 0, "stream": node.lane})
    if node.type in (SEND_NODE, RECV_NODE, COLLECTIVE_NODE) and not node.is_cpu_op:
        args.collective = _collective_name(node)
        args.in_elements, args.dtype, args.group_name = node.comm_bytes, "Byte", node.group
    category = "cpu_op" if node.is_cpu_op else "kernel"
    return SimpleNamespace(
        ph="X", cat=category, name=node.name, pid=0, tid=node.lane, ts=node.start_us, dur=node.duration_us, args=args
    )


def _collective_name(node: Node) -> str | None:
    if node.type != COLLECTIVE_NODE:
        return "send" if node.type == SEND_NODE else "recv"
    return KINDS[node.comm_type] if node.comm_type is not None and node.comm_type < len(KINDS) else None


def _is_json(path: Path) -> bool:
    return path.name.endswith((".json", ".json.gz"))


def _json_nodes(path: Path, reading: Reading) -> Iterator[Node]:
    for batch in read_batches(path, _decode, _from_json, reading):
        yield from batch


def _decode(text: bytes) -> list[Node]:
    return [_from_json(table) for table in json.loads(text)]


def _from_json(table: dict[str, Any]) -> Node:
    try:
        return Node(
            int(table.get("Id", 0)),
            str(table.get("Name", "")),
            int(table.get("NodeType", 0)),
            duration_us=float(table.get("runtime", 0.0)),
            dependencies=tuple(map(int, (*table.get("data_deps", ()), *table.get("ctrlDeps", ())))),
            is_cpu_op=bool(table.get("is_cpu_op", False)),
            comm_type=read_count(table.get("comm_type")),
            comm_bytes=read_count(table.get("comm_size")),
        )
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _protobuf_nodes(path: Path, reading: Reading) -> Iterator[Node]:
    """Yield the nodes of a protobuf file, after its metadata."""
    with path.open("rb") as file:
        try:
            for number, data in enumerate(read_messages(file)):
                if number:
                    yield _from_fields(read_fields(data))
        except Truncated as error:
            reading.truncated = f"it {error}"


def _from_fields(fields: Fields) -> Node:
    node, dependencies = Node(), list[int]()
    for number, value in fields:
        if number == 2 and isinstance(value, bytes):
            node.name = value.decode("utf-8", "replace")
        elif number in (4, 5):
            dependencies += unpack_numbers(value)
        elif number == 10 and isinstance(value, bytes):
            _note_attribute(node, read_fields(value))
        elif isinstance(value, int) and number in (1, 3, 6, 7):
            setattr(node, {1: "id", 3: "type", 6: "start_us", 7: "duration_us"}[number], value)
    node.dependencies = tuple(dependencies)
    return node


def _note_attribute(node: Node, fields: Fields) -> None:
    """Note what an attribute says, where it is one that matters."""
    name, value = "", None
    for number, found in fields:
        if number == 1 and isinstance(found, bytes):
            name = found.decode("utf-8", "replace")
        elif number > 2:
            value = found
    if name == "is_cpu_op":
        node.is_cpu_op = bool(value)
    elif name in ("comm_type", "comm_size") and isinstance(value, int):
        setattr(node, "comm_bytes" if name == "comm_size" else name, value)
    elif name == "pg_name" and isinstance(value, bytes):
        node.group = value.decode("utf-8", "replace")
