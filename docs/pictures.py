"""Make the pictures of the documents from real reports, in Chromium: ``python docs/pictures.py``.

`report.png` is the first screen of a run's report with two of its figures; figures of the reports of a run, of two
runs, of a study and of a plan are pictures of their own, named after them; `explorer.png` is the explorer after one
change.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

import charllm

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
CHROMIUM = "/usr/bin/chromium"
RUN = {"model": "llama3-70b", "cluster": "h200x32", "tp": 4, "pp": 4, "gbs": 128}
"""The run of README and of the five-minute start."""
STUDY = HERE.parent / "examples" / "study.toml"
FIRST_SCREEN = ("seconds", "heat")
WIDTH, HEIGHT = 800, 900
WIDE = 1660
SETTLED_MS = 600
"""Time that a page needs to be drawn again after its width has changed."""
FIGURE_STYLE = """
    figure { padding: 0.5rem 1rem !important; }
    figcaption, figure .tools, figure .controls:not(.sliders), figure .zoom { display: none !important; }
"""
FIRST_SCREEN_STYLE = """
    main, main:has(> nav.contents) { display: block; max-width: none; padding: 0 1.5rem 1.5rem; }
    article.page { display: grid; grid-template-columns: 6fr 7fr; gap: 1rem 3rem; }
    .facts { grid-template-columns: 1fr 1fr; align-self: end; }
    figure { min-width: 0; margin: 0; }
    nav.contents, .conditions, figure .tools, .provenance { display: none; }
"""


def main() -> None:
    """Write every picture."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        for prefix, what, figures in reported(Path(folder)):
            report = charllm.report(what, out=Path(folder) / f"{prefix}.html")
            draw_figures(tab, report, prefix, figures)
        draw_first_screen(tab, Path(folder) / "run.html")
        draw_explorer(tab)
        browser.close()


def reported(folder: Path) -> Iterator[tuple[str, Any, Sequence[str] | None]]:
    """Yield what is reported, and the figures to take from each report; None: all that are drawn."""
    run = charllm.simulate(**RUN)
    yield "run", run, None
    run.save(folder / "first")
    charllm.simulate(run, overlap=["tp", "dp", "pp"], out=folder / "second")
    yield "runs", [folder / "first", folder / "second"], ("sides",)
    charllm.sweep(str(STUDY), out=folder / "study")
    yield "study", folder / "study", ("strategies", "pareto")
    plan = charllm.plan(run, limit=["memory_peak_gib<130", "temperature_peak_c<71"], cp=1, mbs=1, sensitivity=True)
    yield "plan", plan, ("front", "shortlist", "sensitivity")


def open_report(tab: Page, report: Path) -> None:
    """Open a report and wait until it is drawn."""
    tab.goto(report.as_uri())
    tab.wait_for_selector("figure svg, figure canvas, figure table")
    tab.wait_for_timeout(SETTLED_MS)


def draw_figures(tab: Page, report: Path, prefix: str, figures: Sequence[str] | None) -> None:
    """Take pictures of figures without what can be pressed and without their caption."""
    open_report(tab, report)
    tab.add_style_tag(content=FIGURE_STYLE)
    for figure in tab.query_selector_all("figure[id]"):
        name = str(figure.get_attribute("id"))
        if figure.query_selector("svg, canvas") and (figures is None or name in figures):
            figure.screenshot(path=PICTURES / f"{prefix}-{name}.png")


def draw_first_screen(tab: Page, report: Path) -> None:
    """Take a picture of the answer, its numbers and, side by side, the two figures that explain most of them."""
    tab.set_viewport_size({"width": WIDE, "height": HEIGHT})
    open_report(tab, report)
    tab.add_style_tag(content=FIRST_SCREEN_STYLE)
    tab.evaluate(
        """(kept) => {
            const figures = kept.map((name) => document.getElementById(name));
            for (const section of document.querySelectorAll("article.page > section")) section.remove();
            document.querySelector("article.page").append(...figures);
            window.dispatchEvent(new Event("resize"));
        }""",
        list(FIRST_SCREEN),
    )
    tab.wait_for_timeout(SETTLED_MS)
    tab.locator("main").screenshot(path=PICTURES / "report.png")


def draw_explorer(tab: Page) -> None:
    """Take a picture of the explorer after one change: a lower power limit."""
    address = "#explore?" + "&".join(f"{word}={value}" for word, value in RUN.items())
    command = [sys.executable, "-m", "charllm", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            found = re.search(r"http://\S+", server.stdout.readline() if server.stdout else "")
            assert found, "the explorer printed no address"
            tab.set_viewport_size({"width": 1280, "height": HEIGHT})
            for change in ("", "&power_cap=500"):
                tab.goto(f"{found[0]}{address}{change}")
                tab.wait_for_selector(".result-head[data-state=coupled]")
                tab.wait_for_timeout(SETTLED_MS)
            tab.screenshot(path=PICTURES / "explorer.png")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
