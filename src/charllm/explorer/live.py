"""Watch measurements while they run: one look a second at each, shared by all who watch it."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError
from charllm.explorer.workers import Reply, busy
from charllm.measure.live.snapshot import GpuNow, Snapshot
from charllm.measure.live.watcher import Watcher

EVERY_S, BUSY_S = 1.0, 5
"""Between two looks; after which who could not watch may ask again."""
MOST_RUNS, MOST_VIEWERS, MOST_KEPT = 8, 64, 600
"""Runs that are watched at a time; who may watch one; moments that are kept for those who come later."""

KEPT = ("power_instant_w", "power_average_w", "temperature_c", "clock_hz")
"""Readings of a GPU that are kept of a moment."""


class _Watch:
    """One run that somebody watches."""

    def __init__(self, folder: Path) -> None:
        self.watcher = Watcher(folder)
        self.newest: dict[str, Any] = {}
        self.moments: deque[dict[str, Any]] = deque(maxlen=MOST_KEPT)
        self.looks, self.count = 0, 0
        """Looks so far; moments so far, also those that are no longer kept."""
        self.viewers = 0
        self.looked = asyncio.Condition()
        self.failure = ""
        self.task = asyncio.create_task(self._look_on())

    async def look_after(self, looks: int) -> int:
        """Wait for a further look; returns how many there were."""
        async with self.looked:
            await self.looked.wait_for(lambda: self.looks > looks)
        return self.looks

    def moments_after(self, count: int) -> list[dict[str, Any]]:
        """Return the moments after so many, as far as they are kept."""
        return list(self.moments)[count - self.count :] if self.count > count else []

    async def _look_on(self) -> None:
        """Look once a second, after one look back at what the recording holds already."""
        try:
            for wall_s, gpus in await asyncio.to_thread(self.watcher.look_back, EVERY_S):
                self._keep({"wall_s": wall_s, "gpus": [_gpu(gpu) for gpu in gpus]})
            while True:
                snapshot = await asyncio.to_thread(self.watcher.look)
                self.newest = asdict(snapshot)
                if snapshot.state == "running":
                    # Old readings of a run that has fallen silent are not those of this moment.
                    self._keep(_moment(snapshot))
                await self._tell()
                await asyncio.sleep(EVERY_S)
        except (CharllmError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            self.failure = f"the recording cannot be read ({type(error).__name__})"
            await self._tell()

    def _keep(self, moment: dict[str, Any]) -> None:
        self.moments.append(moment)
        self.count += 1

    async def _tell(self) -> None:
        async with self.looked:
            self.looks += 1
            self.looked.notify_all()


class Lookout:
    """All runs that are watched."""

    def __init__(self) -> None:
        self._watches: dict[Path, _Watch] = {}

    async def follow(self, folder: Path, name: str) -> AsyncGenerator[Reply]:
        """Yield a snapshot a second until the run has ended, or that too many are watched."""
        watch = self._enter(folder)
        if watch is None:
            yield busy(BUSY_S)
            return
        try:
            looks, count = 0, 0
            while True:
                looks = await watch.look_after(looks)
                new, count = watch.moments_after(count), watch.count
                if watch.failure:
                    yield _refusal(watch.failure)
                    return
                yield Reply("snapshot", json.dumps({**watch.newest, "folder": name, "history": new}).encode())
                if watch.newest["state"] == "ended":
                    return
        finally:
            self._leave(folder, watch)

    def close(self) -> None:
        """Stop watching."""
        for watch in self._watches.values():
            watch.task.cancel()
        self._watches.clear()

    def _enter(self, folder: Path) -> _Watch | None:
        watch = self._watches.get(folder)
        if watch is None and len(self._watches) < MOST_RUNS:
            watch = self._watches[folder] = _Watch(folder)
        if watch is None or watch.viewers >= MOST_VIEWERS:
            return None
        watch.viewers += 1
        return watch

    def _leave(self, folder: Path, watch: _Watch) -> None:
        watch.viewers -= 1
        if not watch.viewers and self._watches.get(folder) is watch:
            del self._watches[folder]
            watch.task.cancel()


def _refusal(message: str) -> Reply:
    return Reply("error", json.dumps({"status": 422, "field": "path", "message": message}).encode())


def _moment(snapshot: Snapshot) -> dict[str, Any]:
    """Return what is kept of a moment, to be drawn over time."""
    job = snapshot.job
    return {
        "wall_s": snapshot.wall_s,
        "elapsed_s": snapshot.elapsed_s,
        "power_w": snapshot.power_w,
        "steps": job.steps,
        "tokens_per_s": job.tokens_per_s,
        "tokens_per_j": job.tokens_per_j,
        "gpus": [_gpu(gpu) for gpu in snapshot.gpus],
    }


def _gpu(gpu: GpuNow) -> dict[str, Any]:
    values = gpu.readings.values
    return {
        "node": gpu.node,
        "gpu": gpu.gpu,
        "limited_by": list(gpu.limited_by),
        **{name: values.get(name) for name in KEPT},
    }
