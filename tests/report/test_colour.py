import re

from charllm.report.colour import BOLD, DIM, YELLOW, paint
from charllm.report.tables import render_table

TABLE = render_table("Title", ["name", "value"], [["a", "1"]], width=40)
TEXT = f"first line\nsecond\n\nExplanation: because\n\n{TABLE}\n(columns not shown: x; COLUMNS=120 shows all)"


def test_colour_changes_nothing_but_the_colour() -> None:
    assert re.sub(r"\x1b\[\d+m", "", paint(TEXT)) == TEXT


def test_heads_are_bold_rules_and_notes_faint_explanations_yellow() -> None:
    lines = paint(TEXT).splitlines()
    assert lines[0] == "first line"
    assert lines[3].startswith(YELLOW)
    assert [line[:4] for line in lines[5:8]] == [BOLD, BOLD, DIM]
    assert lines[8] == "a         1"
    assert lines[9].startswith(DIM)
