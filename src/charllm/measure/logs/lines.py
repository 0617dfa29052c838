"""Lines of a log without colours and without the prefixes that launchers put before them."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

COLOUR = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
LINE = re.compile(rb"[^\r\n]+")
"""A progress bar rewrites its line by a carriage return: each state of it is a line here."""
LONGEST_LINE = 8000
"""No report on a step is longer; what follows is not looked at, for patterns would take long on it."""
JOINED = re.compile(rb"(?<=\S)(?=\[(?:rank|default)\d+\]:)")
"""Where the output of one rank begins in the middle of another's line."""
PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*\[(?:rank|default)(?P<rank>\d{1,9})\]:\s?",  # torchrun
        r"\s*\[\d+,(?P<rank>\d{1,9})\]<std(?:out|err)>:\s?",  # mpirun --tag-output
        r"\s*(?P<rank>\d{1,6}): ?",  # srun --label
        r"\s*\((?:[\w.]+\s)?pid=\d+(?:, ip=(?P<node>[\w.:-]+))?\)\s?",  # Ray
        r"\s*(?:\[[\d:+TZ. -]{8,32}\] )?[\w.-]+/(?P<rank>\d{1,9})(?= |$) ?",  # torchx, NeMo-Run
        r"(?P<node>[a-zA-Z][\w-]{0,63}\d[\w.-]{0,120}): (?=\s?\S)",  # pdsh
    )
)
STAMP = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d(?!\d))?")


class Line(NamedTuple):
    """One line."""

    text: str
    rank: int | None
    node: str | None
    end_byte: int
    whole: bool
    """Whether an end of line follows; the last line of a half-written log may be cut anywhere."""
    place: int
    """How many lines came before."""


def split_lines(data: bytes) -> Iterator[Line]:
    """Split a log into lines; empty ones are left out."""
    return read_lines(data, (found.span() for found in LINE.finditer(data)))


def read_lines(data: bytes, spans: Iterable[tuple[int, int]], *, all_lines: bool = True) -> Iterator[Line]:
    """Read the lines of a log that lie between these bytes, in order: all that are not empty, or some of them."""
    before_byte = place = 0
    for start_byte, end_byte in spans:
        place += 1 if all_lines else data.count(b"\n", before_byte, start_byte)
        before_byte = start_byte
        whole = end_byte < len(data)
        pieces = JOINED.split(COLOUR.sub(b"", data[start_byte : min(end_byte, start_byte + LONGEST_LINE)]))
        for index, piece in enumerate(pieces):
            text, rank, node = _without_prefixes(piece.decode("utf-8", "replace"))
            if text.strip():
                yield Line(text, rank, node, end_byte, whole or index < len(pieces) - 1, place)


def _without_prefixes(text: str) -> tuple[str, int | None, str | None]:
    rank: int | None = None
    node: str | None = None
    for _ in range(3):
        for pattern in PREFIXES:
            found = pattern.match(text)
            if found:
                parts = found.groupdict()
                rank = int(parts["rank"]) if parts.get("rank") else rank
                node = parts.get("node") or node
                text = text[found.end() :]
                break
        else:
            break
    return text, rank, node


def time_of(text: str) -> float | None:
    """Return the first time stamp of a line, in seconds since 1970; without a time zone it is taken as UTC."""
    found = STAMP.search(text)
    if not found:
        return None
    *numbers, fraction, zone = found.groups()
    try:
        stamp = datetime(*(int(number) for number in numbers), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    offset_s = 0
    if zone and zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        offset_s = sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return stamp.timestamp() - offset_s + (float(f"0.{fraction}") if fraction else 0.0)
