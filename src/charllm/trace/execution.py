"""PyTorch execution traces (ExecutionTraceObserver, the Chakra schema): the collectives and sends of one rank.

Backends such as NCCL record every collective in a node of its own, `record_param_comms`, with group and sizes. Gloo
does not: there the sizes are those of the `c10d` op, and its group is named by an enclosing range GROUP_RANGE, which
the reference trainer writes (measure/trainer/trace.py).
"""

import gc
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice, takewhile
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import SpecError, Words
from charllm.layout.grid import WORLD
from charllm.spec.request import unpacked_limit
from charllm.trace.collective_kinds import collective_kind
from charllm.units import format_bytes
from charllm.workload.messages import Message, Messages

SCHEMA = "chakra"
STEP_RANGE = "charllm step "
"""A range of this name and a number begins a step."""
GROUP_RANGE = "charllm group "
"""A range of this name and a process group's encloses one collective."""
DEFAULT_GROUP = "default_pg"
"""What torch calls the group of all ranks."""
MOST_RANKS = 1 << 22
"""Of all groups together."""
MOST_DIGITS = 18
MOST_BYTES = 2 << 30
MOST_AROUND = 1000
"""Ranges around an op that are looked through for the name of its group."""
COMMUNICATION, GROUPS_NODE = "record_param_comms", "## process_group:init ##"
OPS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_base_": "all_to_all",
    "alltoall_": "all_to_all",
    "broadcast_": "broadcast",
    "send": "send",
}
"""Op of `c10d`: the kind of message."""
SILENT = ("wait", "init", "barrier", "recv", "recvAnySource", "broadcastUniqueNCCLID", "allreduce_barrier")
"""Names in nodes of communication that carry no message of this rank."""
SENT_FIRST = ("all_to_all", "send", "broadcast")
"""Kinds whose message is the buffer that is sent, whichever of the two is larger."""
ELEMENT_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "longint": 8, "int": 4, "short": 2, "shortint": 2,
    "char": 1, "signedchar": 1, "byte": 1, "unsignedchar": 1, "bool": 1, "float8e4m3fn": 1, "float8e5m2": 1,
}  # fmt: skip
"""Torch's and C++'s names of element types, without spaces, signs and namespaces: bytes."""


class Group(NamedTuple):
    """A process group of the traced program."""

    name: str
    """What the program calls it (`group_desc`), or its number."""
    ranks: tuple[int, ...]


class ExecutionTrace(NamedTuple):
    """What one rank sent in the steps of an execution trace."""

    groups: tuple[Group, ...]
    steps: dict[int, Messages]
    """Number of a step: its messages. Without step ranges, everything is step 0."""


def read_execution_trace(path: Path) -> ExecutionTrace:
    """Read the messages of one rank from its execution trace."""
    nodes = {node["id"]: node for node in _read_nodes(path)}
    groups = _read_groups(path, nodes)
    starts = {id_: int(node["name"][len(STEP_RANGE) :]) for id_, node in nodes.items() if _is_step(node)}
    steps: dict[int, Messages] = {number: Counter() for number in starts.values()} or {0: Counter()}
    for id_, message in _messages(path, nodes, groups):
        # Nodes are numbered as they begin; the threads of backward passes are not children of the step's range.
        before = [number for start, number in starts.items() if start < id_]
        if before or not starts:
            steps[max(before, default=0)][message] += 1
    return ExecutionTrace(tuple(groups.values()), steps)


def read_ordered_messages(path: Path) -> list[Message]:
    """Read the messages of one rank in the order in which they began."""
    nodes = {node["id"]: node for node in _read_nodes(path)}
    found = sorted(_messages(path, nodes, _read_groups(path, nodes)), key=lambda pair: pair[0])
    return [message for _id, message in found]


def rank_of(path: Path) -> int:
    """Return the rank whose trace a file holds: the last number in its name."""
    numbers = re.findall(r"\d+", path.name.split(".")[0])
    if not numbers:
        raise SpecError("--execution-trace", path.name, "a file name with the number of its rank, such as rank-0.json")
    return int(numbers[-1])


def _read_nodes(path: Path) -> list[dict[str, Any]]:
    """Read the nodes of a trace, or say what else the file holds."""
    try:
        packed = path.suffix == ".gz"
        most = min(MOST_BYTES, unpacked_limit(path.stat().st_size)) if packed else MOST_BYTES
        with (gzip.open if packed else open)(path, "rb") as file:
            text = file.read(most + 1)
        if len(text) > most:
            raise ValueError(f"more than {format_bytes(most)} of text")
        trace = _load(text)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise SpecError("--execution-trace", str(path), f"a complete JSON file ({error})") from None
    if not isinstance(trace, dict) or SCHEMA not in str(trace.get("schema", "")):
        found = "a profiler (Kineto) trace" if isinstance(trace, dict) and "traceEvents" in trace else "other JSON"
        raise SpecError(
            "--execution-trace", Words(f"{found} in {path}"), "an execution trace of torch's ExecutionTraceObserver"
        )
    nodes = trace.get("nodes")
    if not isinstance(nodes, list) or not all(
        isinstance(node, dict) and {"id", "name"} <= set(node) and type(node["id"]) is int for node in nodes
    ):
        raise SpecError(
            "--execution-trace", str(path), "an execution trace with a list of nodes, each with id and name"
        )
    return nodes


def _load(text: bytes) -> Any:
    """Read JSON of very many small objects: looking for garbage among them would take longer than reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return json.loads(text)
    finally:
        if was_enabled:
            gc.enable()


def _read_groups(path: Path, nodes: dict[int, dict[str, Any]]) -> dict[str, Group]:
    """Read the process groups by number; one without ranks has all of them."""
    groups: dict[str, Group] = {}
    listed = 0
    for node in nodes.values():
        if node["name"] == GROUPS_NODE:
            try:
                for entry in json.loads(node["inputs"]["values"][0]):
                    listed += max(entry["group_size"], len(entry["ranks"]))
                    if listed > MOST_RANKS:
                        raise ValueError(f"groups of more than {MOST_RANKS:,} ranks")
                    ranks = tuple(sorted(entry["ranks"])) or tuple(range(entry["group_size"]))
                    name = entry["pg_desc"] or entry["pg_name"]
                    groups[entry["pg_name"]] = Group(WORLD if name == DEFAULT_GROUP else name, ranks)
            except (KeyError, TypeError, IndexError, ValueError, RecursionError) as error:
                raise SpecError(
                    "--execution-trace", str(path), f"a readable list of process groups ({error!r})"
                ) from None
    return groups


def _is_step(node: dict[str, Any]) -> bool:
    name = str(node["name"])
    number = name[len(STEP_RANGE) :]
    return name.startswith(STEP_RANGE) and number.isdecimal() and len(number) <= MOST_DIGITS


def _messages(path: Path, nodes: dict[int, dict[str, Any]], groups: dict[str, Group]) -> Iterator[tuple[int, Message]]:
    """List the messages of a trace, each with the number of its node; a group of one rank sends nothing."""
    recorded = any(node["name"] == COMMUNICATION for node in nodes.values())
    # An op is recorded once more inside the range that names its group.
    outer: set[int] = set()
    for node in filter(_names_group, nodes.values()):
        # What is around a node that was met before was met with it.
        outer.update(takewhile(lambda id_: id_ not in outer, _ancestors(node, nodes)))
    for id_, node in nodes.items():
        try:
            found = _recorded(node) if recorded else None if id_ in outer else _from_op(node, nodes)
        except (KeyError, TypeError, IndexError, ValueError, RecursionError) as error:
            raise SpecError(
                "--execution-trace", str(path), f"readable node {id_}, {node['name']} ({error!r})"
            ) from None
        if found is None:
            continue
        number, kind, message_bytes = found
        if number not in groups:
            raise SpecError(
                "--execution-trace",
                Words(f"{node['name']} of process group {number or 'without a name'} in {path.name}"),
                "a process group that the trace lists; under gloo `charllm train --execution-trace` names them",
            )
        group = groups[number]
        if len(group.ranks) > 1:
            yield id_, Message(group.name, group.ranks, kind, message_bytes)


def _recorded(node: dict[str, Any]) -> tuple[str, str, int] | None:
    """Read a node of communication: process group, kind, bytes."""
    if node["name"] != COMMUNICATION:
        return None
    attributes = {entry["name"]: entry["value"] for entry in node["attrs"]}
    name = attributes["collective_name"]
    if name in SILENT:
        return None
    kind = collective_kind(name)
    sent, received = int(attributes["in_msg_nelems"]), int(attributes["out_msg_nelems"])
    elements = sent if kind in SENT_FIRST else max(sent, received)
    return attributes["pg_name"], kind, elements * element_bytes(attributes["dtype"])


def _from_op(node: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> tuple[str, str, int] | None:
    """Read an op of `c10d`, whose group is named by a range around it: process group, kind, bytes."""
    space, _, name = str(node["name"]).partition("::")
    if space != "c10d" or name not in OPS:
        return None
    kind = OPS[name]
    sizes = list(_sizes(node["inputs"]))
    # Collectives with two buffers have the output first.
    message_bytes = sizes[-1] if kind in SENT_FIRST else max(sizes)
    return _enclosing_group(node, nodes), kind, message_bytes


def _enclosing_group(node: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> str:
    around = islice(_ancestors(node, nodes), MOST_AROUND)
    ranges = (nodes[id_]["name"] for id_ in around if _names_group(nodes[id_]))
    return str(next(ranges, ""))[len(GROUP_RANGE) :]


def _names_group(node: dict[str, Any]) -> bool:
    return str(node["name"]).startswith(GROUP_RANGE)


def _ancestors(node: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> Iterator[int]:
    """List the nodes around a node, the nearest first."""
    seen: set[int] = set()
    parent = node.get("ctrl_deps")
    while parent in nodes and parent not in seen:
        seen.add(parent)
        yield parent
        parent = nodes[parent].get("ctrl_deps")


def _sizes(inputs: dict[str, Any]) -> Iterator[int]:
    """List the bytes of each argument that is a tensor or a list of tensors."""
    for shape, kind in zip(inputs["shapes"], inputs["types"], strict=True):
        elements = re.findall(r"Tensor\(([^)]*)\)", kind)
        if elements:
            shapes = _flat(shape) if kind.startswith("GenericList") else [shape]
            yield sum(prod(one) * element_bytes(name) for one, name in zip(shapes, elements, strict=True))


def _flat(shapes: list[Any]) -> list[list[int]]:
    """Flatten nested lists of shapes; an empty list is the shape of a number."""
    if all(isinstance(size, int) for size in shapes):
        return [shapes]
    return [one for part in shapes for one in _flat(part)]


def element_bytes(name: str) -> int:
    """Return the bytes of an element of a type, as torch or C++ name it."""
    plain = re.sub(r"[^a-z0-9]", "", name.removeprefix("c10::").lower())
    if plain not in ELEMENT_BYTES:
        raise ValueError(f"element type {name}")
    return ELEMENT_BYTES[plain]
