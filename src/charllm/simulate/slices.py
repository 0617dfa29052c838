"""Passes cut into slices of about 12 ms, half a tick of the governor: what each takes at any clock, and what it draws.

Equation: a slice that its GPU can begin at g and its host can launch from h ends at max(g + work, g + alone, h +
launched), and its host is free at max(h + launching, g + synced): the race of timeline/host_race.py over its ops. Each
time is a line in 1 / clock between two knots (simulate/knots.py): a launch takes as long at any clock, and how far a
host gets ahead does not.
Source: timeline/passes.py, timeline/host_race.py.
Ignores: in which op of a slice energy is spent; where inside a slice its host is when the clock moves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.layout.grid import GROUPS
from charllm.network.constants import NETWORK
from charllm.simulate.knots import NEVER_S, draw_lines, interval_of
from charllm.timeline.passes import Item, race_of
from charllm.timeline.step_time import StepTime
from charllm.workload.op import is_communication

SLICE_S = 0.0125
CHANNELS = NETWORK.collective_blocks
"""Blocks that a collective occupies."""
(CYCLES, FIXED, LEAST, MATRIX_J, CORE_J, BOARD_J, POLL, ALONE_CYCLES, ALONE, LAUNCHED_CYCLES, LAUNCHED,
 LAUNCHING_CYCLES, LAUNCHING, SYNCED_CYCLES, SYNCED) = range(15)  # fmt: skip
"""Columns of a slice. Its work: cycles, seconds, least seconds; joules; share of polling
blocks. Then cycles and seconds of each path of its race: from the GPU being free to the GPU being free, from the host
to the GPU, from the host to the host, from the GPU to the host."""
COLUMNS = 15
TIMES = ((CYCLES, FIXED), (ALONE_CYCLES, ALONE), (LAUNCHED_CYCLES, LAUNCHED), (LAUNCHING_CYCLES, LAUNCHING),
         (SYNCED_CYCLES, SYNCED))  # fmt: skip
"""Times of a slice: work, then the paths of its race, each with the columns of its cycles and seconds."""
DRAWN = (MATRIX_J, CORE_J, BOARD_J, POLL)


class Slices(NamedTuple):
    """The slices of all passes: pass i is the spans first[i] to first[i + 1], a span some slices several times over."""

    first: Ints
    spans: Ints
    """[span, (first slice, slice after the last, repeats)]"""
    table: Floats
    """[kind of GPU, slice, interval between knots, column]"""
    group_barriers: Ints
    """[slice] bit g is set where a collective over GROUPS[g] ends in it."""


def cut_passes(kinds: Sequence[Sequence[StepTime]]) -> Slices:
    """Cut every pass of a step that was timed at the knots of each kind of GPU: [kind][knot].

    Forward passes come first, as the schedule numbers them. Slices end at the same ops on every kind and at any clock:
    they are cut by what the first kind takes at its highest clock.
    """
    cutter = _Cutter()
    first, spans = [0], []
    for direction in range(3):
        for chunk, one in enumerate(kinds[0][0].passes):
            for number, span in enumerate(one[direction].spans):
                spans += cutter.cut(_Place(chunk, direction, number), span.items, span.repeats)
            first.append(len(spans))
    tables = {id(times): _tabulate(times, cutter.slices) for times in {id(one): one for one in kinds}.values()}
    return Slices(
        np.array(first, dtype=np.int64),
        np.array(spans, dtype=np.int64).reshape(-1, 3),
        stack_kinds([tables[id(times)] for times in kinds]),
        np.array([one.barriers for one in cutter.slices], dtype=np.int64),
    )


def _tabulate(times: Sequence[StepTime], slices: "Sequence[_Slice]") -> Floats:
    """Return what each slice takes and draws on one kind of GPU: [slice, interval, column]."""
    spans = {one.place: _settle_items(times, one.place) for one in slices}
    measured = [_measure(times, spans[one.place], one) for one in slices]
    shape = len(times), len(slices)
    times_s = np.array([one[0] for one in measured]).reshape(*shape[::-1], len(TIMES)).transpose(1, 0, 2)
    drawn = np.array([one[1] for one in measured]).reshape(*shape[::-1], len(DRAWN)).transpose(1, 0, 2)
    return lay_rows(times_s, drawn, clocks_of(times))


def _settle_items(times: Sequence[StepTime], place: "_Place") -> list[tuple[Item, ...]]:
    """Return the items of a span at each knot, exchanges as long at any of them as at the first.

    Slower kernels hide more of the exchanges beside them. That is told of the kernels, which then grow by so much less:
    what a layer takes follows the clock its kernels had, not the one of an exchange before or after them.
    """
    spans = [timed.passes[place.chunk][place.direction].spans[place.span].items for timed in times]
    first, settled = spans[0], [spans[0]]
    for items in spans[1:]:
        more_s = [item.seconds - usual.seconds for item, usual in zip(items, first, strict=True)]
        hidden_s = sum(more for more, item in zip(more_s, items, strict=True) if item.kind == "collective")
        slower_s = sum(more for more, item in zip(more_s, items, strict=True) if item.kind == "kernel")
        if not hidden_s or slower_s <= 0:
            settled.append(items)
            continue
        share = hidden_s / slower_s
        settled.append(tuple(
            item._replace(seconds=usual.seconds if item.kind == "collective" else
                          item.seconds + share * more if item.kind == "kernel" else item.seconds)
            for item, usual, more in zip(items, first, more_s, strict=True)
        ))  # fmt: skip
    return settled


def _measure(times: Sequence[StepTime], spans: Sequence[tuple[Item, ...]], one: "_Slice") -> tuple[Floats, Floats]:
    """Return the TIMES and the DRAWN of a slice at each knot, given the items of its span at each."""
    costs, times_s, drawn = times[0].costs, [], []
    items = spans[0]
    kernels = [(costs.kernels.row_of[id(op)], part.share) for part in one.parts
               if (op := items[part.item].op) is not None and not is_communication(op)]  # fmt: skip
    exchanges = [part for part in one.parts if (op := items[part.item].op) is not None and is_communication(op)]
    exchanged_j = sum((part.share * costs.cells(op)[3:] for part in exchanges if (op := items[part.item].op)),
                      np.zeros(3))  # fmt: skip
    rows, shares = [row for row, _share in kernels], np.array([share for _row, share in kernels])
    polling = CHANNELS / costs.run.cluster.gpu.multiprocessors
    for timed, own in zip(times, spans, strict=True):
        pieces = tuple(_piece(own[part.item], part) for part in one.parts)
        race = race_of(pieces).repeated(one.layers)
        work_s = sum(item.seconds for item in pieces)
        polled_s = sum(part.share * own[part.item].seconds for part in exchanges)
        times_s.append((one.layers * work_s, race.gg, race.gh, race.hh, race.hg))
        joules = shares @ timed.costs.table[rows, 3:] + exchanged_j
        drawn.append((*(one.layers * joules), polling * polled_s / work_s if work_s else 0.0))
    return np.maximum(NEVER_S, times_s), np.array(drawn)


def _piece(item: Item, part: "_Part") -> Item:
    if part.share == 1:
        return item
    if item.launches > 1:
        launches = max(1.0, part.share * item.launches)
        return item._replace(seconds=part.share * item.seconds, launch_s=part.share * item.launch_s, launches=launches)
    return item._replace(seconds=part.share * item.seconds, launch_s=item.launch_s if part.begins else 0.0)


def clocks_of(times: Sequence[StepTime]) -> Floats:
    """Return the clocks at which a step was timed."""
    return np.array([timed.costs.clock_hz for timed in times])


def lay_rows(times_s: Floats, drawn: Floats, knots: Floats) -> Floats:
    """Return [row, interval, column] of rows whose TIMES and DRAWN are known at each knot: [knot, row, which]."""
    cycles, fixed_s = draw_lines(times_s, knots)
    rows = np.zeros((times_s.shape[1], len(cycles), COLUMNS))
    for place, columns in enumerate(TIMES):
        rows[:, :, columns[0]], rows[:, :, columns[1]] = cycles[:, :, place].T, fixed_s[:, :, place].T
    rows[:, :, list(DRAWN)] = ((drawn[:-1] + drawn[1:]) / 2).transpose(1, 0, 2)
    return rows


def waiting_rows(polling_fraction: float) -> Floats:
    """Return the [interval, column] rows of a GPU that waits, polling on some of its multiprocessors."""
    rows = np.zeros((1, COLUMNS))
    rows[:, [LAUNCHED, SYNCED]] = NEVER_S
    rows[:, POLL] = polling_fraction
    return rows


def stack_kinds(tables: Sequence[Floats]) -> Floats:
    """Stack [..., interval, column] tables of kinds of GPUs; one with fewer intervals repeats its last."""
    most = max(table.shape[-2] for table in tables)
    return np.stack([table.take(np.minimum(np.arange(most), table.shape[-2] - 1), axis=-2) for table in tables])


def work_s(rows: Floats, knots: Floats, clock_hz: float) -> Floats:
    """Return how long the work of [..., interval, column] rows takes at a clock."""
    row = rows[..., interval_of(knots, clock_hz), :]
    return np.asarray(row[..., CYCLES] / clock_hz + row[..., FIXED])


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


class _Place(NamedTuple):
    """Where in a step some items are: a span of a pass."""

    chunk: int
    direction: int
    span: int


class _Part(NamedTuple):
    """An item, or a share of it."""

    item: int
    share: float
    begins: bool
    """Whether it holds the item's launch."""


class _Slice(NamedTuple):
    """Which parts of which items a slice is made of, and how many layers of them."""

    place: _Place
    parts: tuple[_Part, ...]
    layers: int
    barriers: int


class _Cutter:
    """Cuts passes into slices; layers that are equal are cut once."""

    def __init__(self) -> None:
        self.slices: list[_Slice] = []
        self.known: dict[tuple[int, int], list[tuple[int, int, int]]] = {}

    def cut(self, place: _Place, items: tuple[Item, ...], repeats: int) -> list[tuple[int, int, int]]:
        """Return the spans of slices of equal layers."""
        # Items are kept alive by the passes, so that their identity stays theirs.
        key = (id(items), repeats)
        if key not in self.known:
            self.known[key] = [self._write(place, items, *cut) for cut in _cut_items(items, repeats)]
        return self.known[key]

    def _write(
        self, place: _Place, items: tuple[Item, ...], slices: list[list[_Part]], layers: int, repeats: int
    ) -> tuple[int, int, int]:
        begin = len(self.slices)
        for parts in slices:
            groups = {items[part.item].group for part in parts if items[part.item].kind == "collective"}
            barriers = sum(1 << GROUPS.index(group) for group in groups)
            self.slices.append(_Slice(place, tuple(parts), layers, barriers))
        return begin, len(self.slices), repeats


def _cut_items(items: tuple[Item, ...], repeats: int) -> list[tuple[list[list[_Part]], int, int]]:
    """Cut equal layers by their ops: slices, how many layers each holds, and how often they come.

    What happens between ops belongs to the slice of the op that follows, and to the last slice after the last op.
    """
    ops = [place for place, item in enumerate(items) if item.op is not None]
    found = []
    for cut in cut_layers([items[place].seconds for place in ops], repeats):
        slices: list[list[_Part]] = []
        done = 0
        for one in cut.slices:
            parts: list[_Part] = []
            for number, share in one:
                place = ops[number]
                parts += [_Part(other, 1.0, True) for other in range(done, place)]
                parts.append(_Part(place, min(1.0, share), done <= place))
                done = place + 1
            slices.append(parts)
        slices[-1] += [_Part(other, 1.0, True) for other in range(done, len(items))]
        found.append((slices, max(1, round(cut.slices[0][0][1])), cut.repeats))
    if items and not found:
        return [([[_Part(place, 1.0, True) for place in range(len(items))]], 1, repeats)]
    return found
