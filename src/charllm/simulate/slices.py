"""Passes cut into slices of about 12 ms, half a tick of the governor: what each takes at any clock, and what it draws.

Equation: a slice takes max(matrix cycles / min(f, f_matrix) + other cycles / f + fixed seconds + stall, host seconds),
where a stall is a wait for the first launches of a pass. Cycles, seconds and joules of its ops are those of
timeline/costs.py.
Source: timeline/costs.py, timeline/host_race.py for what a host holds up.
Ignores: in which op of a slice energy is spent; launches that are uneven within a layer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.layout.grid import GROUPS
from charllm.network.constants import NETWORK
from charllm.spec.run import RunSpec
from charllm.timeline.costs import Costs
from charllm.timeline.passes import Item, Pass
from charllm.timeline.schedules import order_arrays
from charllm.timeline.step_time import StepTime
from charllm.workload.op import is_communication

SLICE_S = 0.0125
CHANNELS = NETWORK.collective_blocks
"""Blocks that a collective occupies."""
LEAST_STALL_S = 5e-9
"""Less is rounding."""
MATRIX, OTHER, FIXED, HOST, MATRIX_J, CORE_J, BOARD_J, POLL, STALL = range(9)
"""Columns of a slice: cycles of matrix units, other cycles, seconds, least seconds, joules, share of polling blocks,
and seconds that the GPU waits for launches."""
COLUMNS = 9


class Slices(NamedTuple):
    """The slices of all passes: pass i is the spans first[i] to first[i + 1], a span some slices several times over."""

    first: Ints
    spans: Ints
    """[span, (first slice, slice after the last, repeats)]"""
    table: Floats
    """[kind of node, slice, column]"""
    group_barriers: Ints
    """[slice] bit g is set where a collective over GROUPS[g] ends in it."""


def cut_passes(
    run: RunSpec, timed: StepTime, kinds: Sequence[Costs], timed_kinds: Sequence[StepTime] | None = None
) -> Slices:
    """Cut every pass as it was timed, once for what it costs on each kind of GPU: slices end at the same ops.

    `timed_kinds` are the times of a step on each kind, which tell how its host paces it; without, all are as timed.
    """
    own = timed_kinds or [timed] * len(kinds)
    paces = [_paces(run, one) for one in own]
    cuts = [
        _cut_passes(timed, one, _Cutter(costs, place), paces)
        for place, (one, costs) in enumerate(zip(own, kinds, strict=True))
    ]
    table = np.concatenate([cut.table for cut in cuts])
    for one, costs, rows in zip(own, kinds, table, strict=True):
        rows[:, HOST] *= one.costs.run.cluster.node.launch_speed_fraction / costs.run.cluster.node.launch_speed_fraction
    return cuts[0]._replace(table=table)


def _cut_passes(
    timed: StepTime, own: StepTime, cutter: "_Cutter", paces: Sequence[dict[tuple[int, int], "HostPace"]]
) -> Slices:
    """Cut every pass of every chunk, forward ones first, as the schedule numbers them, for one kind of GPU."""
    first, spans = [0], []
    for kind in range(3):
        for chunk, one in enumerate(timed.passes):
            spans += cutter.cut(
                one[kind], own.passes[chunk][kind], tuple(pace.get((kind, chunk), HostPace()) for pace in paces)
            )
            first.append(len(spans))
    return Slices(
        np.array(first, dtype=np.int64),
        np.array(spans, dtype=np.int64).reshape(-1, 3),
        np.array(cutter.rows, dtype=np.float64).reshape(1, -1, COLUMNS),
        np.array(cutter.barriers, dtype=np.int64),
    )


class SlicedLayers(NamedTuple):
    """Equal layers in a row as slices, each (item, how much of it), several times over."""

    slices: tuple[tuple[tuple[int, float], ...], ...]
    repeats: int


def cut_layers(lengths_s: Sequence[float], repeats: int) -> list[SlicedLayers]:
    """Cut equal layers in a row, given how long their items take: several to a slice when short, in parts when long."""
    length_s = sum(lengths_s)
    if length_s <= 0:
        return []
    together = max(1, min(repeats, round(SLICE_S / length_s)))
    whole, rest = divmod(repeats, together)
    cuts = [SlicedLayers(_cut_times(lengths_s, together), whole)]
    return [*cuts, SlicedLayers(_cut_times(lengths_s, rest), 1)] if rest else cuts


def _cut_times(lengths_s: Sequence[float], times: int) -> tuple[tuple[tuple[int, float], ...], ...]:
    """Return the slices of some layers taken together; of one alone there may be several."""
    if times > 1:
        return (tuple((item, float(times)) for item in range(len(lengths_s))),)
    found, current, length_s = [], [], 0.0
    for item, whole_s in enumerate(lengths_s):
        pieces = max(1, round(whole_s / SLICE_S))
        for _ in range(pieces):
            current.append((item, 1 / pieces))
            length_s += whole_s / pieces
            if length_s >= SLICE_S:
                found.append(tuple(current))
                current, length_s = [], 0.0
    return (*found, tuple(current)) if length_s > 0 else tuple(found)


class HostPace(NamedTuple):
    """How a host paces one pass, beside the launches of each layer."""

    ahead: float = 1.0
    """Share of its launches that layers it holds up wait for: less than 1 where it got ahead under others."""
    stalled: float = 0.0
    """What it holds up besides, over the length of the pass."""


def _paces(run: RunSpec, timed: StepTime) -> dict[tuple[int, int], HostPace]:
    """Return how the host paced the passes of each chunk, from how long they took beside their ops."""
    degrees, events = run.parallelism, timed.events
    orders = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)
    found: dict[tuple[int, int], HostPace] = {}
    for stage in range(degrees.pp):
        took_s = events.end_s[stage] - events.start_s[stage]
        for kind in range(3):
            for chunk in range(stage, len(timed.passes), degrees.pp):
                chosen = (orders[stage, :, 0] == kind) & (orders[stage, :, 1] == chunk)
                if chosen.any():
                    found[kind, chunk] = _pace(timed.passes[chunk][kind], float(np.mean(took_s[chosen])))
    return found


def _pace(one: Pass, took_s: float) -> HostPace:
    working_s = launching_s = 0.0
    for span in one.spans:
        work_s, launch_s = (sum(getattr(item, name) for item in span.items) for name in ("seconds", "launch_s"))
        if launch_s > work_s:
            launching_s += span.repeats * launch_s
        else:
            working_s += span.repeats * work_s
    paced_s = working_s + launching_s
    if paced_s <= 0:
        return HostPace()
    if took_s < paced_s:
        return HostPace(ahead=max(0.0, took_s - working_s) / launching_s) if launching_s else HostPace()
    stall_s = took_s - paced_s
    return HostPace(stalled=stall_s / paced_s if stall_s > LEAST_STALL_S else 0.0)


Items = tuple[Item, ...]
Paces = tuple[HostPace, ...]
"""Of one pass, on each kind of GPU."""


class _Cutter:
    """Cuts passes of one run for one kind of GPU; layers that are equal on every kind are cut once."""

    def __init__(self, costs: Costs, own: int) -> None:
        self.costs, self.gpu, self.own = costs, costs.run.cluster.gpu, own
        self.rows: list[list[float]] = []
        self.barriers: list[int] = []
        self.known: dict[tuple[int, int, Paces], list[tuple[int, int, int]]] = {}

    def cut(self, one: Pass, own: Pass, pace: Paces) -> list[tuple[int, int, int]]:
        """Return the spans of one pass; `own` is the same pass as this kind of GPU has it."""
        spans = zip(one.spans, own.spans, strict=True)
        return [cut for span, mine in spans for cut in self._layers(span.items, mine.items, span.repeats, pace)]

    def _layers(self, items: Items, own: Items, repeats: int, paces: Paces) -> list[tuple[int, int, int]]:
        # Items are kept alive by the passes, so that their identity stays theirs.
        key = (id(items), repeats, paces)
        if key not in self.known:
            pace = paces[self.own]
            # A host launches ahead: what it needs for a layer is spread over the layer's slices.
            launched = sum(item.launch_s for item in own) / max(LEAST_STALL_S, sum(item.seconds for item in items))
            if launched > 1:
                launched *= pace.ahead
            pairs = [pair for pair in zip(items, own, strict=True) if pair[0].op is not None]
            self.known[key] = [
                self._write(pairs, cut, launched, pace.stalled)
                for cut in cut_layers([item.seconds for item, _mine in pairs], repeats)
            ]
        return self.known[key]

    def _write(
        self, pairs: list[tuple[Item, Item]], cut: SlicedLayers, launched: float, stalled: float
    ) -> tuple[int, int, int]:
        """Write slices; `launched` and `stalled` are what the host needs, and holds up, over a slice's length.

        A host that needs longer than the GPU paces it at any clock; what it holds up besides comes on top. Of a pair,
        the first item says where slices end, the second what it takes on this kind of GPU.
        """
        begin, cells = len(self.rows), [self._cells(mine) for _item, mine in pairs]
        for one in cut.slices:
            row, barriers, length_s, own_s = [0.0] * COLUMNS, 0, 0.0, 0.0
            for place, share in one:
                item, mine = pairs[place]
                row = [have + share * more for have, more in zip(row, cells[place], strict=True)]
                length_s += share * item.seconds
                own_s += share * mine.seconds
                if item.op is not None and is_communication(item.op):
                    barriers |= 1 << GROUPS.index(item.op.group)
            row[HOST], row[STALL] = launched * length_s, stalled * max(1.0, launched) * length_s
            row[POLL] /= own_s
            self.rows.append(row)
            self.barriers.append(barriers)
        return begin, len(self.rows), cut.repeats

    def _cells(self, item: Item) -> list[float]:
        """Return one item as a row: its seconds split by what they depend on, and its energy."""
        op = item.op
        assert op is not None
        matrix, other, fixed_s, *energy = self.costs.cells(op).tolist()
        if not is_communication(op):
            return [matrix, other, fixed_s, 0.0, *energy, 0.0, 0.0]
        return [0.0, 0.0, item.seconds, 0.0, *energy, item.seconds * CHANNELS / self.gpu.multiprocessors, 0.0]
