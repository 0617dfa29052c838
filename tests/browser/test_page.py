"""A page as HTML, opened in a browser from a file: what stands around its figures."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from playwright.sync_api import Page as Tab

from charllm.report.figure import Column, Figure, Page, Section
from charllm.report.web.html import write_html
from tests.browser.conftest import keep_screenshot, open_tab
from tests.browser.gallery import HOSTILE, assumptions, gallery

DRAWN = "[...document.querySelectorAll('.drawing')].every((one) => one.charllmDrawn)"
PAPER = "getComputedStyle(document.body).backgroundColor"
WHITE, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 27)"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with every kind of figure."""
    path = tmp_path_factory.mktemp("page") / "gallery.html"
    path.write_text(write_html(gallery()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(browser: Browser, file: Path) -> Iterator[Tab]:
    """That page, opened once and drawn to its end."""
    with open_tab(browser) as opened:
        show(opened, file)
        yield opened


def show(tab: Tab, file: Path, address: str = "") -> None:
    """Open a page and wait until every figure is drawn."""
    tab.goto(file.as_uri() + address)
    deadline_s = monotonic() + 120
    while not tab.evaluate(DRAWN):
        assert monotonic() < deadline_s, "some figures are never drawn"
        tab.wait_for_timeout(20)


def test_names_with_markup_are_shown_and_not_run(page: Tab, tmp_path: Path) -> None:
    table = Figure("names", "table", HOSTILE, HOSTILE, {"a": Column(HOSTILE, [HOSTILE, 1, None])})
    file = tmp_path / "page.html"
    file.write_text(write_html(Page(HOSTILE, [HOSTILE], [], [Section(HOSTILE, [table])])))
    page.goto(file.as_uri())
    assert page.inner_text("h1") == HOSTILE
    assert page.locator("td").first.inner_text() == HOSTILE
    assert page.locator("img").count() == 0


def test_the_answer_comes_first_with_its_facts_warnings_and_origin(tab: Tab) -> None:
    assert tab.inner_text(".badge") == "simulated"
    assert tab.locator(".badge svg path").count() == 1
    assert tab.inner_text(".lead").startswith("31.7 s a step")
    facts = tab.locator(".facts li").all_inner_texts()
    assert len(facts) == 6
    assert facts[3].split("\n") == ["Peak temperature", "71 °C", "67 to 75 °C", "behind slot 3: 8 K are preheated air"]
    assert "Preheating of rear GPUs is assumed" in tab.inner_text(".warnings")
    assert "3f2a9c01" in tab.inner_text(".provenance")
    assert "14 entries\nassumed: preheating, fan power" in tab.inner_text(".provenance")
    assert tab.inner_text("#sensor .missing") == "No sensor data: the run was simulated."
    assert tab.locator("figure").count() == tab.locator("nav.contents li li").count() == 15


def test_a_fact_leads_to_its_figure_and_the_address_says_so(tab: Tab) -> None:
    tab.locator(".facts a", has_text="Peak temperature").click()
    assert tab.evaluate("document.activeElement.id") == "heat-title"
    assert tab.evaluate("location.hash") == "#at=heat"
    assert 0 <= tab.locator("#heat-title").evaluate("(one) => one.getBoundingClientRect().top") < 200
    link = tab.locator("nav.contents a", has_text="Are the links used well?")
    link.focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "links-title"
    tab.evaluate("history.replaceState(null, '', location.pathname)")


def test_every_figure_says_in_words_what_it_shows(tab: Tab) -> None:
    for figure in tab.locator("figure:has(.chart)").all():
        message = figure.locator(".message").inner_text()
        assert message in figure.locator("[role=img]").first.get_attribute("aria-label")  # type: ignore[operator]
        assert figure.locator(".chart").first.get_attribute("tabindex") == "0"


def test_the_table_behind_a_figure_opens_whole_and_can_be_sorted(tab: Tab) -> None:
    button = tab.locator("#changes").get_by_role("button", name="Table")
    button.focus()
    tab.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    table = tab.locator("#changes table")
    assert table.locator("tbody tr").count() == 7
    assert table.locator("td").nth(1).inner_text() == "0.076"
    table.get_by_role("button", name="Change of throughput").click()
    assert table.locator("tbody tr").first.locator("td").nth(0).inner_text() == "recompute everything"
    assert table.locator("tbody tr").last.locator("td").nth(1).inner_text() == "\N{EN DASH}"
    button.click()
    assert not table.is_visible()


def test_the_csv_of_a_figure_holds_exactly_its_table(tab: Tab) -> None:
    with tab.expect_download() as download:
        tab.locator("#assumptions").get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename == "assumptions.csv"
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    columns = assumptions().columns
    assert rows[0] == [column.label for column in columns.values()]
    assert rows[1:] == [
        [str(value) for value in row] for row in zip(*(c.values for c in columns.values()), strict=True)
    ]
    with tab.expect_download() as download:
        tab.locator("#timeline").get_by_role("button", name="CSV of signals").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0] == '"GPU","Time, s","Power, W","Clock, MHz","Temperature, °C"'.replace('"GPU"', "GPU")
    assert len(lines) == 1 + 3 * 600
    assert lines[2].startswith('"node 0, slot 1",0.05292154,')


def test_the_theme_switches_is_remembered_and_redraws(browser: Browser, file: Path) -> None:
    with open_tab(browser) as tab:
        show(tab, file)
        assert tab.evaluate(PAPER) == WHITE
        tab.get_by_role("button", name="Dark theme").click()
        assert tab.evaluate(PAPER) == DARK
        assert tab.evaluate("charllm.colour('ink')") == "rgb(232, 235, 238)"
        keep_screenshot(tab, "gallery-dark")
        assert no_violations(tab)
        tab.reload()
        assert tab.evaluate(PAPER) == DARK
        tab.get_by_role("button", name="Light theme").click()
        assert tab.evaluate(PAPER) == WHITE


def test_without_a_choice_the_theme_is_the_systems_and_paper_is_light(browser: Browser, file: Path) -> None:
    with open_tab(browser, color_scheme="dark") as tab:
        tab.goto(file.as_uri())
        assert tab.evaluate(PAPER) == DARK
        tab.emulate_media(media="print", color_scheme="dark")
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert tab.evaluate(DRAWN), "all figures are drawn before printing"
        assert tab.evaluate(PAPER) == WHITE
        assert tab.evaluate("charllm.colour('paper')") == WHITE
        assert not any(one.is_visible() for one in tab.locator("button:not(.sort), select, nav").all())
        assert tab.evaluate("document.querySelector('#seconds svg[role=img]').clientWidth") == 680
        assert tab.evaluate("getComputedStyle(document.querySelector('#seconds')).breakInside") == "avoid"
        keep_screenshot(tab, "gallery-print")
        tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
        tab.emulate_media(media="screen", color_scheme="dark")
        assert tab.evaluate(PAPER) == DARK


def test_labels_and_contrast_hold(tab: Tab) -> None:
    tab.locator("#seconds").get_by_role("button", name="Table").click()
    assert no_violations(tab)
    keep_screenshot(tab, "gallery-light")


def no_violations(tab: Tab) -> bool:
    found: list[dict[str, Any]] = Axe().run(tab).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
    return True


def test_a_phone_shows_everything_without_scrolling_sideways(browser: Browser, file: Path) -> None:
    with open_tab(browser, viewport={"width": 390, "height": 844}) as tab:
        show(tab, file, "#pareto")
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        tab.wait_for_selector("#pareto-title:focus")
        wide = "[...document.querySelectorAll('svg[role=img], canvas')].filter((one) => one.clientWidth > 358).length"
        assert tab.evaluate(wide) == 0
        keep_screenshot(tab, "gallery-390")


def test_figures_are_drawn_after_the_page_is_there(page: Tab, tmp_path: Path) -> None:
    figures = [Figure(f"n{at}", "stacked-bars", "q", "m", BARS, OPTIONS) for at in range(30)]
    file = tmp_path / "page.html"
    file.write_text(write_html(Page("many", [], [], [Section("all", figures)])))
    show(page, file)
    assert page.locator("#n29 rect.piece").count() == 128
    again = "charllm.page.show(root, JSON.parse(document.getElementById('page-data').textContent))"
    drawn = "[...document.querySelectorAll('.drawing')].filter((one) => one.charllmDrawn).length"
    assert page.evaluate(f"(() => {{ const root = document.getElementById('page'); {again}; return {drawn}; }})()") == 0
    page.wait_for_selector("#n0 rect.piece")


BARS = {
    "bar": Column("Rank", [f"rank {at // 4}" for at in range(128)]),
    "part": Column("Part", ["compute", "tp_exposed", "bubble", "overhead"] * 32),
    "value": Column("Time", [1.0 + at % 7 for at in range(128)], "s"),
}
OPTIONS = {"bar": "bar", "part": "part", "value": "value", "palette": "part"}
