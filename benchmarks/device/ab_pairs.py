"""Thirty pairs of runs that differ in one setting, for one GPU: training, emulated ranks, bursts.

Microbatches of 1, 2, 4 and 8 at equal recomputation; recomputation; overlap on and off; other shares of a strategy;
duty cycles of a kernel, which stand for power limits that a lent GPU cannot be given.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from charllm.evaluate.h200.rank_cases import INTERLEAVED_RANKS, paper_rank
from charllm.evaluate.h200.training_cases import GPT, LLAMA, LORA, MOE, configured
from charllm.gpu.shape import KernelShape

Request = dict[str, Any]


class Rank(NamedTuple):
    """One rank of a run, emulated."""

    request: Request
    rank: int


class Burst(NamedTuple):
    """A kernel on and off."""

    shape: KernelShape
    on_s: float
    period_s: float


Side = Request | Rank | Burst
"""A request alone is trained."""


class AbPair(NamedTuple):
    """Two runs, and the kind of change between them."""

    change: str
    first: Side
    second: Side


def _trained() -> dict[str, AbPair]:
    found = {}
    for name, base, policies in (("gpt", GPT, ("none", "full")), ("llama", LLAMA, ("none",)), ("moe", MOE, ("none",)),
                                 ("lora", LORA, ("none",))):  # fmt: skip
        for policy in policies:
            for size in (2, 4, 8) if name in ("gpt", "llama") else (2, 4):
                pair = (configured(base, 1, policy), configured(base, size, policy))
                found[f"{name}-{policy}-mbs1-mbs{size}"] = AbPair("microbatch", *pair)
    for name, base in (("gpt", GPT), ("llama", LLAMA), ("lora", LORA)):
        for policy in ("selective", "full") if name != "lora" else ("full",):
            pair = (configured(base, 4), configured(base, 4, policy))
            found[f"{name}-mbs4-none-{policy}"] = AbPair("recomputation", *pair)
    return found


def _rank(model: str, rank: int, **degrees: Any) -> Rank:
    return Rank(paper_rank(model, 1, gbs=32, **degrees), rank)


def _emulated() -> dict[str, AbPair]:
    """Return overlap on and off, where matrix work and where memory-bound work hides it, and shares of strategies."""
    sides = {name: Rank(request, rank) for name, (request, rank) in INTERLEAVED_RANKS.items()}
    found = {name.removesuffix("-A"): AbPair("overlap", side, sides[name.removesuffix("A") + "B"])
             for name, side in sides.items() if name.endswith("-A")}  # fmt: skip
    strategies: list[dict[str, Any]] = [{"tp": tp, "pp": 32 // tp, "overlap": []} for tp in (8, 2)]
    found["gpt3-tp8-pp4-tp2-pp16"] = AbPair("strategy", *(_rank("gpt3-175b", 8, **one) for one in strategies))
    halves: list[dict[str, Any]] = [{"tp": 8, "pp": 2, "overlap": []}, {"tp": 2, "pp": 8, "overlap": []}]
    found["llama3-tp8-pp2-tp2-pp8"] = AbPair("strategy", *(_rank("llama3-70b", 8, **one) for one in halves))
    return found


def _bursts() -> dict[str, AbPair]:
    shape = KernelShape("gemm", (1, 8192, 8192, 8192))
    whole = Burst(shape, 0.005, 0.005)
    return {f"duty-100-{percent}": AbPair("power", whole, Burst(shape, 0.005, 0.5 / percent))
            for percent in (85, 70, 60, 50, 35)}  # fmt: skip


PAIRS: Mapping[str, AbPair] = {**_trained(), **_emulated(), **_bursts()}
"""Pair: its two sides; the order in which they are played."""
