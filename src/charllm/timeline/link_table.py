"""Every collective and send of a step beside the link it runs on: message size, seconds, achieved bandwidth.

Equation: achieved bandwidth = bytes that one rank sends / seconds that the step charges for the call, its sharing of
NICs included (network/collectives.py; timeline/costs.py for what a call in a step takes beyond one alone).
Source: the step's own prices.
Ignores: gradients and exchanges that share NICs for a while (timeline/nic_sharing.py).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from charllm.layout.grid import ENDS
from charllm.layout.hops import StageHop, stage_hops
from charllm.layout.links import GroupLinks, group_links
from charllm.network.collectives import DIRECT, algorithm_on_links, send_seconds
from charllm.network.constants import NetworkConstants
from charllm.spec.run import RunSpec
from charllm.timeline.costs import Costs
from charllm.timeline.step_time import StepTime, sync_seconds
from charllm.units import GIB
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step
from charllm.workload.totals import AXIS_OF_GROUP, stage_ops

LARGE_BYTES = 1.0 * GIB
"""A message of this size shows what its link gives when size costs nothing."""
PAIR = 2
"""Ranks of a send."""
COLUMNS = (
    "axis",
    "group",
    "collective",
    "algorithm",
    "ranks",
    "message_bytes",
    "sent_bytes",
    "calls",
    "seconds",
    "achieved_bytes_per_s",
    "large_message_bytes_per_s",
    "link",
    "peak_bytes_per_s",
    "flows_per_nic",
)

Price = Callable[[Op], float]
_Key = tuple[str, str, str, bool]
"""Group, kind, message size to two digits (stages differ by a norm), and whether it runs once a step."""


class _Call(NamedTuple):
    """A collective or send as one rank makes it, how often, and how it is priced."""

    op: Op
    calls: float
    seconds: float
    price: Price
    """Of a message of another size."""
    algorithm: str
    ranks: int
    link: str
    flows_per_nic: int


def tabulate_links(step: Step, timed: StepTime) -> dict[str, list[Any]]:
    """Return one row for each size of each collective: what it sends, how long it takes, what its link could do."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for call in (*_collectives(step, timed.costs), *_sends(step, timed.costs)):
        for column, value in zip(columns.values(), _row(step.run, call), strict=True):
            column.append(value)
    return columns


def link_peak(run: RunSpec, link: str) -> float:
    """Return the datasheet bandwidth each way: of one GPU inside a node, of all NICs of a node between nodes."""
    if link == "nic":
        return run.cluster.fabric.node_bandwidth_bytes_per_s
    name = "link_bandwidth_bytes_per_s" if link == "nvlink" else "pcie_bandwidth_bytes_per_s"
    return min(float(getattr(node, name)) for node in run.cluster.kinds)


def _row(run: RunSpec, call: _Call) -> tuple[Any, ...]:
    op, seconds = call.op, call.seconds
    larger = max(1.0, LARGE_BYTES / op.message_bytes)
    large = op._replace(message_bytes=larger * op.message_bytes, sent_bytes=larger * op.sent_bytes)
    return (AXIS_OF_GROUP[op.group], op.group, op.kind, call.algorithm, call.ranks, op.message_bytes, op.sent_bytes,
            call.calls, seconds, op.sent_bytes / seconds, large.sent_bytes / call.price(large), call.link,
            link_peak(run, call.link), call.flows_per_nic)  # fmt: skip


def _collectives(step: Step, costs: Costs) -> list[_Call]:
    """List the collectives of the stage that calls each most, by size."""
    found: dict[_Key, tuple[Op, float]] = {}
    for stage in range(step.run.parallelism.pp):
        counted: dict[_Key, tuple[Op, float]] = {}
        for op, times, phase in stage_ops(step, stage):
            if is_communication(op):
                key = (op.group, op.kind, f"{op.message_bytes:.2g}", phase == "step")
                counted[key] = (op, counted.get(key, (op, 0.0))[1] + times)
        for key, (op, times) in counted.items():
            if times > found.get(key, (op, 0.0))[1]:
                found[key] = (op, times)
    return [_collective(op, times, costs, once=key[3]) for key, (op, times) in found.items()]


def _collective(op: Op, calls: float, costs: Costs, *, once: bool) -> _Call:
    run = costs.run_of(op)
    if op.group == ENDS:
        # First and last stage add up a tied embedding in one hop each way.
        op = op._replace(kind="send")
        price_ends = partial(sync_seconds, run, network=costs.network)
        link = _slowest_link(group_links(run, "pp"))
        return _Call(op, calls, price_ends(op), price_ends, DIRECT, PAIR, link, 1)
    links = group_links(run, op.group)
    algorithm, alone_s = algorithm_on_links(op, run, links, costs.network)
    late_s = 0.0 if once else costs.collective_s(op) - alone_s

    def price(one: Op) -> float:
        return late_s + algorithm_on_links(one, run, links, costs.network)[1]

    ranks = PAIR if op.kind == "send" else links.degree
    return _Call(op, calls, late_s + alone_s, price, algorithm, ranks, _slowest_link(links), links.ring_flows_per_nic)


def _slowest_link(links: GroupLinks) -> str:
    """Return the link that paces a group: the NICs where any of its traffic leaves a node."""
    return next((name for name in ("nic", "pcie") if links.pair_links[name]), "nvlink")


def _sends(step: Step, costs: Costs) -> list[_Call]:
    """List the sends between pipeline stages, by how many of them share a node's NICs."""
    run, last = step.run, len(step.chunks) - 1
    pp = run.parallelism.pp
    if pp == 1 or not step.boundary_ops:
        return []
    whole = step.boundary_ops[0]._replace(
        message_bytes=sum(op.message_bytes for op in step.boundary_ops),
        sent_bytes=sum(op.sent_bytes for op in step.boundary_ops),
    )
    calls = max(
        sum((chunk < last) + (chunk > 0) for chunk in range(stage, last + 1, pp)) * run.microbatches
        for stage in range(pp)
    )
    # The hop from the last stage to the first is taken by interleaved chunks alone.
    hops = stage_hops(run)[: pp if run.parallelism.vpp > 1 else pp - 1]
    inside = "nvlink" if run.cluster.node.link_bandwidth_bytes_per_s else "pcie"
    found = []
    for hop in sorted(set(hops)):
        price = partial(_send_price, hop=hop, run=run, network=costs.network)
        link = "nic" if hop.leaving else inside
        found.append(_Call(whole, float(calls), price(whole), price, DIRECT, PAIR, link, hop.leaving))
    return found


def _send_price(op: Op, hop: StageHop, run: RunSpec, network: NetworkConstants) -> float:
    return send_seconds(op.sent_bytes, hop, run, network)
