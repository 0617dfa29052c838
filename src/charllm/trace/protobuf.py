"""Just enough of protobuf's wire format to read traces: messages one after another, each after its length.

Source: protobuf.dev/programming-guides/encoding. A message is a list of fields: number, and an integer or bytes.
"""

import struct
from collections.abc import Iterator
from typing import IO

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LARGEST_MESSAGE_BYTES = 64 << 20

Fields = list[tuple[int, int | bytes]]


class Truncated(ValueError):
    """The data ends inside a message, or is none."""


def read_messages(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the messages of a file; raises Truncated where it ends inside one."""
    while first := file.read(1):
        size, shift, byte = first[0] & 0x7F, 7, first[0]
        while byte & 0x80:
            more = file.read(1)
            if not more or shift > 35:
                raise Truncated("ends inside the length of a message")
            byte = more[0]
            size |= (byte & 0x7F) << shift
            shift += 7
        if size > LARGEST_MESSAGE_BYTES:
            raise Truncated(f"a message of {size} bytes")
        data = file.read(size)
        if len(data) < size:
            raise Truncated("ends inside a message")
        yield data


def read_fields(data: bytes) -> Fields:
    """Return the fields of a message, in order."""
    fields: Fields = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, value = key & 7, 0
        if kind == VARINT:
            value, at = _varint(data, at)
            fields.append((key >> 3, value))
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(kind, len(data) + 1)
        if at + size > len(data):
            raise Truncated("a field reaches past its message")
        fields.append((key >> 3, data[at : at + size]))
        at += size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
    raise Truncated("a number reaches past its message")


def unpack_numbers(value: int | bytes) -> list[int]:
    """Return a repeated number, packed or single."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def text_of(fields: Fields, number: int) -> str:
    """Return the last text of a field; empty where there is none."""
    found = [value for name, value in fields if name == number and isinstance(value, bytes)]
    return found[-1].decode("utf-8", "replace") if found else ""


def double_of(data: bytes) -> float:
    """Return a number of eight bytes."""
    return float(struct.unpack("<d", data)[0]) if len(data) == 8 else float("nan")
