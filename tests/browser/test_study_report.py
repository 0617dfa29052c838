"""The report of a study and of a comparison, opened in a browser."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator
from playwright.sync_api import Page as Tab

import charllm
from tests.api.tiny import MODEL
from tests.browser.conftest import keep_screenshot

STUDY = {
    "name": "small",
    "request": {"model": MODEL, "cluster": "h200x8", "training": {"global_batch_size": 16}},
    "groups": [
        {
            "axes": {
                "tp": {"field": "parallelism.tp", "values": [1, 2, 3, 4]},
                "mbs": {"field": "training.micro_batch_size", "values": [1, 2]},
            }
        }
    ],
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the report of a study, and of two of its runs."""
    folder = tmp_path_factory.mktemp("study")
    charllm.sweep(STUDY, out=folder / "study")
    study = charllm.report(folder / "study", out=folder / "study.html")
    runs = [folder / "study" / "runs" / f"000{number}" for number in (0, 2)]
    return study, charllm.report(runs, out=folder / "sides.html")


def axe_violations(tab: Tab) -> list[str]:
    found = Axe().run(tab).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def field(figure: Locator, name: str) -> Locator:
    return figure.locator("label", has_text=re.compile(f"^{name}")).locator("select")


def test_a_study_is_filtered_pinned_compared_and_unfolded(page: Tab, reports: tuple[Path, Path]) -> None:
    page.goto(reports[0].as_uri())
    assert page.inner_text("h1") == "Study small"
    # It opens with three sentences at most and one figure, which is seen without scrolling.
    assert "is fastest" in page.inner_text(".answer")
    assert page.locator(".answer p:not(.badge)").count() <= 3
    page.set_viewport_size({"width": 1280, "height": 800})
    first = page.locator("article figure").first
    box = first.locator(".drawing").bounding_box()
    assert box is not None
    assert box["y"] + min(box["height"], 200) < 800
    assert axe_violations(page) == []
    keep_screenshot(page, "study-opens")
    scatter = page.locator("#pareto")
    scatter.scroll_into_view_if_needed()
    points = scatter.locator("path.point")
    points.first.wait_for()
    assert points.count() == 6
    # A filter leaves the cases of one degree, and stays in the address.
    field(scatter, "tp").select_option("2")
    assert points.count() == 2
    assert "pareto.parallelism.tp=2" in page.url
    field(scatter, "tp").select_option("")
    # Any metric on an axis.
    field(scatter, "Horizontal axis").select_option("step_time_s")
    assert "Step time, s" in (scatter.locator(".chart svg").text_content() or "")
    # Two pinned cases show how their settings differ; by keyboard alone.
    chart = scatter.locator(".chart")
    chart.focus()
    for key in ("Home", "Enter", "End", "Enter"):
        page.keyboard.press(key)
    assert scatter.locator(".pin").count() == 2
    assert "Settings that differ" in scatter.locator(".pins .apart").inner_text()
    assert "charllm simulate" in scatter.locator(".pin").first.inner_text()
    # A case in small is drawn when it is opened, not before.
    folded = page.locator("details.folded").first
    assert folded.locator("svg").count() == 0
    folded.locator("summary").click()
    folded.locator(".drawing svg").first.wait_for()
    # Those below the screen too, for who prints or searches the page.
    folded.locator("figure[id$=-links] .drawing svg").first.wait_for()
    assert (
        "does not divide" in page.locator("#rejected").inner_text()
        or "expected" in page.locator("#rejected").inner_text()
    )
    assert axe_violations(page) == []
    keep_screenshot(page, "study-light")


def test_both_reports_fit_a_narrow_screen_in_the_dark(page: Tab, reports: tuple[Path, Path]) -> None:
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    for report in reports:
        page.goto(report.as_uri())
        page.locator(".drawing svg").nth(2).wait_for(state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        keep_screenshot(page, f"{report.stem}-dark-390")


def test_a_comparison_opens_with_who_is_faster(page: Tab, reports: tuple[Path, Path]) -> None:
    page.goto(reports[1].as_uri())
    assert page.inner_text("h1") == "tp 1 / mbs 1 against tp 2 / mbs 1"
    assert re.search(r"tp 2 / mbs 1 is [\d.]+ (%|times) (faster|slower) than tp 1 / mbs 1", page.inner_text(".lead"))
    page.locator("#sides svg path.point").first.wait_for()
    assert page.locator("#settings tbody tr").count() >= 1
    assert axe_violations(page) == []
    keep_screenshot(page, "comparison-light")
