"""Tables of collectives against the network model: the links of each row, and scores."""

from math import inf
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.errors import SpecError
from charllm.evaluate.collectives import BETWEEN, INSIDE, gather, score_collectives, size_range
from charllm.layout.links import group_links
from charllm.measure.bench.nccl_table import CollectiveRow
from charllm.network.collectives import collective_seconds
from charllm.workload.op import collective

CLUSTER = resolve_cluster({"base": "charllm-ppt-h200", "fabric": "ib-8x400g"})
NIC = CLUSTER.fabric.nic_bandwidth_bytes_per_s


def row(kind: str = "all_reduce", ranks: int = 8, per_node: int = 8, active: int = 8, **changes: Any) -> CollectiveRow:
    found = CollectiveRow("tp", "together", kind, 1 << 26, ranks, per_node, active, max(1, active // per_node), 1e-3)
    return found._replace(**changes)


def test_a_group_in_a_node_has_links_and_no_nic() -> None:
    (each,) = gather([row()], CLUSTER)
    assert (each.path.local_ranks, each.path.nodes, each.path.nic_bytes_per_s, each.level) == (8, 1, inf, INSIDE)


@pytest.mark.parametrize(
    ("ranks", "per_node", "active", "nics"),
    [(4, 1, 8, 1), (4, 1, 1, 1), (16, 8, 8, 8), (8, 4, 8, 4), (8, 4, 4, 4)],
)
def test_between_nodes_each_gpu_has_its_share_of_nics(ranks: int, per_node: int, active: int, nics: int) -> None:
    (each,) = gather([row(ranks=ranks, per_node=per_node, active=active)], CLUSTER)
    assert each.level == BETWEEN
    assert each.path.nic_bytes_per_s == pytest.approx(nics * NIC)


def test_one_group_alone_has_the_only_nic_to_itself() -> None:
    one = resolve_cluster({"base": "charllm-ppt-h200", "fabric": {"base": "ib-8x400g", "nics_per_node": 1}})
    together, alone = gather([row(ranks=4, per_node=1), row(ranks=4, per_node=1, active=1)], one)
    assert alone.path.nic_bytes_per_s == pytest.approx(8 * together.path.nic_bytes_per_s)


@pytest.mark.parametrize(("kind", "axis"), [("all_reduce", "tp"), ("reduce_scatter", "dp"), ("broadcast", "dp")])
def test_a_row_is_predicted_as_the_simulator_prices_it(kind: str, axis: str) -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 8}})
    degree = {"tp": 8, "dp": 4}[axis]
    links = group_links(run, axis)
    found = row(kind, degree, degree if axis == "tp" else 1, 8, group=axis)
    (op,) = collective(kind, axis, float(found.message_bytes), degree)
    assert links.degree == degree
    predicted = score_collectives([found], run.cluster)["predictions"][0]["predicted_s"]
    assert predicted == pytest.approx(collective_seconds(op, run))


def test_sends_between_nodes_have_one_nic_each_at_most() -> None:
    (each,) = gather([row("send", ranks=2, per_node=1, active=8)], CLUSTER)
    assert each.path.nic_bytes_per_s == pytest.approx(NIC)


def test_scores_are_told_by_collective_and_size() -> None:
    rows = [row(seconds_s=None, error="left out"), row("send"), row(message_bytes=1024, seconds_s=1e-5)]
    table = score_collectives(rows, CLUSTER)
    assert table["overall"]["scored"] == 2
    assert set(table["by_collective"]) == {f"send, {INSIDE}", f"all_reduce, {INSIDE}"}
    assert set(table["by_size"]) == {"up to 64 KiB", "above 16 MiB"}
    assert [each["error"] for each in table["not_measured"]] == ["left out"]
    first = table["predictions"][0]
    assert first["error_fraction"] == pytest.approx(first["predicted_s"] / first["measured_s"] - 1)


def test_tables_of_other_machines_are_refused() -> None:
    with pytest.raises(SpecError, match="a cluster with NICs"):
        gather([row(ranks=16)], resolve_cluster("h200x8"))
    with pytest.raises(SpecError, match="at least 16 GPUs"):
        gather([row(ranks=16, per_node=16, active=16)], CLUSTER)
    with pytest.raises(SpecError, match="rows without a result"):
        score_collectives([], CLUSTER)


def test_ranges_of_sizes_meet() -> None:
    assert [size_range(size) for size in (1, 65536, 65537, 1 << 24, 1 << 30)] == [
        "up to 64 KiB", "up to 64 KiB", "up to 16 MiB", "up to 16 MiB", "above 16 MiB",
    ]  # fmt: skip
