"""How a collective's bytes travel: NCCL's three protocols, each with its latency, its hops and its bandwidth.

Equation: t = latency + hops x hop + sent / min(share x bandwidth of the links, most). LL writes a flag beside every 4
bytes and waits for nothing else; LL128 one in 128 bytes; Simple fills a buffer and signals it.

Source: shares and hops between nodes over LL128's from NCCL's tuning model (src/graph/tuning.cc: 2.7, 4.0 and 14 us);
latencies, hops inside a node and most bandwidths fitted on NCCL tables of seven GPUs, 2 to 8 ranks, 512 B to 512 MiB.
Ignores: that LL128 is not taken on some paths; how GPUs differ beyond their links.
"""

from math import inf
from typing import NamedTuple


class Protocol(NamedTuple):
    """One way of handing bytes on."""

    name: str
    latency_s: float
    """Of a collective of no bytes, beyond its hops."""
    hop_s: float
    """Of each step inside a node."""
    nic_hops: float
    """A step between nodes over `nic_hop_s`."""
    share: float
    """Bandwidth over that of the links: what flags leave."""
    most_bytes_per_s: float
    """What its copies reach on any link."""

    def bandwidth(self, links_bytes_per_s: float) -> float:
        """Return the bytes a second on links of a bandwidth."""
        return min(self.share * links_bytes_per_s, self.most_bytes_per_s)


PROTOCOLS = {
    "LL": Protocol("LL", 7.9e-6, 0.89e-6, 0.7, 0.5, 15e9),
    "LL128": Protocol("LL128", 11e-6, 0.69e-6, 1.0, 0.92, 255e9),
    "Simple": Protocol("Simple", 22e-6, 4.8e-6, 3.5, 1.0, inf),
}
