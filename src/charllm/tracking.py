"""How long work says how far it is: whoever starts it passes a function that shows it, or none."""

from collections.abc import Callable, Iterable
from typing import Any

Track = Callable[[Iterable[Any], int, str], Iterable[Any]]
"""Yields the items it is given, of which there are so many, and may show how far it is under a title."""


def untracked(items: Iterable[Any], _total: int, _title: str) -> Iterable[Any]:
    """Show nothing."""
    return items
