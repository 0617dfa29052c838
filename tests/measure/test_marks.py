from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.measure.marks import Mark, find_phases, find_steps, read_marks
from tests.measure.replayed import CAPTURE

MARKS_FILE = "marks-0-440.csv"
DATA = (CAPTURE / MARKS_FILE).read_bytes()
WHOLE = read_marks(CAPTURE)["0-440"]


def at(time_s: float, kind: str, name: str = "", value: str = "") -> Mark:
    return Mark(time_s, kind, name, value)


def test_a_real_job_left_36_steps_and_two_phases_in_each() -> None:
    steps, phases = find_steps(WHOLE), find_phases(WHOLE)
    assert len(steps) == 35
    assert {step.tokens for step in steps} == {4096}
    assert all(0.07 < step.end_s - step.start_s < 0.1 for step in steps[1:])
    assert {name: len(spans) for name, spans in phases.items()} == {"forward-backward": 35, "update": 35}


@given(st.integers(0, len(DATA)))
def test_marks_cut_at_any_byte_lose_at_most_the_last(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / MARKS_FILE).write_bytes(DATA[:size])
    found = read_marks(folder)["0-440"]
    assert found == WHOLE[: max(0, DATA[:size].count(b"\n") - 1)]


def test_a_cut_inside_a_letter_is_a_cut(tmp_path: Path) -> None:
    rows = "1000000000,5,point,größe,1\n2000000000,6,point,größe,2\n".encode()
    (tmp_path / "marks-0-1.csv").write_bytes(rows[: rows.rindex(b"\xc3") + 1])
    assert read_marks(tmp_path)["0-1"] == [at(1.0, "point", "größe", "1")]


@pytest.mark.parametrize("row", ["", "1,2,3", "x,1,step,,", "²,1,step,,", "1,2,step,,,"])
def test_a_row_that_is_no_mark_is_ignored(tmp_path: Path, row: str) -> None:
    (tmp_path / "marks-0-1.csv").write_text(f"{row}\n2000000000,6,step,1,\n", encoding="utf-8")
    assert read_marks(tmp_path)["0-1"] == [at(2.0, "step", "1")]


def test_each_process_has_its_own_marks(tmp_path: Path) -> None:
    for process in ("0-11", "1-12"):
        (tmp_path / f"marks-{process}.csv").write_text("1000000000,5,step,,\n")
    assert list(read_marks(tmp_path)) == ["0-11", "1-12"]
    assert read_marks(tmp_path / "elsewhere") == {}


def test_the_first_mark_only_says_where_the_second_step_starts() -> None:
    assert find_steps([at(1.0, "step", "0", "9")]) == []
    assert find_steps([]) == []


@pytest.mark.parametrize(("value", "tokens"), [("12", 12), ("", None), ("1.5", None), ("²", None), ("-3", None)])
def test_tokens_that_are_no_count_are_not_known(value: str, tokens: int | None) -> None:
    (step,) = find_steps([at(1.0, "step"), at(3.0, "step", "1", value)])
    assert step == (1.0, 3.0, tokens)


def test_phases_may_nest_and_one_that_never_ended_is_left_out() -> None:
    marks = [
        at(1.0, "begin", "a"), at(2.0, "begin", "a"), at(3.0, "begin", "b"), at(4.0, "end", "a"), at(5.0, "end", "a"),
        at(6.0, "end", "never begun"),
    ]  # fmt: skip
    assert find_phases(marks) == {"a": [(2.0, 4.0), (1.0, 5.0)]}
