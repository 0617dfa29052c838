"""The collectives of a rank, call by call: kind, axis, message and seconds."""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.trace.activity import Activity
from charllm.trace.analyses.kernels import in_steps
from charllm.trace.axes import complete, only_group
from charllm.trace.classes import COMMUNICATION
from charllm.trace.collective_kinds import collective_kind
from charllm.trace.event_columns import LARGEST_ID, Numbered
from charllm.trace.events import NONE, Collective, Group
from charllm.trace.execution import SENT_FIRST, element_bytes
from charllm.trace.run import TracedRank


class Calls(NamedTuple):
    """Collectives of one rank inside its steps, in order of start."""

    work: Ints
    """Numbers in the activity's works."""
    group: Ints
    """Numbers in `groups`; NONE where the trace does not tell."""
    message_bytes: Ints
    """NONE where the trace does not tell."""
    start_s: Floats
    seconds: Floats
    groups: list[Group]

    def take(self, kept: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "Calls":
        """Return some of the calls."""
        return Calls._make([*(column[kept] for column in self[:-1]), self.groups])


def message_bytes(collective: Collective) -> int | None:
    """Return the bytes of a message: the larger buffer of a rank, or what it sends (as trace/execution.py counts)."""
    kind = collective_kind(collective.name)
    sent, received = collective.in_elements, collective.out_elements
    if sent is None and received is None:
        return None
    elements = (sent or received or 0) if kind in SENT_FIRST else max(sent or 0, received or 0)
    try:
        found = elements * element_bytes(collective.dtype)
    except ValueError:
        return None
    return found if found <= LARGEST_ID else None


def list_calls(rank: TracedRank) -> Calls:
    """Return the collectives and sends of a rank."""
    here: Activity = in_steps(rank)
    here = here.take(here.of_family(COMMUNICATION))
    listed = {group.name: group for group in rank.trace.groups}
    found = [complete(one.group, listed) for one in rank.trace.collectives]
    alone = only_group(rank.trace)
    groups = Numbered[Group]()
    numbers = np.array([*(groups[group] for group in found), groups[alone] if alone else NONE])
    sizes = [message_bytes(one) for one in rank.trace.collectives]
    bytes_ = np.array([*(NONE if size is None else size for size in sizes), NONE], dtype=np.int64)
    # NONE is the last place of a list: calls without arguments belong to the only group, or to none.
    work, at = here.work.astype(np.int64), here.collective
    return Calls(work, numbers[at], bytes_[at], here.start_s, here.seconds, groups.texts())
