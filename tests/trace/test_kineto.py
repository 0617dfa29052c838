"""What can be read of a trace is read, in chunks of any size; what cannot is said."""

import gzip
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.trace import json_events
from charllm.trace.classes import read_classes
from charllm.trace.event_columns import Columns
from charllm.trace.event_fields import convert_event
from charllm.trace.events import KERNEL, RUNTIME, RankTrace
from charllm.trace.kineto import read_kineto
from charllm.trace.run import build_run
from charllm.trace.summary import summarize
from tests.trace.made import GEMM, collective, event, kernel, launched, step, text

EXAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "rank-0.json.gz"
EVENTS = [
    step(0, 0, 100),
    *launched(GEMM, 1, 5, 40, 11),
    collective("allreduce", 30, 50, ranks=(0, 1)),
    event("aten::mm }, {", "cpu_op", 1, 3, **{"External id": 5}),
    event("ac2g", "ac2g", 0, 0),
    kernel('copy }] \\ "quoted"', 85, 5, grid=[2, 3, 1], block=[128, 1, 1]),
]


def write(folder: Path, data: bytes | str, name: str = "rank-0.json") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def same(one: RankTrace, other: RankTrace) -> bool:
    columns: list[tuple[Any, Any]] = list(zip(one.events, other.events, strict=True))
    return one.names == other.names and all(np.array_equal(mine, theirs) for mine, theirs in columns)


@pytest.fixture
def whole(tmp_path: Path) -> RankTrace:
    return read_kineto(write(tmp_path, text(EVENTS, 3, 8)))


def test_events_become_columns_in_order_of_start(whole: RankTrace) -> None:
    assert (whole.rank, whole.world_size, whole.device_names, whole.warnings) == (3, 8, ("NVIDIA H200",), ())
    kernels = whole.events.take(whole.matches(KERNEL))
    assert kernels.start_s.tolist() == pytest.approx([5e-6, 30e-6, 85e-6])
    (call,) = np.flatnonzero(whole.matches(RUNTIME))
    assert whole.events.correlation[call] == kernels.correlation[0] == 11
    recorded = whole.collectives[kernels.collective[1]]
    assert (recorded.name, recorded.in_elements, recorded.dtype) == ("allreduce", 1 << 20, "BFloat16")
    assert recorded.group.ranks == (0, 1)


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_chunks_of_any_size_give_the_same(
    whole: RankTrace, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_events, "CHUNK_BYTES", size)
    assert same(read_kineto(write(tmp_path, text(EVENTS, 3, 8))), whole)


def test_a_packed_trace_and_one_without_a_head_read_the_same(whole: RankTrace, tmp_path: Path) -> None:
    assert same(read_kineto(write(tmp_path, gzip.compress(text(EVENTS).encode()), "rank-0.json.gz")), whole)
    assert same(read_kineto(write(tmp_path, json.dumps(EVENTS))), whole)


def test_without_msgspec_the_same_is_read(whole: RankTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setattr("charllm.trace.event_fields._typed_decoder", _no_msgspec)
    assert same(read_kineto(write(tmp_path, text(EVENTS, 3, 8))), whole)


def _no_msgspec() -> None:
    raise ImportError


def test_a_file_that_ends_early_keeps_what_came_before(tmp_path: Path) -> None:
    data = text(EVENTS).encode()
    cut = read_kineto(write(tmp_path, data[: data.index(b'"copy')]))
    assert cut.events.size == 5
    assert "ends inside an event; the 6 events before that were read" in cut.warnings[0]
    packed = gzip.compress(EXAMPLE.read_bytes() and gzip.decompress(EXAMPLE.read_bytes()))
    short = read_kineto(write(tmp_path, packed[: len(packed) // 2], "rank-1.json.gz"))
    assert 0 < short.events.size < read_kineto(EXAMPLE).events.size
    assert short.rank == 0
    assert "gzip stream is truncated" in short.warnings[0]


def test_a_malformed_event_costs_that_event(tmp_path: Path) -> None:
    good = text(EVENTS)
    broken = good.replace('"dur": 40', '"dur": 4 0')
    trace = read_kineto(write(tmp_path, broken))
    assert trace.events.size == 5
    assert "1 malformed events were left out" in trace.warnings[0]
    assert (
        read_kineto(write(tmp_path, good.replace('"dur": 40', '"dur": -40')))
        .warnings[0]
        .endswith("1 events without a valid start and duration were left out")
    )


def test_names_that_are_not_utf8_are_read_with_marks(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, text(EVENTS).encode().replace(b"quoted", b"quo\xffted")))
    assert trace.events.size == 6
    assert any("quo�ted" in name for name in trace.names)


def test_a_clock_that_was_set_is_noticed(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, text([*EVENTS, kernel(GEMM, 9e9, 1)])))
    assert "a gap of 9,000 s between events" in trace.warnings[0]


def test_a_file_without_events_is_said(tmp_path: Path) -> None:
    for data in ("", "{}", '{"a": 1', "not json", "\x1f\x8b"):
        trace = read_kineto(write(tmp_path, data))
        assert trace.events.size == 0
        assert "no list of events" in trace.warnings[0]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_bytes_are_changed_a_summary_comes_out(data: st.DataObject) -> None:
    original = text([*EVENTS, step(1, 100, 50), *launched("flash_fwd_kernel", 101, 110, 20, 12)]).encode()
    changed = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(changed))), data.draw(st.integers(0, 30))
        changed[at : at + length] = data.draw(st.sampled_from(
            [b"", b"{", b"}", b"]", b'"', b"\xff", b"NaN", b"1e999", b"[" * 40, b'"ts": null,', b"-5", b"9" * 20]
        ))  # fmt: skip
    with TemporaryDirectory() as folder:
        path = write(Path(folder), bytes(changed))
        json.dumps(summarize(build_run([read_kineto(path)], read_classes())), allow_nan=False)


def test_too_many_events_are_kept_up_to_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host events stand first in a file: each is cut at the same moment as what it launched."""
    monkeypatch.setattr(json_events, "CHUNK_BYTES", 500)
    monkeypatch.setattr(Columns.__init__, "__defaults__", (60,))
    steps = [step(number, 100.0 * number, 100.0) for number in range(20)]
    pairs = [launched(GEMM, 100.0 * number + 5, 100.0 * number + 10, 50, number) for number in range(20)]
    calls, kernels = ([pair[at] for pair in pairs for _ in range(3)] for at in (0, 1))
    trace = read_kineto(write(tmp_path, text([*steps, *calls, *kernels])))
    assert 0 < trace.events.size <= 60
    assert not trace.whole
    (told,) = (warning for warning in trace.warnings if "do not fit" in warning)
    assert f"{trace.events.size:,} events" in told
    (rank,) = build_run([trace], read_classes()).ranks
    assert [window.number for window in rank.windows] == list(range(len(rank.windows)))
    assert len(rank.windows) > 3
    assert all(window.seconds == pytest.approx(100e-6) for window in rank.windows)


def test_events_that_all_begin_at_once_do_not_grow_without_end() -> None:
    columns = Columns(most_events=10)
    events = [convert_event(kernel(GEMM, 5, 1)) for _ in range(8)]
    for _ in range(5):
        columns.add(events)
    assert columns.finish(0)[1].size <= 16


def test_a_field_that_is_a_table_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read event by event, as a malformed chunk is."""
    monkeypatch.setattr(json_events, "CHUNK_BYTES", 64)
    odd = text([*EVENTS, {**kernel(GEMM, 90, 1), "cat": {"a": 1}}, {**kernel(GEMM, 91, 1), "pid": [2], "name": {}}])
    trace = read_kineto(write(tmp_path, odd.replace('"dur": 40', '"dur": 4 0')))
    assert trace.events.size == 6
    assert trace.events.duration_s.sum() > 0
