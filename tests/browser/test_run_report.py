"""Reports of real runs, opened in a browser from a file: simulated, measured, and one that does not fit."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page as Tab

import charllm
from charllm.api.report import page_of, write_page
from tests.browser.conftest import DRAWN, await_true, keep_screenshot
from tests.measure.replayed import CAPTURE


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a report of each kind of run once."""
    place = tmp_path_factory.mktemp("reports")
    shutil.copytree(CAPTURE, place / "measured")
    weak: dict[str, Any] = {"conditions.weak_gpus": [9], "conditions.weak_power_fraction": 1.5}
    charllm.simulate(
        model="llama3-8b", cluster="charllm-ppt-h200", tp=2, pp=2, gbs=64, report=place / "simulated.html", **weak
    )
    charllm.simulate(model="gpt3-175b", cluster="charllm-ppt-h200", pp=32, report=place / "misfit.html")
    write_page(page_of(place / "measured"), place / "measured.html")
    return {name: place / f"{name}.html" for name in ("simulated", "measured", "misfit")}


def open_report(tab: Tab, file: Path) -> None:
    """Open a report, print how long that takes, and let every figure be drawn."""
    begun_s = time.perf_counter()
    tab.goto(file.as_uri())
    tab.wait_for_selector("h1")
    print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB, open in {time.perf_counter() - begun_s:.2f} s")
    height = tab.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 800):
        tab.evaluate(f"window.scrollTo(0, {top})")
        tab.wait_for_timeout(30)
    tab.evaluate("window.scrollTo(0, 0)")
    await_true(tab, DRAWN)


def drawn(tab: Tab) -> dict[str, bool]:
    """Tell of each figure whether something is drawn in it."""
    found: dict[str, bool] = tab.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("figure[id]")].map((one) =>
            [one.id, Boolean(one.querySelector(".drawing svg, .drawing canvas, .drawing table"))]))"""
    )
    return found


def test_the_report_of_a_simulation_draws_every_figure(page: Tab, reports: dict[str, Path]) -> None:
    open_report(page, reports["simulated"])
    assert page.inner_text("h1") == "llama3-8b on charllm-ppt-h200"
    assert "s a step" in page.locator(".answer p").nth(1).inner_text()
    assert page.locator(".facts li").count() == 6
    found = drawn(page)
    assert {"seconds", "when", "heat", "clock", "throttled", "energy", "memory"} <= set(found)
    assert all(found.values()), found
    assert Axe().run(page).violations_count == 0
    keep_screenshot(page, "run-simulated-light")


def test_a_fact_leads_to_its_figure_and_the_table_behind_it_opens(page: Tab, reports: dict[str, Path]) -> None:
    open_report(page, reports["simulated"])
    page.locator(".facts a", has_text="Peak temperature").click()
    figure = page.locator("figure#heat")
    assert figure.is_visible()
    assert page.evaluate("document.getElementById('heat').getBoundingClientRect().top") < 450
    figure.get_by_role("button", name="Table").click()
    assert "Mean temperature above inlet" in figure.inner_text()


def test_the_report_of_a_measured_run_shows_its_steps_in_dark_too(page: Tab, reports: dict[str, Path]) -> None:
    page.emulate_media(color_scheme="dark")
    open_report(page, reports["measured"])
    found = drawn(page)
    assert {name for name, there in found.items() if there} >= {
        "seconds",
        "when",
        "steps",
        "heat",
        "throttled",
        "energy",
        "memory",
    }
    assert "as the host has marked its phases" in page.locator("figure#seconds").inner_text()
    keep_screenshot(page, "run-measured-dark")


def test_the_report_of_a_run_that_does_not_fit_begins_with_its_memory(page: Tab, reports: dict[str, Path]) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_report(page, reports["misfit"])
    assert page.locator("figure").first.get_attribute("id") == "memory"
    assert "it fits" in page.locator(".answer").inner_text()
    assert all(drawn(page).values())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep_screenshot(page, "run-misfit-narrow")
