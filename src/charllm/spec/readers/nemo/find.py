"""Where NeMo and Megatron Bridge keep a setting, and its value in its type."""

from typing import Any

from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.values import read_count, read_flag, read_number

Table = dict[str, Any]

MODEL = ("model", "model.config")
PARALLEL = ("model", "trainer.strategy", "model.config", "strategy")
BATCH = ("model", "train", "data", "model.data.train_ds")
DDP = ("ddp", "trainer.strategy.ddp", "dist", "strategy.ddp")
OPTIMIZER = ("optimizer", "optim.config", "model.optim")
PRECISE = (*MODEL, "mixed_precision", "trainer.plugins", "plugins")


def find_setting(document: Document, rooms: tuple[str, ...], *keys: str) -> tuple[str, Any]:
    """Return the first value found under any of the rooms, and where it was; the others count as read."""
    places = [f"{room}.{key}" if room else key for room in rooms for key in keys]
    stated = [place for place in places if document.written(place) is not None]
    for place in stated:
        value = document.find(place)
        if value is not None:
            return place, value
    return places[0], None


def count_setting(document: Document, rooms: tuple[str, ...], *keys: str, low: int = 0) -> int | None:
    """Return a whole number; None where the file does not say."""
    where, value = find_setting(document, rooms, *keys)
    return None if value is None else read_count(where, value, low)


def flag_setting(document: Document, rooms: tuple[str, ...], *keys: str, otherwise: bool = False) -> bool:
    """Return a yes or no, or what holds where the file does not say."""
    where, value = find_setting(document, rooms, *keys)
    return otherwise if value is None else read_flag(where, value)


def number_setting(document: Document, rooms: tuple[str, ...], *keys: str) -> float | None:
    """Return a number; None where the file does not say."""
    where, value = find_setting(document, rooms, *keys)
    return None if value is None else read_number(where, value)


def without_none(table: Table) -> Table:
    """Drop the fields that a file leaves open."""
    return {field: value for field, value in table.items() if value is not None}
