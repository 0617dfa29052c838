"""The hops of each group on the real placement: the domain each crosses, the link it takes, who shares it."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from charllm.layout.grid import Grid, Ranks, cached_groups
from charllm.layout.placement import place_ranks
from charllm.spec.hardware import Cluster
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import RunSpec

DOMAINS = ("self", "package", "node", "scale-up", "rail", "pod", "core")
"""What a hop crosses, nearest first: nothing; a package; a chassis; the scale-up domain (an NVL72 is 18 chassis);
one rail's switch; the switches of a pod; the switches above the pods."""

OUTSIDE = ("rail", "pod", "core")
"""Domains that are reached over NICs."""

LINKS = ("nvlink", "pcie", "nic")


@dataclass(frozen=True)
class GroupLinks:
    """Where the traffic of one kind of group goes, over all groups of that kind at once."""

    group: str
    degree: int
    groups: int
    ring_hops: dict[str, int]
    """Hops of the rings by domain; a ring passes each node once."""
    ring_links: dict[str, float]
    """Fraction of ring hops by link."""
    ring_flows_per_nic: int
    """Rings of this kind that leave through the busiest NIC; they share it when they run together."""
    nics: frozenset[int]
    """NICs its rings leave through, numbered over the cluster."""
    cluster: Cluster = field(repr=False)
    members: Ranks = field(repr=False, compare=False)
    """[group, member] GPUs."""

    @cached_property
    def pair_hops(self) -> dict[str, int]:
        """Ordered pairs of members by domain, as an all-to-all uses them; counted when they are asked for."""
        return _count(self._pairs) if self.degree > 1 and self.group != "pp" else self.ring_hops

    @cached_property
    def pair_links(self) -> dict[str, float]:
        """Fraction of ordered pairs by link."""
        if self.degree == 1 or self.group == "pp":
            return self.ring_links
        return _link_fractions(self.cluster, self._pairs)

    @cached_property
    def _pairs(self) -> Ranks:
        return _pair_domains(self.cluster, self.members)


def hop_domains(cluster: Cluster, sender: Ranks, receiver: Ranks) -> Ranks:
    """Return the index in DOMAINS of what each hop between two GPUs crosses."""
    per_node, package = cluster.node.gpus, cluster.gpu.package_gpus
    fabric = cluster.fabric
    node_a, node_b = sender // per_node, receiver // per_node
    same_node = node_a == node_b
    same_scale_up = node_a // cluster.domain_nodes == node_b // cluster.domain_nodes
    same_rail = (nic_of(cluster, sender) == nic_of(cluster, receiver)) & fabric.rail
    same_pod = node_a // fabric.nodes_per_pod == node_b // fabric.nodes_per_pod if fabric.nodes_per_pod else True
    conditions = [
        sender == receiver,
        sender // package == receiver // package,
        same_node,
        same_scale_up,
        same_pod & same_rail,
        np.broadcast_to(same_pod, sender.shape),
    ]
    return np.select(conditions, range(6), default=6)


def nic_of(cluster: Cluster, gpu: Ranks) -> Ranks:
    """Return which of its node's NICs a GPU uses: slots share them evenly, in order."""
    return np.asarray(gpu % cluster.node.gpus * max(1, cluster.fabric.nics_per_node) // cluster.node.gpus)


def link_of(cluster: Cluster, domain: str) -> str:
    """Return the link that a hop across a domain takes."""
    if domain in OUTSIDE:
        return "nic"
    return "nvlink" if cluster.node.link_bandwidth_bytes_per_s or domain == "package" else "pcie"


def group_links(run: RunSpec, group: str) -> GroupLinks:
    """Describe where the traffic of one kind of group goes in a run."""
    if not run.conditions.gpu_of_rank:
        return _default_links(run.cluster, numbering_of(run.parallelism), group)
    return _links(run.cluster, group, place_ranks(run)[cached_groups(run.parallelism, group)])


NUMBERING = ("tp", "cp", "dp", "pp", "ep", "etp", "zero", "shard_size", "regather_size", "order")
"""Settings that decide which ranks form a group."""
Numbering = tuple[int | str, ...]
"""Their values, in this order."""


def numbering_of(degrees: Parallelism) -> Numbering:
    """Return what of a strategy decides which ranks form a group."""
    return tuple(getattr(degrees, name) for name in NUMBERING)


def numbered(numbering: Numbering) -> Parallelism:
    """Return any strategy with the same groups of ranks."""
    values: dict[str, Any] = dict(zip(NUMBERING, numbering, strict=True))
    return Parallelism(**values)


@lru_cache(maxsize=4096)
def _default_links(cluster: Cluster, numbering: Numbering, group: str) -> GroupLinks:
    return _links(cluster, group, Grid(numbered(numbering)).groups(group))


def _links(cluster: Cluster, group: str, members: Ranks) -> GroupLinks:
    count, degree = members.shape
    if group == "pp":
        # Activations go from each stage to the next; a ring would add the hop from last to first.
        sender, receiver = members[:, :-1].ravel(), members[:, 1:].ravel()
    else:
        ring = np.sort(members, axis=1)
        sender, receiver = ring.ravel(), np.roll(ring, -1, axis=1).ravel()
    ring_domains = hop_domains(cluster, sender, receiver) if degree > 1 else np.empty(0, dtype=np.int64)
    leaving = sender[: len(ring_domains)][ring_domains >= DOMAINS.index("rail")]
    nics, flows = np.unique(_nic_numbers(cluster, leaving), return_counts=True)
    return GroupLinks(
        group=group,
        degree=degree,
        groups=count,
        ring_hops=_count(ring_domains),
        ring_links=_link_fractions(cluster, ring_domains),
        ring_flows_per_nic=int(flows.max(initial=0)),
        nics=frozenset(nics.tolist()),
        cluster=cluster,
        members=members,
    )


def _nic_numbers(cluster: Cluster, gpu: Ranks) -> Ranks:
    return np.asarray(gpu // cluster.node.gpus * max(1, cluster.fabric.nics_per_node) + nic_of(cluster, gpu))


def nic_sharers(run: RunSpec, group: str, others: tuple[str, ...]) -> tuple[str, ...]:
    """List the other kinds of groups whose traffic leaves through the same NICs as this one's."""
    mine = group_links(run, group).nics
    return tuple(other for other in others if other != group and mine & group_links(run, other).nics)


def _pair_domains(cluster: Cluster, members: Ranks) -> Ranks:
    """Return the domains of all ordered pairs; large groups are sampled by their first member's pairs."""
    count, degree = members.shape
    if count * degree * degree > 4_000_000:
        first = np.broadcast_to(members[:, :1], members.shape)[:, 1:]
        return hop_domains(cluster, first.ravel(), members[:, 1:].ravel())
    sender = np.repeat(members, degree, axis=1).ravel()
    receiver = np.tile(members, (1, degree)).ravel()
    other = sender != receiver
    return hop_domains(cluster, sender[other], receiver[other])


def _count(domains: Ranks) -> dict[str, int]:
    counts = np.bincount(domains, minlength=len(DOMAINS))
    return {name: int(counts[index]) for index, name in enumerate(DOMAINS) if counts[index]}


def _link_fractions(cluster: Cluster, domains: Ranks) -> dict[str, float]:
    fractions = dict.fromkeys(LINKS, 0.0)
    for name, hops in _count(domains).items():
        fractions[link_of(cluster, name)] += hops / len(domains)
    return fractions


def hop_links(run: RunSpec, sender: Ranks, receiver: Ranks) -> dict[str, float]:
    """Return the fraction of hops between pairs of ranks that takes each link."""
    gpu = place_ranks(run)
    return _link_fractions(run.cluster, hop_domains(run.cluster, gpu[sender], gpu[receiver]))
