"""How many tokens a tokenizer known by name has, for files that name one instead of stating a vocabulary."""

from collections.abc import Iterable
from typing import Any

VOCABULARIES = {
    "gpt2bpetokenizer": 50_257,
    "llama2tokenizer": 32_000,
    "llama-2": 32_000,
    "llama2": 32_000,
    "llama-3": 128_256,
    "llama3": 128_256,
    "mixtral": 32_000,
    "mistral-7b": 32_000,
    "deepseek-v2": 102_400,
    "deepseek-v3": 129_280,
    "qwen2": 151_936,
    "qwen3": 151_936,
    "t5-small": 32_100,
    "mt5": 250_112,
    "starcoder": 49_152,
}
"""Part of a tokenizer's name in lower case: vocabulary of the models that are trained with it."""


def known_vocabulary(names: Iterable[Any]) -> int | None:
    """Return the vocabulary behind the first well known name; None when there is no such name."""
    for name in names:
        lowered = name.lower() if isinstance(name, str) else ""
        for part, tokens in VOCABULARIES.items():
            if part in lowered:
                return tokens
    return None
