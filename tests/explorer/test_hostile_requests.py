"""Mutated requests, in small: `python -m benchmarks.hostile_requests` has the large version."""

import asyncio
import random
from pathlib import Path

from benchmarks.hostile_requests import attack, attacked
from tests.hostile.requests import CHANGES, KINDS, Asked, draw_asked, draw_sent, written

COUNT = 60 * len(KINDS)
TOKEN = "a-token-of-some-length"


def test_mutated_requests_are_answered_or_refused_and_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    with attacked(tmp_path / "served") as (server, costs):
        tally, _longest_s, faults = asyncio.run(attack(server, COUNT, random.randrange(2**32), KINDS))
        assert faults == []
        assert costs() == []
    assert tally.total() == COUNT
    # Some still say something sensible, and what is wrong is refused in more than one way.
    assert tally["200"] > 0
    assert len(tally) >= 5


def test_each_kind_changes_what_it_is_named_after() -> None:
    for kind in KINDS:
        drawn = {draw_sent(kind, 0, number, TOKEN) for number in range(50)}
        assert len(drawn) > 20
        assert draw_sent(kind, 0, 7, TOKEN) == draw_sent(kind, 0, 7, TOKEN)
    for kind, change in CHANGES.items():
        changed = 0
        for number in range(50):
            asked, same = (draw_asked(random.Random(number), TOKEN) for _ in range(2))
            change(random.Random(f"change {number}"), asked)
            changed += written(asked) != written(same)
        assert changed > 25, kind
    assert written(Asked()).startswith(b"GET / HTTP/1.1\r\n")
