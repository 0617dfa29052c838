"""The only constants and conversions: SI inside, human units at the edge.

Every quantity's name ends in its unit. Inside the package that unit is SI (``_s _w _j _hz _bytes _flop ...``);
files and flags may use any suffix listed here (``memory_gib``, ``clock_mhz``, ``nic_gbit_per_s``).
"""

from collections.abc import Callable
from functools import lru_cache

KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
KILO, MEGA, GIGA, TERA, PETA = 1e3, 1e6, 1e9, 1e12, 1e15
MILLI, MICRO, NANO, PICO = 1e-3, 1e-6, 1e-9, 1e-12
BITS_PER_BYTE = 8
HOUR_S, DAY_S = 3600.0, 86_400.0
KWH_J = KILO * HOUR_S
PERCENT = 1e-2

SUFFIXES: dict[str, tuple[str, float]] = {
    "bytes": ("bytes", 1.0),
    "kib": ("bytes", KIB),
    "mib": ("bytes", MIB),
    "gib": ("bytes", GIB),
    "tib": ("bytes", TIB),
    "kb": ("bytes", KILO),
    "mb": ("bytes", MEGA),
    "gb": ("bytes", GIGA),
    "tb": ("bytes", TERA),
    "bytes_per_s": ("bytes_per_s", 1.0),
    "mb_per_s": ("bytes_per_s", MEGA),
    "gb_per_s": ("bytes_per_s", GIGA),
    "tb_per_s": ("bytes_per_s", TERA),
    "gbit_per_s": ("bytes_per_s", GIGA / 8),
    "flop": ("flop", 1.0),
    "tflop": ("flop", TERA),
    "flop_per_s": ("flop_per_s", 1.0),
    "tflop_per_s": ("flop_per_s", TERA),
    "pflop_per_s": ("flop_per_s", PETA),
    "s": ("s", 1.0),
    "ms": ("s", MILLI),
    "us": ("s", MICRO),
    "hours": ("s", HOUR_S),
    "days": ("s", DAY_S),
    "hz": ("hz", 1.0),
    "mhz": ("hz", MEGA),
    "ghz": ("hz", GIGA),
    "per_hz": ("per_hz", 1.0),
    "per_ghz": ("per_hz", 1 / GIGA),
    "w": ("w", 1.0),
    "kw": ("w", KILO),
    "mw": ("w", MEGA),
    "w_per_s": ("w_per_s", 1.0),
    "kw_per_s": ("w_per_s", KILO),
    "mw_per_s": ("w_per_s", MEGA),
    "j": ("j", 1.0),
    "kj": ("j", KILO),
    "mj": ("j", MEGA),
    "kwh": ("j", KWH_J),
    "mwh": ("j", KILO * KWH_J),
    "pj": ("j", PICO),
    "j_s": ("j_s", 1.0),
    "w_per_k": ("w_per_k", 1.0),
    "k_per_w": ("k_per_w", 1.0),
    "c": ("c", 1.0),
    "k": ("k", 1.0),
    "fraction": ("fraction", 1.0),
    "percent": ("fraction", PERCENT),
}
"""Written suffix: (SI suffix, factor)."""
SHOWN_UNITS: dict[str, float] = {
    "s": 1.0, "days": DAY_S, "W": 1.0, "kW": KILO, "kW/s": KILO, "kJ": KILO, "kJ s": KILO, "C": 1.0, "K": 1.0,
    "MHz": MEGA, "%": PERCENT, "MiB": MIB, "GiB": GIB, "GB": GIGA, "GFLOP": GIGA, "billion": GIGA,
}  # fmt: skip
"""Unit as tables and pages write it: how much that is in SI."""
USUAL_UNITS = {
    "s": "s", "w": "W", "w_per_s": "kW/s", "j": "kJ", "j_s": "kJ s", "c": "C", "k": "K", "hz": "MHz", "fraction": "%",
    "bytes": "GiB", "flop": "GFLOP",
}  # fmt: skip
"""SI suffix: the unit in which people usually read it."""
SHORT_S = 0.1
"""Shorter times are written in milliseconds."""


MOST_DIGITS = 19
"""Of a whole number in 64 bits."""


def whole_number(text: str) -> int | None:
    """Return the whole number that a text of a file states; None for anything else, or for more than 19 digits."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


@lru_cache(maxsize=4096)
def split_suffix(key: str) -> tuple[str, str] | None:
    """Split ``memory_gib`` into ``("memory", "gib")``; None when the key ends in no known unit."""
    parts = key.split("_")
    for start in range(1, len(parts)):
        suffix = "_".join(parts[start:])
        if suffix in SUFFIXES:
            return "_".join(parts[:start]), suffix
    return None


@lru_cache(maxsize=4096)
def si_key(key: str) -> tuple[str, float]:
    """Return the SI spelling of a key and the factor to it: ``memory_gib`` -> ``("memory_bytes", 2**30)``.

    What is counted per unit has the factor's inverse: ``tokens_per_kwh`` -> ``("tokens_per_j", 1 / 3.6e6)``.
    """
    split = split_suffix(key)
    if split is None:
        return key, 1.0
    stem, suffix = split
    si_suffix, factor = SUFFIXES[suffix]
    return f"{stem}_{si_suffix}", 1 / factor if stem.endswith("_per") else factor


def format_bytes(size_bytes: float) -> str:
    """Write a memory size as people compare it with a GPU's: in GiB, or smaller units below one."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= (factor if unit != "TiB" else 10 * factor):
            return f"{size_bytes / factor:,.{_decimals(size_bytes / factor)}f} {unit}"
    return f"{size_bytes:.0f} B"


def format_si(value: float, unit: str = "") -> str:
    """Write a number with three significant digits and an SI prefix: ``1.23e15, "FLOP"`` -> ``1.23 PFLOP``."""
    for prefix, factor in (("E", 1e18), ("P", PETA), ("T", TERA), ("G", GIGA), ("M", MEGA), ("k", KILO)):
        if abs(value) >= factor:
            return f"{value / factor:.{_decimals(value / factor)}f} {prefix}{unit}"
    return f"{value:.{_decimals(value)}f} {unit}".rstrip()


def format_percent(fraction: float | None, places: int = 1) -> str:
    """Write a share as a percentage; a dash where it is not known."""
    return "-" if fraction is None else f"{100 * fraction:.{places}f} %"


def format_change(fraction: float | None, places: int = 1) -> str:
    """Write a change as a percentage with its sign; a dash where it is not known."""
    return "-" if fraction is None else f"{100 * fraction:+.{places}f} %"


def format_probability(probability: float) -> str:
    """Write a probability, of which no more than two digits are known."""
    return "over 99 %" if probability > 0.99 else "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def format_params(count: float) -> str:
    """Write a parameter count as the field does: ``70.6 B``."""
    for prefix, factor in (("T", TERA), ("B", GIGA), ("M", MEGA), ("k", KILO)):
        if abs(count) >= factor:
            return f"{count / factor:.{_decimals(count / factor)}f} {prefix}"
    return f"{count:.0f}"


def _decimals(value: float) -> int:
    return 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2


def seconds_format(scale_s: float) -> Callable[[float], str]:
    """Return how to write seconds beside others: as many places as the largest of them needs for four digits."""
    places = 1 if scale_s >= KILO else 2 if scale_s >= 10 else 3 if scale_s >= 1 else 4 if scale_s >= 0.1 else 6
    return lambda seconds: f"{seconds:,.{places}f}"


def format_seconds(seconds: float) -> str:
    """Write a time with its unit, in four digits."""
    return f"{seconds_format(seconds)(seconds)} s" if seconds >= SHORT_S else f"{seconds / MILLI:.4g} ms"


def format_figure(key: str, value: object) -> str:
    """Write a figure in the unit that people use for it, told by the suffix of its SI name."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    split = split_suffix(key)
    # A rate, such as tokens_per_s, has no unit of its own here.
    suffix = split[1] if split and not split[0].endswith("_per") else ""
    return _WRITERS.get(suffix, _plain)(float(value))


def _plain(value: float) -> str:
    if value == int(value) or abs(value) >= KILO:
        return f"{value:,.0f}" if abs(value) < TERA else f"{value:.4g}"
    return f"{value:.4g}"


def _scaled(value: float, unit: str) -> str:
    """Write a small number with the prefix that leaves one to three digits before the point."""
    for prefix, factor in (("", 1.0), ("m", MILLI), ("u", MICRO), ("n", NANO), ("p", PICO)):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value / PICO:.4g} p{unit}" if value else f"0 {unit}"


_WRITERS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "bytes_per_s": lambda value: format_si(value, "B/s"),
    "flop_per_s": lambda value: format_si(value, "FLOP/s"),
    "hz": lambda value: f"{value / MEGA:,.4g} MHz",
    "per_hz": lambda value: f"{value * GIGA:.4g} per GHz",
    "s": lambda value: _scaled(value, "s"),
    "j": lambda value: _scaled(value, "J"),
    "w": lambda value: f"{value:,.4g} W",
    "c": lambda value: f"{value:.4g} C",
    "k": lambda value: f"{value:.4g} K",
    "w_per_k": lambda value: f"{value:.4g} W/K",
    "k_per_w": lambda value: f"{value:.4g} K/W",
    "fraction": lambda value: f"{value:.4g}",
}
