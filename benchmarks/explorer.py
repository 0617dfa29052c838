"""Delays of the explorer's answers: 20 clients on 2 cores with the server, each with a distinct change every 2 s.

    python -m benchmarks.explorer [SECONDS]

Prints for 8, 32 and 64 GPUs the p50, p95 and p99 of the time from a request to its fast and to its coupled answer, and
the share of requests that were superseded before their coupled answer came.
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
from dataclasses import dataclass, field
from typing import Any

import httpx

CLIENTS, EVERY_S, CORES = 20, 2.0, 2
LENGTH_S = 30.0
SIZES: dict[int, dict[str, Any]] = {
    8: {"model": "llama3-8b", "cluster": "h200x8", "gbs": 128},
    32: {"model": "llama3-70b", "cluster": "h200x32", "gbs": 128},
    64: {"model": "llama3-70b", "cluster": "h100x64", "gbs": 128},
}
DEGREES: dict[int, list[dict[str, int]]] = {
    8: [{"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2}, {"tp": 8}],
    32: [{"tp": 4, "pp": 4}, {"tp": 8, "pp": 2}, {"tp": 8, "pp": 4}, {"tp": 4, "pp": 2}, {"tp": 2, "pp": 8}],
    64: [{"tp": 8, "pp": 4}, {"tp": 8, "pp": 8}, {"tp": 4, "pp": 8}, {"tp": 8, "pp": 2}, {"tp": 4, "pp": 4}],
}


@dataclass
class Seen:
    """What the clients have seen."""

    asked: int = 0
    superseded: int = 0
    delays_s: dict[str, list[float]] = field(default_factory=lambda: {"fast": [], "coupled": []})
    refused: set[str] = field(default_factory=set)


def main() -> None:
    length_s = float(sys.argv[1]) if len(sys.argv) > 1 else LENGTH_S
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    command = [sys.executable, "-m", "charllm", "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"(http://\S+)\?token=(\S+)", server.stdout.readline())
        assert found is not None
        print(f"{CLIENTS} clients, a distinct change every {EVERY_S:g} s each, server and clients on {CORES} cores")
        for gpus in SIZES:
            report(gpus, asyncio.run(ask_for(found[1], found[2], gpus, length_s)))
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


async def ask_for(address: str, token: str, gpus: int, length_s: float) -> Seen:
    seen, numbers = Seen(), itertools.count()
    headers, limits = {"authorization": f"Bearer {token}"}, httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60, limits=limits) as http:
        clients = (be_client(http, gpus, each, length_s, numbers, seen) for each in range(CLIENTS))
        await asyncio.gather(*clients)
    return seen


async def be_client(
    http: httpx.AsyncClient, gpus: int, client: int, length_s: float, numbers: "itertools.count[int]", seen: Seen
) -> None:
    """Ask again and again, as somebody does who moves one slider after another."""
    chance = random.Random(f"{gpus} {client}")
    await asyncio.sleep(EVERY_S * chance.random())
    end_s, waiting = time.monotonic() + length_s, set[asyncio.Task[None]]()
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        words = SIZES[gpus] | chance.choice(DEGREES[gpus])
        # No two requests are alike, whatever was drawn.
        words |= {"inlet": 20 + 0.001 * next(numbers), "recompute": chance.choice(["none", "selective", "full"])}
        task = asyncio.create_task(ask(http, f"client {client}", words, seen))
        waiting.add(task)
        await asyncio.sleep(max(0.0, began_s + EVERY_S - time.monotonic()))
    await asyncio.gather(*waiting)


async def ask(http: httpx.AsyncClient, client: str, words: dict[str, Any], seen: Seen) -> None:
    began_s, name, got = time.monotonic(), "", set[str]()
    seen.asked += 1
    async with http.stream("POST", "/api/answers", json={"client": client, "request": words}) as response:
        if response.status_code != 200:
            seen.superseded += response.status_code == 409
            if response.status_code != 409:
                seen.refused.add((await response.aread()).decode())
            return
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                got.add(name)
                if name in seen.delays_s:
                    seen.delays_s[name].append(time.monotonic() - began_s)
                else:
                    seen.refused.add(json.loads(line.removeprefix("data: "))["message"])
    seen.superseded += got == {"fast"}


def report(gpus: int, seen: Seen) -> None:
    print(f"{gpus} GPUs: {seen.asked} requests, {100 * seen.superseded / seen.asked:.1f} % superseded")
    for name, delays_s in seen.delays_s.items():
        shown = ", ".join(f"p{share} {1000 * _percentile(delays_s, share):.0f} ms" for share in (50, 95, 99))
        print(f"  {name:7}  {shown}  ({len(delays_s)} answers)")
    for message in seen.refused:
        print(f"  refused: {message[:200]}")


def _percentile(values: list[float], share: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)] if values else float("nan")


if __name__ == "__main__":
    main()
