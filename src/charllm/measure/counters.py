"""Counters that start over when their register is full."""


class Unwrapped:
    """Continues a counter over the end of its range.

    A value that is smaller than the one before has gone round when the way over the end of the range is the shorter
    one; otherwise the counter was reset, and the count goes on from where it was. At most half of the range may pass
    between two readings. A value beyond the range shows that the register is wider: it can only be reset.
    """

    def __init__(self, range_units: float) -> None:
        self._range = range_units
        self._last: float | None = None
        self._total = 0.0

    def add(self, value: float) -> float:
        """Take the next reading and return the count without the jumps."""
        if self._last is None:
            self._total = value
        elif value >= self._last:
            self._total += value - self._last
        else:
            over_the_end = value + self._range - self._last
            self._total += over_the_end if 0 <= over_the_end <= self._range / 2 else value
        self._last = value
        return self._total
