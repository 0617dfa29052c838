"""Progress bars as tqdm draws them: ``Epoch 0:  3%|# | 90/3015 [1:42:42<55:37, 1.2s/it, loss=7.0]``."""

import re
from typing import NamedTuple

BAR = re.compile(
    r"(?<!\d)(?P<done>\d{1,15})/(?:\d{1,15}|\?|inf)\s{0,9}"
    r"\[(?P<elapsed>(?:\d{1,9}:)?\d{1,9}:\d\d)(?:<[^,\]]+)?(?P<postfix>[^\]]*)"
)
PERCENT = re.compile(r"(?<!\d)\d{1,3}%\|")
"""Ends the title of a bar."""
RATE = re.compile(r"(?P<rate>\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s?(?P<unit>s/it|it/s)")


class Bar(NamedTuple):
    """One state of a progress bar."""

    title: str
    done: int
    elapsed_s: float
    seconds: float | None
    """Of one step, as the bar has smoothed it."""
    postfix: str


def find_bar(text: str) -> Bar | None:
    """Return the bar that a line holds."""
    if "[" not in text or "/" not in text:
        return None
    found = BAR.search(text)
    if found is None:
        return None
    elapsed_s = 0.0
    for part in found["elapsed"].split(":"):
        elapsed_s = elapsed_s * 60 + int(part)
    rate = RATE.search(found["postfix"])
    seconds = None
    if rate and float(rate["rate"]):
        seconds = float(rate["rate"]) if rate["unit"] == "s/it" else 1 / float(rate["rate"])
    drawn = PERCENT.search(text, 0, found.start())
    title = re.split(r"[|%]", text[: drawn.start()])[-1].rstrip() if drawn else ""
    return Bar(title, int(found["done"]), elapsed_s, seconds, found["postfix"])
