"""The ranks that are played on a real GPU, and predicted before."""

from typing import Any

RANK_S = 8.0
PAPER = {"cluster": "h200x32", "framework": "nemo"}


def paper_rank(
    model: str, mbs: int, recompute: str = "none", *, gbs: int = 64, lora: int = 0, **parallelism: Any
) -> dict[str, Any]:
    """Return a run of the paper's H200 cluster, with 64 sequences a step unless said."""
    training = {"global_batch_size": gbs, "micro_batch_size": mbs, "recompute": recompute, "lora_rank": lora}
    return {**PAPER, "model": model, "parallelism": parallelism, "training": training}


RANKS: dict[str, tuple[dict[str, Any], int]] = {
    "gpt3-tp8-pp4-mbs1": (paper_rank("gpt3-175b", 1, tp=8, pp=4), 8),
    "gpt3-tp8-pp4-mbs2-full": (paper_rank("gpt3-175b", 2, "full", tp=8, pp=4), 8),
    "gpt3-tp8-pp4-mbs8-full": (paper_rank("gpt3-175b", 8, "full", tp=8, pp=4), 8),
    "gpt3-tp8-pp4-mbs1-overlap": (paper_rank("gpt3-175b", 1, tp=8, pp=4, overlap=["tp", "pp"]), 8),
    "gpt3-tp2-pp16-mbs1": (paper_rank("gpt3-175b", 1, tp=2, pp=16), 8),
    "gpt3-tp2-pp16-mbs4-full": (paper_rank("gpt3-175b", 4, "full", tp=2, pp=16), 8),
    "gpt3-tp2-pp16-mbs8-full": (paper_rank("gpt3-175b", 8, "full", tp=2, pp=16), 8),
    "gpt3-tp2-pp16-mbs1-overlap": (paper_rank("gpt3-175b", 1, tp=2, pp=16, overlap=["tp", "pp"]), 8),
    "llama3-70b-tp4-pp4-mbs1": (paper_rank("llama3-70b", 1, tp=4, pp=4), 8),
    "llama3-70b-tp4-pp4-mbs1-overlap": (paper_rank("llama3-70b", 1, tp=4, pp=4, overlap=["tp", "dp"]), 8),
    "llama3-70b-tp8-pp2-mbs2-selective": (paper_rank("llama3-70b", 2, "selective", tp=8, pp=2), 8),
    "llama3-70b-lora-tp4-pp4-mbs1": (paper_rank("llama3-70b", 1, tp=4, pp=4, lora=16), 8),
    "mixtral-8x7b-ep8-mbs1": (paper_rank("mixtral-8x7b", 1, ep=8), 0),
    "mixtral-8x22b-tp4-ep8-mbs1": (paper_rank("mixtral-8x22b", 1, tp=4, ep=8), 0),
}

LATER_RANKS: dict[str, tuple[dict[str, Any], int]] = {
    "gpt3-tp4-pp8-mbs1": (paper_rank("gpt3-175b", 1, gbs=32, tp=4, pp=8), 8),
    "gpt3-tp4-pp8-mbs4-full": (paper_rank("gpt3-175b", 4, "full", gbs=32, tp=4, pp=8), 8),
    "gpt3-tp8-pp4-mbs4-selective": (paper_rank("gpt3-175b", 4, "selective", gbs=32, tp=8, pp=4), 16),
    "gpt3-tp8-pp4-vpp3-mbs1": (paper_rank("gpt3-175b", 1, gbs=32, tp=8, pp=4, vpp=3), 8),
    "gpt3-tp4-pp8-mbs2-overlap": (paper_rank("gpt3-175b", 2, "full", gbs=32, tp=4, pp=8, overlap=["tp", "pp"]), 8),
    "llama3-70b-tp2-pp8-mbs1": (paper_rank("llama3-70b", 1, gbs=32, tp=2, pp=8), 4),
    "llama3-70b-tp4-pp4-mbs4-full": (paper_rank("llama3-70b", 4, "full", gbs=32, tp=4, pp=4), 8),
    "llama3-8b-fsdp-mbs1": (paper_rank("llama3-8b", 1, gbs=64, zero=3), 0),
    "llama3-70b-lora-tp2-pp4-mbs2": (paper_rank("llama3-70b", 2, gbs=32, lora=16, tp=2, pp=4), 4),
    "llama3-8b-dp32-mbs1": (paper_rank("llama3-8b", 1, gbs=64), 0),
    "mixtral-8x7b-tp2-ep4-mbs2": (paper_rank("mixtral-8x7b", 2, gbs=64, tp=2, ep=4), 0),
    "mixtral-8x7b-tp2-pp4-ep4-mbs1": (paper_rank("mixtral-8x7b", 1, gbs=64, tp=2, pp=4, ep=4), 2),
}
"""Played after two constants of loop/emulated.py were set on those above."""
PARTS = {"ranks": RANKS, "later-ranks": LATER_RANKS}
