"""Which work does a step wait for? The path from its last event back to its first.

From an event, the path goes back to the event of any stream that ended last before it began; a gap between them has a
cause (idle.py). Work that is not on the path runs beside work that is: shortening it does not shorten the step.
Ignores: other ranks (a wait inside a collective is on the path as that collective); dependencies between streams other
than by time.
"""

from collections.abc import Sequence

import numpy as np

from charllm.trace.activity import Activity
from charllm.trace.analyses.idle import Gaps
from charllm.trace.run import TracedRank
from charllm.trace.steps import Window


def path_seconds(rank: TracedRank, gaps: Sequence[Gaps]) -> dict[str, float]:
    """Return the seconds of the path of a mean step by class, and of its gaps by cause, largest first."""
    found: dict[str, float] = {}
    for window, idle in zip(rank.windows, gaps, strict=True):
        here = rank.activity.inside(window.start_s, window.end_s)
        waited = {f"idle: {cause}": seconds for cause, seconds in idle.seconds().items() if seconds > 0}
        for name, seconds in {**_walk_back(here, window), **waited}.items():
            found[name] = found.get(name, 0.0) + seconds / len(rank.windows)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _walk_back(here: Activity, window: Window) -> dict[str, float]:
    """Go back from the last event; what it skips ran beside it."""
    order = np.argsort(here.end_s, kind="stable")
    start_s, end_s = here.start_s[order].tolist(), here.end_s[order].tolist()
    works = here.work[order].tolist()
    found: dict[str, float] = {}
    at, until_s = len(order) - 1, window.end_s
    while at >= 0:
        begins_s, ends_s = max(start_s[at], window.start_s), min(end_s[at], until_s)
        if ends_s > begins_s:
            name = here.works[works[at]].name
            found[name] = found.get(name, 0.0) + ends_s - begins_s
            until_s = begins_s
        at -= 1
        # An event that began later than the path now is ran beside it, unless it covers what lies before.
        while at >= 0 and start_s[at] >= until_s:
            at -= 1
    return found
