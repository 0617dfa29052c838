"""Timelines played on the CPU: every kernel once per place, lengths as planned, marks at every step."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from charllm import mark
from charllm.errors import DoesNotFit, SpecError
from charllm.gpu.shape import KernelShape
from charllm.measure.emulation import emulator as emulator_module
from charllm.measure.emulation.emulator import Emulator, require_emulable
from charllm.measure.marks import find_phases, find_steps, read_marks
from charllm.simulate.rank_timeline import generate_timeline
from charllm.timeline.rank_timeline import Item, RankTimeline, Segment
from tests.timeline.grids import GRIDS, small

# Tensors this small only wait for each other on more threads.
torch.set_num_threads(1)

GEMM, COPY = ("gemm", (1, 4, 4, 4), "bf16"), ("copy", (8,), "bf16")
KERNELS = (Item("kernel", "a", shape=GEMM), Item("kernel", "b", shape=COPY))


def timeline_of(*segments: Segment) -> RankTimeline:
    return RankTimeline(3, {}, segments, 77)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the kinds of kernels as they are launched, instead of launching them."""
    found: list[str] = []

    def make(shape: KernelShape, _device: str, _operands: object) -> Any:
        return lambda: found.append(shape.kind)

    monkeypatch.setattr(emulator_module, "make_kernel", make)
    return found


@pytest.mark.parametrize("name", GRIDS)
def test_every_rank_of_a_small_grid_can_be_played(name: str) -> None:
    run = small(name)
    timelines = [generate_timeline(run, rank) for rank in range(run.parallelism.world)]
    # Ranks of one stage do the same, so that each stage is played once.
    different = {timeline.segments: timeline for timeline in timelines}
    assert len(different) <= run.parallelism.pp
    for timeline in different.values():
        require_emulable(timeline)
        assert Emulator(timeline, "cpu").run(0.0) == 1


def test_segments_repeat_in_order(launched: list[str]) -> None:
    emulator = Emulator(timeline_of(Segment("x", 2, KERNELS), Segment("y", 1, KERNELS[:1])), "cpu")
    assert emulator.run(0.0) == 1
    # Before the first step each kernel is launched once.
    assert sorted(launched[:2]) == ["copy", "gemm"]
    assert launched[2:] == ["gemm", "copy", "gemm", "copy", "gemm"]


class HandClock:
    """A clock that moves only where it is waited for."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds_s: float) -> None:
        self.now_s += seconds_s


def test_kernels_are_allocated_once_and_played_for_the_asked_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[KernelShape] = []

    def make(shape: KernelShape, _device: str, _operands: object) -> Any:
        made.append(shape)
        return lambda: clock.sleep(0.01)

    clock = HandClock()
    monkeypatch.setattr(emulator_module, "make_kernel", make)
    monkeypatch.setattr(emulator_module, "time", clock)
    emulator = Emulator(timeline_of(Segment("x", 3, KERNELS)), "cpu")
    steps = emulator.run(0.2)
    assert steps == 4
    # Each kernel once before the first step, then steps of six.
    assert clock.now_s == pytest.approx(2 * 0.01 + 4 * 6 * 0.01)
    assert sorted(shape.kind for shape in made) == ["copy", "gemm"]


def test_waits_and_transfers_last_as_long_as_planned(launched: list[str]) -> None:
    items = (
        Item("wait", "bubble", duration_s=0.05, joins=("tp",)),
        Item("communication", "all_reduce", duration_s=0.03, blocks=24),
        Item("communication", "hidden", stream="dp", duration_s=0.02, blocks=24, moves=False),
    )
    timeline = timeline_of(Segment("x", 2, items))
    began_s = time.monotonic()
    Emulator(timeline, "cpu").run(0.0)
    assert time.monotonic() - began_s >= 0.2
    assert timeline.total_s("communication") == pytest.approx(0.1)
    assert timeline.total_s("wait") == pytest.approx(0.1)


def test_steps_and_segments_are_marked(launched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark, "_files", {})
    mark.record_to(str(tmp_path))
    steps = Emulator(timeline_of(Segment("one", 1, KERNELS), Segment("two", 1, KERNELS)), "cpu").run(0.01)
    (marks,) = read_marks(tmp_path).values()
    assert [step.tokens for step in find_steps(marks)] == [77] * steps
    assert {name: len(spans) for name, spans in find_phases(marks).items()} == {"one": steps, "two": steps}


@pytest.mark.parametrize(
    "shape",
    [
        ("conv", (1, 2), "bf16"),
        ("gemm", (1, 2), "bf16"),
        ("gemm", (1, 2, 3, 4), "int3"),
        ("gemm",),
        (1,) * 5,
        ("attention_both", (1, 2, 2, 64, 16), "bf16"),
    ],
)
def test_kernels_that_are_not_known_are_refused(shape: tuple[Any, ...]) -> None:
    with pytest.raises(SpecError, match="--timeline"):
        require_emulable(timeline_of(Segment("x", 1, (Item("kernel", "a", shape=shape),))))


def test_operands_that_do_not_fit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(emulator_module, "make_kernel", overflow)
    with pytest.raises(DoesNotFit, match="do not fit in this GPU's memory"):
        Emulator(timeline_of(Segment("x", 1, KERNELS)), "cpu")
