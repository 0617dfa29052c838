"""A timeline that can be played is a file that gives itself back, or says what is wrong with it."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.errors import SpecError
from charllm.spec.request import MAX_INTEGER
from charllm.timeline.rank_timeline import KINDS, Item, RankTimeline, Segment, check_length, read_timeline, to_text

GEMM = ("gemm", (1, 4096, 4096, 1024), "bf16")
words = st.text(max_size=12)
streams = st.sampled_from(["compute", "tp", "dp"])
seconds = st.floats(0.0, 9999.0)
shapes = st.tuples(words, st.lists(st.integers(1, 2**40), min_size=1, max_size=5).map(tuple), words)
kernels = st.tuples(words, shapes).map(lambda drawn: Item("kernel", drawn[0], shape=drawn[1]))
waits = st.tuples(words, seconds).map(lambda drawn: Item("wait", drawn[0], duration_s=drawn[1]))
transfers = st.tuples(
    st.just("communication"),
    words,
    streams,
    st.just(()),
    seconds,
    st.integers(0, 132),
    st.booleans(),
    st.floats(0, 1e15),
    st.lists(streams, max_size=3).map(tuple),
).map(Item._make)
items = st.one_of(kernels, transfers, waits)
segments = st.tuples(words, st.integers(0, 1000), st.lists(items, max_size=4).map(tuple)).map(Segment._make)
whole = st.integers(1 - MAX_INTEGER, MAX_INTEGER - 1)
specs = st.dictionaries(words, st.one_of(whole, st.booleans(), words, st.lists(words, max_size=2)), max_size=3)
timelines = st.tuples(
    st.integers(0, 4095),
    specs,
    st.lists(segments, max_size=6).map(tuple),
    st.integers(0, 2**40),
    st.one_of(st.none(), st.floats(1e6, 1e11)),
).map(RankTimeline._make)


def write(folder: Path, text: str) -> Path:
    path = folder / "timeline.json"
    path.write_text(text, encoding="utf-8")
    return path


def make_table(**changes: Any) -> dict[str, Any]:
    table = {
        "format": "charllm-timeline",
        "version": 1,
        "rank": 0,
        "tokens": 8,
        "spec": {},
        "segments": [{"label": "layer", "items": [make_item()]}],
        "order": [[0, 3]],
    }
    return {**table, **changes}


def make_item(**changes: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "qkv", "shape": ["gemm", [1, 2, 3, 4], "bf16"], **changes}


@given(timelines)
def test_a_timeline_gives_itself_back(tmp_path_factory: pytest.TempPathFactory, timeline: RankTimeline) -> None:
    assert read_timeline(write(tmp_path_factory.mktemp("played"), to_text(timeline))) == timeline


@given(timelines)
def test_totals_are_those_of_the_items_unfolded(timeline: RankTimeline) -> None:
    short = timeline._replace(segments=tuple(one._replace(repeat=one.repeat % 4) for one in timeline.segments))
    for kind in KINDS:
        unfolded_s = sum(item.duration_s for item in short.items() if item.kind == kind)
        assert short.total_s(kind) == pytest.approx(unfolded_s)
    assert {item.shape for item in short.items() if item.kind == "kernel"} <= short.shapes()


def test_a_segment_that_comes_again_is_written_once() -> None:
    layer = Segment("layer", 4, (Item("kernel", "qkv", shape=GEMM),))
    bubble = Segment("bubble", 1, (Item("wait", "bubble", duration_s=0.5),))
    table = json.loads(to_text(RankTimeline(0, {}, (layer, bubble, layer._replace(repeat=2)), 8)))
    assert [segment["label"] for segment in table["segments"]] == ["layer", "bubble"]
    assert table["order"] == [[0, 4], [1, 1], [0, 2]]


def test_what_is_usual_is_not_written() -> None:
    table = json.loads(to_text(RankTimeline(0, {}, (Segment("a", 1, (Item("wait", "b", duration_s=1.0),)),), 8)))
    assert table["segments"][0]["items"] == [{"kind": "wait", "name": "b", "duration_s": 1.0}]


def test_items_come_in_order_as_often_as_they_repeat() -> None:
    first, second = Item("kernel", "a", shape=GEMM), Item("wait", "b", duration_s=0.25)
    timeline = RankTimeline(0, {}, (Segment("x", 2, (first, second)), Segment("y", 1, (second,))), 8)
    assert [item.name for item in timeline.items()] == ["a", "b", "a", "b", "b"]
    assert timeline.total_s("wait") == 0.75
    assert timeline.shapes() == {GEMM}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"timeline"',
        "[" * 100_000,
        json.dumps(make_table(format="other")),
        json.dumps(make_table(version=2)),
        json.dumps({"format": "charllm-timeline", "version": 1}),
    ],
)
def test_a_file_that_is_no_timeline_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_timeline(write(tmp_path, text))
    assert caught.value.field.startswith(("--timeline", str(tmp_path / "timeline.json")))


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": None},
        {"rank": float("inf")},
        {"tokens": "many"},
        {"spec": 3},
        {"segments": None},
        {"segments": ["layer"]},
        {"segments": [{"label": "layer"}]},
        {"segments": [{"label": "layer", "items": 3}]},
        {"segments": [{"label": "layer", "items": ["qkv"]}]},
        {"segments": [{"label": "layer", "items": [None]}]},
        {"order": None},
        {"order": [3]},
        {"order": [[1, 1]]},
        {"order": [[-1, 1]]},
        {"order": [[0, -1]]},
        {"order": [[0, 1.5]]},
        {"order": [[0, "3"]]},
        {"order": [["0", 1]]},
    ],
)
def test_a_malformed_table_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    refuse(tmp_path, make_table(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "dance"},
        {"kind": ["kernel"]},
        {"kind": None},
        {"colour": "red"},
        {"name": 3},
        {"stream": 3},
        {"joins": "compute"},
        {"joins": [3]},
        {"joins": [["tp"]]},
        {"shape": "gemm"},
        {"shape": []},
        {"shape": ["gemm", {"m": 1}]},
        {"duration_s": -1.0},
        {"duration_s": 1e9},
        {"duration_s": float("nan")},
        {"duration_s": float("inf")},
        {"duration_s": "long"},
        {"duration_s": None},
        {"blocks": -1},
        {"blocks": None},
        {"moves": "yes"},
    ],
)
def test_a_malformed_item_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    refuse(tmp_path, make_table(segments=[{"label": "layer", "items": [make_item(**changes)]}]))


def refuse(folder: Path, table: dict[str, Any]) -> None:
    path = write(folder, json.dumps(table))
    with pytest.raises(SpecError, match=r"segments of items|, (segments|order|rank|tokens|spec|clock_hz)") as caught:
        read_timeline(path)
    assert str(path) in (caught.value.asked, caught.value.field.split(", ")[0])


@given(st.data())
def test_a_timeline_with_any_value_exchanged_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever stands where, the answer is a timeline or a SpecError."""
    junk = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
        max_leaves=5,
    )
    table = make_table()
    places: list[tuple[Any, Any]] = [(table, key) for key in table]
    places += [(table["segments"][0], "items"), (table["segments"][0], "label"), (table["order"], 0)]
    places += [(table["segments"][0]["items"][0], key) for key in ("kind", "name", "shape", "duration_s", "blocks")]
    place, key = data.draw(st.sampled_from(places))
    place[key] = data.draw(junk)
    path = write(tmp_path_factory.mktemp("junk"), json.dumps(table))
    with suppress(SpecError):
        hash(read_timeline(path).segments)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--timeline"):
        read_timeline(tmp_path / "nowhere.json")


@pytest.mark.parametrize(("repeat", "duration_s"), [(10_000_000, 0.0), (1000, 1000.0)])
def test_a_step_that_nobody_could_wait_for_is_refused(repeat: int, duration_s: float) -> None:
    items = (Item("wait", "long", duration_s=duration_s),)
    with pytest.raises(SpecError, match="a step of at most"):
        check_length(RankTimeline(0, {}, (Segment("a", repeat, items),), 1, None))
