"""Ways of doing one collective between ranks, each with its hops and its bandwidth; the quickest is taken.

Equation: t = hops + sent / bandwidth, over a group of n ranks on N nodes, n / N in each:
- ring: n - 1 hops (an all-reduce goes round twice), N of n of them through NICs; bandwidth of the slower of both.
- tree: an all-reduce up and down a double binary tree of nodes and a chain inside each: 2 (n/N - 1) hops inside and
  2 log2(N) between; a share of the ring's bandwidth, less in the middle sizes, where its pieces are too few to fill it;
  two nodes send each other every byte once, a ring nearly twice.
- pat: gathers and scatters of groups with one rank in a node by parallel aggregated trees.
- chain: a broadcast passes n - 1 hops, each of which stores a whole piece before it hands it on.

Source: NCCL's tuning model (src/graph/tuning.cc): hops of trees and PAT over those of rings, bandwidth over theirs,
correction of trees by size; a piece is a buffer of 4 MiB in 8 steps. Published: InternEvo, ZeRO-1 over 256 to 1024
ranks by some 195 broadcasts takes 11 us longer for each of them and each rank than ZeRO-1 within a node.
Ignores: reduction in InfiniBand switches (SHARP), trees inside a node, the number of channels.
"""

from collections.abc import Callable
from math import inf, log2
from typing import NamedTuple

from charllm.network.protocols import Protocol
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
ALL = ("LL", "LL128", "Simple")
TREE_NIC_HOPS = {"LL": 1.85, "LL128": 2.1, "Simple": 1.0}
"""A hop of a tree between nodes over one of a ring: 5.0, 8.5 and 14 instead of 2.7, 4.0 and 14 us."""
TREE_SHARE, TREE_LEAST_SHARE = 0.92, 0.46
TREE_LEAST_BYTES, TREE_FULL_BYTES = 4 * MIB, 256 * MIB
"""Bandwidth of a tree over a ring's: from the least, at and below the first size, to the full one at the second, evenly
in the logarithm of the size."""
PAT_SHARE, PAT_LEVEL_HOPS, PAT_RANK_HOPS = 0.75, 0.29, 0.2
"""Bandwidth over a ring's; hops of a ring for each level of the tree, and for each rank: 4 and 2.8 of 14 us."""


def ring_s(op: Op, way: Way, by: Protocol) -> float:
    """Return the seconds of a ring."""
    steps = (2 if op.kind == "all_reduce" else 1) * (way.degree - 1)
    across = steps * way.nodes / way.degree if way.nodes > 1 else 0.0
    hops_s = across * by.nic_hops * way.nic_hop_s + (steps - across) * by.hop_s
    return hops_s + op.sent_bytes / by.bandwidth(way.bandwidth)


def tree_s(op: Op, way: Way, by: Protocol) -> float:
    """Return the seconds of a double binary tree of nodes."""
    nic_hop_s = TREE_NIC_HOPS[by.name] * by.nic_hops * way.nic_hop_s
    hops_s = 2 * ((way.local - 1) * by.hop_s + log2(way.nodes) * nic_hop_s)
    size_bytes = min(TREE_FULL_BYTES, max(TREE_LEAST_BYTES, op.message_bytes))
    filled = log2(size_bytes / TREE_LEAST_BYTES) / log2(TREE_FULL_BYTES / TREE_LEAST_BYTES)
    share = TREE_LEAST_SHARE + (TREE_SHARE - TREE_LEAST_SHARE) * filled
    # Of two nodes each is the root of one tree and the leaf of the other, and sends half of what it does in a ring.
    links = min(way.link, 2 * way.nic) if way.nodes == 2 else way.bandwidth
    return hops_s + op.sent_bytes / (by.bandwidth(links) * share)


def pat_s(op: Op, way: Way, by: Protocol) -> float:
    """Return the seconds of parallel aggregated trees."""
    hops = PAT_LEVEL_HOPS * log2(way.nodes) + PAT_RANK_HOPS * way.nodes
    return hops * by.nic_hops * way.nic_hop_s + op.sent_bytes / (by.bandwidth(way.bandwidth) * PAT_SHARE)


def chain_s(op: Op, way: Way, by: Protocol) -> float:
    """Return the seconds of a broadcast along a chain that passes each node once."""
    piece_bytes = min(PIECE_BYTES, op.message_bytes)
    across = way.nodes - 1
    inside_s = (way.degree - 1 - across) * (by.hop_s + piece_bytes / by.bandwidth(way.link))
    across_s = across * (by.nic_hops * way.nic_hop_s + piece_bytes / way.one_nic) if across else 0.0
    return inside_s + across_s + op.sent_bytes / by.bandwidth(way.bandwidth)


Seconds = Callable[[Op, Way, Protocol], float]
ALGORITHMS: dict[str, dict[str, tuple[Seconds, tuple[str, ...]]]] = {
    "all_reduce": {"ring": (ring_s, ALL), "tree": (tree_s, ALL)},
    "all_gather": {"ring": (ring_s, ALL), "pat": (pat_s, ("Simple",))},
    "reduce_scatter": {"ring": (ring_s, ALL), "pat": (pat_s, ("Simple",))},
    "ring_exchange": {"ring": (ring_s, ALL)},
    "broadcast": {"chain": (chain_s, ("LL128", "Simple"))},
}
"""Collective: algorithms, and the protocols each may go by. Between megabytes NCCL's tuner never broadcasts by LL."""


def quickest(op: Op, way: Way, protocols: tuple[Protocol, ...]) -> tuple[str, str, float]:
    """Return the quickest algorithm and protocol for a collective, and its seconds."""
    found = ("", "", inf)
    for algorithm, (price, allowed) in ALGORITHMS[op.kind].items():
        if algorithm in ("tree", "pat") and not _has_trees(algorithm, way):
            continue
        for by in protocols:
            if by.name in allowed:
                seconds = by.latency_s + price(op, way, by)
                found = (algorithm, by.name, seconds) if seconds < found[2] else found
    return found


def _has_trees(algorithm: str, way: Way) -> bool:
    """Tell whether nodes make trees: for gathers and scatters only with one rank in each, and new software."""
    return way.nodes > 1 and (algorithm == "tree" or (way.local == 1 and way.aggregated_trees))
