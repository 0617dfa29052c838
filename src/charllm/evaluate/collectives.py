"""Predict the rows of a table of collectives, as `charllm simulate` would price them, and score them.

Inside a node a group has its GPUs' links. Between nodes each GPU has its share of the NICs that the ranks which
communicate at that moment leave it: one group alone may have more than when all groups of its kind run at once.
Ignores: oversubscribed switches, and groups whose members are spread unevenly over nodes.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.evaluate.scores import describe_errors
from charllm.measure.bench.nccl_table import CollectiveRow
from charllm.network.algorithms import GroupPath
from charllm.network.collectives import algorithm_on_path, link_bandwidth
from charllm.network.constants import NetworkConstants, constants_of
from charllm.spec.hardware import Cluster
from charllm.units import KIB, MIB
from charllm.workload.op import Op, collective

SIZES = {"up to 64 KiB": 64 * KIB, "up to 16 MiB": 16 * MIB, "above 16 MiB": inf}
"""Range of message sizes: its end. Latency, both, and bandwidth decide in the three."""
INSIDE, BETWEEN = "inside a node", "between nodes"


class Measured(NamedTuple):
    """One measured row, with the links that it used."""

    row: CollectiveRow
    op: Op
    path: GroupPath

    @property
    def seconds_s(self) -> float:
        """What was measured."""
        return self.row.seconds_s or 0.0

    @property
    def level(self) -> str:
        """The links that it crossed."""
        return INSIDE if self.path.nodes == 1 else BETWEEN

    def predict(self, constants: NetworkConstants) -> tuple[str, float]:
        """Return the algorithm and the seconds that are predicted."""
        return algorithm_on_path(self.op, self.path, constants)


def gather(rows: Sequence[CollectiveRow], cluster: Cluster) -> list[Measured]:
    """Join rows that have a result with the links of a cluster; a group of one rank, or no message, has none."""
    found = [(row, op) for row in rows if row.seconds_s and not row.error for op in _ops(row)]
    return [Measured(row, op, _path(row, cluster)) for row, op in found]


def _ops(row: CollectiveRow) -> Sequence[Op]:
    return collective(row.collective, row.group or "tp", float(row.message_bytes), row.ranks)


def _path(row: CollectiveRow, cluster: Cluster) -> GroupPath:
    fabric, node = cluster.fabric, cluster.node
    local = min(row.ranks, row.ranks_per_node * cluster.domain_nodes)
    nodes = ceil(row.ranks / local)
    # The table gives no placement: ranks are taken to be in order.
    link_bytes_per_s = link_bandwidth(cluster, ("package",) if 1 < local <= cluster.gpu.package_gpus else (), local)
    if row.active_ranks_per_node > node.gpus:
        raise SpecError(
            "--cluster", cluster.name, f"nodes of at least {row.active_ranks_per_node} GPUs, as in the table"
        )
    if nodes == 1:
        return GroupPath(local, 1, link_bytes_per_s, inf, node.in_switch_reduction)
    if not fabric.nics_per_node:
        raise SpecError("--cluster", cluster.name, f"a cluster with NICs: the table has groups of {nodes} nodes")
    # Senders of a pipeline hop or a ring leave a node through as many NICs as there are, at most their own.
    senders = row.active_ranks_per_node / local if row.collective == "send" else row.active_ranks_per_node
    own = max(1.0, fabric.nics_per_node / node.gpus) if row.collective != "send" else 1.0
    share = min(own, fabric.nics_per_node / senders) * fabric.nic_bandwidth_bytes_per_s
    members = 1 if row.collective == "send" else local
    return GroupPath(local, nodes, link_bytes_per_s, members * share, node.in_switch_reduction)


def score_collectives(rows: Sequence[CollectiveRow], cluster: Cluster) -> dict[str, Any]:
    """Compare predicted and measured seconds of each row."""
    measured = gather(rows, cluster)
    if not measured:
        raise SpecError("FILE", f"{len(rows)} rows without a result", "at least one collective that was measured")
    predictions = predict_rows(measured, constants_of(cluster))
    names = ("group", "mode", "collective", "message_bytes", "error")
    left_out = [{name: getattr(row, name) for name in names} for row in rows if row.error]
    return {"cluster": cluster.name, **summarise(predictions), "not_measured": left_out, "predictions": predictions}


def predict_rows(measured: Sequence[Measured], constants: NetworkConstants) -> list[dict[str, Any]]:
    """Return each row with its predicted seconds beside the measured ones."""
    predictions = []
    for each in measured:
        algorithm, predicted_s = each.predict(constants)
        row = each.row
        predictions.append(
            {
                **{name: getattr(row, name) for name in ("group", "mode", "collective", "ranks", "ranks_per_node")},
                "links": each.level,
                "message_bytes": row.message_bytes,
                "algorithm": algorithm,
                "predicted_s": predicted_s,
                "measured_s": each.seconds_s,
                "error_fraction": predicted_s / each.seconds_s - 1,
            }
        )
    return predictions


def summarise(predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return errors of all rows, by collective and links, and by range of sizes."""
    return {
        "overall": describe_errors([row["error_fraction"] for row in predictions]),
        "by_collective": _by(predictions, lambda row: f"{row['collective']}, {row['links']}"),
        "by_size": _by(predictions, lambda row: size_range(row["message_bytes"])),
    }


def size_range(message_bytes: float) -> str:
    """Return the range that a message size is in."""
    return next(name for name, end in SIZES.items() if message_bytes <= end)


def _by(predictions: Sequence[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in predictions:
        groups[key(row)].append(row)
    return {
        name: {
            **describe_errors([row["error_fraction"] for row in found]),
            "large_median_abs_error_fraction": _large(found),
        }
        for name, found in groups.items()
    }


def _large(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the median error of messages whose bandwidth decides."""
    sizes = [abs(row["error_fraction"]) for row in rows if row["message_bytes"] > SIZES["up to 16 MiB"]]
    return statistics.median(sizes) if sizes else None
