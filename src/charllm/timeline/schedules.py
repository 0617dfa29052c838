"""In which order each stage works: lists of (pass, chunk, microbatch). A new one: a function, a line in ORDERS."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from charllm.arrays import Ints

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
Order = list[tuple[int, int, int]]
"""Pass, virtual stage on this stage (0 to vpp - 1), microbatch."""


def gpipe(_pp: int, _stage: int, _vpp: int, microbatches: int) -> Order:
    """All forward, then all backward (Huang 2019)."""
    return [(FORWARD, 0, mb) for mb in range(microbatches)] + [(BACKWARD, 0, mb) for mb in range(microbatches)]


def one_f_one_b(pp: int, stage: int, _vpp: int, microbatches: int) -> Order:
    """As many forwards as stages follow, then one forward, one backward in turn (PipeDream-flush, Narayanan 2021)."""
    ahead = min(pp - stage - 1, microbatches)
    order = [(FORWARD, 0, mb) for mb in range(ahead)]
    for mb in range(microbatches - ahead):
        order += [(FORWARD, 0, ahead + mb), (BACKWARD, 0, mb)]
    return order + [(BACKWARD, 0, mb) for mb in range(microbatches - ahead, microbatches)]


def interleaved(pp: int, stage: int, vpp: int, microbatches: int) -> Order:
    """One forward, one backward over several chunks a stage, microbatches in groups of pp (Narayanan 2021).

    What does not divide joins the last group: a group smaller than pp would make stages wait for each other.
    """
    starts = [pp * group for group in range(max(1, microbatches // pp))]
    groups = [range(start, end) for start, end in zip(starts, [*starts[1:], microbatches], strict=True)]
    forwards = [(FORWARD, chunk, mb) for group in groups for chunk in range(vpp) for mb in group]
    backwards = [(BACKWARD, chunk, mb) for group in groups for chunk in reversed(range(vpp)) for mb in group]
    ahead = min(len(forwards), 2 * (pp - stage - 1) + (vpp - 1) * len(groups[-1]))
    order: Order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[len(forwards) - ahead :]


def zero_bubble(pp: int, stage: int, _vpp: int, microbatches: int) -> Order:
    """1F1B whose weight gradients wait: later stages put off more and fill the end with them (ZB-H1, Qi 2024)."""
    ahead = min(pp - stage - 1, microbatches)
    order = [(FORWARD, 0, mb) for mb in range(ahead)]
    weights_done = 0
    for mb in range(microbatches - ahead):
        order += [(FORWARD, 0, ahead + mb), (BACKWARD, 0, mb)]
        if mb >= stage:
            order.append((WEIGHT, 0, weights_done))
            weights_done += 1
    for mb in range(microbatches - ahead, microbatches):
        order += [(BACKWARD, 0, mb), (WEIGHT, 0, weights_done)]
        weights_done += 1
    return order + [(WEIGHT, 0, mb) for mb in range(weights_done, microbatches)]


def dualpipe(pp: int, stage: int, vpp: int, microbatches: int) -> Order:
    """Forward of one microbatch beside backward of another, weight gradients put off (DeepSeek-V3 report, 3.2.1).

    Their exchanges between expert ranks hide under each other's compute (timeline/passes.py).
    Ignores: microbatches that enter at both ends of the pipeline, which halve what is left of the bubble.
    """
    return zero_bubble(pp, stage, vpp, microbatches)


def forward_only(pp: int, _stage: int, vpp: int, microbatches: int) -> Order:
    """Forward passes alone; over several chunks a stage in groups of pp microbatches, as interleaved training has."""
    size = pp if vpp > 1 else microbatches
    groups = [range(first, min(first + size, microbatches)) for first in range(0, microbatches, size)]
    return [(FORWARD, chunk, mb) for group in groups for chunk in range(vpp) for mb in group]


ORDERS: dict[str, Callable[[int, int, int, int], Order]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zero-bubble": zero_bubble,
    "dualpipe": dualpipe,
    "forward-only": forward_only,
}
"""Name: the order of one stage, given pp, the stage, vpp and the microbatches."""


@lru_cache(maxsize=256)
def order_arrays(schedule: str, pp: int, vpp: int, microbatches: int) -> Ints:
    """Return the orders of all stages as one array [stage, item, (pass, global chunk, microbatch)]."""
    orders = [ORDERS[schedule](pp, stage, vpp, microbatches) for stage in range(pp)]
    table = np.array(orders, dtype=np.int64)
    table[:, :, 1] = table[:, :, 1] * pp + np.arange(pp)[:, None]
    table.setflags(write=False)
    return table


def needed_pass(kind: int, chunk: int, chunks: int) -> tuple[int, int] | None:
    """Return the pass and the chunk whose result a pass of a microbatch needs."""
    if kind == FORWARD:
        return (FORWARD, chunk - 1) if chunk else None
    if kind == WEIGHT:
        return BACKWARD, chunk
    return (BACKWARD, chunk + 1) if chunk < chunks - 1 else (FORWARD, chunk)
