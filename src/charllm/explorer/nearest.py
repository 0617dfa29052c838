"""The nearest requests that are valid, for one that is not: what the explorer offers as buttons."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from charllm.api.keywords import FIELDS, SHORT
from charllm.catalog.sizes import near_clusters, read_size
from charllm.errors import SpecError
from charllm.explorer.request import FIELDS as OWN_FIELDS
from charllm.explorer.request import WORDS, resolve_words

MOST_OFFERED = 3
MOST_TRIED = 60
"""Values of one setting that are tried; each takes about a millisecond."""
MULTIPLES = [step << power for step in (1, 3) for power in range(13)]
"""Steps whose multiples are tried: degrees and batches divide by them."""
FARTHEST = 2.0**53
"""A value beyond it, also an infinite one such as JSON's 1e999, is taken for it: no setting reaches so far."""
AUTOMATIC_FARNESS = 8.0
"""Leaving a setting to the defaults is offered after values up to 256 times as large."""


class Offer(NamedTuple):
    """A change of one setting that makes a request valid."""

    word: str
    value: Any
    """None: left to the defaults."""
    farness: float


def nearest_valid(words: Mapping[str, Any], error: SpecError) -> list[dict[str, Any]]:
    """Return changes of one setting each that make a request valid: of what is to blame first, the nearest first."""
    blamed = _blamed(error.field)
    found = []
    for word, asked in words.items():
        tried = sorted(_values(word, asked, str(error.expected)), key=lambda offer: offer.farness)[:MOST_TRIED]
        valid = next((offer for offer in tried if _is_valid({**words, word: offer.value})), None)
        found += [valid] if valid else []
    found.sort(key=lambda offer: (offer.word != blamed, offer.farness))
    return [{"word": offer.word, "value": offer.value} for offer in found[:MOST_OFFERED]]


def _blamed(field: str) -> str:
    """Return the word that sets a field, or the field's own name."""
    paths = {{**FIELDS, **OWN_FIELDS}.get(SHORT.get(word, word)): word for word in WORDS}
    return paths.get(field) or field.rpartition(".")[2]


def _values(word: str, asked: Any, expected: str) -> Iterator[Offer]:
    """Propose values of one setting, with how far each is from the one that was asked for."""
    if word == "cluster":
        yield from _machines(str(asked))
        return
    if word != "model":
        yield Offer(word, None, AUTOMATIC_FARNESS)
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        return
    asked = max(-FARTHEST, min(asked, FARTHEST))
    named = {float(text) for text in re.findall(r"\d+(?:\.\d+)?", expected.replace(",", ""))}
    near = {step * max(0, int(asked) // step + more) for step in MULTIPLES for more in (0, 1)}
    for value in sorted(named | {float(one) for one in near} - {float(asked)}):
        yield Offer(word, int(value) if value.is_integer() else value, _farness(value, asked))


def _machines(asked: str) -> Iterator[Offer]:
    """Propose as many GPUs of the same kind as make whole nodes, or names like the one that was asked for."""
    parts = re.fullmatch(r"(?:(\d{1,6})x)?(.+?)(?:x(\d{1,6}))?", asked.lower().strip())
    size = parts and int(parts[1] or parts[3] or 0)
    if parts and size and read_size(f"{parts[2]}x{size}"):
        for gpus in range(max(1, size - 72), size + 73):
            yield Offer("cluster", f"{parts[2]}x{gpus}", _farness(gpus, size))
        return
    for place, name in enumerate(near_clusters(asked)):
        yield Offer("cluster", name, place)


def _farness(value: float, asked: float) -> float:
    return abs(math.log2((value + 0.5) / (max(0.0, asked) + 0.5)))


def _is_valid(words: Mapping[str, Any]) -> bool:
    try:
        resolve_words({word: value for word, value in words.items() if value is not None})
    except SpecError:
        return False
    return True
