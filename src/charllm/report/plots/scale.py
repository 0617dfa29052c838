"""From values to cells: linear and logarithmic scales, and round numbers to label them with."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_STEP = 1e-300
"""Values closer than this have no round number between them."""
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` over some cells; a higher value never lies in a lower cell."""

    low: float
    high: float
    cells: int
    is_log: bool = False

    def cell(self, value: float) -> int:
        """Return the cell of a value; one outside the scale lies at its end."""
        return max(0, min(self.cells - 1, math.floor(self.fraction(value) * self.cells)))

    def fraction(self, value: float) -> float:
        """Return how far along the scale a value lies."""
        if self.is_log:
            if value <= 0:
                return 0.0
            low, high, value = math.log(self.low), math.log(self.high), math.log(value)
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.5

    def bounds(self, cell: int) -> tuple[float, float]:
        """Return the values at both edges of a cell."""
        first, last = (self._value(edge / self.cells) for edge in (cell, cell + 1))
        return first, last

    def _value(self, fraction: float) -> float:
        if self.is_log:
            return math.exp(math.log(self.low) + fraction * (math.log(self.high) - math.log(self.low)))
        return self.low + fraction * (self.high - self.low)


def scale_of(
    values: Iterable[float | None], cells: int, *, is_log: bool = False, from_zero: bool = False, room: float = 0.0
) -> Scale | None:
    """Return the scale that all values fit on, with a share of room at both ends; None where there is no value."""
    known = [value for value in values if value is not None and math.isfinite(value) and (value > 0 or not is_log)]
    if not known:
        return None
    low, high = min(known), max(known)
    if is_log:
        spare = (high / low) ** room if high > low else 1.5
        return Scale(low / spare, high * spare, cells, is_log=True)
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    if high == low:
        low, high = (low - 1.0, high + 1.0) if not from_zero or low else (0.0, 1.0)
    spare = room * (high - low)
    return Scale(low if from_zero and low == 0 else low - spare, high + spare, cells)


def ticks(scale: Scale, count: int) -> list[float]:
    """Return at most `count` round numbers on a scale, or its two ends where it holds fewer than two."""
    found = _log_ticks(scale, count) if scale.is_log else _linear_ticks(scale, count)
    return found if len(found) >= 2 else [scale.low, scale.high][: max(1, count)]


def _linear_ticks(scale: Scale, count: int) -> list[float]:
    each = (scale.high - scale.low) / max(1, count)
    if each < LEAST_STEP:
        return []
    power = 10.0 ** math.floor(math.log10(each))
    for step in (factor * power for power in (power, 10 * power) for factor in ROUND):
        first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
        if last - first + 1 <= count:
            return [number * step for number in range(first, last + 1)]
    return []


def _log_ticks(scale: Scale, count: int) -> list[float]:
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**decade for decade in decades for factor in factors]
        inside = [value for value in found if scale.low * (1 - 1e-9) <= value <= scale.high * (1 + 1e-9)]
        if len(inside) <= count:
            return inside
    return inside[:: math.ceil(len(inside) / count)]


def label(value: float) -> str:
    """Write a number of an axis: short, and the same number again when it is read."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.3g}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
