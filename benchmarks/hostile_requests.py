"""Mutated requests to the explorer: no fault of the server, no answer over 10 s, nothing read or written elsewhere.

    python -m benchmarks.hostile_requests [COUNT] [SEED] [KIND]

Each request is one that a browser would send with one thing changed: its path, query, body, headers, token, method, or
how it goes over the wire. Exit code 1 when one is answered with a status of 500 or more or not at all, when a worker is
lost, when the server prints anything, or when a file of the store or beside it has changed.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import h11

from benchmarks.explorer import Server, serving
from tests.explorer.runs import write_broken, write_store
from tests.hostile.requests import KINDS, draw_sent

COUNT, SEED, AT_ONCE = 10_000, 0, 4
LONGEST_S, ANSWER_BYTES = 10.0, 200_000
SHOWN_FAULTS = 20
SECRET = b'"secret"'
"""What lies in the files outside of the store."""


class Fault(NamedTuple):
    """A request that was not answered as it should be."""

    kind: str
    number: int
    said: str
    sent: bytes


async def ask(server: Server, kind: str, number: int, seed: int) -> tuple[str, float, Fault | None]:
    """Send one; return its status, how long that took, and what was wrong."""
    sent, begun_s = draw_sent(kind, seed, number, server.token), time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**26)
    answer = b""
    try:
        writer.write(sent)
        if not is_whole(sent):
            # A server that waits for more is told that none will come.
            writer.write_eof()
        async with asyncio.timeout(LONGEST_S):
            answer = await read_answer(reader)
    except TimeoutError:
        return "none", LONGEST_S, Fault(kind, number, f"no answer in {LONGEST_S:g} s", sent)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()
    took_s = time.monotonic() - begun_s
    status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "closed"
    said = ""
    if status >= "500" and status != "closed":
        said = f"status {status}: {answer[-200:]!r}"
    elif b'event: error\ndata: {"status":5' in answer:
        said = f"an error of the server in a stream: {answer[-200:]!r}"
    elif SECRET in answer:
        said = "a file outside of the store was read"
    elif status == "closed" and is_whole(sent):
        said = "closed without an answer"
    return status, took_s, Fault(kind, number, said, sent) if said else None


def is_whole(sent: bytes) -> bool:
    """Tell whether some bytes are one whole request of HTTP, or none at all."""
    parser = h11.Connection(h11.SERVER)
    try:
        parser.receive_data(sent)
        while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.EndOfMessage):
                return True
    except h11.RemoteProtocolError:
        return True
    return False


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Read a head and what follows, up to the first event of a stream that goes on."""
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    if b"text/event-stream" in lowered:
        return head + await reader.readuntil(b"\n\n")
    if b"content-length: " in lowered:
        length = int(lowered.partition(b"content-length: ")[2].split(b"\r\n")[0])
        return head + await reader.read(min(length, ANSWER_BYTES))
    return head + await reader.read(ANSWER_BYTES)


@contextmanager
def attacked(folder: Path) -> Iterator[tuple[Server, Callable[[], list[str]]]]:
    """Serve a store with hostile folders; gives the server, and what says what it has cost."""
    store = write_broken(write_store(folder / "store"))
    before, errors = _listed(folder), folder.with_name(f"{folder.name}.errors")
    with serving(str(store), errors=errors) as server:
        workers = server.processes()[:4]

        def costs() -> list[str]:
            lost = [f"worker {number} was lost" for number in workers if number not in server.processes()]
            changed = [f"{path} was written" for path, seen in _listed(folder).items() if before.get(path) != seen]
            gone = [f"{path} was deleted" for path in before if path not in _listed(folder)]
            said = [f"said: {line}" for line in errors.read_text().splitlines()[1:]]
            return [*lost, *changed, *gone, *said]

        yield server, costs


def _listed(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")
    }


async def attack(
    server: Server, count: int, seed: int, kinds: tuple[str, ...]
) -> tuple[Counter[str], float, list[Fault]]:
    """Send so many, some at a time; return how they were answered, the longest time, and what was wrong."""
    tally, faults, turn, longest_s = Counter[str](), list[Fault](), asyncio.Semaphore(AT_ONCE), 0.0

    async def one(number: int) -> None:
        nonlocal longest_s
        async with turn:
            status, took_s, fault = await ask(server, kinds[number % len(kinds)], number, seed)
        tally[status] += 1
        longest_s = max(longest_s, took_s)
        if fault is not None:
            faults.append(fault)

    await asyncio.gather(*(one(number) for number in range(count)))
    return tally, longest_s, faults


def main(words: list[str]) -> None:
    given = [int(word) for word in words[:2]]
    count, seed = (*given, *(COUNT, SEED)[len(given) :])
    kinds = tuple(words[2:]) or KINDS
    with tempfile.TemporaryDirectory() as place, attacked(Path(place)) as (server, costs):
        tally, longest_s, faults = asyncio.run(attack(server, count, seed, kinds))
        cost = costs()
    answered = ", ".join(f"{number} {status}" for status, number in sorted(tally.items()))
    print(f"{count} mutated requests: longest answer {longest_s:.2f} s; {answered}")
    for fault in faults[:SHOWN_FAULTS]:
        print(f"  {fault.kind}:{fault.number}: {fault.said}\n    {fault.sent[:300]!r}")
    for line in cost:
        print(f"  {line}")
    print(f"{len(faults)} faults, {len(cost)} side effects")
    sys.exit(bool(faults or cost))


if __name__ == "__main__":
    main(sys.argv[1:])
