"""Progress on stderr: a bar where someone is watching, a line now and then where it goes to a file."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
FIRST_S, SLOWEST_S = 2.0, 300.0
"""A line is written after this long, then ever less often."""


def track(items: Iterable[T], total: int, title: str) -> Iterator[T]:
    """Yield the items; say on stderr how many are done and how long the rest will take."""
    if total < 2:
        yield from items
    elif sys.stderr.isatty():
        yield from _draw_bar(items, total, title)
    else:
        yield from _write_lines(items, total, title)


def _draw_bar(items: Iterable[T], total: int, title: str) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            yield item
            bar.advance(task)


def _write_lines(items: Iterable[T], total: int, title: str) -> Iterator[T]:
    began_s = time.monotonic()
    due_s = FIRST_S
    for done, item in enumerate(items, start=1):
        yield item
        spent_s = time.monotonic() - began_s
        if spent_s > due_s and done < total:
            left_s = spent_s / done * (total - done)
            print(f"charllm: {title}: {done:,} of {total:,} done, {format_left(left_s)} left", file=sys.stderr)
            due_s = spent_s + min(SLOWEST_S, spent_s)


def format_left(left_s: float) -> str:
    """Write how long something will take, in the unit that people would say it in."""
    minutes = left_s / 60
    if minutes < 1.5:
        return f"{left_s:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
