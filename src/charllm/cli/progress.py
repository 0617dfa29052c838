"""A progress bar on stderr, when someone is watching and it takes long enough to matter."""

import sys
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterator[T], total: int, title: str) -> Iterator[T]:
    """Yield the items; where stderr is a terminal, show how far it is."""
    if not sys.stderr.isatty() or total < 2:
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            yield item
            bar.advance(task)
