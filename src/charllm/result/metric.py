"""How a metric is declared: once, with its meaning, its words, its unit, its digits and which way is better."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from charllm.units import (
    SHOWN_UNITS,
    SUFFIXES,
    USUAL_UNITS,
    format_bytes,
    format_seconds,
    format_si,
    seconds_format,
    split_suffix,
)

Read = Callable[[str], float | None]
"""Returns a metric of a run by name, an entry of a table by `name.key`; None where it is not known."""
LOWER, HIGHER = "lower", "higher"
"""Which way a metric is better."""
RUN, PLAN, PAGE, PHASES = "run", "plan", "page", "phases"
"""Where a metric comes from: every run; a plan, which knows tariffs, racks and whole runs; a page, by its formula; a
generation."""
DIGITS = {"s": ".3f", "days": ".1f", "W": ".0f", "kW": ".2f", "kW/s": ".2f", "C": ".1f", "K": ".1f", "MHz": ".0f",
          "%": ".1f", "GiB": ".1f", "tokens/s": ",.0f", "tokens/s/GPU": ",.0f"}  # fmt: skip
"""Unit: how numbers are written in it where a metric does not say otherwise."""
WRITERS: dict[str, Callable[[float, str], str]] = {
    "seconds": lambda value, _unit: format_seconds(value),
    "size": lambda value, _unit: format_bytes(value),
    "prefix": lambda value, unit: format_si(value, unit.removeprefix("k")),
}
"""Digits that choose a unit by the size of the number."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: what it is called, and how its values are written."""

    name: str
    meaning: str
    """One sentence, for the reference."""
    label: str
    """Its name in plain words, as in a sentence and on an axis."""
    unit: str = ""
    """In which people read it; empty: the usual one of the suffix of its name."""
    better: str = ""
    """higher, lower; empty: neither."""
    short: str = ""
    """Its name where there is little room: a narrow panel, a card."""
    heading: str = ""
    """Its name as a column of a text table, with the unit of the cells."""
    digits: str = ""
    """How its numbers are written: a format, or an entry of WRITERS."""
    keys: Mapping[str, str] | None = None
    """Of a metric that holds a table: its keys, each in plain words."""
    entry: str = ""
    """Label of one entry of that table."""
    part: str = RUN
    is_number: bool = True
    is_flag: bool = False
    """Whether it is a yes or no."""
    """Whether it can be compared and limited; a verdict, a rank and a list cannot."""
    is_list: bool = False
    """Whether it is a list of rows, which no cell of a table can hold."""
    needs_heat: bool = False
    """Whether only the simulation of the whole loop gives it."""
    formula: Callable[[Read], float | None] | None = None
    """How a page computes it from other metrics."""

    @property
    def scale(self) -> float:
        """SI units in one of the unit shown."""
        return SHOWN_UNITS.get(self.unit, 1.0)

    @property
    def spelled(self) -> str:
        """Its name with the unit shown in place of that of SI, as `--limit` takes it: memory_peak_gib."""
        base, dot, key = self.name.partition(".")
        split = split_suffix(base)
        suffix = self.unit.lower().replace("%", "percent").replace("/", "_per_")
        in_unit = split is not None and SUFFIXES.get(suffix, ("",))[0] == split[1] and not split[0].endswith("_per")
        return f"{split[0]}_{suffix}{dot}{key}" if split and in_unit else self.name

    @property
    def brief(self) -> str:
        """Its name where there is little room."""
        return self.short or self.label

    @property
    def title(self) -> str:
        """Its short name, as a heading or a card begins."""
        return self.brief[:1].upper() + self.brief[1:]

    def shown(self, value: Any) -> float | None:
        """Return a value in the unit shown; None where it is not known."""
        return float(value) / self.scale if isinstance(value, int | float) else None

    def write(self, value: float) -> str:
        """Write a value with its unit, as in a sentence."""
        if self.digits in WRITERS:
            return WRITERS[self.digits](value, self.unit)
        return f"{value / self.scale:{self.digits}} {self.unit}".rstrip()

    def cell(self, value: Any) -> str:
        """Write a value under its heading; a dash where it is not known."""
        if value is None:
            return "-"
        with_unit = self.unit == "%" or self.digits in WRITERS
        return self.write(value) if with_unit else f"{value / self.scale:{self.digits}}"

    def bound(self, value: float) -> str:
        """Write one end of an interval, without its unit."""
        if self.digits == "seconds":
            return seconds_format(value)(value)
        number = value / self.scale
        thousands = "," if self.digits.startswith(",") else ""
        return f"{number:{thousands}.0f}" if abs(number) >= 10 else f"{number:.3g}"

    def entry_of(self, key: str) -> "Metric":
        """Return one entry of a metric that holds a table, as a metric of its own."""
        words = {"key": (self.keys or {}).get(key, key)}
        return replace(self, name=f"{self.name}.{key}", label=self.entry.format(**words), keys=None, entry="", short="",
                       heading=self.heading.format(**words))  # fmt: skip


class Member:
    """A metric as a member of `Metrics`: it reads its value from the metrics of a run."""

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self.declared = declared

    def __set_name__(self, _owner: type, name: str) -> None:
        self.metric = complete(name=name, **self.declared)

    def __get__(self, metrics: Mapping[str, Any] | None, _owner: type) -> Any:
        if metrics is None:
            return self.metric
        found, formula = metrics.get(self.metric.name), self.metric.formula
        return formula(partial(metric_value, metrics)) if found is None and formula else found


def metric(meaning: str, label: str, unit: str = "", **more: Any) -> Any:
    """Declare a metric as a member of `Metrics`; `more` are fields of `Metric`."""
    return Member({"meaning": meaning, "label": label, "unit": unit, **more})


def split_unit(name: str) -> tuple[str, str]:
    """Split the name of a figure into words and the unit in which people read it; empty where it says none."""
    split = split_suffix(name)
    # A rate such as tokens_per_s is counted in something that its name does not say.
    stem, unit = (split[0], USUAL_UNITS.get(split[1], "")) if split and not split[0].endswith("_per") else (name, "")
    return (stem if unit else name).replace("_", " ").replace(".", " "), unit


def complete(name: str, label: str, unit: str = "", *, meaning: str = "", **more: Any) -> Metric:
    """Return a metric with the unit, digits and heading that follow from its name where it does not say otherwise."""
    found = Metric(name, meaning, label, unit or split_unit(name)[1], **more)
    digits = found.digits or DIGITS.get(found.unit, ",.4g")
    unit_above = found.unit not in ("", "%") and digits not in WRITERS
    heading = found.heading or found.brief + (f", {found.unit}" if unit_above else "")
    return replace(found, digits=digits, heading=heading)


def metric_value(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return a metric by name, an entry of a table by `name.key`; None where it is not known."""
    base, _, key = name.partition(".")
    value = metrics.get(base)
    if key:
        value = None if value is None else value.get(key)
    return None if value is None else float(value)
