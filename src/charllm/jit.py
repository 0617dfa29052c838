"""Machine code where numba is installed; the same functions, slower, where it is not."""

from collections.abc import Callable
from typing import Any

try:
    from numba import njit
except ImportError:

    def jit(function: Callable[..., Any]) -> Callable[..., Any]:
        """Leave a function as it is."""
        return function
else:
    jit = njit(cache=True, error_model="numpy")
