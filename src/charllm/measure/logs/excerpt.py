"""The lines of a large log that may report on a step: found by the words in them, without reading all the others."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from charllm.measure.logs.lines import LINE, LONGEST_LINE, Line, read_lines

SMALL_BYTES = 1 << 21
"""A log up to this is read whole, in about a second."""
MOST_LINES, MOST_BYTES = 20_000, 1 << 22
"""Of an excerpt."""
MOST_FOUND = 40_000
"""Words that are looked for one by one."""
PARTS = 512
"""Of more lines, this many runs are taken that lie evenly in the log."""

Span = tuple[int, int]
"""First byte of a line, and the byte after its last."""


class Excerpt(NamedTuple):
    """Lines of a log."""

    lines: list[Line]
    complete: bool
    """Whether these are all that were asked for."""


def excerpt_lines(data: bytes, words: Sequence[bytes] = (), following: int = 0) -> Excerpt:
    """Return the lines that hold one of the words, each with some that follow; without words, any.

    Of too many lines, runs that lie evenly among them; where even those cannot be listed, runs of all lines.
    """
    found = _find(data, words, following) if words else None
    if found is None:
        run_bytes = MOST_BYTES // PARTS
        starts = [index * len(data) // PARTS for index in range(PARTS)]
        all_lines = [span for start in starts for span in _whole_lines(data, start, min(start + run_bytes, len(data)))]
    spans = _thin(all_lines if found is None else found)
    return Excerpt(list(read_lines(data, spans, all_lines=False)), found is not None and len(spans) == len(found))


def _whole_lines(data: bytes, start: int, end: int) -> Iterator[Span]:
    """List the lines of a part; those that it cuts are left out."""
    for found in LINE.finditer(data, start, end):
        inside = start < found.start() and found.end() < end
        if inside or (found.start() == 0 and found.end() < end) or (found.end() == len(data) and start < found.start()):
            yield found.span()


def _find(data: bytes, words: Sequence[bytes], following: int) -> list[Span] | None:
    """Find the lines that hold one of the words in what is read of a line; None where there are too many."""
    spans: dict[int, int] = {}
    left = MOST_FOUND
    for word in words:
        at = data.find(word)
        while at >= 0:
            left -= 1
            if left < 0:
                return None
            first = max(0, at - LONGEST_LINE)
            before = max(data.rfind(b"\n", first, at), data.rfind(b"\r", first, at))
            end = at + len(word)
            if before >= 0 or first == 0:
                for found in islice(LINE.finditer(data, before + 1), 1 + following):
                    spans[found.start()] = found.end()
                    end = max(end, found.end()) if found.start() <= at else end
            at = data.find(word, end)
    return sorted(spans.items())


def _thin(spans: list[Span]) -> list[Span]:
    """Keep as many lines as can be read, in runs that lie evenly among them."""
    lengths = sum(min(end - start, LONGEST_LINE) for start, end in spans)
    share = min(1.0, MOST_LINES / max(1, len(spans)), MOST_BYTES / max(1, lengths))
    if share == 1.0:
        return spans
    each = len(spans) / PARTS
    runs = ((round(index * each), max(1, round(share * each))) for index in range(PARTS))
    return [span for first, count in runs for span in spans[first : first + count]]
