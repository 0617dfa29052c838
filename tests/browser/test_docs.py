"""The documentation's site: built without a warning, opened from files, without a request to the network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page as Tab

from tests.browser.conftest import keep_screenshot

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def violations(tab: Tab) -> list[str]:
    """List what axe finds wrong with labels, structure and contrast."""
    # Preloading would fetch the style sheets, which a page opened from a file may not.
    found = Axe().run(tab, options={"preload": False}).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    assert {page.name: found for page in pages if (found := FOREIGN.findall(page.read_text()))} == {}


def test_pages_open_from_files_with_search_and_dark_mode(site: Path, page: Tab) -> None:
    page.goto((site / "index.html").as_uri())
    assert page.inner_text("h1") == "charllm"
    assert violations(page) == []
    page.keyboard.press("/")
    page.keyboard.type("temperature of the air that enters")
    page.wait_for_selector("#found a")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('h1').textContent !== 'charllm'")
    assert "temperature of the air" in page.inner_text("main")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("nav a:text-is('Five-minute start')")
    assert page.inner_text("h1") == "Five-minute start"
    assert violations(page) == []
    keep_screenshot(page, "docs-start-dark")


def test_a_narrow_screen_shows_the_page_and_not_the_list(site: Path, page: Tab) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto((site / "reference" / "commands.html").as_uri())
    assert not page.is_visible("nav a >> nth=0")
    page.click("summary")
    assert page.is_visible("nav a >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep_screenshot(page, "docs-commands-narrow")
