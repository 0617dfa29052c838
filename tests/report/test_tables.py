from charllm.report.tables import render_table


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
