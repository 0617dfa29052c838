"""Seconds of one collective on the links of its group.

Equation: t = latency + setup sent / (sent + knee) + steps x hop + sent / bandwidth: messages far below the knee go by a
protocol that pays in bandwidth what it saves in setup. Inside a scale-up domain the bandwidth is a share of the link
that grows with the ranks of the ring; between nodes it is what the node's NICs give to the group: NICs x bandwidth x
(members in a node / GPUs of a node), because every member's NIC carries a part of the ring.

Source: NCCL tables of nine GPUs, 2 to 8 ranks; published multi-node runs for NICs.
Ignores: trees, congestion above the pod's switches beyond oversubscription.
"""

from charllm.cost.calibration import Calibration
from charllm.layout.links import group_links
from charllm.spec.run import RunSpec
from charllm.workload.cut import cut_run
from charllm.workload.op import Op
from charllm.workload.routing import skew, visited

RING_SHAPES = {"all_gather": (1.0, 0.55), "reduce_scatter": (1.0, 0.55), "all_reduce": (1.0, 0.25),
               "all_to_all": (0.9, 0.33), "ring_exchange": (1.0, 0.55), "send": (0.9, 0.0)}  # fmt: skip
"""Collective: share of the link at many ranks over a ring's, and how it falls with few: share x (1 - loss / ranks).
Derived from NCCL tables at 512 MiB: an all-gather uses 0.57, 0.70, 0.74 of an H100's link at 2, 4, 8 ranks."""
DISPATCH_NIC = (0.95, 0.45)
"""Share of a NIC that dispatchers of one copy for each node use: first x (1 - second / nodes). Derived from Hybrid-EP's
and DeepEP's tables on H100, sent bytes without a node's own: 0.70 to 0.76, 0.83 to 0.92, 0.89 at 2, 4, 8 nodes."""
SWITCH_GAIN = 1.25
"""All-reduce in the switch (NVLS) over a ring: 450 instead of 350 GB/s on eight H100 (published)."""


def price_collective(op: Op, run: RunSpec, calibration: Calibration) -> float:
    """Return the seconds of one collective when nothing else uses its links."""
    links = group_links(run, op.group)
    degree = links.degree
    steps = 2 * (degree - 1) if op.kind == "all_reduce" else degree - 1
    if op.kind in ("send", "all_to_all"):
        steps = 1
    inside, across = _shares(op, links.pair_links if op.kind == "all_to_all" else links.ring_links)
    seconds = setup_seconds(run, op.sent_bytes, calibration)
    node = run.cluster.node
    scale_up = node.link_bandwidth_bytes_per_s or node.pcie_bandwidth_bytes_per_s
    share, loss = RING_SHAPES[op.kind]
    link = scale_up * calibration.link_fraction * share * (1 - loss / max(2, degree))
    if op.kind == "all_reduce" and node.in_switch_reduction and run.framework.in_switch_reduction and degree >= 4:
        link *= SWITCH_GAIN
    local = members_per_node(run, op.group)
    nodes = max(1, degree // local)
    # All ranks wait for the one that most tokens come to.
    busiest = skew(cut_run(run)) if op.group == "ep" else 1.0
    if not across:
        sent = _exchanged(op, run, local, nodes, 1.0, 0.0)[0] if op.kind == "all_to_all" else op.sent_bytes
        return seconds + steps * calibration.hop_s + busiest * sent / link
    nic = nic_bandwidth(run, op, local, calibration)
    if "core" in (links.pair_hops if op.kind == "all_to_all" else links.ring_hops):
        nic /= run.cluster.fabric.oversubscription
    hops = steps if op.kind in ("send", "all_to_all") else steps * nodes / degree
    seconds += hops * calibration.nic_hop_s + (steps - hops) * calibration.hop_s
    if op.kind == "all_to_all":
        inside_bytes, across_bytes = _exchanged(op, run, local, nodes, inside, across)
        if op.group == "ep" and run.framework.dispatcher == "each-rank":
            nic *= DISPATCH_NIC[0] * (1 - DISPATCH_NIC[1] / nodes) / calibration.nic_fraction
        return seconds + busiest * max(inside_bytes / link, across_bytes / nic)
    return seconds + op.sent_bytes / min(link, nic)


def setup_seconds(run: RunSpec, sent_bytes: float, calibration: Calibration) -> float:
    """Return what a collective takes beyond steps and bytes: little for a small message, all of it for a large one."""
    large = sent_bytes / (sent_bytes + calibration.protocol_bytes) if sent_bytes else 0.0
    return calibration.collective_latency_s + run.cluster.gpu.collective_setup_s * large


def price_send(size_bytes: float, leaving: int, run: RunSpec, calibration: Calibration) -> float:
    """Return the seconds of handing a microbatch on; `leaving` sends share a node's NICs, 0: the hop stays inside."""
    node, fabric = run.cluster.node, run.cluster.fabric
    setup_s = setup_seconds(run, size_bytes, calibration)
    if not leaving:
        scale_up = node.link_bandwidth_bytes_per_s or node.pcie_bandwidth_bytes_per_s
        return setup_s + size_bytes / (scale_up * calibration.link_fraction)
    total = fabric.nics_per_node * fabric.nic_bandwidth_bytes_per_s * calibration.nic_fraction
    # One sender alone cannot use more than its own NIC.
    share = min(total / leaving, fabric.nic_bandwidth_bytes_per_s * calibration.nic_fraction)
    return setup_s + calibration.nic_hop_s + size_bytes / share


def _exchanged(op: Op, run: RunSpec, local: int, nodes: int, inside: float, across: float) -> tuple[float, float]:
    """Return the bytes a rank sends inside its node and over its NIC.

    With a copy for each rank and node, a token crosses to each node once, however many of its experts are there, and is
    handed on inside (workload/routing.py says how many ranks and nodes have some).
    """
    if run.framework.dispatcher == "each-expert" or op.group != "ep":
        return op.sent_bytes * inside, op.sent_bytes * across
    ranks = local * nodes
    one_copy = op.message_bytes / max(1, run.model.topk)
    some_node, some_rank = (visited(run.model, run.training, run.framework, parts) for parts in (nodes, ranks))
    return one_copy * some_rank * (ranks - 1) / ranks, one_copy * some_node * (nodes - 1) / nodes


def _shares(_op: Op, fractions: dict[str, float]) -> tuple[float, float]:
    return fractions["nvlink"] + fractions["pcie"], fractions["nic"]


def members_per_node(run: RunSpec, group: str) -> int:
    """Return how many members of one group share a node (or a scale-up domain)."""
    links = group_links(run, group)
    if group == "pp":
        return 1
    leaving = sum(count for name, count in links.ring_hops.items() if name in ("rail", "pod", "core"))
    if not leaving:
        return links.degree
    # A sorted ring leaves each node once.
    return max(1, round(links.degree * links.groups / leaving))


def nic_bandwidth(run: RunSpec, op: Op, local: int, calibration: Calibration) -> float:
    """Return the NIC bandwidth that one ring (or one sender) has, when all groups of its kind run at once."""
    cluster = run.cluster
    fabric, per_node = cluster.fabric, cluster.node.gpus * cluster.domain_nodes
    total = fabric.nics_per_node * cluster.domain_nodes * fabric.nic_bandwidth_bytes_per_s * calibration.nic_fraction
    if op.kind in ("all_to_all", "send"):
        return total / per_node
    return total * local / per_node
