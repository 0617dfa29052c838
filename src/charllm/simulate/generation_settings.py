"""The settings of a generation beside its model and machine: lengths, engine, and the files that are written."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypedDict

from charllm.spec.fields import choice, count, flag, path
from charllm.spec.generation import CACHE_BYTES, ENGINES, MOST


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateSettings:
    """What is generated, by which engine, and what is written about it."""

    batch: int = count("sequences over all replicas, generated together from begin to end", 1, MOST, 1)
    prompt_length: int = count("tokens of each prompt", 1, MOST, 1024, "--prompt-length/--prompt N")
    new_tokens: int = count("tokens generated for each sequence", 1, MOST, 128)
    cache_precision: str = choice("number format of the key-value cache", tuple(CACHE_BYTES), "bf16")
    engine: str = choice("the engine that generates", ENGINES, "vllm")
    top_p: bool = flag("draw from the most likely tokens (top-p, top-k), for which vLLM sorts the vocabulary", False)
    ignore_memory: bool = flag("continue even if the batch does not fit in memory", False)
    allow_long: bool = flag("simulate even if the estimate is minutes or hours", False)
    out: Path | None = path("store the run in this new folder")
    report: Path | None = path("write everything as one HTML file", flag="--report FILE.html")


class GenerateKeywords(TypedDict, total=False):
    """Keywords of `GenerateSettings`, with the types of their values."""

    batch: int
    prompt: int
    new_tokens: int
    cache_precision: str
    engine: str
    top_p: bool
    ignore_memory: bool
    allow_long: bool
    out: str | PathLike[str] | None
    report: str | PathLike[str] | None
