"""A real browser: Chromium, driven by Playwright; a page that logs an error or asks the network fails its test."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS = Path(os.environ.get("CHARLLM_SCREENSHOTS", "screenshots"))
"""Where pictures of pages are kept, as an output of the tests."""
DRAW_OPEN = """() => {
  for (const one of window.charllm ? document.querySelectorAll(".drawing") : [])
    if (one.charllmFigure && !charllm.figure.isFolded(one)) charllm.figure.draw(one);
  window.scrollTo(0, 0);
}"""
LOCAL = ("file:", "data:", "blob:", "http://127.0.0.1")
LONG_MS = 120_000
"""Nothing that a page is waited for takes so long, however busy the machine is."""

expect.set_options(timeout=LONG_MS)


DRAWN = """[...document.querySelectorAll(".drawing")].every((one) =>
  !one.charllmFigure || one.charllmDrawn || charllm.figure.isFolded(one))"""


def await_true(tab: Page, expression: str) -> None:
    """Wait for what is true in a page; its policy keeps Playwright from doing this inside."""
    end_s = time.monotonic() + LONG_MS / 1000
    while not tab.evaluate(expression):
        assert time.monotonic() < end_s, expression
        tab.wait_for_timeout(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright leaves an event loop running: tests of other modules in this process could not start their own.
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield opened
        opened.close()


@contextmanager
def open_tab(browser: Browser, **settings: Any) -> Iterator[Page]:
    """Open a fresh tab that must close without an error in its console and without a foreign request."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    tab = context.new_page()
    tab.set_default_timeout(LONG_MS)
    errors: list[str] = []

    def note_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            errors.append(f"{message.type}: {message.text}")

    def note_request(request: Request) -> None:
        if not request.url.startswith(LOCAL):
            errors.append(f"asked the network for {request.url}")

    def note_dialog(dialog: Dialog) -> None:
        errors.append(f"opened a dialog: {dialog.message}")
        dialog.dismiss()

    tab.on("console", note_message)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", note_request)
    tab.on("dialog", note_dialog)
    yield tab
    context.close()
    assert errors == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh tab, 1280 wide."""
    with open_tab(browser) as tab:
        yield tab


def keep_screenshot(tab: Page, name: str) -> None:
    """Keep a picture of the whole page beside the tests' other output: from its top, every open figure drawn."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    tab.evaluate(DRAW_OPEN)
    tab.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
