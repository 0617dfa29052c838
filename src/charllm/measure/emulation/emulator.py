"""Emulate a rank: its timeline on a real GPU."""

import time
from collections.abc import Callable
from typing import Any

import torch

from charllm import mark
from charllm.errors import DoesNotFit, unknown_name
from charllm.gpu.shape import KernelShape, read_shape
from charllm.measure.kernels.device_code import make_limited_copy, make_spin
from charllm.measure.kernels.operands import POOL_BYTES, Operands
from charllm.measure.kernels.torch_kernels import KERNELS, make_kernel
from charllm.timeline.rank_timeline import Item, RankTimeline

COPY_BYTES = 64 << 20
QUEUED_ITEMS = 256
"""Items launched ahead of the GPU: enough to keep it busy, few enough that a wait begins when it should."""


def require_emulable(timeline: RankTimeline) -> None:
    """Refuse a timeline whose kernels are not known here."""
    for shape in timeline.shapes():
        read_shape(shape, "--timeline")
        if shape[0] not in KERNELS:
            raise unknown_name("--timeline", str(shape[0]), KERNELS)


class Emulator:
    """Kernels of a timeline, whose operands are shared, and the streams they run on."""

    def __init__(self, timeline: RankTimeline, device: str) -> None:
        self._timeline, self._device = timeline, device
        try:
            operands = Operands(device, POOL_BYTES[device])
            self._kernels = {
                shape: make_kernel(KernelShape(*shape), device, operands)
                for shape in sorted(timeline.shapes(), key=str)
            }
        except torch.cuda.OutOfMemoryError:
            raise DoesNotFit("the kernels' operands do not fit in this GPU's memory together") from None
        self._transfers: dict[tuple[int, float, bool, float], Callable[[], Any]] = {}
        names = {item.stream for segment in timeline.segments for item in segment.items} - {"compute"}
        self._streams = {name: torch.cuda.Stream() for name in sorted(names)} if device != "cpu" else {}
        self._queued = 0
        self._events: list[Any] = []

    def run(self, seconds_s: float) -> int:
        """Emulate whole steps until the time is up, marking each; returns how many."""
        self._warm_up()
        steps = 0
        began_s = time.monotonic()
        mark.step(tokens=0)
        while steps == 0 or time.monotonic() - began_s < seconds_s:
            for segment in self._timeline.segments:
                with mark.phase(segment.label):
                    for _ in range(segment.repeat):
                        for item in segment.items:
                            self._launch(item)
            self._synchronize()
            steps += 1
            mark.step(steps, tokens=self._timeline.tokens)
        return steps

    def _warm_up(self) -> None:
        """Launch each kernel and transfer once: compiling and choosing algorithms belong to no step."""
        for kernel in self._kernels.values():
            kernel()
        for item in dict.fromkeys(item for segment in self._timeline.segments for item in segment.items):
            if item.kind == "communication":
                self._transfer(item)
        self._synchronize()

    def _launch(self, item: Item) -> None:
        for name in item.joins:
            if name in self._streams:
                torch.cuda.current_stream().wait_stream(self._streams[name])
        if item.kind == "wait":
            self._synchronize()
            time.sleep(item.duration_s)
        elif item.kind == "kernel":
            self._kernels[item.shape]()
        elif item.stream in self._streams:
            stream = self._streams[item.stream]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._transfer(item)()
        else:
            self._transfer(item)()
        self._limit_queue()

    def _transfer(self, item: Item) -> Callable[[], Any]:
        """Return what stands for a transfer: a copy on as many blocks, or polling where nothing moves."""
        key = (item.blocks, item.duration_s, item.moves, item.sent_bytes)
        if key not in self._transfers:
            if self._device == "cpu":
                self._transfers[key] = lambda: time.sleep(item.duration_s)
            elif item.moves:
                self._transfers[key] = make_limited_copy(
                    item.blocks, COPY_BYTES, item.duration_s, item.sent_bytes or None
                )
            else:
                self._transfers[key] = make_spin(item.blocks, item.duration_s)
        return self._transfers[key]

    def _limit_queue(self) -> None:
        if self._device == "cpu":
            return
        self._queued += 1
        if self._queued % (QUEUED_ITEMS // 4) == 0:
            event = torch.cuda.Event()
            event.record()
            self._events.append(event)
            if len(self._events) > 4:
                self._events.pop(0).synchronize()

    def _synchronize(self) -> None:
        if self._device != "cpu":
            torch.cuda.synchronize()
