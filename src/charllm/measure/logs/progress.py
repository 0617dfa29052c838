"""Progress bars as tqdm draws them, ``Epoch 0:  3%|# | 90/3015 [1:42:42<55:37, 1.2s/it, loss=7.0]``, and as Lightning
draws them with rich, ``Epoch 0/2 ━━━╸━━ 90/3015 1:42:42 • 55:37:00 0.83it/s loss: 7.0``.
"""

import re
from typing import NamedTuple

from charllm.units import whole_number

BAR = re.compile(
    r"(?<!\d)(?P<done>\d{1,15})/(?P<total>\d{1,15}|\?|inf)\s{0,9}"
    r"\[(?P<elapsed>(?:\d{1,9}:)?\d{1,9}:\d\d)(?:<[^,\]]+)?(?P<postfix>[^\]]*)"
)
RICH_BAR = re.compile(
    r"(?P<title>[^━╸╺]{0,100})[━╸╺][━╸╺ ]{0,400}+(?P<done>\d{1,15})/(?P<total>\d{1,15}|--?|inf)\s{1,9}"
    r"(?P<elapsed>(?:\d{1,9}:)?\d{1,9}:\d\d) •\s{0,20}(?:[\d:]+ |-:--:-- )?(?P<postfix>.*)"
)
PERCENT = re.compile(r"(?<!\d)\d{1,3}%\|")
"""Ends the title of a bar."""
RATE = re.compile(r"(?<!\d)(?P<rate>\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,2})?)\s?(?P<unit>s/it|it/s)")


PARTS_OF_TIME = re.compile(r"(\d{1,9})\s?(days?|[dhms:]|$)")
SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


class Bar(NamedTuple):
    """One state of a progress bar."""

    title: str
    done: int
    elapsed_s: float
    seconds: float | None
    """Of one step, as the bar has smoothed it."""
    postfix: str
    total: int | None
    """Steps of a full bar."""


def find_bar(text: str) -> Bar | None:
    """Return the bar that a line holds."""
    if "/" not in text:
        return None
    rich = RICH_BAR.search(text) if "•" in text else None
    found = rich or (BAR.search(text) if "[" in text else None)
    if found is None:
        return None
    elapsed_s = read_elapsed_s(found["elapsed"]) or 0.0
    rate = RATE.search(found["postfix"])
    seconds = None
    if rate and float(rate["rate"]):
        seconds = float(rate["rate"]) if rate["unit"] == "s/it" else 1 / float(rate["rate"])
    done, total = int(found["done"]), whole_number(found["total"])
    if rich:
        return Bar(rich["title"].strip(), done, elapsed_s, seconds, found["postfix"], total)
    drawn = PERCENT.search(text, 0, found.start())
    title = re.split(r"[|%]", text[: drawn.start()])[-1].rstrip() if drawn else ""
    return Bar(title, done, elapsed_s, seconds, found["postfix"], total)


def read_elapsed_s(text: object) -> float | None:
    """Read ``1:02:03``, ``1 day, 0:02:03`` or ``1h 2m 3s``; None for what is no time."""
    if not isinstance(text, str):
        return None
    total_s, clock = 0.0, None
    for number, unit in PARTS_OF_TIME.findall(text):
        if unit in (":", ""):
            clock = (clock or 0) * 60 + int(number)
        else:
            total_s += int(number) * SECONDS[unit[0]]
            clock = clock or 0
    return None if clock is None else total_s + clock
