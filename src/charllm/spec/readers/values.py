"""Single values of a foreign file, checked: the value in its type, or an error that names the foreign key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from charllm.errors import SpecError, unknown_name
from charllm.spec.readers.probe import Other

T = TypeVar("T")

MAX_COUNT = 2**31
MAX_ENTRIES = 4096
MAX_TEXT = 200


def read_count(field: str, value: Any, low: int = 0, high: int = MAX_COUNT) -> int:
    """Return a whole number within bounds."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not low <= value <= high:
        raise SpecError(field, shown(value), f"a whole number from {low} to {high:,}")
    return int(value)


def read_number(field: str, value: Any) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_COUNT:
        raise SpecError(field, shown(value), "a number")
    return float(value)


def read_flag(field: str, value: Any) -> bool:
    """Return a yes or no."""
    if not isinstance(value, bool):
        raise SpecError(field, shown(value), "true or false")
    return value


def read_choice(field: str, value: Any, choices: Mapping[str, T]) -> T:
    """Return what a word stands for; case does not matter."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise SpecError(field, shown(value), ", ".join(choices))
    word = shown(value)
    if isinstance(value, Other):
        found = choices.get(word.lower())
        return next((other for other in choices.values() if other != found), next(iter(choices.values())))
    if word.lower() not in choices:
        raise unknown_name(field, word[:MAX_TEXT], choices)
    return choices[word.lower()]


def read_counts(field: str, value: Any) -> list[int]:
    """Return a row of whole numbers."""
    if not isinstance(value, list | tuple) or len(value) > MAX_ENTRIES:
        raise SpecError(field, shown(value), f"a list of at most {MAX_ENTRIES} whole numbers")
    return [read_count(field, item) for item in value]


def read_table(field: str, value: Any) -> Mapping[str, Any]:
    """Return a table; an empty one when there is nothing."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SpecError(field, shown(value), "a table")
    return value


def shown(value: Any) -> str:
    """Say in an error what was found, however large or deep it is."""
    if isinstance(value, bool | float | str) or value is None:
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else "a huge number"
    return "a table" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def name_from(path: str, otherwise: str) -> str:
    """Name a model after its file."""
    return Path(path).stem[:MAX_TEXT] or otherwise
