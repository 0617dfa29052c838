"""SVG files as PNG, by a browser of the Chromium family where there is one."""

import re
import shutil
import subprocess
from pathlib import Path

from charllm.errors import CharllmError, SpecError, Words

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONGEST_S = 60.0


def find_browser(flag: str) -> str:
    """Return the path of a browser; `flag` has asked for it."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SpecError(flag, Words("no browser"), f"one of these on the PATH: {', '.join(BROWSERS)}")
    return found


def write_png(svg: Path, browser: str) -> Path:
    """Draw an SVG file as a PNG file beside it, at twice its size, and return its path."""
    size = re.search(r'width="(\d+)" height="(\d+)"', svg.read_text(encoding="utf-8"))
    if size is None:
        raise CharllmError(f"{svg}: an SVG file without a size")
    picture = svg.with_suffix(".png")
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--force-device-scale-factor=2", f"--window-size={size[1]},{size[2]}", f"--screenshot={picture}",
             svg.resolve().as_uri()]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if done.returncode or not picture.exists():
        raise CharllmError(f"{browser} could not draw {svg}: {done.stderr.strip()[-200:]}")
    return picture
