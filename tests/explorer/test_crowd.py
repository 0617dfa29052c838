"""Many clients at once, in small: `python -m benchmarks.explorer` has the large version."""

import asyncio

from benchmarks.explorer import ask_all, grow, serving

CLIENTS, LENGTH_S, REQUESTS = 30, 6.0, 100


def test_of_many_clients_none_starves_and_nothing_grows() -> None:
    """Everybody gets fast answers; who does not is told when to ask again, and nobody anything else."""
    with serving() as server:
        seen = asyncio.run(ask_all(server, 8, CLIENTS, LENGTH_S))
        assert seen.refused == set()
        assert min(seen.answers["fast"][client] for client in range(CLIENTS)) >= 1
        before, after = grow(server, REQUESTS)
    assert after.threads <= before.threads
    assert after.files <= before.files + 2
    assert after.memory_bytes - before.memory_bytes < 20e6
