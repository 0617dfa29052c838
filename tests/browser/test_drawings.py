"""Every kind of figure, as a reader meets it: hover, pin, filter, zoom, by pointer and by keys alone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator
from playwright.sync_api import Page as Tab

from charllm.report.figure import KINDS, Column, Columns, Figure, Page, Section
from charllm.report.web.html import write_html
from tests.browser import gallery
from tests.browser.conftest import keep_screenshot, open_tab
from tests.browser.test_page import show


@pytest.fixture(scope="module")
def tab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page with every kind of figure, opened once and drawn to its end."""
    path = tmp_path_factory.mktemp("drawings") / "gallery.html"
    path.write_text(write_html(gallery.gallery()), encoding="utf-8")
    with open_tab(browser) as opened:
        show(opened, path)
        yield opened


def press(tab: Tab, figure: str, *keys: str) -> None:
    tab.locator(f"#{figure} .chart").first.focus()
    for key in keys:
        tab.keyboard.press(key)


def tip(tab: Tab) -> str:
    return tab.locator(".tip").inner_text()


def pins(tab: Tab, figure: str) -> Locator:
    return tab.locator(f"#{figure} .pin")


def test_the_gallery_has_every_kind() -> None:
    assert {figure.kind for section in gallery.gallery().sections for figure in section.figures} == set(KINDS)


def test_bars_start_at_zero_and_tell_their_parts_on_hover(tab: Tab) -> None:
    pieces = tab.locator("#seconds rect.piece")
    assert pieces.count() == 5 * 9 - 1  # stage 3 does not wait
    assert tab.locator("#seconds .legend li").count() == 9
    starts = pieces.evaluate_all("(all) => all.filter((_, at) => at % 9 === 0).map((one) => one.x.baseVal.value)")
    assert starts[0] == starts[1] == starts[2]
    pieces.nth(3).hover()
    assert tip(tab).startswith("stage 0: exposed tensor parallelism")
    assert "3.2 s" in tip(tab)
    assert "10.1 % of 31.71 s" in tip(tab)
    assert pieces.evaluate_all("(all) => all.filter((one) => one.style.fill.includes('hatch')).length") == 4
    assert "H200: 139.8 GiB" in tab.locator("#memory svg[role=img]").text_content()  # type: ignore[operator]


def test_keys_move_between_parts_and_pin_them(tab: Tab) -> None:
    press(tab, "seconds", "Home", "ArrowRight", "Enter", "ArrowDown", "Enter")
    assert [text.split("\n")[0] for text in pins(tab, "seconds").all_inner_texts()] == [
        "stage 0: recompute",
        "stage 1: recompute",
    ]
    assert "stage 1: recompute, Time: 3.9 s" in tab.locator("#seconds [aria-live]").inner_text()
    tab.keyboard.press("Escape")
    assert not tab.locator(".tip").is_visible()
    pins(tab, "seconds").get_by_role("button").first.click()
    assert pins(tab, "seconds").count() == 1
    tab.evaluate("document.dispatchEvent(new Event('charllm-theme'))")
    assert pins(tab, "seconds").count() == 1, "what is pinned outlives a redraw"


def test_a_timeline_zooms_by_keys_buttons_and_drag(tab: Tab) -> None:
    view = "charllm.view = document.querySelector('#timeline .drawing').charllmView"
    press(tab, "timeline", "+", "+")
    first, last = tab.evaluate(view)
    assert last - first == pytest.approx(31.7 * 0.36, rel=1e-3)
    tab.keyboard.press("0")
    assert tab.evaluate(view) is None
    panel = tab.locator("#timeline .u-over").nth(1)
    panel.scroll_into_view_if_needed()
    box = panel.bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 25, steps=4)
    tab.mouse.up()
    first, last = tab.evaluate(view)
    assert [first, last] == pytest.approx([31.7 * 0.25, 31.7 * 0.5], abs=0.2)
    tab.locator("#timeline").get_by_role("button", name="Show the whole time").click()
    assert tab.evaluate(view) is None


def test_a_timeline_tells_span_and_readings_under_its_cursor(tab: Tab) -> None:
    tab.locator("#timeline .u-over").first.hover(position={"x": 5, "y": 12})
    assert "stage 0\ncompute" in tip(tab)
    assert "forward of microbatch 0" in tip(tab)
    assert "GPU\nnode 2, slot 3" in tip(tab)
    assert "W\n" in tip(tab)
    press(tab, "timeline", "ArrowDown", "Enter")
    assert "stage 1" in pins(tab, "timeline").inner_text()
    tab.locator("#timeline select").select_option("node 0, slot 1")
    assert "timeline.gpu=node+0%2C+slot+1" in tab.evaluate("location.hash")
    assert "node 0, slot 1" in tab.locator("#timeline .panel-title").first.inner_text()
    assert tab.locator("#timeline .legend").nth(1).inner_text() == "clock held by the power limit"


def test_bands_tell_least_mean_and_most(tab: Tab) -> None:
    press(tab, "power", "ArrowRight")
    for label in ("Minimum over GPUs", "Mean over GPUs", "Maximum over GPUs", "All GPUs"):
        assert label in tip(tab)
    tab.keyboard.press("Enter")
    assert pins(tab, "power").count() == 1


def test_a_heatmap_has_a_cell_for_each_pair_and_tells_its_number(tab: Tab) -> None:
    assert tab.locator("#map rect.piece").count() == 3 * 7 + 1
    tab.locator("#map rect.piece").first.hover()
    assert "airflow x 1: 20 C" in tip(tab)
    assert tab.locator("#map .legend").inner_text() == "holds"


def test_a_node_stands_as_it_is_built_and_marks_who_paces(tab: Tab) -> None:
    cells = tab.locator("#heat rect.cell")
    assert cells.count() == 6 * 8
    assert tab.locator("#heat .cell-value").count() == 4 * 8
    places = cells.evaluate_all("(all) => all.slice(0, 8).map((one) => [one.x.baseVal.value, one.y.baseVal.value])")
    assert places[0][1] < places[4][1], "the front row, where air enters, is above the rear one"
    assert places[0][0] == places[4][0]
    assert tab.locator("#heat rect.ring").count() == 1
    press(tab, "heat", "Home", "ArrowDown")
    assert tip(tab).startswith("node 0, slot 4")
    assert "36.1 K" in tip(tab)
    tab.locator("#heat").get_by_role("button", name="Show all nodes in full").click()
    assert tab.locator("#heat .cell-value").count() == 6 * 8


def test_filters_narrow_a_scatter_and_stand_in_the_address(tab: Tab) -> None:
    count = tab.locator("#pareto .count")
    assert count.inner_text() == "120 of 120 points"
    tab.locator("#pareto").get_by_label("Tensor parallelism").select_option("4")
    assert count.inner_text() == "30 of 120 points"
    tab.locator("#pareto").get_by_label("Throughput, tokens/s/GPU: least").fill("1000")
    assert int(count.inner_text().split()[0]) < 30
    assert tab.locator("#pareto .point").count() == int(count.inner_text().split()[0])
    assert "pareto.tp=4&pareto.speed.least=1000" in tab.evaluate("location.hash")
    tab.reload()
    tab.wait_for_selector("#pareto .point", state="attached")
    assert int(tab.locator("#pareto .count").inner_text().split()[0]) < 30
    tab.locator("#pareto").get_by_label("Throughput, tokens/s/GPU: least").fill("")
    tab.locator("#pareto").get_by_label("Tensor parallelism").select_option("all")
    assert "pareto" not in tab.evaluate("location.hash")


def test_points_are_reached_by_keys_and_pinned_with_their_details(tab: Tab) -> None:
    press(tab, "pareto", "Home", "ArrowRight", "Enter")
    (card,) = pins(tab, "pareto").all_inner_texts()
    assert "tokens/s/GPU" in card
    assert f"--name {gallery.HOSTILE}" in card
    press(tab, "accuracy", "End")
    assert "Measured step time" in tip(tab)
    assert tab.locator("#accuracy .ring").count() == 1
    assert tab.locator("#accuracy .line-band").count() == 1
    shapes = {tab.locator("#sides .point[transform]").nth(at).get_attribute("d") for at in range(3)}
    assert len(shapes) == 3, "simulated, measured and emulated differ by shape"


def test_the_axes_of_a_scatter_can_be_chosen_and_its_front_follows(page: Tab, tmp_path: Path) -> None:
    columns = {
        "a": Column("Speed", [3.0, 2.0, 1.0], "tokens/s"),
        "b": Column("Power", [30.0, 10.0, 20.0], "W"),
        "c": Column("Heat", [1.0, 2.0, 3.0], "K"),
        "front": Column("Front", [True, True, False]),
    }
    options = {
        "x": "a",
        "y": "b",
        "front": "front",
        "choices": ["a", "b", "c"],
        "better": {"a": "higher", "b": "lower", "c": "lower"},
    }
    file = tmp_path / "page.html"
    file.write_text(
        write_html(Page("axes", [], [], [Section("s", [Figure("f", "scatter", "q", "m", columns, options)])]))
    )
    show(page, file)
    assert page.locator(".point.off").count() == 1
    page.get_by_label("Vertical axis").select_option("c")
    assert page.locator(".point.off").count() == 2, "the fastest is now also the coolest"
    assert page.evaluate("location.hash") == "#f.y=c"


def test_what_does_not_fit_is_grey_and_last(tab: Tab) -> None:
    names = tab.evaluate("[...document.querySelectorAll('#changes .label')].map((one) => one.textContent)")
    order = [name for name in names if name in gallery.tornado().columns["change"].values]
    assert order[0] == "overlap tp, dp, pp"
    assert order[-1] == "no recomputation"
    press(tab, "changes", "End")
    assert "needs 188 GiB of 139.8 GiB" in tip(tab)
    assert "+19.0 to +23.0 %" in tip(tab)


def test_small_multiples_share_rows_and_say_what_is_missing(tab: Tab) -> None:
    assert tab.locator("#strategies h4").all_inner_texts() == ["Llama3-70B", "GPT3-175B", "Mixtral-8x7B"]
    assert tab.locator("#strategies .label", has_text="does not fit").count() == 1
    assert "Scales differ between blocks: throughput" in tab.locator("#strategies .drawing").inner_text()


def test_a_threshold_is_a_dashed_line_and_a_second_point_of_a_row_leaves_no_dash(page: Tab, tmp_path: Path) -> None:
    columns = {
        "row": Column("row", ["one", "two", "two"]),
        "gain": Column("gain", [1.0, 3.0, None], "%"),
        "kind": Column("kind", ["no", "no", "no"]),
    }
    panel = {"column": "gain", "label": "gain", "unit": "%", "threshold": 5.0}
    options = {"row": "row", "panels": [panel], "shape": "kind", "colour": "kind", "kinds": ["yes", "no"]}
    figure = Figure("effects", "multiples", "Does it gain?", "No.", columns, options)
    file = tmp_path / "page.html"
    file.write_text(write_html(Page("effects", [], [], [Section("s", [figure])])))
    show(page, file)
    assert page.locator("#effects path.line").count() == 1
    drawn = page.locator("#effects .drawing").inner_text()
    assert {"yes", "no"} <= set(drawn.split())
    assert "\u2013" not in page.locator("#effects .label").all_text_contents()


def test_a_table_is_searched_and_filtered(tab: Tab) -> None:
    tab.locator("#assumptions").get_by_label("Search").fill("h200 board")
    assert tab.locator("#assumptions .count").inner_text() == "3 of 12 rows"
    tab.locator("#assumptions").get_by_label("Kind").select_option("assumed")
    assert tab.locator("#assumptions .count").inner_text() == "0 of 12 rows"
    keep_screenshot(tab, "gallery-used")


@pytest.mark.parametrize("missing", [None, "empty"])
def test_drawings_cope_with_nothing(page: Tab, tmp_path: Path, missing: str | None) -> None:
    """All values missing, or no rows at all: a sentence or an empty drawing, never an error."""
    figures = []
    for section in gallery.gallery().sections:
        for figure in section.figures:
            tables = {name: emptied(columns, missing) for name, columns in figure.tables.items()}
            figures.append(replace(figure, columns=emptied(figure.columns, missing), tables=tables, missing=""))
    file = tmp_path / "page.html"
    file.write_text(write_html(Page("nothing", [], [], [Section("s", figures)])))
    show(page, file)
    assert page.locator("figure").count() == 15
    assert "could not be drawn" not in page.inner_text("main")


def emptied(columns: Columns, missing: str | None) -> Columns:
    values = {name: [] if missing else [None] * len(column.values) for name, column in columns.items()}
    return {name: Column(column.label, values[name], column.unit) for name, column in columns.items()}


def test_large_tables_are_drawn_at_once(page: Tab, tmp_path: Path) -> None:
    lanes, times = [f"stage {at % 16}" for at in range(50_000)], [0.01 * (at // 16) for at in range(50_000)]
    spans = gallery.columns(
        lane=("Stage", lanes),
        part=("Part", ["compute", "bubble"] * 25_000),
        start=("Start", times, "s"),
        end=("End", [time + 0.008 for time in times], "s"),
        detail=("Detail", [""] * 50_000),
    )
    line = Figure("spans", "timeline", "q", "m", {}, {}, tables={"spans": spans})
    figures = [line, gallery.bands(20_000), gallery.pareto(2_000), gallery.node_map(128)]
    file = tmp_path / "page.html"
    file.write_text(write_html(Page("large", [], [], [Section("s", figures)])))
    assert file.stat().st_size < 3e6
    show(page, file)
    took = page.evaluate("""() => [...document.querySelectorAll('.drawing')].map((one) => {
        const start = performance.now();
        charllm.draw[one.charllmFigure.kind](one, one.charllmFigure);
        return performance.now() - start;
    })""")
    assert max(took) < 1500
    page.locator("#spans").get_by_role("button", name="Table").click()
    assert page.locator("#spans .behind .count").inner_text() == "spans: 50,000 rows"
    assert page.locator("#heat .cell").count() == 1024
