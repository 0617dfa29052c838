"""Constants of collectives and expert exchanges: what each means, where it comes from, and how it was found.

Origins are told apart, because only the last two count as free constants:
- measured: derived from public tables of measurements (nccl-tests on A100, H100, H200, B200, B300, GB200, GB300, 2 to 8
  ranks, 512 B to 512 MiB; ml-engineering's all-reduce benchmarks up to 16 GiB; DeepEP's tables of six GPUs);
- published: stated by the authors of the software, or computed from one figure they print;
- chosen or assumed: a round value inside a published range, or NCCL's usual behaviour (nic_hop_s, blocks);
- fitted to step times: none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from charllm.spec.hardware import Cluster


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """One library that sends tokens to their experts and back."""

    copies: str
    """What is sent: "expert", a copy for each chosen expert; "rank", one for each rank, and one for each node over
    NICs, where a rank of that node hands it on."""
    blocks: int
    """Multiprocessors it occupies."""
    link_fraction: float = 0.0
    """Share of the scale-up link that copies to other ranks reach; 0: as an NCCL collective."""
    block_bytes_per_s: float = 0.0
    """Tokens read and copies written by one multiprocessor; 0: no limit."""
    most_bytes_per_s: float = inf
    """Most that copies to other ranks reach on any link."""
    dense_probabilities: bool = False
    """Whether a copy carries the probabilities of all experts in its domain of links, not only of the chosen ones."""


ALLTOALL = Dispatcher("expert", blocks=24)
"""NCCL all-to-all, one copy for each chosen expert."""
DEEPEP = Dispatcher("rank", blocks=20, link_fraction=0.69, block_bytes_per_s=19.5e9)
"""DeepEP. Blocks: Megatron-Core's `moe_deepep_num_sms`. Link, published: DeepEP's README, 153 and 158 GB/s on 8 H800
(200 GB/s), of which 7/8 leave a rank. Multiprocessor, measured: DeepEP's tables of H100, H200, B200, B300, 20
multiprocessors, hidden size 7168: 18 to 24 GB/s each."""
HYBRIDEP = Dispatcher(
    "rank", blocks=32, link_fraction=0.95, block_bytes_per_s=48e9, most_bytes_per_s=720e9, dense_probabilities=True
)
"""HybridEP. Blocks: its own default in one domain of links, and that of Megatron-Bridge's performance recipes. Link,
published: 4096 tokens of DeepSeek-V3 on 8 H100 in 661 us (arXiv:2603.07685, table 7). Most, published: the same on 8 to
64 GB200 in 353 to 744 us (same table), and 600 to 760 GB/s with 32 multiprocessors (README of DeepEP's Hybrid-EP
branch). Multiprocessor, published: the same README, 16 multiprocessors, bf16: 39 to 55 GB/s each. Probabilities: that
branch, hybrid_ep_backend.cuh, a float for each expert of the domain beside each token."""


@dataclass(frozen=True, slots=True)
class NetworkConstants:
    """Constants that belong to no GPU, node or fabric."""

    latency_s: float = 9e-6
    """Of a collective without bytes beyond its hops. Measured: NCCL tables, 5 us on Hopper, 9 us on A100, Blackwell."""
    hop_s: float = 0.65e-6
    """Of a step over a scale-up link, and of the handshake for one piece of a message. Measured: NCCL tables."""
    link_fraction: float = 0.88
    """Share of a scale-up link that a collective sustains with very large messages. Measured: NCCL tables together with
    own_block_fraction; 8 to 16 GiB around 8 GPUs move at 0.78 (A100), 0.81 (H200), 0.76 (B200) of the link."""
    own_block_fraction: float = 0.6
    """Cost of a rank's own block over that of a block it passes on. Measured: NCCL tables, 2 against 4 and 8 ranks."""
    switch_fraction: float = 0.72
    """Share of a scale-up link that an all-reduce in the switch sustains with very large messages. Measured: H200, 4 to
    8 GPUs, 8 GiB (ml-engineering): 0.68 to 0.69 each time; H100 and H200 at 512 MiB (NCCL tables)."""
    switch_bytes_per_s: float = 545e9
    """Most that it sustains on any link. Measured: B200, 6 to 8 GPUs, 8 GiB (ml-engineering): 540 GB/s each time."""
    nic_fraction: float = 0.91
    """Share of its NICs that a collective, a send or an expert exchange sustains with large messages. Measured: 0.95 by
    an all-reduce on 4 nodes of B200 (ml-engineering). Published: 0.87 and 0.89 by DeepEP on 4 and 8 nodes of H800
    (README, less what stays in the node), 0.86 by HybridEP and 0.85 to 0.90 by NCCL's all-to-all on H100."""
    send_fraction: float = 0.0
    """Share that a send between two ranks reaches; 0: that of a collective. Sends over Slingshot-11 without GPU-direct
    RDMA are faster than rings, which add in the GPU between two copies through host memory."""
    nic_hop_s: float = 8e-6
    """Of a step between nodes. Chosen: NCCL's tuning model has 2.7, 4 and 14 us for three protocols; from 4 to 20 us
    the median error on 384 published dense runs over several nodes changes by 0.1 points."""
    tree_fraction: float = 0.92
    """Bandwidth of a double binary tree over that of a ring. Published: NCCL's tuning model."""
    exchange_s: float = 50e-6
    """Of a dispatch or combine by DeepEP or HybridEP beyond its bytes: counts, barriers. Measured: DeepEP's tables,
    57 to 90 us on 2 and 4 nodes with one token; 45 to 85 us inside a node by extrapolation to none."""
    collective_blocks: int = 24
    """Multiprocessors of an NCCL collective. Assumed: NCCL's usual number of channels inside a node of Hopper."""
    send_blocks: int = 4
    """Multiprocessors of a point-to-point send. Assumed: NCCL's usual number of channels for one peer."""
    alltoall: Dispatcher = ALLTOALL
    """Expert exchange by NCCL's all-to-all."""
    deepep: Dispatcher = DEEPEP
    """Expert exchange by DeepEP."""
    hybridep: Dispatcher = HYBRIDEP
    """Expert exchange by HybridEP."""

    def dispatcher(self, name: str) -> Dispatcher:
        """Return the constants of a framework's dispatcher."""
        found: Dispatcher = getattr(self, name)
        return found


NETWORK = NetworkConstants()

MEASURED_FIELDS = {
    "latency_s": ("node", "collective_latency_s"),
    "hop_s": ("node", "link_hop_s"),
    "link_fraction": ("node", "link_fraction"),
    "own_block_fraction": ("node", "own_block_fraction"),
    "switch_fraction": ("node", "switch_fraction"),
    "nic_fraction": ("fabric", "nic_fraction"),
    "send_fraction": ("fabric", "send_fraction"),
    "exchange_s": ("fabric", "exchange_s"),
    "nic_hop_s": ("fabric", "nic_hop_s"),
    "tree_fraction": ("fabric", "tree_fraction"),
}
"""Constant: the part of a cluster and the field that hold what was measured there (`charllm calibrate`)."""


def constants_of(cluster: Cluster, usual: NetworkConstants = NETWORK) -> NetworkConstants:
    """Return the constants of a cluster: those measured on it, and the usual ones for the rest."""
    fields = {name: getattr(getattr(cluster, part), field) for name, (part, field) in MEASURED_FIELDS.items()}
    found = {name: value for name, value in fields.items() if value is not None}
    return with_measured(usual, found) if found else usual


def with_measured(usual: NetworkConstants, found: Mapping[str, float]) -> NetworkConstants:
    """Return constants with measured ones among them."""
    # A share of this very link includes whatever its switch cannot pass.
    cap = {"switch_bytes_per_s": inf} if "switch_fraction" in found else {}
    changes: dict[str, Any] = {**found, **cap}
    return replace(usual, **changes)
