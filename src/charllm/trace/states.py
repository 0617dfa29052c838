"""What a GPU did at each moment: its kernels, which overlap, as states that follow one another.

Where several kernels run at once the moment belongs to the one whose class comes first in the order given (a product
before a collective), and among equals to the one that began first. So classes and rest add up to the time that passed,
and a collective is charged only where nothing computes beside it.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.trace.events import Codes

IDLE = -1
LEAST_REST, MOST_REST = 0.5, 3.0
"""How far the rests of a traced step may give way to lay it over another (assumed)."""


class States(NamedTuple):
    """Consecutive segments: state `state[i]` from `edges_s[i]` to `edges_s[i + 1]`; IDLE where nothing runs."""

    edges_s: Floats
    state: Codes

    def spent_until(self, times_s: Floats, states: int) -> Floats:
        """Return the seconds until each time (row) in the states 0 to `states` - 1 and, in the last column, in none."""
        length = np.diff(self.edges_s)
        found = []
        for state in (*range(states), IDLE):
            spent = np.concatenate([[0.0], np.cumsum(np.where(self.state == state, length, 0.0))])
            found.append(np.interp(times_s, self.edges_s, spent))
        return np.stack(found, axis=1)

    def seconds_in(self, starts_s: Floats, ends_s: Floats, states: int) -> Floats:
        """Return the seconds of each window (row) in each state, and in none."""
        spent = self.spent_until(np.concatenate([starts_s, ends_s]), states)
        return np.asarray(spent[len(starts_s) :] - spent[: len(starts_s)])


def follow(start_s: Floats, end_s: Floats, state: Codes, tier: Codes) -> States:
    """Turn kernels that may overlap into states that do not; a lower `tier` (by state) wins."""
    if not len(start_s):
        return States(np.zeros(1), np.zeros(0, np.int32))
    edges = np.unique(np.concatenate([start_s, end_s]))
    middle = (edges[1:] + edges[:-1]) / 2
    found = np.full(len(middle), IDLE, np.int32)
    for level in np.unique(tier[state]):
        chosen = np.flatnonzero(tier[state] == level)
        starts, ends, states = _one_after_the_other(start_s[chosen], end_s[chosen], state[chosen])
        place = np.searchsorted(starts, middle, side="right") - 1
        inside = (place >= 0) & (middle < ends[np.maximum(place, 0)]) & (found == IDLE)
        found[inside] = states[place[inside]]
    return States(edges, found)


def _one_after_the_other(start_s: Floats, end_s: Floats, state: Codes) -> tuple[Floats, Floats, Codes]:
    """Cut intervals so that none begins before those that began earlier have ended."""
    order = np.argsort(start_s, kind="stable")
    start_s, end_s, state = start_s[order], end_s[order], state[order]
    busy_until = np.concatenate([[-np.inf], np.maximum.accumulate(end_s)[:-1]])
    start_s = np.maximum(start_s, busy_until)
    left = end_s > start_s
    return start_s[left], end_s[left], state[left]


def part_rests(states: States, state: int, after_s: float) -> States:
    """Give the first part of every rest, of so many seconds, a state of its own."""
    start_s, end_s = states.edges_s[:-1], states.edges_s[1:]
    rest = states.state == IDLE
    # Neighbouring rests are one: a rest begins where something ended.
    begins = rest & np.concatenate([[False], states.state[:-1] != IDLE]) if len(rest) else rest
    began_s = np.maximum.accumulate(np.where(begins, start_s, -np.inf)) if len(rest) else start_s
    turns_s = began_s + after_s
    inside = rest & (turns_s > start_s) & (turns_s < end_s)
    first = rest & (turns_s >= end_s) | inside
    edges = np.concatenate([states.edges_s, turns_s[inside]])
    found = np.concatenate([np.where(first, state, states.state), np.full(int(inside.sum()), IDLE)])
    order = np.argsort(edges, kind="stable")
    # The last edge ends the last segment and begins none.
    return States(edges[order], np.insert(found, len(states.state), IDLE)[order][:-1].astype(np.int32))


def cut(states: States, start_s: float, end_s: float) -> States:
    """Return the states of a window; outside of what is known the GPU is at rest."""
    inside = states.edges_s[(states.edges_s > start_s) & (states.edges_s < end_s)]
    edges = np.concatenate([[start_s], inside, [end_s]])
    place = np.searchsorted(states.edges_s, edges[:-1], side="right") - 1
    known = (place >= 0) & (place < len(states.state))
    found = states.state[np.clip(place, 0, max(len(states.state) - 1, 0))] if len(states.state) else place
    return States(edges, np.where(known, found, IDLE).astype(np.int32))


def stretch(step: States, start_s: float, end_s: float) -> tuple[States, float]:
    """Lay a traced step over another one: its rests give way first, then all of it.

    Returns also by how much work was stretched: far from 1 the other step cannot have done the same.
    """
    length = np.diff(step.edges_s)
    rest_s = float(length[step.state == IDLE].sum())
    work_s = float(length.sum()) - rest_s
    given = (end_s - start_s - work_s) / rest_s if rest_s > 0 else 1.0
    length = np.where(step.state == IDLE, min(max(given, LEAST_REST), MOST_REST), 1.0) * length
    factor = (end_s - start_s) / float(length.sum())
    edges = start_s + factor * np.concatenate([[0.0], np.cumsum(length)])
    return States(edges, step.state), factor


def join(parts: "list[States]") -> States:
    """Put windows of states in order of time; between them the GPU is at rest."""
    if not parts:
        return States(np.zeros(1), np.zeros(0, np.int32))
    ordered = sorted(parts, key=lambda part: float(part.edges_s[0]))
    edges = np.concatenate([part.edges_s for part in ordered])
    state = np.concatenate([np.append(part.state, np.int32(IDLE)) for part in ordered])[:-1]
    return States(np.maximum.accumulate(edges), state)
