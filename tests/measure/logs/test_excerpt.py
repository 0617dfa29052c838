"""Of a large log the lines that report on a step are found without reading all others, in bounded time."""

import time
from pathlib import Path

import pytest

from charllm.measure.logs import KINDS, excerpt, read, read_log
from charllm.measure.logs.excerpt import MOST_LINES, PARTS, SMALL_BYTES
from charllm.measure.marks import MOST_LOGGED, find_steps, mark_logged, read_marks
from charllm.measure.output import kept_output
from tests.measure.logs.test_read import ARGUMENTS, OTHERS, megatron

NOISE = "2026-03-01 12:00:00,123 INFO [worker.py:33] still here, value 3.14 of 7\n"
FLOODS = {
    "nothing of note": b"x" * 99 + b"\n",
    "words of reports": b"2026-03-01 12:00:00 warning at file.py:33 the loss of step 7 is fine, error = 0.1\n",
    "one line": b"x",
    "empty lines": b"\n",
    "reports": megatron(7).encode(),
    "long lines": b"loss " * 4000 + b"\n",
}
FLOOD_BYTES, LIMIT_S = 100_000_000, 5.0 / 3


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every log for a large one."""
    monkeypatch.setattr(read, "SMALL_BYTES", 1)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("kind", KINDS)
def test_reports_of_every_program_are_found_among_other_lines(kind: str) -> None:
    report = megatron(1) if kind == "megatron" else OTHERS[kind][0]
    text = (NOISE * 50 + report) * 3 + NOISE * 50
    whole, found = read_log(text), read_log(text, bounded=True)
    assert found.kind == whole.kind == kind
    assert found.steps == whole.steps
    assert found.steps[0].end_byte > 0


@pytest.mark.usefixtures("large")
def test_a_program_that_starts_again_is_seen_by_the_lines_between() -> None:
    text = "".join(megatron(n) for n in (1, 2, 3, 4)) + NOISE * 30 + "".join(megatron(n) for n in (3, 4, 5))
    assert read_log(text, bounded=True).steps == read_log(text).steps
    assert [step.number for step in read_log(text, bounded=True).steps] == [1, 2, 3, 4, 3, 4, 5]


def test_settings_come_from_the_beginning_of_a_large_log() -> None:
    text = ARGUMENTS + NOISE * (SMALL_BYTES // len(NOISE)) + megatron(1) + megatron(2)
    log = read_log(text, bounded=True)
    assert log.settings == {"seq_length": 2048, "world_size": 8}
    assert [step.tokens for step in log.steps] == [16 * 2048] * 2


def test_of_more_reports_than_can_be_read_evenly_spread_ones_cover_the_others() -> None:
    count = 10 * MOST_LINES
    text = "".join(f"iter {number}: loss 3.0, time 5.00ms, mfu 30%\n" for number in range(count))
    log = read_log(text, bounded=True)
    assert log.warnings == (f"a log of {len(text) / 2**20:.0f} MiB was read in {PARTS} parts",)
    assert len(log.steps) <= 2 * MOST_LINES
    assert log.steps[-1].number > 0.99 * count
    assert sum(step.steps for step in log.steps) == pytest.approx(count, rel=0.01)
    assert [step.seconds for step in log.steps] == pytest.approx([0.005] * len(log.steps))


def test_steps_of_an_endless_log_are_marked_at_its_end() -> None:
    text = "".join(f"iter {number * 1000}: loss 3.0, time 5.00ms\n" for number in range(1, 1000))
    steps = read_log(text).steps
    marks = mark_logged([(step, 5.0 * (index + 1)) for index, step in enumerate(steps)])
    found = find_steps(marks)
    assert MOST_LOGGED - 1000 <= len(found) <= MOST_LOGGED
    assert marks[-1].time_s == 5.0 * len(steps)
    assert (found[-1].end_s - found[0].start_s) / len(found) == pytest.approx(0.005)


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_output_is_read_in_bounded_time(flood: bytes) -> None:
    data = flood * (FLOOD_BYTES // len(flood))
    # Time of the processor, for others may use it too; the least of three.
    spent_s = []
    for _ in range(3):
        began_s = time.process_time()
        read_log(data, bounded=True)
        spent_s.append(time.process_time() - began_s)
        if spent_s[-1] < LIMIT_S:
            break
    assert min(spent_s) < LIMIT_S


def test_a_report_is_found_wherever_it_stands_in_a_flood(tmp_path: Path) -> None:
    with kept_output(tmp_path, shown=False):
        pass
    noise = NOISE.encode() * 40_000
    (tmp_path / "command.log").write_bytes(
        noise + megatron(1).encode() + noise + megatron(2).encode() + noise + megatron(3).encode()
    )
    (tmp_path / "command-times.csv").write_text("start_byte,monotonic_ns\n0,1000000000\n")
    assert [mark.name for mark in read_marks(tmp_path)["log"] if mark.kind == "step"] == ["", "1", "2", "3"]


def test_runs_of_lines_are_whole_lines() -> None:
    data = b"".join(b"%07d\n" % number for number in range(1_000_000))
    found = excerpt.excerpt_lines(data)
    assert not found.complete
    assert {len(line.text) for line in found.lines} == {7}
    assert all(int(line.text) == line.place for line in found.lines)
    assert [line.end_byte for line in found.lines] == [8 * line.place + 7 for line in found.lines]
