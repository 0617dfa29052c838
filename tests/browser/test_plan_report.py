"""The report of a plan, opened in a browser from a file: limits as sliders, the front, copying."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as Tab

from charllm.api.report import page_of, write_page
from tests.browser.conftest import await_true, keep_screenshot, open_tab
from tests.report.page.plans import HOSTILE, plan_table


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    (folder / "plan.json").write_text(json.dumps(plan_table()))
    return write_page(page_of(folder), folder / "plan.html")


@pytest.fixture
def tab(browser: Browser, file: Path) -> Iterator[Tab]:
    with open_tab(browser, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.goto(file.as_uri())
        opened.locator("#front path.point").first.wait_for()
        yield opened


def test_a_moved_slider_leaves_strategies_out_and_finds_the_front_and_the_best_again(tab: Tab) -> None:
    front = tab.locator("#front")
    said, slider = front.locator(".count"), front.get_by_label("Peak memory of the worst rank, GiB, at most")
    assert slider.get_attribute("aria-valuetext") == "130 GiB"
    assert "5 of 6 points; best: 1: tp 4 x pp 4 x dp 2 (34,000 tokens/s)" in said.inner_text()
    slider.press("End")
    assert "6 of 6 points; best: tp 1 x pp 8 x dp 4 (36,000 tokens/s)" in said.inner_text()
    assert front.locator("circle.ring").count() == 1
    assert front.locator("path.front").count() == 0, "one strategy is best in both"
    slider.fill("110")
    assert "best: 2: tp 4 x pp 8" in said.inner_text()
    assert "front.memory_peak_bytes.limit=110" in tab.url
    slider.press("Home")
    assert "none keeps these limits" in said.inner_text()


def test_a_strategy_is_pinned_with_its_settings_by_keyboard(tab: Tab) -> None:
    front = tab.locator("#front")
    front.locator(".chart").focus()
    for key in ("Home", "Enter", "End", "Enter"):
        tab.keyboard.press(key)
    assert front.locator(".pin").count() == 2
    assert "charllm simulate --model llama3-70b" in front.locator(".pin").first.inner_text()
    assert "Settings that differ" in front.locator(".apart").inner_text()


def test_commands_are_copied_and_reasons_are_shown_not_run(tab: Tab) -> None:
    tab.get_by_role("button", name="Copy: Settings to change for megatron").click()
    expect(tab.locator("#commands").get_by_text("Copied.")).to_be_visible()
    assert tab.evaluate("navigator.clipboard.readText()") == "--tensor-model-parallel-size 4 --overlap-grad-reduce"
    assert HOSTILE in tab.inner_text("#reasons")
    keep_screenshot(tab, "plan-light")


def test_the_plan_is_readable_on_a_phone_in_the_dark(tab: Tab) -> None:
    tab.emulate_media(color_scheme="dark")
    tab.set_viewport_size({"width": 390, "height": 844})
    await_true(tab, "document.documentElement.scrollWidth === 390")
    assert Axe().run(tab).violations_count == 0
    keep_screenshot(tab, "plan-dark-390")
