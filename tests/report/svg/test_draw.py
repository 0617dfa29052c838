"""Figures as SVG files: well-formed, with units, and with nothing of a text taken for markup."""

import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from charllm.errors import SpecError
from charllm.report.figure import Column, Figure
from charllm.report.svg.draw import DRAWN, write_svg
from charllm.report.svg.pen import shade, ticks, wrap
from charllm.report.svg.png import find_browser, write_png
from tests.report.plots import figures

EACH = {
    "stacked-bars": figures.bars([[3.0, 1.0, 0.5], [2.0, 0.1, 2.0]]),
    "multiples": figures.multiples([3.0, None, 8.0, 2.5]),
    "heatmap": figures.heatmap([[1.0, None, 3.0], [4.0, 5.0, 6.0]]),
    "scatter": figures.scatter([(1.0, 2.0), (2.0, 1.0), (100.0, 1.2)], [True, True, False], "log"),
    "bands": figures.bands([5.0, 7.0, 6.0, 9.0]),
}


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]


def test_every_kind_that_has_a_file_is_tried() -> None:
    assert set(EACH) == set(DRAWN)


@pytest.mark.parametrize("kind", DRAWN)
def test_a_drawing_is_well_formed_and_says_what_it_shows(kind: str) -> None:
    figure = EACH[kind]
    told = texts(write_svg(figure))
    assert figure.question in told
    assert any(figure.message.split()[0] in line for line in told)
    assert "nan" not in write_svg(figure)


def test_bars_are_as_long_as_their_values() -> None:
    widths = [
        float(found)
        for found in re.findall(
            r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="15', write_svg(EACH["stacked-bars"])
        )
    ]
    assert widths[0] / widths[1] == pytest.approx(3.0, rel=0.01)


def test_a_higher_value_stands_further_to_the_right_and_its_interval_beside() -> None:
    columns = {
        "row": Column("row", ["<b>one</b>", "two"]), "value": Column("speed", [1.0, 3.0], "m/s"),
        "low": Column("low", [0.5, None]), "high": Column("high", [2.0, None]),
    }  # fmt: skip
    panel = {"column": "value", "label": "speed", "unit": "m/s", "low": "low", "high": "high"}
    svg = write_svg(Figure("f", "multiples", "Fast?", "Yes.", columns, {"row": "row", "panels": [panel]}))
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', svg)]
    assert places[0] < places[1]
    assert svg.count('stroke-width="1.4"') == 1
    assert "<b>one</b>" in texts(svg)
    assert "speed, m/s" in texts(svg)


def effects(**options: object) -> str:
    columns = {
        "row": Column("row", ["one", "two", "two"]), "value": Column("gain", [1.0, 3.0, None]),
        "kind": Column("kind", ["no", "no", "no"]),
    }  # fmt: skip
    panel = {"column": "value", "label": "gain", "threshold": 5.0}
    chosen = {"row": "row", "panels": [panel], "shape": "kind", **options}
    return write_svg(Figure("f", "multiples", "Does it gain?", "No.", columns, chosen))


def test_a_threshold_is_inside_the_axis_and_kinds_keep_their_marks() -> None:
    svg = effects(kinds=["yes", "no"])
    (dashed,) = re.findall(r'<line x1="([\d.]+)"[^>]*stroke-dasharray', svg)
    assert {"yes", "no"} <= set(texts(svg))
    # The first kind has circles, even where no point is of that kind: only the legend draws one.
    assert svg.count("<circle") == 1
    assert float(dashed) < 960
    assert effects().count("<circle") > 1


def test_a_further_point_without_a_value_leaves_no_note() -> None:
    assert "-" not in texts(effects())


def test_why_a_row_is_empty_is_said_once() -> None:
    columns = {
        "row": Column("row", ["one", "two"]), "a": Column("a", [1.0, None]), "b": Column("b", [2.0, None]),
        "note": Column("note", ["", "invalid: a long reason that needs more room than one panel has"]),
    }  # fmt: skip
    panels = [{"column": name, "label": name} for name in ("a", "b")]
    told = texts(
        write_svg(Figure("f", "multiples", "Q", "M", columns, {"row": "row", "panels": panels, "note": "note"}))
    )
    assert told.count("invalid: a long reason that needs more room than one panel has") == 1


def test_a_long_title_takes_two_lines() -> None:
    title = "A title of many words " * 5
    figure = Figure("f", "multiples", title, "Yes.", EACH["multiples"].columns, EACH["multiples"].options)
    lines = [line for line in texts(write_svg(figure)) if line.startswith("A title")]
    assert max(len(line) for line in lines) * 16 * 0.56 < 960


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0.0, 1.0) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(-7.0, 12.0) == [-5.0, 0.0, 5.0, 10.0]
    assert ticks(3.0, 3.0) == [3.0]


def test_shades_grow_lighter_and_lines_keep_to_their_width() -> None:
    light = [sum(int(shade(at / 10)[place : place + 2], 16) for place in (1, 3, 5)) for at in range(11)]
    assert light == sorted(light)
    assert all(len(line) <= 30 for line in wrap("word " * 40, 30 * 12 * 0.56))


def test_a_browser_draws_the_same_as_a_picture_of_twice_the_size(tmp_path: Path) -> None:
    file = tmp_path / "map.svg"
    file.write_text(write_svg(EACH["heatmap"]))
    size = re.search(r'width="(\d+)" height="(\d+)"', file.read_text())
    assert size is not None
    data = write_png(file, find_browser("--png")).read_bytes()
    assert data[1:4] == b"PNG"
    assert struct.unpack(">II", data[16:24]) == (2 * int(size[1]), 2 * int(size[2]))


def test_without_a_browser_a_picture_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match="--png: got no browser; expected one of these"):
        find_browser("--png")
