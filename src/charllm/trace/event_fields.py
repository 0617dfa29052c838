"""Which fields of an event are read, and the decoders that read them: msgspec where it is installed, else json."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
ARGUMENTS = {
    "stream": "stream",
    "device": "device",
    "correlation": "correlation",
    "external_id": "External id",
    "collective": "Collective name",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "dtype": "dtype",
    "group_size": "Group size",
    "group_name": "Process Group Name",
    "group_description": "Process Group Description",
    "group_ranks": "Process Group Ranks",
    "dims": "Input Dims",
    "types": "Input type",
}
"""Our name of an argument: the profiler's."""
ABSENT: dict[str, Any] = {
    name: -1 if name in ("stream", "device", "correlation", "external_id") else None for name in ARGUMENTS
}
"""What an argument is where an event has none; numbers are events.NONE, so that a column of them is read at once."""
LISTS = ("group_ranks", "dims", "types")
NO_ARGUMENTS = SimpleNamespace(**ABSENT)
OLD_NAMES = {"external_id": "external id"}
"""Spellings of older profilers."""


def convert_event(table: Any) -> Any:
    """Return an event with the fields of `FIELDS` and `args`, from a table of JSON."""
    event = SimpleNamespace(**{name: _scalar(table.get(name)) for name in FIELDS}, args=None)
    args = table.get("args")
    if isinstance(args, dict):
        found = {
            name: args.get(key, args.get(OLD_NAMES.get(name, key), ABSENT[name])) for name, key in ARGUMENTS.items()
        }
        event.args = SimpleNamespace(**found)
    return event


def _scalar(value: Any) -> Any:
    """Return a text or a number; what is neither says nothing."""
    return value if isinstance(value, str | int | float) else None


def event_decoder() -> Callable[[bytes], Sequence[Any]]:
    """Return the fastest decoder of a JSON list of events that is installed."""
    try:
        return _typed_decoder()
    except ImportError:
        return _plain_decoder


def _plain_decoder(text: bytes) -> Sequence[Any]:
    try:
        return [convert_event(table) for table in json.loads(text)]
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None


@cache
def _typed_decoder() -> Callable[[bytes], Sequence[Any]]:
    """Return a decoder that makes only the wanted fields: a few times as fast as one that makes tables."""
    import msgspec

    scalar, several = int | float | str | None, list[Any] | str | int | float | None
    args = msgspec.defstruct(
        "Arguments",
        [(name, several if name in LISTS else scalar, absent) for name, absent in ABSENT.items()],
        rename=ARGUMENTS,
        gc=False,
    )
    event = msgspec.defstruct(
        "Event", [*((name, scalar, None) for name in FIELDS), ("args", args | None, None)], gc=False
    )
    return msgspec.json.Decoder(list[event]).decode  # type: ignore[valid-type]
