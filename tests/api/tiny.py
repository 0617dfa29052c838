"""A run that is simulated in milliseconds, as keywords and as flags."""

from typing import Any

MODEL = {"name": "tiny", "layers": 4, "hidden": 64, "ffn": 128, "heads": 8, "vocab": 64, "seq_length": 32}
SPARSE = {"experts": 8, "topk": 2}
RUN: dict[str, Any] = {"model": MODEL, "cluster": "h200x8", "tp": 2, "pp": 2, "gbs": 8}
TOO_BIG: dict[str, Any] = {"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "pp": 32}


def flags_of(words: dict[str, Any]) -> list[str]:
    """Write the keywords of a run as the flags that stand for them."""
    flags = []
    for word, value in words.items():
        if isinstance(value, dict):
            flags += [part for key, item in value.items() for part in ("--set", f"{word}.{key}={item}")]
        else:
            flags += [f"--{word.replace('_', '-')}", str(value)]
    return flags
