"""Whose job goes first, and who is told to ask again."""

import asyncio
from collections import Counter

import pytest

from charllm.explorer import turns
from charllm.explorer.turns import Place, Turns


class Clock:
    """A clock that the test moves."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(turns, "time", moved)
    return moved


def take(queue: Turns) -> Place:
    return asyncio.run(asyncio.wait_for(queue.next(), 1.0))


def test_clients_take_turns_however_often_one_of_them_asks(clock: Clock) -> None:
    queue, served = Turns(1, 100, 1e9, 1.0), Counter[object]()
    for client in ("often", "once", "seldom"):
        queue.enter(client)
    for _ in range(30):
        clock.now_s += 1.0
        served[take(queue).client] += 1
        for client in ("often", "often", "once", "seldom"):
            queue.enter(client)
    assert served == {"often": 10, "once": 10, "seldom": 10}


def test_a_newer_request_keeps_the_turn_of_the_one_that_it_replaces(clock: Clock) -> None:
    queue = Turns(1, 100, 1e9, 1.0)
    first = queue.enter("early")
    clock.now_s += 0.5
    queue.enter("late")
    assert isinstance(first, Place)
    queue.leave(first)
    queue.enter("early")
    assert [take(queue).client, take(queue).client] == ["early", "late"]


def test_a_lower_priority_waits_but_not_for_ever(clock: Clock) -> None:
    queue = Turns(1, 100, 1e9, 1.0)
    queue.enter("page", 1)
    queue.enter("answer", 0)
    assert take(queue).client == "answer"
    clock.now_s += turns.BEHIND_S + 1.0
    queue.enter("newer", 0)
    assert take(queue).client == "page"


def test_who_would_wait_too_long_is_told_when_to_ask_again_and_is_let_in_when_its_turn_is_due(clock: Clock) -> None:
    queue = Turns(1, 100, 3.5, 1.0)
    entered = [queue.enter(client) for client in range(10)]
    assert [isinstance(place, Place) for place in entered] == [True] * 4 + [False] * 6
    assert all(1 <= wait_s <= turns.RECENT_S for wait_s in entered if isinstance(wait_s, int))
    # Those who had no turn stand before those who come again, up to twice the queue.
    clock.now_s += 9.9
    assert isinstance(queue.enter(0), int)
    clock.now_s += 0.1
    assert [isinstance(queue.enter(client), Place) for client in (4, 5, 6, 7, 8)] == [True] * 4 + [False]


def test_a_queue_is_bounded_and_so_are_the_clients_that_it_knows(clock: Clock) -> None:
    queue = Turns(1, 3, 1e9, 0.001)
    assert [isinstance(queue.enter(client), Place) for client in range(5)] == [True] * 3 + [False] * 2
    for client in range(10_000):
        clock.now_s += 0.1
        queue.enter(f"name {client}")
    assert len(queue._clients) <= turns.RECENT_S / 0.1 + 2


def test_the_time_of_a_job_is_learnt(clock: Clock) -> None:
    queue = Turns(1, 100, 1.0, 0.001)
    for _ in range(100):
        queue.note_duration(2.0)
    assert isinstance(queue.enter("one"), Place)
    assert isinstance(queue.enter("two"), int)
    clock.now_s += 0.0
