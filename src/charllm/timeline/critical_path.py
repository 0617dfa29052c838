"""Which passes a step waits for: the chain from its last pass back to its first, each link what the next waited for.

A pass begins when its stage is free (after the pass before it, and its send where sends block) or when its input is
there (after the neighbour's pass and the transfer); the later of both is on the path. Shortening what is
not on the path does not shorten the step.

Ignores: the end of the step (exchange, update), which follows the path on every stage; launches, which count to the
passes they hold up.
"""

from typing import NamedTuple

from charllm.timeline.schedules import needed_pass, order_arrays
from charllm.timeline.step_time import StepTime
from charllm.workload.step import Step


class Link(NamedTuple):
    """One pass on the path, and the gap before it."""

    stage: int
    kind: int
    """FORWARD, BACKWARD or WEIGHT."""
    chunk: int
    microbatch: int
    start_s: float
    end_s: float
    gap_s: float
    """Between the end of the link before it and its start: a transfer, or its own stage's send."""
    crossed: bool
    """Whether it waited for another stage."""


class PathShare(NamedTuple):
    """What the path consists of."""

    passes: int
    crossings: int
    stage_s: dict[int, float]
    """Seconds of passes on the path, by stage."""
    transfer_s: float
    """Seconds between passes: transfers and sends."""


def critical_path(step: Step, timed: StepTime) -> list[Link]:
    """Follow a step's passes from the last one back, and return them in order."""
    degrees, events = step.run.parallelism, timed.events
    orders = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches).tolist()
    place_of = {tuple(one): (stage, item) for stage, order in enumerate(orders) for item, one in enumerate(order)}
    stage = max(range(degrees.pp), key=lambda each: float(events.free_s[each]))
    item, links = len(orders[stage]) - 1, []
    while True:
        kind, chunk, microbatch = orders[stage][item]
        start_s, end_s = float(events.start_s[stage, item]), float(events.end_s[stage, item])
        free_s = float(events.end_s[stage, item - 1] + events.held_s[stage, item - 1]) if item else 0.0
        needed = needed_pass(kind, chunk, len(step.chunks))
        waited = needed is not None and float(events.arrival_s[stage, item]) > free_s
        before = place_of[(*needed, microbatch)] if waited and needed is not None else (stage, item - 1)
        before_s = float(events.end_s[before]) if waited or item else 0.0
        links.append(Link(stage, kind, chunk, microbatch, start_s, end_s, start_s - before_s, before[0] != stage))
        if not waited and item == 0:
            return links[::-1]
        stage, item = before


def share_path(links: list[Link]) -> PathShare:
    """Add a path up."""
    stage_s: dict[int, float] = {}
    for link in links:
        stage_s[link.stage] = stage_s.get(link.stage, 0.0) + link.end_s - link.start_s
    gaps_s = sum(max(0.0, link.gap_s) for link in links)
    return PathShare(len(links), sum(link.crossed for link in links), dict(sorted(stage_s.items())), gaps_s)
