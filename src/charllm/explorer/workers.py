"""Worker processes that answer one job at a time each: jobs wait for their turn, and are dropped when nobody waits.

Who waits for an answer is an asyncio task; cancelling it takes the job from the queue, or stops the worker that is at
it. A worker that dies, hangs or does not stop in time is replaced.
"""

import asyncio
import contextlib
import json
import math
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import CharllmError
from charllm.explorer.turns import Place, Turns
from charllm.units import MIB

LONGEST_JOB_S, LONGEST_STOP_S, LONGEST_START_S = 20.0, 3.0, 120.0
"""A worker that takes longer is killed: for a job unless another time is given, to stop one, to start."""
PAUSE_S = 0.5
"""Before a worker that could not start is started again."""
LONGEST_LINE_BYTES = int(64 * MIB)
PROGRESS = "progress"
"""Event by which a worker says how far it is, before its answer."""
SMALLER = "a smaller request (fix more of its settings), or the command line, which has no limit"
USUAL_JOB_S = 0.05
"""Taken for the time of a job until some were done."""


class Reply(NamedTuple):
    """One event of a stream, its data as the worker wrote it."""

    event: str
    data: bytes


def busy(retry_after_s: int) -> Reply:
    """Tell a client when to ask again."""
    message = f"the server is busy; ask again in {retry_after_s} s"
    table = {"status": 429, "field": "", "message": message, "retry_after_s": retry_after_s}
    return Reply("error", json.dumps(table).encode())


LOST = Reply("error", b'{"status":503,"field":"","message":"the worker that computed this was lost; ask again"}')


def _ended(longest_s: float) -> Reply:
    """Tell that a job was ended at its limit."""
    message = f"This took more than {longest_s:g} s and was ended. Expected {SMALLER}."
    return Reply("error", json.dumps({"status": 422, "field": "", "message": message}).encode())


@dataclass(eq=False)
class _Job:
    line: bytes
    longest_s: float
    reply: "asyncio.Future[Reply]"
    told: "Callable[[Reply], None]"
    """Called with how far the job is."""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)


class Pool:
    """Some workers with one queue."""

    def __init__(
        self,
        size: int,
        store: Path | None,
        *,
        nice: int = 0,
        most_waiting: int = 64,
        longest_wait_s: float = math.inf,
        job_s: float = USUAL_JOB_S,
    ) -> None:
        self._size, self._turns = size, Turns(size, most_waiting, longest_wait_s, job_s)
        place = [] if store is None else [str(store)]
        self._command = (sys.executable, "-m", "charllm.explorer.worker", str(os.getpid()), str(nice), *place)
        self._jobs: dict[Place, _Job] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.processes: set[int] = set()
        """Numbers of the processes that are at work or wait for it."""

    async def start(self) -> None:
        """Start all workers; returns when they can answer, or raises where one cannot be started."""
        ready = [asyncio.get_running_loop().create_future() for _ in range(self._size)]
        self._tasks = [asyncio.create_task(self._tend(each)) for each in ready]
        if not all(await asyncio.gather(*ready)):
            raise CharllmError("a worker process of the explorer could not be started")

    @property
    def is_started(self) -> bool:
        """Whether there are workers, or some are being replaced."""
        return bool(self._tasks)

    async def close(self) -> None:
        """End all workers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stream(
        self, job: Mapping[str, Any], client: Hashable = None, longest_s: float = LONGEST_JOB_S
    ) -> AsyncGenerator[Reply]:
        """Yield how far a job is, then its answer."""
        heard: asyncio.Queue[Reply | None] = asyncio.Queue()
        answer = asyncio.ensure_future(self.run(job, client, 0, longest_s, heard.put_nowait))
        answer.add_done_callback(lambda _answer: heard.put_nowait(None))
        try:
            while (reply := await heard.get()) is not None:
                yield reply
            yield await answer
        finally:
            answer.cancel()

    async def run(
        self,
        job: Mapping[str, Any],
        client: Hashable = None,
        priority: int = 0,
        longest_s: float = LONGEST_JOB_S,
        told: Callable[[Reply], None] = lambda _reply: None,
    ) -> Reply:
        """Return the answer to a job, or that too many wait. Cancel the task that waits here to give the job up."""
        place = self._turns.enter(client, priority)
        if isinstance(place, int):
            return busy(place)
        line = json.dumps(job).encode() + b"\n"
        waiting = self._jobs[place] = _Job(line, longest_s, asyncio.get_running_loop().create_future(), told)
        try:
            return await waiting.reply
        finally:
            waiting.stopped.set()
            self._turns.leave(place)
            self._jobs.pop(place, None)

    async def _tend(self, ready: "asyncio.Future[bool]") -> None:
        """Keep one worker at work, and replace it when it is lost; `ready` gets whether the first one could start."""
        while True:
            process, tasks = await self._spawn(), list[asyncio.Task[Any]]()
            try:
                started = await _read(process, LONGEST_START_S) is not None
                if not ready.done():
                    ready.set_result(started)
                if started:
                    tasks = [asyncio.create_task(each) for each in (self._serve(process), process.wait())]
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(PAUSE_S)
            finally:
                for task in tasks:
                    task.cancel()
                await self._end(process)

    async def _serve(self, process: Process) -> None:
        """Give a worker one job after another, until it is lost."""
        while True:
            job = self._jobs.pop(await self._turns.next())
            reply, begun_s = None, time.monotonic()
            try:
                reply = await _ask(process, job)
            finally:
                took_s = time.monotonic() - begun_s
                self._turns.note_duration(took_s)
                if not job.reply.done():
                    job.reply.set_result(reply or (LOST if took_s < job.longest_s else _ended(job.longest_s)))
            if reply is None:
                return

    async def _spawn(self) -> Process:
        # In a group of its own, so that an interrupt from the terminal is for the server alone.
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=LONGEST_LINE_BYTES, process_group=0
        )
        self.processes.add(process.pid)
        return process

    async def _end(self, process: Process) -> None:
        self.processes.discard(process.pid)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _ask(process: Process, job: _Job) -> Reply | None:
    """Return a worker's answer; None where it was lost, took too long, or did not stop when it was told to."""
    await _write(process, job.line)
    reading = asyncio.ensure_future(_read_answer(process, job))
    stopping = asyncio.ensure_future(job.stopped.wait())
    try:
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            await _write(process, b"stop\n")
            await asyncio.wait({reading}, timeout=LONGEST_STOP_S)
        return reading.result() if reading.done() else None
    finally:
        reading.cancel()
        stopping.cancel()


async def _read_answer(process: Process, job: _Job) -> Reply | None:
    """Read until the answer; how far the job is goes to who waits. None where no answer comes in time."""
    try:
        async with asyncio.timeout(job.longest_s):
            while (reply := await _read(process, None)) is not None and reply.event == PROGRESS:
                job.told(reply)
            return reply
    except TimeoutError:
        return None


async def _write(process: Process, line: bytes) -> None:
    # A worker that has died is found when its answer is read.
    with contextlib.suppress(ConnectionError):
        assert process.stdin is not None
        process.stdin.write(line)
        await process.stdin.drain()


async def _read(process: Process, longest_s: float | None) -> Reply | None:
    """Read one line; None where none comes."""
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), longest_s)
    except (TimeoutError, ValueError):
        return None
    event, space, data = line.rstrip(b"\n").partition(b" ")
    return Reply(event.decode(), data) if space and line.endswith(b"\n") else None
