"""Passes cut into slices of about 5 ms: what each takes at any clock, and what it draws.

Equation: a slice takes max(matrix cycles / min(f, f_matrix) + other cycles / f + fixed seconds + stall, host seconds),
where a stall is a wait for the first launches of a pass. Cycles, seconds and joules of its ops are those of
timeline/costs.py.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.layout.grid import GROUPS
from charllm.spec.run import RunSpec
from charllm.timeline.costs import Costs
from charllm.timeline.engine import Floats
from charllm.timeline.passes import Item, Pass
from charllm.timeline.schedules import order_arrays
from charllm.timeline.step_time import StepTime
from charllm.workload.op import is_communication

SLICE_S = 0.005
CHANNELS = 24
"""Assumed: blocks that a collective occupies (NCCL's usual choice inside a node)."""
LEAST_STALL_S = 5e-9
"""Less is rounding."""
MATRIX, OTHER, FIXED, HOST, MATRIX_J, CORE_J, BOARD_J, POLL, STALL = range(9)
"""Columns of a slice: cycles of matrix units, other cycles, seconds, least seconds, joules, share of polling blocks,
and seconds that the GPU waits for launches."""
COLUMNS = 9


class Slices(NamedTuple):
    """The slices of all passes: pass i is the spans first[i] to first[i + 1], a span some slices several times over."""

    first: NDArray[np.int64]
    spans: NDArray[np.int64]
    """[span, (first slice, slice after the last, repeats)]"""
    table: Floats
    """[slice, column]"""
    group_barriers: NDArray[np.int64]
    """[slice] bit g is set where a collective over GROUPS[g] ends in it."""


def cut_passes(run: RunSpec, timed: StepTime) -> Slices:
    """Cut every pass of every chunk, forward ones first, as the schedule numbers them."""
    cutter = _Cutter(run, timed.costs)
    first, spans = [0], []
    stalls = _stalls(run, timed)
    for kind in range(3):
        for chunk, one in enumerate(timed.passes):
            spans += cutter.cut(one[kind], stalls.get((kind, chunk), 0.0))
            first.append(len(spans))
    return Slices(
        np.array(first, dtype=np.int64),
        np.array(spans, dtype=np.int64).reshape(-1, 3),
        np.array(cutter.rows, dtype=np.float64).reshape(-1, COLUMNS),
        np.array(cutter.barriers, dtype=np.int64),
    )


def _stalls(run: RunSpec, timed: StepTime) -> dict[tuple[int, int], float]:
    """Return how much longer passes took than their ops: the host held them up."""
    degrees, events = run.parallelism, timed.events
    orders = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)
    found: dict[tuple[int, int], float] = {}
    for stage in range(degrees.pp):
        took_s = events.end_s[stage] - events.start_s[stage]
        for kind in range(3):
            for chunk in range(stage, len(timed.passes), degrees.pp):
                chosen = (orders[stage, :, 0] == kind) & (orders[stage, :, 1] == chunk)
                if chosen.any():
                    found[kind, chunk] = float(np.mean(took_s[chosen])) - _work_s(timed.passes[chunk][kind])
    return found


def _work_s(one: Pass) -> float:
    """Return the seconds of a pass's ops, without any wait for the host."""
    return sum(span.repeats * item.seconds for span in one.spans for item in span.items)


class _Cutter:
    """Cuts passes of one run; equal layers are cut once."""

    def __init__(self, run: RunSpec, costs: Costs) -> None:
        self.costs, self.gpu = costs, run.cluster.gpu
        self.rows: list[list[float]] = []
        self.barriers: list[int] = []
        self.known: dict[tuple[int, int, float], tuple[int, int]] = {}

    def cut(self, one: Pass, stall_s: float) -> list[tuple[int, int, int]]:
        """Return the spans of one pass; what the host holds up is spread over it evenly."""
        work_s = _work_s(one)
        stalled = stall_s / work_s if work_s > 0 and stall_s > LEAST_STALL_S else 0.0
        spans = []
        for span in one.spans:
            spans += self._layers(span.items, span.repeats, stalled)
        return spans

    def _layers(self, items: tuple[Item, ...], repeats: int, stalled: float) -> list[tuple[int, int, int]]:
        """Cut equal layers in a row: several to a slice when they are short, one into several when long."""
        length_s = sum(item.seconds for item in items)
        if length_s <= 0:
            return []
        together = max(1, min(repeats, round(SLICE_S / length_s)))
        whole, rest = divmod(repeats, together)
        spans = [(*self._slices(items, together, stalled), whole)]
        return [*spans, (*self._slices(items, rest, stalled), 1)] if rest else spans

    def _slices(self, items: tuple[Item, ...], times: int, stalled: float) -> tuple[int, int]:
        key = (id(items), times, stalled)
        if key not in self.known:
            begin = len(self.rows)
            self._write(items, times, stalled)
            # Items are kept alive by the passes, so that their identity stays theirs.
            self.known[key] = (begin, len(self.rows))
        return self.known[key]

    def _write(self, items: tuple[Item, ...], times: int, stalled: float) -> None:
        row, barriers, length_s = [0.0] * COLUMNS, 0, 0.0
        # A host launches ahead: what it needs for a layer is spread over the layer's slices.
        launched = sum(item.launch_s for item in items) / sum(item.seconds for item in items)
        for item in items:
            if item.op is None:
                continue
            cells = self._cells(item)
            pieces = max(1, round(times * item.seconds / SLICE_S)) if times == 1 else 1
            for _ in range(pieces):
                row = [have + times * more / pieces for have, more in zip(row, cells, strict=True)]
                length_s += times * item.seconds / pieces
                if is_communication(item.op):
                    barriers |= 1 << GROUPS.index(item.op.group)
                if times == 1 and length_s >= SLICE_S:
                    self._close(row, barriers, length_s, launched, stalled)
                    row, barriers, length_s = [0.0] * COLUMNS, 0, 0.0
        if length_s > 0:
            self._close(row, barriers, length_s, launched, stalled)

    def _close(self, row: list[float], barriers: int, length_s: float, launched: float, stalled: float) -> None:
        """End a slice; `launched` and `stalled` are what the host needs, and holds up, over the slice's length.

        A host that needs longer than the GPU paces it at any clock; one that does not only holds up a pass's beginning.
        """
        if launched < 1:
            row[HOST], row[STALL] = launched * length_s, stalled * length_s
        else:
            row[HOST] = max(launched, 1 + stalled) * length_s
        row[POLL] /= length_s
        self.rows.append(row)
        self.barriers.append(barriers)

    def _cells(self, item: Item) -> list[float]:
        """Return one item as a row: its seconds split by what they depend on, and its energy."""
        op = item.op
        assert op is not None
        matrix, other, fixed_s, *energy = self.costs.cells(op).tolist()
        if not is_communication(op):
            return [matrix, other, fixed_s, 0.0, *energy, 0.0, 0.0]
        return [0.0, 0.0, item.seconds, 0.0, *energy, item.seconds * CHANNELS / self.gpu.multiprocessors, 0.0]
