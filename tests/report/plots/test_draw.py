"""Figures in characters: they keep to the width, to ASCII where that is all there is, and higher values are higher."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.report.figure import KINDS, Figure
from charllm.report.plots.draw import DRAWN, draw_figure
from charllm.report.plots.lanes import Span, share_cells
from charllm.report.plots.pen import Pen, can_show_blocks
from charllm.report.plots.scale import Scale
from tests.report.plots import figures

SPANS = [("stage 0", "forward", 0.0, 1.0), ("stage 0", "backward", 1.0, 3.0), ("stage 1", "bubble", 0.0, 1.0),
         ("stage 1", "forward", 1.0, 2.0), ("stage 1", "backward", 2.0, 4.0)]  # fmt: skip
SIGNALS = [(0.01 * at, 300.0 + at) for at in range(400)]
EACH: dict[str, Figure] = {
    "stacked-bars": figures.bars([[3.0, 1.0, 0.5], [2.0, 0.1, 2.0]], limit=6.0),
    "timeline": figures.timeline(SPANS, SIGNALS),
    "bands": figures.bands([5.0, 7.0, 6.0, 9.0]),
    "node-map": figures.node_map([30.0 + at for at in range(32)]),
    "heatmap": figures.heatmap([[1.0, None, 3.0], [4.0, 5.0, 6.0]]),
    "scatter": figures.scatter([(1.0, 2.0), (2.0, 1.0), (1.5, 1.2)], [True, True, False]),
    "multiples": figures.multiples([3.0, None, 8.0, 2.5]),
    "tornado": figures.tornado([0.06, 0.02, -0.03]),
    "sides": figures.sides([(60.0, 63.0), (1.0, 2.0)]),
    "table": figures.table(["one", "two"]),
    "commands": figures.commands(["charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --pp 2 --gbs 64"]),
}
AXIS = re.compile(r"^[^|]*?[\d ] [|+]")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
parts = st.lists(st.floats(0, 1e4), min_size=3, max_size=3)


def test_every_kind_of_figure_can_be_drawn() -> None:
    assert set(DRAWN) == set(KINDS) == set(EACH)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [48, 80, 120, 250])
def test_no_line_is_wider_than_the_terminal(kind: str, width: int) -> None:
    for has_blocks in (True, False):
        text = draw_figure(EACH[kind], Pen(width, has_blocks))
        assert max(map(len, text.splitlines())) <= width
        assert has_blocks or text.isascii()
        assert text.startswith(EACH[kind].question)


@pytest.mark.parametrize("kind", KINDS)
def test_colour_adds_nothing_but_colour(kind: str) -> None:
    plain, painted = (draw_figure(EACH[kind], Pen(100, has_colour=colour)) for colour in (False, True))
    assert "\x1b" not in plain
    assert [line.rstrip() for line in COLOUR.sub("", painted).splitlines()] == plain.splitlines()


def test_shaded_cells_are_explained() -> None:
    figure = figures.timeline(SPANS, [(0.001 * at, 300.0 + at % 90) for at in range(4000)])
    assert "░ lowest to highest" in draw_figure(figure, Pen(100))


def test_a_figure_that_cannot_be_drawn_says_why() -> None:
    figure = Figure("heat", "node-map", "Who is hot?", "Not shown: no temperature was read.", missing="no temperature")
    assert draw_figure(figure, Pen()) == "Who is hot?\nNot shown: no temperature was read."


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", True), ("ascii", False), ("latin-1", False), (None, False)])
def test_blocks_are_drawn_where_the_encoding_has_them(encoding: str | None, shown: bool) -> None:
    assert can_show_blocks(encoding) is shown


def lengths(text: str) -> list[int]:
    """Return how many cells each bar of a drawing fills."""
    return [len(re.findall("[#t.]", line[9:83])) for line in text.splitlines() if line.startswith("stage")]


@given(st.lists(parts, min_size=2, max_size=6))
def test_a_longer_bar_is_never_drawn_shorter(values: list[list[float]]) -> None:
    drawn = lengths(draw_figure(figures.bars(values, limit=5e4), Pen(100, has_blocks=False)))
    assert len(drawn) == len(values)
    by_total = [length for _, length in sorted(zip(map(sum, values), drawn, strict=True))]
    assert by_total == sorted(by_total)


@given(parts)
def test_a_part_has_its_share_of_the_bar_to_the_nearest_cell(values: list[float]) -> None:
    text = draw_figure(figures.bars([values, [0.0, 0.0, 0.0]]), Pen(100, has_blocks=False))
    bar = next(line for line in text.splitlines() if line.startswith("stage 0"))[9:].rsplit("  ", 1)[0]
    for mark, value in zip("#t.", values, strict=True):
        share = value / (sum(values) or 1.0) * len(bar)
        assert abs(bar.count(mark) - share) <= 1 or sum(values) == 0


def test_the_limit_stands_where_it_lies() -> None:
    text = draw_figure(figures.bars([[3.0, 0.0, 0.0]], limit=6.0), Pen(80, has_blocks=False)).splitlines()
    bar, under = next(line for line in text if line.startswith("stage")), next(line for line in text if "limit" in line)
    assert bar.index("|") == under.index("'")
    assert bar.count("#") == pytest.approx((bar.index("|") - bar.index("#")) / 2, abs=1)


times = st.lists(st.floats(0.001, 5.0), min_size=1, max_size=40)


@given(times, st.integers(5, 80))
def test_no_span_is_skipped_however_short(lengths_s: list[float], cells: int) -> None:
    ends = [sum(lengths_s[: at + 1]) for at in range(len(lengths_s))]
    spans = [
        Span("a", f"part {at}", end - length, end) for at, (end, length) in enumerate(zip(ends, lengths_s, strict=True))
    ]
    shares = share_cells(spans, Scale(0.0, ends[-1], cells))
    spent: dict[str, float] = {}
    for found in shares.values():
        for part, seconds in found.items():
            spent[part] = spent.get(part, 0.0) + seconds
    assert spent == pytest.approx({f"part {at}": length for at, length in enumerate(lengths_s)}, rel=1e-6, abs=1e-9)


def test_a_cell_shows_the_part_that_takes_most_of_it() -> None:
    spans = [("stage 0", "backward", 0.0, 6.0), ("stage 0", "bubble", 6.0, 10.0)]
    text = draw_figure(figures.timeline(spans), Pen(60, has_blocks=False))
    lane = next(line for line in text.splitlines() if "stage 0 |" in line).partition("|")[2]
    assert set(lane) == {"b", "."}
    assert lane.count("b") == pytest.approx(0.6 * len(lane), abs=1)


def test_a_long_step_is_drawn_whole_and_its_beginning_closer() -> None:
    spans = [("stage 0", ("forward", "backward")[at % 2], float(at), at + 1.0) for at in range(400)]
    text = draw_figure(figures.timeline(spans), Pen(80, has_blocks=False))
    whole, near = (line.partition("|")[2] for line in text.splitlines() if "stage 0 |" in line)
    assert re.search(r"^The first 2\d s$", text, flags=re.MULTILINE)
    assert near.startswith("fffbbbfff")
    assert len(whole) == len(near)


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=60))
def test_a_line_passes_through_the_cell_of_every_value(values: list[float]) -> None:
    rows, scale_rows = 5, Scale(min(values), max(values), 5)
    text = draw_figure(figures.bands(values), Pen(90, has_blocks=False)).splitlines()
    body = [AXIS.sub("", line) for line in text[3 : 3 + rows]]
    drawn = {(at, rows - 1 - row) for row, line in enumerate(body) for at, cell in enumerate(line) if cell == "*"}
    assert drawn
    if max(values) - min(values) > 10:
        # The band of one above and below widens the scale by less than a cell.
        heights = [max(row for _, row in drawn), min(row for _, row in drawn)]
        assert heights[0] >= scale_rows.cell(max(values)) - 1
        assert heights[1] <= scale_rows.cell(min(values)) + 1


@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4)), min_size=1, max_size=40),
    st.sampled_from(["linear", "log"]),
)
def test_points_are_where_their_values_say(points: list[tuple[float, float]], scale: str) -> None:
    best = max(range(len(points)), key=lambda at: points[at][1])
    front = [at == best for at in range(len(points))]
    text = draw_figure(figures.scatter(points, front, scale), Pen(100, has_blocks=False)).splitlines()
    body = [AXIS.sub("", line) for line in text[3:17]]
    marked = [(row, line.index("A")) for row, line in enumerate(body) if "A" in line]
    assert len(marked) == 1
    above = [line for line in body[: marked[0][0]] if re.search("[o8@#]", line)]
    assert above == []
    assert any(line.startswith(f"A  case {best}: ") for line in text)


def test_nodes_stand_front_to_rear_and_the_pacing_gpu_is_marked() -> None:
    text = draw_figure(figures.node_map([30.0 + at for at in range(16)]), Pen(80, has_blocks=False)).splitlines()
    assert text[2].split() == ["node", "0", "node", "1"]
    assert text[3].startswith("front")
    assert text[3].split()[1:] == ["[30]", "[31]", ">32<", "[33]", "[38]", "[39]", "[40]", "[41]"]
    assert text[4].split() == ["rear", "[34]", "[35]", "[36]", "[37]", "[42]", "[43]", "[44]", "[45]"]
    assert text[5] == "above inlet, K; inlet 25 C; ring (> <): bottleneck"


def test_a_case_without_numbers_says_why() -> None:
    text = draw_figure(figures.multiples([3.0, None]), Pen(80))
    assert "gpt3 tp1  does not fit in the memory" in text or "tp1" in text.split("does not fit")[0].splitlines()[-1]


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=12))
def test_bars_of_a_tornado_lie_on_the_side_of_their_sign(effects: list[float]) -> None:
    text = draw_figure(figures.tornado(effects), Pen(80, has_blocks=False)).splitlines()
    for line, effect in zip([line for line in text if line.startswith("change ")], effects, strict=True):
        before, _, after = re.sub(r"[+-]\d.*", "", line).partition("|")
        filled = re.compile("[#-]")
        assert effect >= 0 or not filled.search(after)
        assert effect <= 0 or not filled.search(before[10:])


def test_an_effect_has_its_interval_beside_it() -> None:
    text = draw_figure(figures.tornado([0.06, 0.02]), Pen(80))
    assert re.search(r"change 1 .*\+2.0 %  *\(-8 to \+12\)$", text, flags=re.MULTILINE)
    assert re.search(r"change 0 .*\+6.0 %", text)


def test_a_band_between_moments_is_shaded_without_holes() -> None:
    text = draw_figure(figures.bands([100.0, 100.0]), Pen(60, has_blocks=False)).splitlines()
    assert all(set(AXIS.sub("", line)) <= {":", "*"} for line in text[3:8])
    assert all(len(AXIS.sub("", line)) == len(AXIS.sub("", text[3])) for line in text[3:8])


def test_temperatures_are_compared_by_their_difference() -> None:
    assert "+3.0 K" in draw_figure(EACH["sides"], Pen(80))
