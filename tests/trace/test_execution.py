"""Execution traces are read as torch writes them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.trace.execution import rank_of, read_execution_trace
from charllm.workload.messages import Message

GROUPS = [
    {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4},
    {"pg_name": "1", "pg_desc": "tp", "ranks": [1, 0], "group_size": 2},
    {"pg_name": "2", "pg_desc": "ep", "ranks": [0], "group_size": 1},
]
TP = ("tp", (0, 1))


def node(id_: int, name: str, parent: int = 1, inputs: dict[str, Any] | None = None, **attrs: Any) -> dict[str, Any]:
    """Build a node of a trace."""
    listed = [{"name": key, "type": "", "value": value} for key, value in attrs.items()]
    return {"id": id_, "name": name, "ctrl_deps": parent, "inputs": inputs or {}, "outputs": {}, "attrs": listed}


def comms(id_: int, name: str, sent: int, received: int, dtype: str = "Float", group: str = "1") -> dict[str, Any]:
    """Build a node as NCCL's backend records a collective."""
    return node(
        id_, "record_param_comms", collective_name=name, in_msg_nelems=sent, out_msg_nelems=received, dtype=dtype,
        pg_name=group,
    )  # fmt: skip


def op(id_: int, name: str, parent: int, tensors: list[tuple[list[Any], str]]) -> dict[str, Any]:
    """Build an op of c10d: shapes and types of its tensors, then its process group."""
    inputs = {"shapes": [shape for shape, _ in tensors] + [[]], "types": [kind for _, kind in tensors] + ["Object"]}
    return node(id_, f"c10d::{name}", parent, {"values": [], **inputs})


def write(folder: Path, nodes: list[dict[str, Any]]) -> Path:
    """Write a trace with its process groups."""
    groups = node(2, "## process_group:init ##", inputs={"values": [json.dumps(GROUPS)]})
    path = folder / "rank-0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": [groups, *nodes]}))
    return path


def test_a_message_is_the_larger_buffer_or_what_is_sent(tmp_path: Path) -> None:
    nodes = [
        node(3, "charllm step 2"),
        comms(4, "allreduce", 6, 6),
        comms(5, "_allgather_base", 3, 6, "BFloat16"),
        comms(6, "_reduce_scatter_base", 6, 3),
        comms(7, "all_to_allv", 4, 9, "Long"),
        comms(8, "send", 5, 5, "BFloat16"),
        comms(9, "recv", 5, 5, "BFloat16"),
        comms(10, "wait", 0, 0, "Byte"),
        comms(11, "allreduce", 1, 1, group="2"),
    ]
    trace = read_execution_trace(write(tmp_path, nodes))
    assert trace.steps == {
        2: {
            Message(*TP, "all_reduce", 24): 1,
            Message(*TP, "all_gather", 12): 1,
            Message(*TP, "reduce_scatter", 24): 1,
            Message(*TP, "all_to_all", 32): 1,
            Message(*TP, "send", 10): 1,
        }
    }


def test_steps_are_told_apart_by_the_order_in_which_nodes_begin(tmp_path: Path) -> None:
    nodes = [comms(3, "allreduce", 9, 9), node(4, "charllm step 2"), comms(5, "allreduce", 1, 1, group="0"),
             node(6, "charllm step 3"), comms(7, "allreduce", 2, 2), comms(8, "allreduce", 2, 2)]  # fmt: skip
    trace = read_execution_trace(write(tmp_path, nodes))
    assert trace.steps[2] == {Message("world", (0, 1, 2, 3), "all_reduce", 4): 1}
    assert trace.steps[3] == {Message(*TP, "all_reduce", 8): 2}


def test_without_nodes_of_communication_the_group_is_that_of_the_range_around_an_op(tmp_path: Path) -> None:
    nodes = [
        # Outside its range the op is recorded too.
        op(3, "_allgather_base_", 1, [([12, 4], "Tensor(float)"), ([6, 4], "Tensor(float)")]),
        node(4, "charllm group 1", 3),
        op(5, "_allgather_base_", 4, [([12, 4], "Tensor(float)"), ([6, 4], "Tensor(float)")]),
        node(6, "charllm group 1", 1),
        op(7, "alltoall_base_", 6, [([8, 4], "Tensor(float)"), ([6, 4], "Tensor(float)")]),
        node(8, "charllm group 1", 1),
        op(9, "allreduce_", 8, [([[6, 4], []], "GenericList[Tensor(c10::BFloat16),Tensor(long int)]")]),
    ]
    trace = read_execution_trace(write(tmp_path, nodes))
    assert trace.steps == {
        0: {
            Message(*TP, "all_gather", 192): 1,
            Message(*TP, "all_to_all", 96): 1,
            Message(*TP, "all_reduce", 56): 1,
        }
    }


def test_an_op_whose_group_nobody_names_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [op(3, "allreduce_", 1, [([[1]], "GenericList[Tensor(float)]")])])
    with pytest.raises(SpecError, match="process group without a name"):
        read_execution_trace(path)


def test_a_compressed_trace_is_read(tmp_path: Path) -> None:
    plain = write(tmp_path, [comms(3, "allreduce", 6, 6)])
    packed = tmp_path / "rank-1.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_execution_trace(packed) == read_execution_trace(plain)
    assert rank_of(packed) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id"', "a complete JSON file"),
        ('{"traceEvents": []}', "an execution trace of torch's ExecutionTraceObserver"),
        ("[1, 2]", "an execution trace of torch's ExecutionTraceObserver"),
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": [3]}', "each with id and name"),
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1, "name": "record_param_comms"}]}', "readable node 1"),
        (
            '{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1, "name": "## process_group:init ##", "inputs": {}}]}',
            "a readable list of process groups",
        ),
        (
            '{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1, "name": "## process_group:init ##", "inputs": '
            '{"values": ["[{\\"pg_name\\": \\"0\\", \\"ranks\\": [], \\"group_size\\": 1000000000000}]"]}}]}',
            "groups of more than 4,194,304 ranks",
        ),
    ],
)
def test_truncated_and_foreign_files_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "rank-0.json"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_execution_trace(path)
    assert expected in str(caught.value)


def test_a_file_name_without_a_rank_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="number of its rank"):
        rank_of(tmp_path / "trace.json")


def test_what_nccl_records_on_an_h200_is_understood(tmp_path: Path) -> None:
    """The file is torch 2.11's trace of one rank, whose groups are made larger here: alone it sends nothing."""
    text = (Path(__file__).parent / "nccl_one_rank.json").read_text()
    alone = tmp_path / "rank-0.json"
    alone.write_text(text)
    assert read_execution_trace(alone).steps == {0: {}}
    alone.write_text(text.replace('\\"group_size\\": 1', '\\"group_size\\": 2'))
    both = (0, 1)
    assert read_execution_trace(alone).steps == {
        0: {
            Message("tp", both, "all_reduce", 96): 2,
            Message("tp", both, "all_gather", 96): 3,
            Message("tp", both, "reduce_scatter", 96): 2,
            Message("tp", both, "all_to_all", 96): 2,
            Message("tp", both, "send", 48): 1,
            Message("tp", both, "broadcast", 96): 1,
            Message("world", both, "all_reduce", 4): 1,
        }
    }
