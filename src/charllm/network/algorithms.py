"""Algorithms of one collective between ranks: ring, tree between nodes, reduction in the switch; the fastest is used.

Equation: a message is cut into pieces of p bytes. Over stages i (links, NICs) with n_i hops of h_i seconds that carry
b_i bytes at B_i, each piece costs a handshake g and delays every hop by its own length:
    t = latency + sum n_i h_i + max b_i / B_i + (b / p) g + p sum n_i / B_i,
which the best p makes
    t = latency + sum n_i h_i + max b_i / B_i + 2 sqrt(g sum n_i b_i / B_i).
- ring: n - 1 hops (an all-reduce goes round twice), nodes / n of them over NICs. A rank also handles its own block.
- tree: an all-reduce up and down a double binary tree of nodes and a chain inside each: 2 (n / nodes - 1) hops inside
  and 2 log2(nodes) between. Two nodes send each other every byte once, a ring nearly twice.
- switch: every rank sends its buffer once and gets it back reduced: 1 + 1/n of the message on its link instead of
  2 (n - 1) / n. For gathers and scatters the switch saves hops, but no bytes on the busier direction of a link, and
  NCCL 2.26 to 2.29 measure like rings: only all-reduces use it.

Source: the piece size is the pipelining argument of every ring implementation; handshake, hops and shares are fitted to
NCCL tables (network/constants.py). This replaces NCCL's three protocols (LL, LL128, Simple), which trade handshakes
against bandwidth: 4 constants of rings instead of 11 leave a median error of 4.6 instead of 4.5 % from 128 MiB on, 7.3
instead of 5.7 % from 16 MiB on.
Ignores: reduction in InfiniBand switches (SHARP), trees inside a node, parallel aggregated trees (PAT), the lower
latency of Hopper below 1 MiB.
"""

from collections.abc import Callable
from math import log2, sqrt
from typing import NamedTuple

from charllm.network.constants import NetworkConstants
from charllm.units import KIB
from charllm.workload.op import Op


class GroupPath(NamedTuple):
    """The links between the ranks of one group."""

    local_ranks: int
    """Ranks of the group in one scale-up domain."""
    nodes: int
    """Scale-up domains that the group spans."""
    link_bytes_per_s: float
    """Datasheet bandwidth of one GPU's scale-up link, each way."""
    nic_bytes_per_s: float
    """NIC bandwidth that the group has when all groups of its kind communicate; infinite inside one domain."""
    in_switch_reduction: bool = False
    direct: bool = False
    """Whether short all-reduces read the buffers of all ranks at once."""

    @property
    def degree(self) -> int:
        """Ranks of the group."""
        return self.local_ranks * self.nodes


class Stage(NamedTuple):
    """One kind of link on the way of a message."""

    hops: float
    hop_s: float
    moved_s: float
    """Bytes over bandwidth."""


def pipelined_seconds(stages: tuple[Stage, ...], constants: NetworkConstants) -> float:
    """Return the seconds of a message cut into pieces of the best size (module docstring)."""
    hops_s = sum(stage.hops * stage.hop_s for stage in stages)
    delay_s = sum(stage.hops * stage.moved_s for stage in stages)
    moved_s = max(stage.moved_s for stage in stages)
    return constants.latency_s + hops_s + moved_s + 2 * sqrt(constants.hop_s * delay_s)


def ring_seconds(op: Op, path: GroupPath, constants: NetworkConstants) -> float:
    """Return the seconds of a ring; a broadcast follows it once, from rank to rank."""
    steps = (2 if op.kind == "all_reduce" else 1) * (path.degree - 1)
    across = steps * path.nodes / path.degree if path.nodes > 1 else 0.0
    own_bytes = 0.0 if op.kind == "ring_exchange" else constants.own_block_fraction * op.message_bytes / path.degree
    link_s = (op.sent_bytes + own_bytes) / (constants.link_fraction * path.link_bytes_per_s)
    nic_s = op.sent_bytes / (constants.nic_fraction * path.nic_bytes_per_s)
    stages = (Stage(steps - across, constants.hop_s, link_s), Stage(across, constants.nic_hop_s, nic_s))
    return pipelined_seconds(stages, constants)


def chain_seconds(op: Op, path: GroupPath, constants: NetworkConstants) -> float:
    """Return the seconds of a broadcast: each rank of a chain stores a whole piece before it hands it on.

    Source: a piece is a buffer of 4 MiB in 8 steps. Published: InternEvo, ZeRO-1 over 256 to 1024 ranks by some 195
    broadcasts takes 11 us longer for each of them and each rank than ZeRO-1 within a node.
    """
    piece_bytes = min(PIECE_BYTES, op.message_bytes)
    across = path.nodes - 1
    inside_s = (path.degree - 1 - across) * piece_bytes / (constants.link_fraction * path.link_bytes_per_s)
    across_s = across * piece_bytes / (constants.nic_fraction * path.nic_bytes_per_s) if across else 0.0
    return ring_seconds(op, path, constants) + inside_s + across_s


def tree_seconds(op: Op, path: GroupPath, constants: NetworkConstants) -> float:
    """Return the seconds of an all-reduce over a double binary tree of nodes."""
    # Of two nodes each is the root of one tree and the leaf of the other, and sends half of what it does in a ring.
    nic_bytes_per_s = path.nic_bytes_per_s * (2 if path.nodes == 2 else 1)
    link_s = op.sent_bytes / (constants.tree_fraction * constants.link_fraction * path.link_bytes_per_s)
    nic_s = op.sent_bytes / (constants.tree_fraction * constants.nic_fraction * nic_bytes_per_s)
    inside = Stage(2 * (path.local_ranks - 1), constants.hop_s, link_s)
    return pipelined_seconds((inside, Stage(2 * log2(path.nodes), constants.nic_hop_s, nic_s)), constants)


def switch_seconds(op: Op, path: GroupPath, constants: NetworkConstants) -> float:
    """Return the seconds of an all-reduce in the switch of a scale-up domain (NVLS)."""
    sent_bytes = op.message_bytes * (1 + 1 / path.degree)
    moved_s = sent_bytes / min(constants.switch_fraction * path.link_bytes_per_s, constants.switch_bytes_per_s)
    return pipelined_seconds((Stage(2 * (path.degree - 1), constants.hop_s, moved_s),), constants)


DIRECT_S, DIRECT_FRACTION = 4.3e-6, 0.7
"""Derived: a barrier of ranks with one pass over their buffers, and share of a link's bandwidth that loads from other
ranks reach, from AIConfigurator's table of vLLM 0.24's all-reduce in graphs on an H200."""


def one_shot_seconds(op: Op, path: GroupPath, _constants: NetworkConstants) -> float:
    """Return the seconds of an all-reduce in which each rank reads the buffers of all others."""
    read_bytes = (path.degree - 1) * op.message_bytes
    return DIRECT_S + read_bytes / (DIRECT_FRACTION * path.link_bytes_per_s)


def two_shot_seconds(op: Op, path: GroupPath, _constants: NetworkConstants) -> float:
    """Return the seconds of an all-reduce in which each rank reduces its part, which all others then read."""
    return 2 * DIRECT_S + op.sent_bytes / (DIRECT_FRACTION * path.link_bytes_per_s)


PIECE_BYTES = 512 * KIB
Seconds = Callable[[Op, GroupPath, NetworkConstants], float]
ALGORITHMS: dict[str, Seconds] = {
    "ring": ring_seconds,
    "chain": chain_seconds,
    "tree": tree_seconds,
    "switch": switch_seconds,
    "one-shot": one_shot_seconds,
    "two-shot": two_shot_seconds,
}


def fastest_algorithm(op: Op, path: GroupPath, constants: NetworkConstants) -> tuple[str, float]:
    """Return the fastest algorithm for a collective, and its seconds."""
    seconds = {name: ALGORITHMS[name](op, path, constants) for name in _possible(op, path)}
    name = min(seconds, key=lambda name: seconds[name])
    return name, seconds[name]


def _possible(op: Op, path: GroupPath) -> tuple[str, ...]:
    """List the algorithms that a collective may use on these links."""
    if op.kind != "all_reduce":
        return ("chain",) if op.kind == "broadcast" else ("ring",)
    if path.nodes > 1:
        return ("ring", "tree")
    direct = ("one-shot", "two-shot") if path.direct else ()
    return ("ring", *(("switch",) if path.in_switch_reduction else ()), *direct)
