"""The ranks that are played on a real GPU, and predicted before."""

from typing import Any

RANK_S = 8.0
PAPER = {"cluster": "charllm-ppt-h200", "framework": "nemo"}


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


def sparse_rank(
    model: str, gpus: int, mbs: int, gbs: int, dispatcher: str = "alltoall", **parallelism: Any
) -> dict[str, Any]:
    """Return a run of a sparse model on H200 nodes of eight."""
    training = {"seq_length": 4096, "global_batch_size": gbs, "micro_batch_size": mbs}
    cluster = {"base": "h200-superpod", "nodes": gpus // 8}
    framework = {"base": "megatron", "dispatcher": dispatcher}
    return {"cluster": cluster, "framework": framework, "model": model, "parallelism": parallelism,
            "training": training}  # fmt: skip


SPARSE_RANKS: dict[str, tuple[dict[str, Any], int]] = {
    "mixtral-8x7b-ep8": (sparse_rank("mixtral-8x7b", 64, 1, 256, ep=8), 0),
    "mixtral-8x7b-tp2-ep4-mbs2": (sparse_rank("mixtral-8x7b", 32, 2, 128, tp=2, ep=4), 1),
    "mixtral-8x22b-pp4-ep8": (sparse_rank("mixtral-8x22b", 64, 1, 128, pp=4, ep=8), 16),
    "grok-1-tp4-pp4-ep8": (sparse_rank("grok-1", 128, 1, 128, tp=4, pp=4, ep=8), 32),
    "qwen3-30b-ep8": (sparse_rank("qwen3-30b-a3b", 32, 1, 256, ep=8), 0),
    "qwen3-235b-pp4-ep32": (
        sparse_rank("qwen3-235b-a22b", 128, 1, 256, "deepep", pp=4, ep=32, layers_per_stage=[24, 24, 23, 23]),
        32,
    ),
    "deepseek-v3-pp8-ep64": (
        sparse_rank("deepseek-v3", 512, 1, 512, "deepep", pp=8, ep=64, layers_per_stage=[8, 8, 8, 8, 8, 7, 7, 7]),
        128,
    ),
    "deepseek-v2-lite-ep4": (sparse_rank("deepseek-v2-lite", 8, 2, 128, ep=4), 0),
    **{
        name: (RANKS | LATER_RANKS)[name]
        for name in ("gpt3-tp4-pp8-mbs1", "gpt3-tp4-pp8-mbs4-full", "llama3-70b-tp2-pp8-mbs1", "llama3-8b-dp32-mbs1")
    },
}
"""Eight ranks of sparse models, and four of dense ones that were played before."""

_OVERLAPPED: dict[str, tuple[str, int, dict[str, Any], list[str]]] = {
    "gpt3-tp8-pp4": ("gpt3-175b", 8, {"tp": 8, "pp": 4}, ["tp", "pp"]),
    "gpt3-tp2-pp16": ("gpt3-175b", 8, {"tp": 2, "pp": 16}, ["tp", "pp"]),
    "gpt3-tp4-pp8": ("gpt3-175b", 8, {"tp": 4, "pp": 8}, ["tp", "pp"]),
    "llama3-70b-tp4-pp4": ("llama3-70b", 8, {"tp": 4, "pp": 4}, ["tp", "dp"]),
    "llama3-8b-dp32": ("llama3-8b", 0, {}, ["dp"]),
}
INTERLEAVED_RANKS: dict[str, tuple[dict[str, Any], int]] = {
    f"{name}-overlap-{side}": (paper_rank(model, 1, gbs=32, overlap=axes, **degrees), rank)
    for name, (model, rank, degrees, on) in _OVERLAPPED.items()
    for side, axes in (("A", []), ("B", on))
}
"""Ranks without and with overlap, played in turns on one board."""
SPARSE_S = 11.0
PARTS = {"ranks": (RANKS, RANK_S), "later-ranks": (LATER_RANKS, RANK_S), "sparse-ranks": (SPARSE_RANKS, SPARSE_S)}
"""Name: ranks, and how long each is played."""
