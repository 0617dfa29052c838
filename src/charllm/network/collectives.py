"""Seconds of one collective or send on the links of its group, when nothing else uses them.

Inside a scale-up domain a group has its GPUs' links; where those join GPUs pair by pair (`direct_links`: MI300X, nodes
of four GH200), m of n GPUs have (m - 1) / (n - 1) of them, and a send one of n - 1. Between nodes a ring has NICs x
bandwidth x (members in a node / GPUs of a node), because every member's NIC carries a part of it; an exchange or a send
has one GPU's share.

Source: network/algorithms.py, network/experts.py.
Ignores: congestion above the pod's switches beyond oversubscription. Flows that share NICs: timeline/nic_sharing.py.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from charllm.layout.grid import ENDS
from charllm.layout.hops import StageHop
from charllm.layout.links import OUTSIDE, GroupLinks, group_links
from charllm.network.algorithms import GroupPath, Stage, fastest_algorithm, pipelined_seconds
from charllm.network.constants import NETWORK, NetworkConstants, constants_of
from charllm.network.experts import ExchangePath, alltoall_seconds, exchange_seconds
from charllm.spec.hardware import Cluster
from charllm.spec.run import RunSpec
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step
from charllm.workload.totals import AXIS_OF_GROUP, stage_ops

DIRECT = "direct"


def collective_seconds(op: Op, run: RunSpec, constants: NetworkConstants = NETWORK) -> float:
    """Return the seconds of one collective when nothing else uses its links."""
    return choose_algorithm(op, run, constants)[1]


def choose_algorithm(op: Op, run: RunSpec, constants: NetworkConstants = NETWORK) -> tuple[str, float]:
    """Return the fastest algorithm of a collective, and its seconds when nothing else uses its links."""
    return algorithm_on_links(op, run, group_links(run, op.group), constants)


def algorithm_on_links(op: Op, run: RunSpec, links: GroupLinks, constants: NetworkConstants) -> tuple[str, float]:
    """Return the same for a group whose links are known: to look them up takes longer than the rest."""
    constants = constants_of(run.cluster, constants)
    if op.kind == "send":
        # All members send at once.
        share = min(_gpu_nic_bandwidth(run), link_bandwidth(run.cluster)) if links.ring_links["nic"] else inf
        path = _send_path(run.cluster, share / _oversubscription(run, links.ring_hops))
        return DIRECT, _send_seconds(op.sent_bytes, path, constants)
    if op.kind == "all_to_all":
        name = run.framework.dispatcher
        return name if op.group == "ep" else "alltoall", exchange_seconds(
            op, run, _exchange_path(run, links), constants
        )
    return fastest_algorithm(op, _group_path(run, links), constants)


def algorithm_on_path(op: Op, path: GroupPath, constants: NetworkConstants) -> tuple[str, float]:
    """Return the algorithm that NCCL takes for a collective or a send on given links, and its seconds."""
    if op.kind == "send":
        return DIRECT, _send_seconds(op.sent_bytes, path, constants)
    if op.kind == "all_to_all":
        share = path.nic_bytes_per_s / path.local_ranks
        between = ExchangePath(path.local_ranks, path.nodes, path.link_bytes_per_s, share)
        return "alltoall", alltoall_seconds(op, between, constants)
    return fastest_algorithm(op, path, constants)


def send_seconds(size_bytes: float, hop: StageHop, run: RunSpec, constants: NetworkConstants = NETWORK) -> float:
    """Return the seconds of handing a microbatch on to the next stage."""
    fabric, share = run.cluster.fabric, inf
    if hop.leaving:
        # One sender alone cannot use more than its own NIC.
        share = min(1.0, fabric.nics_per_node / hop.leaving) * fabric.nic_bandwidth_bytes_per_s
        share /= fabric.oversubscription if hop.core else 1.0
    return _send_seconds(size_bytes, _send_path(run.cluster, share), constants_of(run.cluster, constants))


def algorithms_taken(step: Step) -> dict[str, tuple[str, ...]]:
    """Return for each axis the algorithms of its collectives in a step, those with most bytes first."""
    sent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for stage in range(step.run.parallelism.pp):
        for op, times, _phase in stage_ops(step, stage):
            if is_communication(op):
                name = DIRECT if op.group == ENDS else choose_algorithm(op, step.run)[0]
                sent[AXIS_OF_GROUP[op.group]][name] += op.sent_bytes * times
    if step.boundary_ops:
        sent["pp"][DIRECT] += 1.0
    return {axis: tuple(sorted(names, key=lambda name: -names[name])) for axis, names in sent.items()}


def link_bandwidth(cluster: Cluster, hops: Iterable[str] = (), members: int = 0) -> float:
    """Return the datasheet bandwidth of one GPU to others of its scale-up domain, each way; PCIe where it has none.

    `hops`: domains that a group crosses. One that leaves its package over NICs only has the package's own links.
    `members`: GPUs of a node that talk to each other, 0 for all; without a switch they have the links between them.
    """
    node, inside = cluster.node, {*hops} - {"self", *OUTSIDE}
    if node.package_bandwidth_bytes_per_s and inside == {"package"}:
        return node.package_bandwidth_bytes_per_s
    share = (members - 1) / (node.gpus - 1) if node.direct_links and 1 < members < node.gpus else 1.0
    return share * node.link_bandwidth_bytes_per_s or node.pcie_bandwidth_bytes_per_s


def members_per_node(links: GroupLinks) -> int:
    """Return how many members of one group share a node (or a scale-up domain)."""
    if links.group == "pp":
        return 1
    leaving = sum(count for name, count in links.ring_hops.items() if name in OUTSIDE)
    if not leaving:
        return links.degree
    # A sorted ring leaves each node once.
    return max(1, round(links.degree * links.groups / leaving))


def _send_path(cluster: Cluster, nic_bytes_per_s: float) -> GroupPath:
    """Describe the way from one rank to another: over a link, or over NICs of a finite bandwidth."""
    local = 2 if nic_bytes_per_s == inf else 1
    return GroupPath(local, 2 // local, link_bandwidth(cluster, members=local), nic_bytes_per_s)


def _send_seconds(size_bytes: float, path: GroupPath, constants: NetworkConstants) -> float:
    """Return the seconds of one message over a link, or over NICs of a finite bandwidth."""
    if path.nic_bytes_per_s < inf:
        fraction = constants.send_fraction or constants.nic_fraction
        stage = Stage(1, constants.nic_hop_s, size_bytes / (fraction * path.nic_bytes_per_s))
    else:
        stage = Stage(1, constants.hop_s, size_bytes / (constants.link_fraction * path.link_bytes_per_s))
    return pipelined_seconds((stage,), constants)


def _group_path(run: RunSpec, links: GroupLinks) -> GroupPath:
    """Describe the links of a ring or tree."""
    local, leaves = members_per_node(links), links.ring_links["nic"] > 0
    share = local * _gpu_nic_bandwidth(run) / _oversubscription(run, links.ring_hops)
    return GroupPath(
        local if leaves else links.degree,
        max(1, links.degree // local) if leaves else 1,
        link_bandwidth(run.cluster, links.ring_hops, local),
        share if leaves else inf,
        run.cluster.node.in_switch_reduction and run.framework.in_switch_reduction,
        # Ranks write to each other's memory within a host alone.
        run.framework.direct_all_reduce and links.degree <= run.cluster.node.gpus,
    )


def _exchange_path(run: RunSpec, links: GroupLinks) -> ExchangePath:
    """Describe the links of an exchange between all pairs of a group."""
    local, leaves = members_per_node(links), links.pair_links["nic"] > 0
    share = _gpu_nic_bandwidth(run) / _oversubscription(run, links.pair_hops)
    nodes = max(1, links.degree // local) if leaves else 1
    link_bytes_per_s = link_bandwidth(run.cluster, links.pair_hops, local)
    return ExchangePath(local if leaves else links.degree, nodes, link_bytes_per_s, share if leaves else inf)


def _gpu_nic_bandwidth(run: RunSpec) -> float:
    """Return one GPU's share of its node's NICs, each way."""
    return run.cluster.fabric.node_bandwidth_bytes_per_s / run.cluster.node.gpus


def _oversubscription(run: RunSpec, hops: dict[str, int]) -> float:
    """Return by how much the switches above the pods cut the bandwidth of hops that pass them."""
    return run.cluster.fabric.oversubscription if "core" in hops else 1.0
