"""A page as one file: what is inside it, and that its numbers come back."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from charllm.report.figure import KINDS, Column, Fact, Figure, Page, Section
from charllm.report.web.html import SCRIPTS, STYLES, pack, script, style, to_json, write_html

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "src" / "charllm" / "report" / "web" / "assets"
HOSTILE = "</script><script>alert(1)</script>"


def unpack(values: Any) -> list[Any]:
    """Read packed values as the front end does."""
    if isinstance(values, list):
        return values
    if "texts" in values:
        return [values["texts"][at] for at in np.frombuffer(base64.b64decode(values["u16"]), dtype="<u2")]
    floats = np.frombuffer(base64.b64decode(values["f32"]), dtype="<f4").astype(float)
    return [None if np.isnan(value) else float(f"{value:.7g}") for value in floats]


@pytest.mark.parametrize(
    "values",
    [
        [0.1 * at for at in range(100)],
        [None, 1.5, 2.25] * 40,
        ["compute", "bubble"] * 50,
        [f"name {at}" for at in range(100)],
        [True, False, None] * 30,
        [10**12 + at for at in range(80)],
        list(range(100)),
        ["short", 1, None],
    ],
)
def test_values_come_back_as_they_were(values: list[Any]) -> None:
    found = unpack(pack(Column("label", values))["values"])
    assert found == [float(f"{value:.7g}") if isinstance(value, float) else value for value in values]


def test_long_columns_take_little_room() -> None:
    numbers, texts = Column("n", [1 / 3] * 10_000), Column("t", ["a long name of a part", "another"] * 5_000)
    assert len(json.dumps(pack(numbers))) < 54_000
    assert len(json.dumps(pack(texts))) < 28_000


def test_numbers_that_are_not_finite_are_missing() -> None:
    page = {"a": float("nan"), "b": np.float32(2.5), "c": Column("c", [float("inf"), np.int64(3)])}
    assert pack(page) == {"a": None, "b": 2.5, "c": {"label": "c", "values": [None, 3]}}
    assert unpack(pack(Column("d", [float("inf"), 1.0] * 40))["values"])[:2] == [None, 1.0]


def test_a_file_needs_nothing_else_and_no_text_ends_its_script() -> None:
    figure = Figure("f", "table", HOSTILE, HOSTILE, {"a": Column(HOSTILE, [HOSTILE])})
    page = Page(HOSTILE, [HOSTILE], [Fact(HOSTILE, "1")], [Section("s", [figure])])
    text = write_html(page)
    assert HOSTILE not in text
    assert text.count("<script") == text.count("</script>") == 3
    data = re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == json.loads(to_json(page)) == pack(page)
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "default-src 'none'" in text


def test_every_kind_has_its_drawing_and_its_line_in_the_decisions() -> None:
    decisions = (ROOT / "docs" / "decisions.md").read_text()
    for kind in KINDS:
        assert f"draw/{kind}.js" in SCRIPTS
        assert f"| `{kind}` |" in decisions


def test_every_file_of_the_front_end_is_loaded() -> None:
    there = {path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*") if path.suffix in (".js", ".css")}
    assert there == {*SCRIPTS, *STYLES}
    assert all(len(part) > 100 for part in (script(), style()))


@pytest.mark.parametrize(
    "path", [path for path in ASSETS.rglob("*.js") if "vendor" not in path.parts], ids=lambda p: p.name
)
def test_texts_never_become_markup(path: Path) -> None:
    text = path.read_text()
    assert '"use strict";' in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)


def test_colours_stand_in_one_file() -> None:
    for path in [*ASSETS.glob("*.css"), *ASSETS.glob("*.js"), *ASSETS.glob("draw/*.js")]:
        if path.name != "tokens.css":
            found = re.findall(r"#[0-9a-fA-F]{6}\b|rgb\(\d+", path.read_text())
            assert found in ([], ["rgb(0"]), path  # the shadow of the tip
