"""Which axis of parallelism each process group serves: tp, pp, dp, ep or cp."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from charllm.layout.grid import GROUPS, cached_groups
from charllm.spec.parallelism import Parallelism
from charllm.trace.classes import SEND_RECV, Classes
from charllm.trace.events import Group, RankTrace
from charllm.trace.execution import DEFAULT_GROUP

AXIS_OF_GROUP = {"tp": "tp", "cp": "cp", "pp": "pp", "ep": "ep", "etp": "tp"}
"""Group of the grid: its axis; the others (data, shard, replicate, edp) are parts of dp."""
RANKS = "ranks"
BY_USE = {SEND_RECV: "pp", "all_to_all": "ep"}
UNNAMED = ("", "undefined", DEFAULT_GROUP)
"""Descriptions that say nothing."""


class Axis(NamedTuple):
    """The axis of a group, and what told it."""

    name: str | None
    basis: str
    """spec, name or ranks; or why it is not known."""

    def serving(self, kind: str) -> str | None:
        """Return the axis that one kind of its collectives serves.

        Where only ranks told the axis, use tells more: sends make a pipeline, exchanges make experts.
        """
        return BY_USE.get(kind, self.name) if self.basis == RANKS else self.name


def name_axes(
    traces: Sequence[RankTrace], classes: Classes, parallelism: Parallelism | None = None
) -> dict[Group, Axis]:
    """Name the axis of every group that communicates.

    A spec says most; then what the program calls a group; then its ranks: neighbours are tensor parallel; others, or
    the only group, data parallel.
    Ignores: that neighbours may as well be data parallel, where no name or spec says so.
    """
    used = list(dict.fromkeys(group for trace in traces for group in groups_of(trace)))
    world = max([trace.world_size or 0 for trace in traces] + [len(group.ranks) for group in used], default=0)
    known = {group.ranks for group in used if group.ranks}
    return {group: _axis(group, len(known) == 1, classes, parallelism, world) for group in used}


def groups_of(trace: RankTrace) -> list[Group]:
    """Return the groups that a trace's collectives name, and the only one that it lists."""
    listed = {group.name: group for group in trace.groups}
    alone = only_group(trace)
    return [*(complete(one.group, listed) for one in trace.collectives), *([alone] if alone else [])]


def only_group(trace: RankTrace) -> Group | None:
    """Return the group of collectives without arguments: the only one that the trace lists."""
    several = [group for group in trace.groups if len(group.ranks) > 1]
    return several[0] if len(several) == 1 else None


def complete(group: Group, listed: Mapping[str, Group]) -> Group:
    """Return a group with the ranks and description that the head of a trace has for it."""
    known = listed.get(group.name)
    if known is None:
        return group
    return Group(
        group.name, group.description or known.description, group.ranks or known.ranks, group.size or known.size
    )


def _axis(group: Group, alone: bool, classes: Classes, parallelism: Parallelism | None, world: int) -> Axis:
    ranks = group.ranks
    if parallelism is not None and ranks and (found := _from_spec(ranks, parallelism)):
        return Axis(found, "spec")
    described = group.description if group.description not in UNNAMED else ""
    if described and (found := classes.axis_of(described)):
        return Axis(found, "name")
    if len(ranks) < 2:
        return Axis(None, "the trace does not list its ranks")
    whole = len(ranks) >= world or alone
    neighbours = max(ranks) - min(ranks) == len(ranks) - 1
    return Axis("tp" if neighbours and not whole else "dp", RANKS)


def _from_spec(ranks: tuple[int, ...], parallelism: Parallelism) -> str | None:
    """Return the axis whose groups of the grid include these ranks; the smallest sense first."""
    wanted = tuple(sorted(ranks))
    for group in ("tp", "cp", "pp", "ep", "etp", *GROUPS):
        rows = cached_groups(parallelism, group)
        if rows.shape[1] == len(wanted) > 1 and any(tuple(sorted(row)) == wanted for row in rows.tolist()):
            return AXIS_OF_GROUP.get(group, "dp")
    return None
