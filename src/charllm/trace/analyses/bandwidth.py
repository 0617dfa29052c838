"""What bandwidth do collectives reach, by message size? Small messages (chunks, buckets) stay below what links can do.

Bus bandwidth as NCCL's tests define it (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md), with n ranks and S bytes:
  all_reduce 2 (n-1)/n S/t;  all_gather, reduce_scatter, all_to_all (n-1)/n S/t;  send, broadcast S/t.
t is a call's whole time on one rank. Of calls alike, the fastest decile waited least, and shows the link best.
Ignores: waiting for other ranks inside a call, except through the choice of the fastest ones.
"""

from typing import NamedTuple

import numpy as np

from charllm.network.collectives import link_bandwidth
from charllm.spec.hardware import Cluster
from charllm.trace.collective_calls import list_calls
from charllm.trace.events import NONE, Group
from charllm.trace.run import TracedRun
from charllm.workload.op import bus_fraction

KINDS = {kind: kind for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")} | {
    "send_recv": "send"
}
"""Kind of call in a trace whose bandwidth is known: the collective or send that it is (workload/op.py)."""
FASTEST = 90.0
"""Percentile of calls that shows the link."""
SMALL_SHARE = 0.5
"""A message is small where it reaches less than this share of the best bandwidth of its axis (assumed)."""


class BandwidthRow(NamedTuple):
    """Messages alike of all ranks, in a mean step of one rank."""

    axis: str | None
    kind: str
    size_bytes: int
    """Median message."""
    ranks: int
    """Ranks in the group."""
    calls: float
    seconds: float
    bus_bytes_per_s: float
    """Median over calls: waiting included."""
    best_bytes_per_s: float
    """Of the fastest decile of calls."""
    peak_bytes_per_s: float | None = None
    """What the links between the ranks can do, where the spec of the run is known."""


class _Alike(NamedTuple):
    """What calls have in common that stand in one row."""

    axis: str | None
    kind: str
    ranks: int
    size_bits: int
    peak_bytes_per_s: float | None


def bandwidth_rows(run: TracedRun, cluster: Cluster | None = None) -> list[BandwidthRow]:
    """Return the bandwidth of collectives by axis, kind, group size and message size (in powers of two)."""
    found: dict[_Alike, list[tuple[float, float, float]]] = {}
    for rank in run.ranks:
        calls = list_calls(rank)
        peaks = [None if cluster is None else _peak(group, cluster) for group in calls.groups]
        kept = calls.take((calls.message_bytes > 0) & (calls.group != NONE) & (calls.seconds > 0))
        columns = (kept.work.tolist(), kept.group.tolist(), kept.message_bytes.tolist(), kept.seconds.tolist())
        for work, group, size, seconds in zip(*columns, strict=True):
            one, members = rank.activity.works[work], calls.groups[group]
            ranks = members.size or len(members.ranks)
            if one.kind in KINDS and ranks > 1:
                alike = _Alike(one.axis, one.kind, ranks, size.bit_length(), peaks[group])
                found.setdefault(alike, []).append(
                    (size, seconds, bus_fraction(KINDS[one.kind], ranks) * size / seconds)
                )
    steps = sum(max(1, len(rank.windows)) for rank in run.ranks) or 1
    rows = [_row(alike, values, steps) for alike, values in found.items()]
    return sorted(rows, key=lambda row: -row.seconds)


def _peak(group: Group, cluster: Cluster) -> float | None:
    """Return the bandwidth of a GPU's links inside a node, or of all NICs of a node, each way.

    Ignores: placement other than ranks in order; switches between nodes.
    """
    if not group.ranks:
        return None
    if len({rank // cluster.node.gpus for rank in group.ranks}) == 1:
        packages = {rank // cluster.gpu.package_gpus for rank in group.ranks}
        return link_bandwidth(cluster, ("package",) if len(packages) == 1 else (), len(group.ranks))
    return cluster.fabric.node_bandwidth_bytes_per_s or None


def _row(alike: _Alike, values: list[tuple[float, float, float]], steps: int) -> BandwidthRow:
    sizes, seconds, bus = np.array(values).T
    return BandwidthRow(
        alike.axis,
        alike.kind,
        int(np.median(sizes)),
        alike.ranks,
        len(values) / steps,
        float(seconds.sum()) / steps,
        float(np.median(bus)),
        float(np.percentile(bus, FASTEST)),
        alike.peak_bytes_per_s,
    )


def small_message_share(rows: list[BandwidthRow]) -> float | None:
    """Return the share of collective seconds in messages that reach less than half the best bandwidth of their axis."""
    total_s = sum(row.seconds for row in rows)
    if not total_s:
        return None
    best: dict[tuple[str | None, int], float] = {}
    for row in rows:
        key = (row.axis, row.ranks)
        best[key] = max(best.get(key, 0.0), row.best_bytes_per_s)
    small = sum(row.seconds for row in rows if row.best_bytes_per_s < SMALL_SHARE * best[row.axis, row.ranks])
    return small / total_s
