"""What each stage takes with more or fewer layers: prices of uneven pipelines, tabulated by the simulator's kernels."""

from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from charllm.arrays import Ints
from charllm.result.memory_verdict import judge_memory, least_margin_fraction
from charllm.spec.run import RunSpec
from charllm.timeline.costs import Costs, cost_step, read_step
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.step import build_step

MOVED_FRACTION = 0.25
"""Share of its layers that a chunk may gain or lose; one at least."""


class LayerTable(NamedTuple):
    """One chunk by its layers."""

    layers: tuple[int, ...]
    """Numbers of layers that fit in memory, in order."""
    pass_s: tuple[float, ...]
    """Seconds of all passes of one microbatch, at the clock that was given."""
    tail_s: tuple[float, ...]
    """Seconds of its stage's gradient exchange and update."""


def tabulate_layers(run: RunSpec, costs: Costs, *, movable: bool) -> list[LayerTable]:
    """Price every chunk with its own layers at one clock and, where layers may move, with more and fewer."""
    split = run.parallelism.layers_per_stage
    most_moved = max(1, int(MOVED_FRACTION * min(split))) if movable else 0
    rows: list[dict[int, tuple[float, float]]] = [{} for _ in split]
    # Where the run as it is may not fit, no stage may have less room than its worst.
    least_margin = min(least_margin_fraction(), _note(run, split, costs, rows))
    for moved in range(1, most_moved + 1):
        for pattern in _patterns(len(split)):
            changed = tuple(layers + moved * sign for layers, sign in zip(split, pattern, strict=True))
            if min(changed) >= 1:
                _note(run, changed, costs, rows, least_margin)
    return [_table(row, own) for row, own in zip(rows, split, strict=True)]


def _patterns(chunks: int) -> list[Ints]:
    """Return signs, each adding up to nothing, under which every chunk gains once and loses once."""
    if chunks < 2:
        return []
    signs = np.zeros(chunks, dtype=np.int64)
    signs[: chunks // 2 * 2] = np.tile([1, -1], chunks // 2)
    found = [signs, -signs]
    if chunks % 2:
        last = np.zeros(chunks, dtype=np.int64)
        last[[0, -1]] = 1, -1
        found += [last, -last]
    return found


def _note(
    run: RunSpec, split: tuple[int, ...], costs: Costs, rows: list[dict[int, tuple[float, float]]],
    least_margin: float = -inf,
) -> float:  # fmt: skip
    """Price one split and write down every chunk of it whose stage has the margin; returns the least of any."""
    changed = replace(run, parallelism=replace(run.parallelism, layers_per_stage=split))
    step = build_step(changed)
    timed = time_step(step, cost_step(step, read_step(step), costs.clock_hz, costs.network, costs.timeline))
    memory, pp = judge_memory(step), run.parallelism.pp
    margins = [one.margin_fraction for one in memory.stages]
    for chunk, layers in enumerate(split):
        if margins[chunk % pp] >= least_margin:
            rows[chunk].setdefault(layers, (_pass_s(timed, chunk), tail_seconds(run, timed, chunk % pp)))
    return min(margins)


def _pass_s(timed: StepTime, chunk: int) -> float:
    return sum(part.seconds for part in timed.passes[chunk])


def tail_seconds(run: RunSpec, timed: StepTime, stage: int) -> float:
    """Return how long a stage's gradient exchange and update take after its last pass."""
    own = timed.passes[stage :: run.parallelism.pp]
    in_passes = run.microbatches * sum(part.labels.get("dp_exposed", 0.0) for one in own for part in one)
    labels = timed.stages[stage]
    return labels["optimizer"] + max(0.0, labels["dp_exposed"] - in_passes)


def _table(row: dict[int, tuple[float, float]], own: int) -> LayerTable:
    """Keep the numbers of layers without a gap around a chunk's own."""
    low = high = own
    while low - 1 in row:
        low -= 1
    while high + 1 in row:
        high += 1
    layers = tuple(range(low, high + 1))
    pass_s, tail_s = zip(*(row[one] for one in layers), strict=True)
    return LayerTable(layers, pass_s, tail_s)
