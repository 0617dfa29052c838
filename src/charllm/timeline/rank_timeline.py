"""The timeline of one rank as something that can be played: segments of items, in order, on streams.

This is the intermediate format between whatever schedules a step and `charllm emulate`, which plays it on a real GPU:
compute as real kernels, communication as kernels of the given length, waits as real waits.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from charllm.errors import SpecError, Words
from charllm.spec.request import parse_json, read_text
from charllm.spec.shape import check_shape

FORMAT, VERSION = "charllm-timeline", 1
KINDS = ("kernel", "communication", "wait")
MOST_ITEMS, LONGEST_STEP_S = 5_000_000, 86_400.0
LONGEST_S = 1e4
"""Longest item that is not taken for a mistake."""


class Item(NamedTuple):
    """One thing a rank does.

    kernel: runs for as long as it takes; `shape` says which. communication: takes `duration_s` on `stream`, moving data
    on some multiprocessors, or polling (`blocks` of them). wait: nothing is resident for `duration_s`.
    """

    kind: str
    name: str
    stream: str = "compute"
    shape: tuple[Any, ...] = ()
    """Kernel kind, dimensions, precision."""
    duration_s: float = 0.0
    blocks: int = 0
    moves: bool = True
    """Communication: whether data moves, or a peer is waited for."""
    sent_bytes: float = 0.0
    """Communication: what is sent meanwhile."""
    joins: tuple[str, ...] = ()
    """Streams whose items so far must have ended before it begins."""


class Segment(NamedTuple):
    """Items in order, repeated."""

    label: str
    repeat: int
    items: tuple[Item, ...]


class RankTimeline(NamedTuple):
    """One step of one rank."""

    rank: int
    spec: dict[str, Any]
    segments: tuple[Segment, ...]
    tokens: int
    """Tokens this rank's replica works through in the step."""
    clock_hz: float | None = None
    """Clock at which the simulation it comes from priced its kernels."""

    def items(self) -> Iterator[Item]:
        """List every item of the step, repeats unfolded."""
        for segment in self.segments:
            for _ in range(segment.repeat):
                yield from segment.items

    def shapes(self) -> set[tuple[Any, ...]]:
        """List the distinct kernels it needs."""
        return {item.shape for segment in self.segments for item in segment.items if item.kind == "kernel"}

    def total_s(self, kind: str) -> float:
        """Add up the given lengths of one kind of item."""
        return sum(
            segment.repeat * item.duration_s for segment in self.segments for item in segment.items if item.kind == kind
        )


def to_text(timeline: RankTimeline) -> str:
    """Write a timeline as JSON: each distinct segment once, and the order they are played in."""
    distinct = list(dict.fromkeys(segment._replace(repeat=1) for segment in timeline.segments))
    places = {segment: place for place, segment in enumerate(distinct)}
    table = {
        "format": FORMAT,
        "version": VERSION,
        "rank": timeline.rank,
        "tokens": timeline.tokens,
        "clock_hz": timeline.clock_hz,
        "spec": timeline.spec,
        "segments": [
            {"label": segment.label, "items": [_drop_defaults(item) for item in segment.items]} for segment in distinct
        ],
        "order": [[places[segment._replace(repeat=1)], segment.repeat] for segment in timeline.segments],
    }
    return json.dumps(table, allow_nan=False)


class StoredSegment(TypedDict):
    """The shape of a segment of a stored timeline."""

    label: str
    items: list[dict[str, Any]]


class StoredTimeline(TypedDict):
    """The shape of a stored timeline."""

    rank: int
    tokens: int
    clock_hz: NotRequired[float | None]
    spec: dict[str, Any]
    segments: list[StoredSegment]
    order: list[list[int]]


def read_timeline(path: Path) -> RankTimeline:
    """Read a timeline, or say what is wrong with it."""
    table = parse_json(read_text(path, "--timeline"), str(path), "--timeline")
    if not isinstance(table, dict) or table.get("format") != FORMAT or table.get("version") != VERSION:
        raise SpecError("--timeline", str(path), f"a file in the format {FORMAT}, version {VERSION}")
    check_shape(table, StoredTimeline, path)
    try:
        distinct = [
            Segment(str(segment["label"]), 1, tuple(_item(item) for item in segment["items"]))
            for segment in table["segments"]
        ]
        segments = tuple(_placed(distinct, place, repeat) for place, repeat in table["order"])
        return RankTimeline(int(table["rank"]), dict(table["spec"]), segments, int(table["tokens"]), _clock(table))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise SpecError("--timeline", str(path), f"segments of items ({type(error).__name__}: {error})") from None


def check_length(timeline: RankTimeline) -> None:
    """Refuse a step that nobody could wait for."""
    items = sum(segment.repeat * len(segment.items) for segment in timeline.segments)
    waits_s = sum(segment.repeat * sum(item.duration_s for item in segment.items) for segment in timeline.segments)
    if items > MOST_ITEMS or waits_s > LONGEST_STEP_S:
        possible = f"a step of at most {MOST_ITEMS:,} items and {LONGEST_STEP_S:,.0f} s"
        raise SpecError("--timeline", Words(f"{items:,} items, {waits_s:,.0f} s"), possible)


def _clock(table: dict[str, Any]) -> float | None:
    """Return the clock of a timeline, if it has one."""
    clock_hz = table.get("clock_hz")
    if clock_hz is not None and not (isinstance(clock_hz, int | float) and 0 < clock_hz < float("inf")):
        raise ValueError(f"clock_hz {clock_hz!r}")
    return clock_hz


def _placed(distinct: list[Segment], place: int, repeat: int) -> Segment:
    if not (isinstance(place, int) and isinstance(repeat, int) and place >= 0 and repeat >= 0):
        raise ValueError(f"order [{place!r}, {repeat!r}]")
    return distinct[place]._replace(repeat=repeat)


def _item(table: Any) -> Item:
    if not isinstance(table, dict) or table.get("kind") not in KINDS:
        raise ValueError(f"kind {table.get('kind')!r}" if isinstance(table, dict) else f"item {table!r}")
    item = Item(**{name: _frozen(value) for name, value in table.items()})
    hash(item)
    if not (isinstance(item.shape, tuple) and isinstance(item.joins, tuple) and isinstance(item.moves, bool)):
        raise ValueError(f"shape {item.shape!r}, joins {item.joins!r}, moves {item.moves!r}")
    if not all(isinstance(text, str) for text in (item.name, item.stream, *item.joins)):
        raise ValueError(f"name {item.name!r}, stream {item.stream!r}, joins {item.joins!r}")
    if not 0 <= item.duration_s < LONGEST_S or item.blocks < 0 or not 0 <= item.sent_bytes < float("inf"):
        raise ValueError(f"duration_s {item.duration_s}, blocks {item.blocks}")
    if item.kind == "kernel" and not item.shape:
        raise ValueError(f"kernel {item.name!r} without a shape")
    return item


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def _drop_defaults(item: Item) -> dict[str, Any]:
    defaults = Item(item.kind, item.name)
    return {
        name: value
        for name, value in item._asdict().items()
        if name in ("kind", "name") or value != getattr(defaults, name)
    }
