"""Worker processes: one job at a time, dropped or stopped when nobody waits, replaced when they die."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from charllm.catalog import resolve
from charllm.errors import CharllmError
from charllm.explorer import workers
from charllm.explorer.frontend import assets
from charllm.explorer.request import resolve_words
from charllm.explorer.worker import forget_much
from charllm.explorer.workers import LOST, Pool, Reply
from tests.explorer.runs import HUGE, LONG, SMALL

PARENT = """
import asyncio
from charllm.explorer.workers import Pool

async def main():
    pool = Pool(1, None)
    await pool.start()
    print(*pool.processes, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

WARMED = """
from charllm import jit
from charllm.explorer.answers import Waiting, write_answer
from charllm.explorer.worker import WARM

def prepare(function, *more):
    print(function.__name__)
    return prepare_one(function, *more)

def answer(**words):
    for kind in ("fast", "coupled"):
        assert write_answer({"kind": kind, "words": words}, waiting).startswith(kind)

waiting = Waiting(lambda: None, lambda line: None)
prepare_one, jit._prepare = jit._prepare, prepare
answer(**WARM)
print("ready")
answer(model="llama3-8b", cluster="h200x8", tp=2, gbs=32)
answer(model="llama3-8b", cluster="h100x64", tp=2, gbs=32, network="100g-per-node")
"""


def job(kind: str, words: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "words": words}


async def heard(seen: list[str], count: int) -> None:
    while len(seen) < count:
        await asyncio.sleep(0.01)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What workers have answered, whether anybody waited for it or not."""
    seen: list[str] = []
    read: Callable[[Any, float], Awaitable[Reply | None]] = workers._read

    async def noting(process: Any, longest_s: float) -> Reply | None:
        reply = await read(process, longest_s)
        seen.append(reply.event if reply else "lost")
        return reply

    monkeypatch.setattr(workers, "_read", noting)
    return seen


def test_a_worker_from_its_start_to_its_end(answered: list[str]) -> None:
    async def scenario() -> None:
        pool = Pool(1, None, most_waiting=3)
        await pool.start()
        (number,) = pool.processes

        # What nobody waits for any more is stopped, by the same process, which then answers the next one.
        given_up = asyncio.create_task(pool.run(job("coupled", LONG)))
        await asyncio.sleep(0.2)
        queued = [asyncio.create_task(pool.run(job("coupled", {**LONG, "seed": seed}))) for seed in range(3)]
        await asyncio.sleep(0)
        event, data = await pool.run(job("fast", SMALL))
        assert (event, json.loads(data)["status"], json.loads(data)["retry_after_s"] >= 1) == ("error", 429, True)
        for task in (given_up, *queued):
            task.cancel()
        await asyncio.wait({given_up, *queued})
        event, data = await pool.run(job("fast", SMALL))
        assert (event, json.loads(data)["fits"]) == ("fast", True)
        assert answered == ["ready", "stopped", "fast"]
        assert pool.processes == {number}

        # A request that is wrong, or too large, is answered and costs no worker.
        for words, status in (({**SMALL, "tp": 3}, 400), (HUGE, 422)):
            event, data = await pool.run(job("fast", words))
            assert (event, json.loads(data)["status"]) == ("error", status)

        # A worker that dies while it waits is replaced; one that dies at a job loses that job alone.
        os.kill(number, signal.SIGKILL)
        await heard(answered, 6)
        assert (await pool.run(job("fast", SMALL))).event == "fast"
        (second,) = pool.processes
        waiting = asyncio.create_task(pool.run(job("coupled", LONG)))
        await asyncio.sleep(0.1)
        os.kill(second, signal.SIGKILL)
        assert await waiting == LOST
        await pool.close()
        assert pool.processes == set()

    asyncio.run(scenario())


def test_a_job_that_takes_too_long_is_ended_with_its_worker_and_says_so() -> None:
    async def scenario() -> None:
        pool = Pool(1, None)
        await pool.start()
        (number,) = pool.processes
        event, data = await pool.run(job("coupled", LONG), longest_s=0.1)
        assert (event, json.loads(data)["status"]) == ("error", 422)
        assert "took more than 0.1 s and was ended" in json.loads(data)["message"]
        # The next job is answered by another process: the first has ended, whatever it was at.
        assert (await pool.run(job("fast", SMALL))).event == "fast"
        assert not Path(f"/proc/{number}").exists()
        await pool.close()

    asyncio.run(scenario())


def test_a_worker_has_all_of_its_machine_code_before_its_first_job() -> None:
    said = subprocess.run([sys.executable, "-c", WARMED], check=True, capture_output=True, text=True).stdout
    assert sorted(said.split()) == ["_simulate", "ready", "simulate_steps"]
    assert said.endswith("ready\n")


def test_a_worker_forgets_what_fills_its_memory_and_keeps_what_is_small() -> None:
    many, few = resolve._build_once, assets
    for inlet_c in range(20, 30):
        resolve_words({**SMALL, "inlet": inlet_c})
    few()
    assert many.cache_info().currsize >= 10
    forget_much(many.cache_info().currsize)
    assert many.cache_info().currsize >= 10
    forget_much(2)
    assert (many.cache_info().currsize, few.cache_info().currsize) == (0, 1)


def test_a_worker_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    async def scenario() -> None:
        pool = Pool(2, None)
        with pytest.raises(CharllmError, match="could not be started"):
            await pool.start()
        await pool.close()

    asyncio.run(scenario())


def test_a_killed_server_leaves_no_worker() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    end_s = time.monotonic() + 120
    while Path(f"/proc/{worker}").exists() and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not Path(f"/proc/{worker}").exists()
