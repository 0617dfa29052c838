"""Delays of the explorer's answers, with server and clients on 2 cores; each client makes a distinct change every 2 s.

    python -m benchmarks.explorer [SECONDS [CLIENTS ...]]        delays with so many clients (20 and 200)
    python -m benchmarks.explorer growth [REQUESTS]              memory, threads and open files over so many requests

The first prints for each number of clients and of GPUs the p50, p95 and p99 of the time from a request to its fast and
to its coupled answer and to the word that the server is busy; of the clients, how many fast and coupled answers the one
with the fewest got; and the CPU time of server, workers and clients. A client that is told to ask again waits until its
next change. The machine should be idle: its load is printed.
"""

import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

CLIENTS, EVERY_S, CORES = (20, 200), 2.0, 2
LENGTH_S, REQUESTS = 30.0, 2000
LONGEST_S = 60.0
SIZES: dict[int, dict[str, Any]] = {
    8: {"model": "llama3-8b", "cluster": "h200x8", "gbs": 128},
    32: {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "gbs": 128},
    64: {"model": "llama3-70b", "cluster": "charllm-ppt-h100", "gbs": 128},
}
DEGREES: dict[int, list[dict[str, int]]] = {
    8: [{"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2}, {"tp": 8}],
    32: [{"tp": 4, "pp": 4}, {"tp": 8, "pp": 2}, {"tp": 8, "pp": 4}, {"tp": 4, "pp": 2}, {"tp": 2, "pp": 8}],
    64: [{"tp": 8, "pp": 4}, {"tp": 8, "pp": 8}, {"tp": 4, "pp": 8}, {"tp": 8, "pp": 2}, {"tp": 4, "pp": 4}],
}
TOO_MANY, REPLACED = 429, 409
TICK_HZ = os.sysconf("SC_CLK_TCK")


class Server(NamedTuple):
    """A server that runs: its process, where it listens, and what it asks of clients."""

    pid: int
    port: int
    token: str

    def processes(self) -> list[int]:
        """Return the numbers of the server and its workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]


@dataclass
class Seen:
    """What the clients have seen."""

    asked: int = 0
    superseded: int = 0
    delays_s: dict[str, list[float]] = field(default_factory=lambda: {"fast": [], "coupled": [], "busy": []})
    answers: dict[str, Counter[int]] = field(default_factory=lambda: {"fast": Counter(), "coupled": Counter()})
    """Of each client."""
    refused: set[str] = field(default_factory=set)


@contextmanager
def serving(*words: str, errors: Path = Path(os.devnull)) -> Iterator[Server]:
    """Serve on a free port of this machine; what the server says of its work goes into a file."""
    command = [sys.executable, "-m", "charllm", "serve", "--port", "0", "--no-browser", *words]
    with (
        errors.open("w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)/\?token=(\S+)", process.stdout.readline())
            assert found is not None
            yield Server(process.pid, int(found[1]), found[2])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def main(words: list[str]) -> None:
    if words[:1] == ["growth"]:
        with serving() as server:
            print_growth(server, int(words[1]) if len(words) > 1 else REQUESTS)
        return
    length_s = float(words[0]) if words else LENGTH_S
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with serving() as server:
        for clients, gpus in itertools.product([int(word) for word in words[1:]] or CLIENTS, SIZES):
            before = cpu_s(server)
            seen = asyncio.run(ask_all(server, gpus, clients, length_s))
            report(gpus, clients, seen)
            spent = [after - then for after, then in zip(cpu_s(server), before, strict=True)]
            shown = ", ".join(f"{name} {took_s:.1f} s" for name, took_s in zip(SPENDERS, spent, strict=True))
            print(f"  CPU: {shown}; load of the machine {os.getloadavg()[0]:.1f}")


SPENDERS = ("server", "workers", "clients")


def cpu_s(server: Server) -> tuple[float, float, float]:
    """Return the CPU time so far of the server, of its workers, and of this process."""
    spent = [_cpu_s(process) for process in server.processes()]
    return spent[0], sum(spent[1:]), time.process_time()


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK_HZ


async def ask_all(server: Server, gpus: int, clients: int, length_s: float) -> Seen:
    """Let so many clients ask for a while."""
    seen, numbers = Seen(), itertools.count()
    await asyncio.gather(*(be_client(server, gpus, each, length_s, numbers, seen) for each in range(clients)))
    return seen


async def be_client(
    server: Server, gpus: int, client: int, length_s: float, numbers: "itertools.count[int]", seen: Seen
) -> None:
    """Ask again and again, as somebody does who moves one slider after another."""
    chance = random.Random(f"{gpus} {client}")
    await asyncio.sleep(EVERY_S * chance.random())
    end_s, waiting = time.monotonic() + length_s, list[asyncio.Task[None]]()
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        words = SIZES[gpus] | chance.choice(DEGREES[gpus])
        # No two requests are alike, whatever was drawn.
        words |= {"inlet": 20 + 0.001 * next(numbers), "recompute": chance.choice(["none", "selective", "full"])}
        waiting.append(asyncio.create_task(ask(server, client, words, seen)))
        await asyncio.sleep(max(0.0, began_s + EVERY_S - time.monotonic()))
    await asyncio.gather(*waiting)


async def ask(server: Server, client: int, words: dict[str, Any], seen: Seen) -> None:
    """Ask once, and note when which answer came."""
    began_s, got, name = time.monotonic(), set[str](), ""
    seen.asked += 1
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**26)
    try:
        writer.write(request(server, {"client": f"client {client}", "request": words}))
        status = int((await reader.readline()).split()[1])
        if status == TOO_MANY:
            seen.delays_s["busy"].append(time.monotonic() - began_s)
        elif status != 200:
            seen.superseded += status == REPLACED
            if status != REPLACED:
                seen.refused.add((await reader.read()).decode())
        while status == 200 and (line := await asyncio.wait_for(reader.readline(), LONGEST_S)):
            if line.startswith(b"event: "):
                name = line.removeprefix(b"event: ").decode().strip()
            elif line.startswith(b"data: ") and name in seen.answers:
                got.add(name)
                seen.delays_s[name].append(time.monotonic() - began_s)
                seen.answers[name][client] += 1
            elif line.startswith(b"data: "):
                seen.refused.add(json.loads(line.removeprefix(b"data: "))["message"])
    finally:
        writer.close()
    seen.superseded += got == {"fast"}


def request(server: Server, body: dict[str, Any]) -> bytes:
    """Write one POST for an answer."""
    text = json.dumps(body).encode()
    head = (
        f"POST /api/answers HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + text


def report(gpus: int, clients: int, seen: Seen) -> None:
    busy = len(seen.delays_s["busy"])
    print(
        f"{clients} clients, {gpus} GPUs: {seen.asked} requests, {seen.superseded} superseded, {busy} told to ask again"
    )
    for name, delays_s in seen.delays_s.items():
        shown = ", ".join(f"p{share} {1000 * percentile(delays_s, share):.0f} ms" for share in (50, 95, 99))
        fewest = (
            min((seen.answers[name][client] for client in range(clients)), default=0) if name in seen.answers else 0
        )
        least = f"; the client with the fewest got {fewest}" if name in seen.answers else ""
        if delays_s:
            print(f"  {name:7}  {shown}  ({len(delays_s)} answers{least})")
    for message in seen.refused:
        print(f"  refused: {message[:200]}")


def percentile(values: list[float], share: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)] if values else float("nan")


class Held(NamedTuple):
    """What a server and its workers hold."""

    memory_bytes: int
    threads: int
    files: int


def held(server: Server) -> Held:
    """Add up what the processes of a server hold."""
    memory_bytes = threads = files = 0
    for process in server.processes():
        place = Path(f"/proc/{process}")
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        memory_bytes += int(status["RssAnon"].split()[0]) * 1024
        threads += int(status["Threads"])
        files += len(list((place / "fd").iterdir()))
    return Held(memory_bytes, threads, files)


def grow(server: Server, requests: int) -> tuple[Held, Held]:
    """Ask so often, some at a time; return what is held after the first half and at the end."""

    async def some(first: int, count: int) -> None:
        seen, turn = Seen(), asyncio.Semaphore(8)

        async def one(number: int) -> None:
            async with turn:
                words = SIZES[8] | DEGREES[8][number % 5] | {"inlet": 20 + 0.001 * number}
                await ask(server, number, words, seen)

        await asyncio.gather(*(one(first + number) for number in range(count)))

    asyncio.run(some(0, requests // 2))
    before = held(server)
    asyncio.run(some(requests // 2, requests - requests // 2))
    return before, held(server)


def print_growth(server: Server, requests: int) -> None:
    for after, state in zip((requests // 2, requests), grow(server, requests), strict=True):
        shown = f"{state.memory_bytes / 2**20:.1f} MiB, {state.threads} threads, {state.files} files"
        print(f"after {after} requests, server and workers together: {shown}")


if __name__ == "__main__":
    main(sys.argv[1:])
