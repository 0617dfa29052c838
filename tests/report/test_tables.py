import csv
import io
from typing import Any

import pytest

from charllm.report.tables import render_facts, render_table, shown_ends, terminal_columns, to_csv, wrap

WIDE = ["case", "step s", "power W", "tokens per second", "what it is about"]
ROWS = [
    ["tensor parallelism of eight", "23.253", "616", "11,264", "a long remark that has many words in it"],
    ["none", "5.1", "-", "9", "short"],
]


def test_columns_line_up_and_nothing_trails() -> None:
    table = render_table("Title", ["name", "value"], [["a", "1"], ["long name", "22"]])
    assert table.splitlines() == [
        "Title",
        "name       value",
        "---------  -----",
        "a              1",
        "long name     22",
    ]


def test_a_table_without_rows_still_has_its_head() -> None:
    assert render_table("T", ["a"], []).splitlines() == ["T", "a", "-"]


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    lines = render_table("T", WIDE, ROWS, width=120).splitlines()
    assert lines[1].split() == " ".join(WIDE).split()
    heads = {name: (lines[1].index(name), lines[1].index(name) + len(name)) for name in WIDE}
    assert lines[4][heads["power W"][0] : heads["power W"][1]].endswith("-")
    assert lines[3][heads["what it is about"][0] :].startswith("a long remark")


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 100])
def test_no_line_is_wider_than_it_may_be(width: int) -> None:
    text = render_table("A title that is longer than a narrow terminal has columns", WIDE, ROWS, width=width)
    assert max(map(len, text.splitlines())) <= width


def test_headings_wrap_before_texts_and_texts_before_columns_go() -> None:
    heading = render_table("T", ["a", "tokens per second"], [["x", "1"]], width=10).splitlines()
    assert heading[1:4] == ["a   tokens", "       per", "    second"]
    text = render_table("T", ["a", "remark"], [["x", "one two three four five six seven"]], width=28).splitlines()
    assert len(text) == 5
    assert "columns not shown" not in "".join(text)


def test_columns_without_room_are_named_with_what_shows_them() -> None:
    text = render_table("T", WIDE, ROWS, drop=["power W", "what it is about"], where="--csv", width=44)
    assert "616" not in text
    note = " ".join(text.split("(columns not shown: ")[1].split())
    assert note.startswith("power W, what it is about; --csv or COLUMNS=")
    enough = int(note.split("COLUMNS=")[1].split()[0])
    assert "columns not shown" not in render_table("T", WIDE, ROWS, drop=["power W"], width=enough)
    assert "columns not shown" in render_table("T", WIDE, ROWS, drop=["power W"], width=enough - 1)


def test_a_column_returns_where_another_has_made_room() -> None:
    text = render_table("T", WIDE, ROWS, drop=["power W", "what it is about"], width=56)
    assert "616" in text
    assert "(columns not shown: what it is about; COLUMNS=" in text


def test_a_column_without_a_single_entry_goes_first() -> None:
    rows = [["first", "12345678901234567890", "-"], ["second", "2", ""]]
    text = render_table("T", ["a", "kept", "emptyemptyempty"], rows, drop=["kept", "emptyemptyempty"], width=40)
    assert "12345678901234567890" in text
    assert "(columns not shown: emptyemptyempty;" in text


def test_words_are_broken_only_where_nothing_else_is_left() -> None:
    text = render_table("T", ["a"], [["x" * 90]], width=40)
    assert text.count("x") == 90
    assert max(map(len, text.splitlines())) <= 40


def test_a_number_stays_with_its_unit() -> None:
    for width in range(20, 60):
        lines = wrap("639 W per GPU, 7.86 kW per node, 12 % below, 643 kJ per step", width)
        assert not any(line.startswith(("W ", "kW", "% ", "kJ")) for line in lines)


def test_facts_are_wrapped_beside_their_labels() -> None:
    lines = render_facts([("Power", "one two three four"), ("Clock", "five")], width=20).splitlines()
    assert lines == ["Power  one two three", "       four", "Clock  five"]


def test_the_width_is_that_of_columns_or_100_where_output_is_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert terminal_columns() == 72
    monkeypatch.setenv("COLUMNS", "3")
    assert terminal_columns() == 40


def test_csv_has_every_field_of_every_row() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "part": {"x": 2.5}, "list": [1, 2]}, {"a": None, "b": "with, comma"}]
    found = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert found[0] == {"a": "1", "part.x": "2.5", "list": "1;2", "b": ""}
    assert found[1] == {"a": "", "part.x": "", "list": "", "b": "with, comma"}


def test_long_lists_show_their_ends() -> None:
    shown, left_out = shown_ends(range(20), "nodes")
    assert shown == [0, 1, 2, 3, 4, 5, 14, 15, 16, 17, 18, 19]
    assert left_out == " (8 nodes between not shown)"
    assert shown_ends(range(12)) == (list(range(12)), "")
