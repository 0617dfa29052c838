"""Ways of doing one collective between ranks, each with its hops and its bandwidth; the quickest is taken.

Equation: t = hops + sent / bandwidth, over a group of n ranks on N nodes, n / N in each:
- ring: n - 1 hops (an all-reduce goes round twice), N of n of them through NICs; bandwidth of the slower of both.
- tree: an all-reduce up and down a double binary tree of nodes and a chain inside each: 2 (n/N - 1) hops inside and
  2 log2(N) between; a share of the ring's bandwidth, less in the middle sizes, where its pieces are too few to fill it.
- pat: gathers and scatters of groups with one rank in a node by parallel aggregated trees.
- chain: a broadcast passes n - 1 hops, each of which stores a whole piece before it hands it on.

Source: NCCL's tuning model (src/graph/tuning.cc): hops of trees and PAT over those of rings, bandwidth over theirs,
correction of trees by size; a piece is a buffer of 4 MiB in 8 steps. Published: InternEvo, ZeRO-1 over 256 to 1024
ranks by some 195 broadcasts takes 11 us longer for each of them and each rank than ZeRO-1 within a node.
Ignores: reduction in InfiniBand switches (SHARP), trees inside a node, the number of channels.
"""

from collections.abc import Callable
from math import log2
from typing import NamedTuple

from charllm.units import KIB, MIB
from charllm.workload.op import Op


class Way(NamedTuple):
    """What lies between the ranks of a group."""

    local: int
    """Ranks of the group in a node."""
    nodes: int
    link: float
    """Bytes a second inside a node, as a ring uses it."""
    nic: float
    """Bytes a second that the ring has between nodes; infinite where it does not leave."""
    one_nic: float
    hop_s: float
    nic_hop_s: float
    aggregated_trees: bool

    @property
    def degree(self) -> int:
        """Ranks of the group."""
        return self.local * self.nodes

    @property
    def bandwidth(self) -> float:
        """Bytes a second of a ring."""
        return min(self.link, self.nic)


PIECE_BYTES = 512 * KIB
TREE_NIC_HOPS = 2.0
"""A hop of a tree between nodes over one of a ring: 5.0 and 8.5 instead of 2.7 and 4.0 us (LL, LL128)."""
TREE_SHARE, TREE_LEAST_SHARE = 0.92, 0.46
TREE_LEAST_BYTES, TREE_FULL_BYTES = 4 * MIB, 256 * MIB
"""Bandwidth of a tree over a ring's: from the least, at and below the first size, to the full one at the second, evenly
in the logarithm of the size."""
PAT_SHARE, PAT_LEVEL_HOPS, PAT_RANK_HOPS = 0.75, 0.29, 0.2
"""Bandwidth over a ring's; hops of a ring for each level of the tree, and for each rank: 4 and 2.8 of 14 us."""


def ring_s(op: Op, way: Way) -> float:
    """Return the seconds of a ring."""
    steps = (2 if op.kind == "all_reduce" else 1) * (way.degree - 1)
    across = steps * way.nodes / way.degree if way.nodes > 1 else 0.0
    return across * way.nic_hop_s + (steps - across) * way.hop_s + op.sent_bytes / way.bandwidth


def tree_s(op: Op, way: Way) -> float:
    """Return the seconds of a double binary tree of nodes."""
    hops_s = 2 * ((way.local - 1) * way.hop_s + log2(way.nodes) * TREE_NIC_HOPS * way.nic_hop_s)
    size_bytes = min(TREE_FULL_BYTES, max(TREE_LEAST_BYTES, op.message_bytes))
    filled = log2(size_bytes / TREE_LEAST_BYTES) / log2(TREE_FULL_BYTES / TREE_LEAST_BYTES)
    share = TREE_LEAST_SHARE + (TREE_SHARE - TREE_LEAST_SHARE) * filled
    return hops_s + op.sent_bytes / (way.bandwidth * share)


def pat_s(op: Op, way: Way) -> float:
    """Return the seconds of parallel aggregated trees."""
    hops = PAT_LEVEL_HOPS * log2(way.nodes) + PAT_RANK_HOPS * way.nodes
    return hops * way.nic_hop_s + op.sent_bytes / (way.bandwidth * PAT_SHARE)


def chain_s(op: Op, way: Way) -> float:
    """Return the seconds of a broadcast along a chain that passes each node once."""
    piece_bytes = min(PIECE_BYTES, op.message_bytes)
    across = way.nodes - 1
    inside_s = (way.degree - 1 - across) * (way.hop_s + piece_bytes / way.link)
    across_s = across * (way.nic_hop_s + piece_bytes / way.one_nic) if across else 0.0
    return inside_s + across_s + op.sent_bytes / way.bandwidth


def algorithms_of(op: Op, way: Way) -> dict[str, Callable[[Op, Way], float]]:
    """Return the ways a collective may be done."""
    if op.kind == "broadcast":
        return {"chain": chain_s}
    if op.kind == "all_reduce" and way.nodes > 1:
        return {"ring": ring_s, "tree": tree_s}
    if op.kind in ("all_gather", "reduce_scatter") and way.aggregated_trees and way.nodes > 1 and way.local == 1:
        return {"ring": ring_s, "pat": pat_s}
    return {"ring": ring_s}
