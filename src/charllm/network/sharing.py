"""Flows that share a link: while several are under way, each has an equal part of it.

Equation: between two events (a flow begins or ends) each of n flows under way gets 1/n of the link, so that a flow of
s seconds alone has s left less the time that has passed over n.
Source: fair queueing of equal flows, as InfiniBand and NVLink switches arbitrate.
Ignores: that flows of unequal messages or priorities get unequal parts.
"""

from collections.abc import Sequence


def shared_ends(flows: Sequence[tuple[float, float]]) -> list[float]:
    """Return when each flow ends, given when it begins and how many seconds it would take alone."""
    ends = [start for start, _alone in flows]
    left = {place: alone for place, (_start, alone) in enumerate(flows) if alone > 0}
    now = min((flows[place][0] for place in left), default=0.0)
    while left:
        running = [place for place in left if flows[place][0] <= now]
        begins = [flows[place][0] for place in left if flows[place][0] > now]
        if not running:
            now = min(begins)
            continue
        until = now + len(running) * min(left[place] for place in running)
        until = min([until, *begins])
        for place in running:
            left[place] -= (until - now) / len(running)
            ends[place] = until
        now = until
        left = {place: seconds for place, seconds in left.items() if seconds > 1e-12 * flows[place][1]}
    return ends
