"""The events of a Chrome trace in JSON, a megabyte at a time: memory does not grow with the file.

Each chunk of the file is cut at its last `}, {`, and the events before the cut are decoded at once. Whether a cut lies
between two events is not guessed: text that is cut inside a nested list or a string is not valid JSON, and an earlier
cut is tried. Where no cut works, something is malformed, and the chunk is walked event by event.
"""

import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from charllm.spec.request import MOST_EXPANSION, unpacked_limit

CHUNK_BYTES = 1 << 20
LARGEST_EVENT_BYTES = 64 << 20
"""A single event, or what stands around the events, that is larger is given up."""
GZIP_MAGIC, GZIP_WINDOW = b"\x1f\x8b", zlib.MAX_WBITS | 16
"""How a gzip stream begins, and zlib's code for one."""
EVENTS_KEY = re.compile(rb'"(?:traceEvents|workload_graph)"\s*:\s*\[')
BETWEEN = re.compile(rb"\}\s*,\s*\{")
BETWEEN_TEXT = re.compile(r"\}\s*,\s*\{")
PIECE_CHARACTERS = 1 << 16
NEXT_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|bp|s|args|Id|Name)"\s*:')
"""Where an event may begin again after a malformed one."""
NEAR_BYTES = 1 << 16
"""Most events are smaller than this: their ends are near the end of a chunk."""
LONGEST_KEY_BYTES = 1 << 10
"""The key of the list of events with the spaces behind it: all that a chunk may cut."""
SPACE = re.compile(r"[\s,]*")
TRIED_CUTS = 8
"""Cuts that are tried before a chunk is walked event by event."""

Decode = Callable[[bytes], Sequence[Any]]
"""Decodes a JSON list of events; raises ValueError where it is not one."""
Convert = Callable[[dict[str, Any]], Any]
"""Makes an event as `Decode` does from a table."""


@dataclass
class Reading:
    """How far a file has been read: what stands around its events, and what went wrong."""

    header: dict[str, Any] = field(default_factory=dict)
    """Keys beside the events."""
    found_events: bool = False
    unreadable: int = 0
    """Events that are not valid JSON, or whose essential fields make no sense."""
    given_up: bool = False
    """Whether an event was too large to be read: nothing behind it is."""
    truncated: str = ""
    """Why the file ends early; empty where it does not."""


def read_batches(path: Path, decode: Decode, convert: Convert, reading: Reading) -> Iterator[Sequence[Any]]:
    """Yield the events of a file in batches, and note in `reading` what stands around them and what went wrong."""
    chunks = _chunks(path, reading)
    buffer = _skip_header(chunks, reading)
    if buffer is None:
        return
    ended, enough = False, 0
    for chunk in chunks:
        buffer += chunk
        if ended:
            buffer = buffer[:LARGEST_EVENT_BYTES]
        elif len(buffer) >= enough:
            events, buffer, ended = _take(buffer, decode, convert, reading)
            # An event larger than a chunk is tried again only when twice as much of it is there.
            enough = 0 if events else 2 * len(buffer)
            yield events
            if reading.given_up:
                return
    if not ended:
        events, buffer, ended = _take(buffer, decode, convert, reading)
        yield events
    if not ended:
        events, buffer, ended = _walk(buffer, decode, convert, reading, last=True)
        yield events
    if ended:
        _note_table(b"{" + buffer.lstrip(b" \t\r\n,"), reading)
    elif not reading.truncated:
        reading.truncated = "it ends inside the list of events"


def _chunks(path: Path, reading: Reading) -> Iterator[bytes]:
    """Yield the text of a file, unpacked; where it is damaged, what comes before that, and the reason is noted."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        if packed:
            yield from _unpack(file, reading)
            return
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _unpack(file: IO[bytes], reading: Reading) -> Iterator[bytes]:
    """Unpack a gzip stream, a part at a time: `gzip` itself would drop the part in which a stream is cut off."""
    stream, unpacked_bytes = zlib.decompressobj(GZIP_WINDOW), 0
    try:
        while packed := file.read(CHUNK_BYTES):
            while packed:
                chunk = stream.decompress(packed, CHUNK_BYTES)
                yield chunk
                packed, unpacked_bytes = stream.unconsumed_tail, unpacked_bytes + len(chunk)
                if unpacked_bytes > unpacked_limit(file.tell() - len(packed)):
                    reading.truncated = f"its gzip stream unpacks to more than {MOST_EXPANSION} times its size"
                    return
                if stream.eof and stream.unused_data.startswith(GZIP_MAGIC):
                    packed, stream = stream.unused_data, zlib.decompressobj(GZIP_WINDOW)
        yield stream.flush()
        if not stream.eof:
            reading.truncated = "its gzip stream is truncated"
    except zlib.error as error:
        reading.truncated = f"its gzip stream is damaged ({error})"


def _skip_header(chunks: Iterator[bytes], reading: Reading) -> bytes | None:
    """Return the text after the start of the list of events; None where there is no such list."""
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        if not reading.found_events and (stripped := buffer.lstrip(b"\xef\xbb\xbf \t\r\n")).startswith(b"["):
            reading.found_events = True
            return stripped[1:]
        if match := EVENTS_KEY.search(buffer, max(0, len(buffer) - len(chunk) - LONGEST_KEY_BYTES)):
            reading.found_events = True
            _note_table(buffer[: match.start()].rstrip().rstrip(b",") + b"}", reading)
            return buffer[match.end() :]
        if len(buffer) > LARGEST_EVENT_BYTES:
            return None
    _note_table(buffer, reading)
    return None


def _note_table(text: bytes, reading: Reading) -> None:
    """Note the keys of a table, where it is one."""
    try:
        table = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return
    if isinstance(table, dict):
        reading.header.update(table)


def _take(buffer: bytes, decode: Decode, convert: Convert, reading: Reading) -> tuple[Sequence[Any], bytes, bool]:
    """Decode the whole events of a buffer; returns them, the rest, and whether the list has ended."""
    for cut in _cuts(buffer):
        text = b"[" + buffer[:cut] + b"]"
        try:
            return decode(text), buffer[cut:].lstrip(b" \t\r\n,"), False
        except (ValueError, RecursionError):
            continue
    return _walk(buffer, decode, convert, reading)


def _cuts(buffer: bytes) -> Iterator[int]:
    """Yield the ends of events as it seems, the last first; they are looked for near the end, then everywhere."""
    for start in (max(0, len(buffer) - NEAR_BYTES), 0):
        found = deque(BETWEEN.finditer(buffer, start), maxlen=TRIED_CUTS)
        yield from (match.start() + 1 for match in reversed(found))
        if start == 0 or len(found) == TRIED_CUTS:
            return


def _walk(
    buffer: bytes, decode: Decode, convert: Convert, reading: Reading, *, last: bool = False
) -> tuple[list[Any], bytes, bool]:
    """Read event by event, past malformed ones, but whole pieces at once; `last`: nothing follows this buffer."""
    text = buffer.decode("utf-8", "replace")
    decoder, events, at, singly_until = json.JSONDecoder(), list[Any](), 0, 0
    while True:
        at = _skip_space(text, at)
        if at >= len(text):
            return events, b"", False
        if text[at] == "]":
            return events, text[at + 1 :].encode(), True
        if singly_until <= at < len(text) - PIECE_CHARACTERS:
            if piece := _take_piece(text, at, decode):
                events.extend(piece[0])
                at = piece[1]
                continue
            singly_until = at + PIECE_CHARACTERS
        try:
            table, at = decoder.raw_decode(text, at)
            events.append(convert(table))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            resumed = NEXT_EVENT.search(text, max(at + 1, getattr(error, "pos", at)))
            if resumed is None and not last and len(text) - at < LARGEST_EVENT_BYTES:
                return events, text[at:].encode(), False
            if resumed is None:
                reading.given_up = not last
                cause = "an event is larger than 64 MiB" if reading.given_up else "it ends inside an event"
                reading.truncated = reading.truncated or cause
                return events, b"", False
            reading.unreadable += 1
            at = resumed.start()


def _take_piece(text: str, at: int, decode: Decode) -> tuple[Sequence[Any], int] | None:
    """Decode some kilobytes of events at once; returns where they end, or None where one of them is malformed."""
    found = BETWEEN_TEXT.search(text, at + PIECE_CHARACTERS)
    if found is None:
        return None
    end = found.start() + 1
    try:
        return decode(f"[{text[at:end]}]".encode()), end
    except (ValueError, RecursionError):
        return None


def _skip_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def read_count(value: Any) -> int | None:
    """Return a whole number of a trace that is not negative; None for anything else."""
    return value if type(value) is int and value >= 0 else None
