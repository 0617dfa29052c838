"""Seconds of one collective on the links of its group.

Equation: t = latency + hops + sent / bandwidth, of the quickest algorithm (`cost/algorithms.py`) by the quickest
protocol (`cost/protocols.py`). Inside a scale-up domain the bandwidth is a share of the link that grows with the ranks
of the ring; between nodes it is what the node's NICs give to the group: NICs x bandwidth x (members in a node / GPUs of
a node), because every member's NIC carries a part of the ring.

Source: NCCL tables of seven GPUs, 2 to 8 ranks; published multi-node runs for NICs.
Ignores: congestion above the pod's switches beyond oversubscription.
"""

from collections import defaultdict
from math import inf

from charllm.cost.calibration import CALIBRATION, Calibration
from charllm.layout.links import GroupLinks, group_links
from charllm.network.algorithms import Way, quickest
from charllm.spec.run import RunSpec
from charllm.workload.cut import cut_run
from charllm.workload.op import Op, is_communication
from charllm.workload.routing import skew, visited
from charllm.workload.step import Step
from charllm.workload.totals import AXIS_OF_GROUP, stage_ops

RING_SHAPES = {"all_gather": (1.0, 0.55), "reduce_scatter": (1.0, 0.55), "all_reduce": (1.0, 0.25),
               "broadcast": (1.0, 0.55), "all_to_all": (0.9, 0.33),
               "ring_exchange": (1.0, 0.55), "send": (0.9, 0.0)}  # fmt: skip
"""Collective: share of the link at many ranks over a ring's, and how it falls with few: share x (1 - loss / ranks).
Derived from NCCL tables at 512 MiB: an all-gather uses 0.57, 0.70, 0.74 of an H100's link at 2, 4, 8 ranks."""
DIRECT = "direct Simple"
DISPATCH_NIC = (0.95, 0.45)
"""Share of a NIC that dispatchers of one copy for each node use: first x (1 - second / nodes). Derived from Hybrid-EP's
and DeepEP's tables on H100, sent bytes without a node's own: 0.70 to 0.76, 0.83 to 0.92, 0.89 at 2, 4, 8 nodes."""
SWITCH_GAIN = 1.25
"""All-reduce in the switch (NVLS) over a ring: 450 instead of 350 GB/s on eight H100 (published)."""


def price_collective(op: Op, run: RunSpec, calibration: Calibration) -> float:
    """Return the seconds of one collective when nothing else uses its links."""
    return choose_algorithm(op, run, calibration)[1]


def choose_algorithm(op: Op, run: RunSpec, calibration: Calibration) -> tuple[str, float]:
    """Return the quickest way of doing a collective, and its seconds when nothing else uses its links."""
    if op.kind in ("send", "all_to_all"):
        protocol, seconds = _direct(op, run, calibration)
        return f"direct {protocol}", seconds
    way = _way(op, run, group_links(run, op.group), calibration)
    algorithm, protocol, seconds = quickest(op, way, calibration.protocols)
    return f"{algorithm} {protocol}", seconds


def algorithms_taken(step: Step, calibration: Calibration = CALIBRATION) -> dict[str, tuple[str, ...]]:
    """Return for each axis how its collectives of a step are done: by most of its bytes first."""
    sent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for stage in range(step.run.parallelism.pp):
        for op, times, _phase in stage_ops(step, stage):
            if is_communication(op):
                way = DIRECT if op.group == "pp" else choose_algorithm(op, step.run, calibration)[0]
                sent[AXIS_OF_GROUP[op.group]][way] += op.sent_bytes * times
    if step.boundary_ops:
        sent["pp"][DIRECT] += 1.0
    return {axis: tuple(sorted(ways, key=lambda way: -ways[way])) for axis, ways in sent.items()}


def _way(op: Op, run: RunSpec, links: GroupLinks, calibration: Calibration) -> Way:
    """Describe what a ring of the group goes over."""
    local, degree, nic = members_per_node(links), links.degree, inf
    if links.ring_links["nic"]:
        nic = nic_bandwidth(run, op, local, calibration)
        nic /= run.cluster.fabric.oversubscription if "core" in links.ring_hops else 1.0
    return Way(
        local if links.ring_links["nic"] else degree,
        max(1, degree // local) if links.ring_links["nic"] else 1,
        link_bandwidth(run, op, degree, calibration),
        nic,
        min(nic, run.cluster.fabric.nic_bandwidth_bytes_per_s * calibration.nic_fraction),
        calibration.nic_hop_s,
        run.framework.aggregated_trees,
    )


def _direct(op: Op, run: RunSpec, calibration: Calibration) -> tuple[str, float]:
    """Return protocol and seconds of messages that go straight to their ranks, all at once."""
    links = group_links(run, op.group)
    inside, across = _shares(op, links.pair_links if op.kind == "all_to_all" else links.ring_links)
    link = link_bandwidth(run, op, links.degree, calibration)
    local = members_per_node(links)
    nodes = max(1, links.degree // local)
    if op.kind == "send":
        inside_bytes, across_bytes = (0.0, op.sent_bytes) if across else (op.sent_bytes, 0.0)
    elif across:
        inside_bytes, across_bytes = _exchanged(op, run, local, nodes, inside, across)
    else:
        inside_bytes, across_bytes = _exchanged(op, run, local, nodes, 1.0, 0.0)[0], 0.0
    nic = inf
    if across:
        nic = nic_bandwidth(run, op, local, calibration)
        if "core" in (links.pair_hops if op.kind == "all_to_all" else links.ring_hops):
            nic /= run.cluster.fabric.oversubscription
        nic = min(nic, link) if op.kind == "send" else nic
        if op.group == "ep" and run.framework.dispatcher != "alltoall":
            nic *= DISPATCH_NIC[0] * (1 - DISPATCH_NIC[1] / nodes) / calibration.nic_fraction
    # All ranks wait for the one that most tokens come to.
    busiest = skew(cut_run(run)) if op.group == "ep" else 1.0
    return _sent(busiest * inside_bytes, busiest * across_bytes, link, nic, calibration)


def _sent(
    inside_bytes: float, across_bytes: float, link: float, nic: float, calibration: Calibration
) -> tuple[str, float]:
    """Return the quickest protocol and its seconds for bytes sent at once over links and, where any leave, NICs."""
    found = ("", inf)
    for by in calibration.protocols:
        hop_s = by.nic_hops * calibration.nic_hop_s if across_bytes else by.hop_s
        moved_s = max(inside_bytes / by.bandwidth(link), across_bytes / by.bandwidth(nic))
        seconds = by.latency_s + hop_s + moved_s
        found = (by.name, seconds) if seconds < found[1] else found
    return found


def link_bandwidth(run: RunSpec, op: Op, degree: int, calibration: Calibration) -> float:
    """Return the bytes a second that a collective of so many ranks gets out of a scale-up link."""
    node = run.cluster.node
    scale_up = node.link_bandwidth_bytes_per_s or node.pcie_bandwidth_bytes_per_s
    share, loss = RING_SHAPES[op.kind]
    link = scale_up * calibration.link_fraction * share * (1 - loss / max(2, degree))
    if op.kind == "all_reduce" and node.in_switch_reduction and run.framework.in_switch_reduction and degree >= 4:
        link *= SWITCH_GAIN
    return link


def price_send(size_bytes: float, leaving: int, run: RunSpec, calibration: Calibration) -> float:
    """Return the seconds of handing a microbatch on; `leaving` sends share a node's NICs, 0: the hop stays inside."""
    node, fabric = run.cluster.node, run.cluster.fabric
    if not leaving:
        scale_up = node.link_bandwidth_bytes_per_s or node.pcie_bandwidth_bytes_per_s
        return _sent(size_bytes, 0.0, scale_up * calibration.link_fraction, inf, calibration)[1]
    # One sender alone cannot use more than its own NIC.
    nics = min(1.0, fabric.nics_per_node / leaving)
    nic = nics * fabric.nic_bandwidth_bytes_per_s * calibration.nic_fraction
    return _sent(0.0, size_bytes, inf, nic, calibration)[1]


def _exchanged(op: Op, run: RunSpec, local: int, nodes: int, inside: float, across: float) -> tuple[float, float]:
    """Return the bytes a rank sends inside its node and over its NIC.

    With a copy for each rank and node, a token crosses to each node once, however many of its experts are there, and is
    handed on inside (workload/routing.py says how many ranks and nodes have some).
    """
    if run.framework.dispatcher == "alltoall" or op.group != "ep":
        return op.sent_bytes * inside, op.sent_bytes * across
    ranks = local * nodes
    one_copy = op.message_bytes / max(1, run.model.topk)
    some_node, some_rank = (visited(run.model, run.training, run.framework, parts) for parts in (nodes, ranks))
    return one_copy * some_rank * (ranks - 1) / ranks, one_copy * some_node * (nodes - 1) / nodes


def _shares(_op: Op, fractions: dict[str, float]) -> tuple[float, float]:
    return fractions["nvlink"] + fractions["pcie"], fractions["nic"]


def members_per_node(links: GroupLinks) -> int:
    """Return how many members of one group share a node (or a scale-up domain)."""
    if links.group == "pp":
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
