"""Steps that a training program has logged, as marks beside the readings."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.mark import COLUMNS
from charllm.measure.logs import Log, LoggedStep
from charllm.units import NANO

MOST_STEPS = 2_000_000
FEWEST_STEPS, WARM_UP_RATIO = 5, 1.5
"""Steps of a stretch, and how much longer than their median a first one is, to be told from warm-up (assumed)."""
STAMP_S = 1.0
"""Stamps of a log may be off by this: most programs write whole seconds."""


class StepEnd(NamedTuple):
    """The end of a step; `number` as the program counts."""

    time_s: float
    number: int
    tokens: int | None
    loss: float | None
    begins: bool = False
    """Whether this is no end but the moment the first step of a stretch begins."""


def place_steps(log: Log) -> list[list[StepEnd]]:
    """Return the ends of the logged steps on one clock; a stretch for each time that the program was started.

    Durations that a log states are finer than its time stamps: they place a step unless the stamp disagrees.
    """
    stretches: list[list[StepEnd]] = []
    for step in log.steps:
        before = stretches[-1][-1] if stretches else None
        if before is None or step.number <= before.number or step.seconds is None:
            if step.seconds is None and step.time_s is None:
                continue
            spent_s = (step.seconds or 0.0) * step.steps
            end_s = step.time_s if step.time_s is not None else (before.time_s if before else 0.0) + spent_s
            stretches.append([StepEnd(end_s - spent_s, step.number - step.steps, None, None, begins=True)])
            if spent_s:
                stretches[-1] += _covered(step, end_s - spent_s, end_s)
            continue
        stretches[-1] += _covered(step, before.time_s, _end_s(step, before.time_s))
        if sum(map(len, stretches)) > MOST_STEPS:
            raise SpecError("--log", f"more than {MOST_STEPS} steps", f"at most {MOST_STEPS}")
    return [stretch for stretch in stretches if len(stretch) > 1]


def _end_s(step: LoggedStep, before_s: float) -> float:
    stated_s = before_s + (step.seconds or 0.0) * step.steps
    if step.time_s is None or abs(step.time_s - stated_s) <= STAMP_S:
        return stated_s
    return max(step.time_s, before_s + (step.seconds or 0.0))


def _covered(step: LoggedStep, start_s: float, end_s: float) -> list[StepEnd]:
    """Return the ends of the steps that one line covers, evenly spaced; the loss is the last one's."""
    each_s = (end_s - start_s) / step.steps
    tokens = None if step.tokens is None else round(step.tokens)
    return [
        StepEnd(
            start_s + each_s * (place + 1), step.number - step.steps + 1 + place, tokens,
            step.loss if place == step.steps - 1 else None,
        )
        for place in range(step.steps)
    ]  # fmt: skip


def without_warm_up(stretch: list[StepEnd]) -> list[StepEnd]:
    """Leave out the first steps, in which kernels are compiled and caches filled: those well above the median."""
    lengths_s = [after.time_s - before.time_s for before, after in pairwise(stretch)]
    if len(lengths_s) < FEWEST_STEPS:
        return stretch
    usual_s = median(lengths_s)
    first = next(place for place, length_s in enumerate(lengths_s) if length_s <= WARM_UP_RATIO * usual_s)
    return stretch[first:]


def count_gpus(log: Log) -> int | None:
    """Return the GPUs of a job as its log states them, or as its rates for the job and for a GPU imply."""
    if "world_size" in log.settings:
        return log.settings["world_size"]
    ratios = [step.tokens_per_s / step.gpu_tokens_per_s for step in log.steps
              if step.tokens_per_s and step.gpu_tokens_per_s]  # fmt: skip
    return max(1, round(median(ratios))) if ratios else None


def is_dated(log: Log) -> bool:
    """Tell whether a log says when its steps ended."""
    return any(step.time_s is not None for step in log.steps)


def write_marks(stretches: Sequence[Sequence[StepEnd]], folder: Path) -> None:
    """Write a file of marks for each stretch."""
    for place, stretch in enumerate(stretches):
        lines = []
        for end in stretch:
            time_ns = round(end.time_s / NANO)
            tokens = "" if end.tokens is None else str(end.tokens)
            lines.append(f"{time_ns},{time_ns},step,{end.number},{tokens}\n")
            if end.loss is not None:
                lines.append(f"{time_ns},{time_ns},point,loss,{end.loss!r}\n")
        (folder / f"marks-0-log{place}.csv").write_text(COLUMNS.decode() + "".join(lines), encoding="utf-8")
