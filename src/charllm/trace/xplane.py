"""XPlanes of JAX and TensorFlow (``HOST.xplane.pb``): planes of devices and hosts, their lines and events.

Source: github.com/openxla/xprof and tsl, xplane.proto. XSpace: planes 1. XPlane: name 2, lines 3, names of events 4, of
statistics 5. XLine: name 2, nanosecond it begins 3, events 4. XEvent: its name 1, offset 2 and duration 3 in
picoseconds, statistics 4. XStat: its name 1, value 2 to 7, where 7 names a text among the names of statistics.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.trace.events import RankTrace
from charllm.trace.json_events import GZIP_MAGIC
from charllm.trace.protobuf import Fields, Truncated, double_of, read_fields, text_of
from charllm.trace.slices import Slice, read_picture
from charllm.trace.tool_events import build_traces

LARGEST_BYTES = 1 << 30
PICOSECONDS = 1000
"""In a nanosecond."""
FIRST_PLANES = (b"\x12\x0e/host:metadata", b"/device:GPU:", b"/device:TPU:")
WANTED_PLANES = ("/device:GPU:", "/device:TPU:", "/host:CPU")


def is_xplane(path: Path, head: bytes) -> bool:
    """Tell whether a file is an XPlane: by its name, or by its first plane."""
    named = path.name.endswith((".xplane.pb", ".xplane.pb.gz"))
    return named or (head[:1] == b"\x0a" and any(name in head[:64] for name in FIRST_PLANES))


def read_xplane(path: Path) -> list[RankTrace]:
    """Read one file, a trace for each device that worked."""
    with path.open("rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    try:
        data = gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
        if len(data) > LARGEST_BYTES:
            raise SpecError("TRACE", str(path), f"an XPlane of at most {LARGEST_BYTES} bytes")
        slices = [one for number, plane in read_fields(data) if number == 1 for one in _plane_slices(_bytes(plane))]
    except (Truncated, OSError, EOFError, zlib.error) as error:
        raise SpecError("TRACE", str(path), f"a whole XPlane ({error})") from None
    found = read_picture(slices)
    return build_traces(path, "xplane", found.events, found.told, found.warnings)


def _plane_slices(data: bytes) -> Iterator[Slice]:
    fields = read_fields(data)
    name = text_of(fields, 2)
    if not name.startswith(WANTED_PLANES):
        return
    stats = {key: text_of(entry, 2) for key, entry in _entries(fields, 5)}
    events = dict(_entries(fields, 4))
    shown = {key: text_of(entry, 4) or text_of(entry, 2) for key, entry in events.items()}
    constant = {key: _statistics(entry, 5, stats) for key, entry in events.items()}
    for number, line in fields:
        if number == 3:
            yield from _line_slices(_bytes(line), name, shown, constant, stats)


def _line_slices(
    data: bytes, plane: str, names: Mapping[int, str], constant: Mapping[int, dict[str, Any]], stats: Mapping[int, str]
) -> Iterator[Slice]:
    fields = read_fields(data)
    thread = text_of(fields, 11) or text_of(fields, 2)
    begins = next((value for number, value in fields if number == 3 and isinstance(value, int)), 0)
    for number, event in fields:
        if number != 4:
            continue
        parts = read_fields(_bytes(event))
        numbers = {key: value for key, value in parts if isinstance(value, int)}
        key = numbers.get(1, 0)
        args = {**constant.get(key, {}), **_statistics(parts, 4, stats)}
        start = begins + numbers.get(2, 0) // PICOSECONDS
        yield Slice(names.get(key, ""), "", plane, thread, start, numbers.get(3, 0) / PICOSECONDS, args)


def _statistics(fields: Fields, number: int, names: Mapping[int, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for at, data in fields:
        if at == number and isinstance(data, bytes):
            parts = read_fields(data)
            name = next((names.get(value, "") for key, value in parts if key == 1 and isinstance(value, int)), "")
            for key, value in parts:
                if key == 2 and isinstance(value, bytes):
                    found[name] = double_of(value)
                elif key in (3, 4):
                    found[name] = value
                elif key in (5, 6) and isinstance(value, bytes):
                    found[name] = value.decode("utf-8", "replace")
                elif key == 7 and isinstance(value, int):
                    found[name] = names.get(value, "")
    return found


def _entries(fields: Fields, number: int) -> Iterator[tuple[int, Fields]]:
    """List the entries of a map of numbers to messages."""
    for at, data in fields:
        if at == number and isinstance(data, bytes):
            entry = read_fields(data)
            key = next((value for name, value in entry if name == 1 and isinstance(value, int)), 0)
            message = next((value for name, value in entry if name == 2 and isinstance(value, bytes)), b"")
            yield key, read_fields(message)


def _bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""
