"""Cells of foreign files: numbers with units, words for a missing value, and times."""

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from charllm.measure.telemetry.source import Reading
from charllm.units import GIB, GIGA, KIB, KILO, MEGA, MIB, MICRO, MILLI, NANO

NUMBER = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*$")
UNITS: dict[str, tuple[str, float]] = {
    "w": ("w", 1.0), "watt": ("w", 1.0), "watts": ("w", 1.0), "kw": ("w", KILO), "milliwatts": ("w", MILLI),
    "uw": ("w", MICRO), "microwatts": ("w", MICRO),
    "c": ("c", 1.0), "°c": ("c", 1.0), "degc": ("c", 1.0), "deg_c": ("c", 1.0), "celsius": ("c", 1.0),
    "'c": ("c", 1.0), "degree c": ("c", 1.0), "degrees c": ("c", 1.0),
    "hz": ("hz", 1.0), "khz": ("hz", KILO), "mhz": ("hz", MEGA), "ghz": ("hz", GIGA),
    "%": ("fraction", 0.01), "percent": ("fraction", 0.01), "pct": ("fraction", 0.01), "perc": ("fraction", 0.01),
    "ratio": ("fraction", 1.0), "fraction": ("fraction", 1.0),
    "b": ("bytes", 1.0), "byte": ("bytes", 1.0), "bytes": ("bytes", 1.0), "kb": ("bytes", KILO), "mb": ("bytes", MEGA),
    "gb": ("bytes", GIGA), "kib": ("bytes", KIB), "mib": ("bytes", MIB), "gib": ("bytes", GIB),
    "j": ("j", 1.0), "joule": ("j", 1.0), "joules": ("j", 1.0), "kj": ("j", KILO), "millijoules": ("j", MILLI),
    "uj": ("j", MICRO), "wh": ("j", 3600.0), "kwh": ("j", 3.6e6),
    "s": ("s", 1.0), "sec": ("s", 1.0), "secs": ("s", 1.0), "seconds": ("s", 1.0), "ms": ("s", MILLI),
    "us": ("s", MICRO), "ns": ("s", NANO), "minutes": ("s", 60.0), "hours": ("s", 3600.0), "k": ("k", 1.0),
}  # fmt: skip
"""A unit in small letters: the SI unit it is of, and the factor to it."""
CASED = {"mW": ("w", MILLI), "MW": ("w", MEGA), "mJ": ("j", MILLI), "MJ": ("j", MEGA)}
"""Units whose first letter's case matters; in a name of small letters m is milli."""

ABSENT = {
    "": "not_recorded", "-": "not_recorded", "--": "not_recorded", "n/a": "not_supported", "na": "not_supported",
    "nan": "not_finite", "+nan": "not_finite", "-nan": "not_finite", "inf": "not_finite", "+inf": "not_finite",
    "-inf": "not_finite", "null": "not_recorded", "none": "not_recorded", "not supported": "not_supported",
    "not available": "not_supported", "requested functionality has been deprecated": "not_supported",
    "unknown error": "error", "err!": "error", "error": "error", "unknown": "error",
    "insufficient permissions": "no_permission", "no permission": "no_permission", "gpu is lost": "lost",
    "gpu requires reset": "lost", "not found": "lost", "function not found": "not_supported",
}  # fmt: skip
"""What tools write where they have no number, without brackets: why."""
SENTINELS = (2.0**47, 2.0**31 - 16)
"""DCGM's first blank, as a real number and as a 32-bit whole one; those of 64 bits all read as LARGEST."""
BLANKS = ("not_recorded", "lost", "not_supported", "no_permission")
"""Reason of each blank, in order; there are 16 of them."""
LARGEST = 2.0**63
YES, NO = ("active", "yes", "true", "1", "on"), ("not active", "no", "false", "0", "off")


def read_number(text: str) -> tuple[Reading, str]:
    """Read a cell: its number and unit, or why it has none."""
    cell = text.strip().strip('"()')
    match = NUMBER.match(cell)
    if match is None:
        bare = cell.strip("[]<>() ").lower()
        if bare.startswith("0x"):
            try:
                return float(int(bare, 16)), ""
            except ValueError:
                return "error", ""
        return ABSENT.get(bare, "error"), ""
    value = float(match[1])
    return (value, match[2]) if math.isfinite(value) else ("not_finite", "")


def is_absent(text: str) -> bool:
    """Tell whether a cell is one of the words for a missing value."""
    return text.strip().strip('"').strip("[]<>() ").lower() in ABSENT


def without_blanks(value: float) -> Reading:
    """Return a number of DCGM, or why it is a blank."""
    for first in SENTINELS:
        if first <= value < first + 16:
            return BLANKS[min(int(value - first), len(BLANKS) - 1)]
    return "not_supported" if value >= LARGEST else value


def read_flag(text: str) -> Reading:
    """Read ``Active`` and ``Not Active``, or 1 and 0."""
    word = text.strip().strip('"[]').lower()
    if word in YES:
        return 1.0
    if word in NO:
        return 0.0
    return read_number(text)[0]


@lru_cache(maxsize=1024)
def unit_factor(unit: str) -> tuple[str, float] | None:
    """Return the SI unit of a written unit and the factor to it; None where it is not known."""
    bare = unit.strip().strip("[]()").strip()
    return CASED.get(bare) or UNITS.get(bare.lower()) or ({"mw": CASED["mW"], "mj": CASED["mJ"]}.get(bare.lower()))


class Moment(NamedTuple):
    """A time, and the clock it is on (a key of foreign.CLOCKS)."""

    seconds: float
    clock: str


FORMATS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y%m%d %H:%M:%S", "%m/%d/%Y %H:%M:%S",
           "%m/%d/%Y %H:%M:%S.%f", "%d-%m-%Y %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%a %d %b %Y %I:%M:%S %p %Z",
           "%a %b %d %H:%M:%S %Z %Y", "%m/%d/%Y %I:%M:%S %p", "%Y-%m-%d_%H:%M:%S", "%Y%m%d_%H%M%S",
           "%Y-%m-%d-%H:%M:%S", "%Y-%m-%d %H-%M-%S", "%Y-%m-%d_%H-%M-%S", "%Y/%m/%d-%H:%M:%S")  # fmt: skip
CLOCK_ONLY = re.compile(r"^(\d{1,2}):(\d\d):(\d\d(?:\.\d+)?)$")
EPOCHS = ((1e8, 1e10, 1.0), (1e11, 1e13, MILLI), (1e14, 1e16, MICRO), (1e17, 1e19, NANO))
"""From, to: the factor to seconds since 1970."""


@lru_cache(maxsize=65536)
def read_moment(text: str, unit_s: float = 0.0) -> Moment | None:
    """Read a time: since 1970, of the calendar, of the day, or since the beginning; None for anything else.

    `unit_s` is the length of what a column counts, where its name says so.
    """
    cell = " ".join(text.strip().strip("\"'[]").split())
    try:
        value = float(cell)
    except ValueError:
        return _of_calendar(cell)
    if not math.isfinite(value) or value < 0:
        return None
    for low, high, factor in EPOCHS:
        if low <= value < high and unit_s in (0.0, factor, 1.0):
            return Moment(value * factor, "utc")
    return Moment(value * (unit_s or 1.0), "relative")


def _of_calendar(cell: str) -> Moment | None:
    match = CLOCK_ONLY.match(cell)
    if match:
        return Moment(int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3]), "local")
    found = None
    try:
        found = datetime.fromisoformat(cell.replace(",", ".") if "T" in cell or "-" in cell[:8] else cell)
    except ValueError:
        for form in FORMATS:
            try:
                found = datetime.strptime(cell, form)
                break
            except ValueError:
                continue
    if found is None or not 1990 <= found.year <= 2200:
        return None
    if found.tzinfo is None:
        return Moment(found.replace(tzinfo=UTC).timestamp(), "utc" if cell.endswith((" UTC", "GMT")) else "local")
    return Moment(found.timestamp(), "utc")
