"""The metrics table that the amdgpu driver keeps of a device.

It is read through the wrapper's own C function and structure, in one call; the wrapper's Python function of the same
name makes a table of 80 entries each time and turns the throttle bits into a bool.
"""

import ctypes
import math
import time
from collections.abc import Mapping
from typing import Any

TABLE_AGE_S = 0.001
"""A table that is younger is not read again: the driver renews it once a millisecond at most."""


class Missing(Exception):
    """A quantity that cannot be read, with a word of REASONS."""


class MetricsTable:
    """The driver's metrics table of one device, read into the wrapper's own structure."""

    def __init__(self, wrapper: Any, handle: Any, reasons: Mapping[int, str]) -> None:
        self._wrapper, self._handle, self._reasons = wrapper, handle, reasons
        self._table = wrapper.amdsmi_gpu_metrics_t()
        self._status = 0
        self.read_s = -math.inf
        """When it was last read, on the monotonic clock."""

    def value(self, field: str) -> float:
        """Return a field, or raise the reason why there is none."""
        value = self._field(field)
        if value == _largest(getattr(type(self._table), field).size):
            raise Missing("not_supported")
        return float(value)

    def values(self, field: str) -> list[float]:
        """Return the entries of a list that are there."""
        values = self._field(field)
        absent = _largest(ctypes.sizeof(values._type_))
        return [float(value) for value in values if value != absent]

    def revision(self) -> str:
        """Return the version of the table, which says which fields a GPU has."""
        try:
            header = self._field("common_header")
        except Missing as missing:
            return str(missing)
        return f"{header.format_revision}.{header.content_revision}"

    def forget(self) -> None:
        """Read anew at the next question."""
        self.read_s = -math.inf

    def _field(self, field: str) -> Any:
        now_s = time.monotonic()
        if now_s - self.read_s >= TABLE_AGE_S:
            self._status = self._wrapper.amdsmi_get_gpu_metrics_info(self._handle, ctypes.byref(self._table))
            self.read_s = now_s
        if self._status:
            raise Missing(self._reasons.get(self._status, "error"))
        if not hasattr(self._table, field):
            raise Missing("not_supported")
        return getattr(self._table, field)


def _largest(size_bytes: int) -> int:
    """Return what a field holds that the GPU does not have."""
    return (1 << 8 * size_bytes) - 1
