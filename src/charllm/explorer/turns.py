"""Jobs that wait for workers: clients take turns, and who would wait too long is told when to ask again."""

import asyncio
import math
import time
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count

RECENT_S = 10.0
"""A client that has not asked for so long is forgotten; nobody is put off for longer."""
BEHIND_S = 2.0
"""A job of the next lower priority stands as far back as if its client had had its turn so much later."""
WEIGHT = 0.1
"""Of the newest job in the mean time that a job takes."""


@dataclass(slots=True)
class _Client:
    turn_s: float
    """When its last job began, or when it first asked."""
    asked_s: float


@dataclass(eq=False, slots=True)
class Place:
    """The place of one job in the queue."""

    client: Hashable
    priority: int
    number: int


class Turns:
    """A queue in which the job of the client whose last turn is longest ago goes first."""

    def __init__(self, workers: int, most_waiting: int, longest_wait_s: float, job_s: float) -> None:
        self._workers, self._most_waiting, self._longest_wait_s = workers, most_waiting, longest_wait_s
        self._job_s = job_s
        """Mean time that a job takes; at first an estimate."""
        self._clients: dict[Hashable, _Client] = {}
        """Recent clients, in the order in which they last asked."""
        self._waiting: list[Place] = []
        self._arrived = asyncio.Event()
        self._numbers = count()

    def enter(self, client: Hashable, priority: int = 0) -> Place | int:
        """Take a place; where the queue is too long, return after how many seconds to ask again.

        A client whose turn is due, because all others have had theirs since its own, may wait twice as long.
        """
        now_s = time.monotonic()
        known = self._note(client, now_s)
        round_s = min(RECENT_S, len(self._clients) * self._job_s / self._workers)
        wait_s = len(self._waiting) * self._job_s / self._workers
        longest_s = self._longest_wait_s * (2 if now_s - known.turn_s >= round_s else 1)
        if len(self._waiting) >= self._most_waiting or wait_s > longest_s:
            return max(1, math.ceil(min(RECENT_S, max(known.turn_s + round_s - now_s, wait_s))))
        place = Place(client, priority, next(self._numbers))
        self._waiting.append(place)
        self._arrived.set()
        return place

    async def next(self) -> Place:
        """Wait for a job, and take the one whose turn it is."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        place = min(self._waiting, key=self._rank)
        self._waiting.remove(place)
        self._note(place.client, time.monotonic()).turn_s = time.monotonic()
        return place

    def leave(self, place: Place) -> None:
        """Give a place up, if it is still held."""
        if place in self._waiting:
            self._waiting.remove(place)

    def note_duration(self, took_s: float) -> None:
        """Learn how long a job took."""
        self._job_s += WEIGHT * (took_s - self._job_s)

    def _rank(self, place: Place) -> tuple[float, int]:
        known = self._clients.get(place.client)
        return (known.turn_s if known else 0.0) + BEHIND_S * place.priority, place.number

    def _note(self, client: Hashable, now_s: float) -> _Client:
        """Return what is known of a client that asks now, and forget those that have not for long."""
        known = self._clients.pop(client, None) or _Client(now_s, now_s)
        known.asked_s = now_s
        self._clients[client] = known
        while (oldest := next(iter(self._clients))) != client and self._clients[oldest].asked_s < now_s - RECENT_S:
            del self._clients[oldest]
        return known
