"""Bare training loops that are read on one GPU, and predicted before: what is trained, and how."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Loop:
    """A decoder of plain modules: RMSNorm, q, k and v apart without bias, causal attention, no positions."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """Width of the feed-forward block, or of one expert."""
    gated: bool = True
    """SwiGLU with gate and up apart; else GELU (tanh)."""
    vocab: int = 0
    """0: no embedding, and the mean square of the output for a loss."""
    seq: int = 2048
    mbs: int = 1
    accumulate: int = 1
    recompute: bool = False
    """Every layer again in backward (torch.utils.checkpoint, not re-entrant)."""
    optimizer: bool = True
    """Fused AdamW in bf16."""
    clip: bool = False
    experts: int = 0
    topk: int = 0
    grouped: bool = False
    """Experts in one grouped product; else one after the other in Python."""


def gpt(layers: int, hidden: int, heads: int, head_dim: int, **more: object) -> Loop:
    """A decoder with GELU and a feed-forward block four times as wide."""
    return Loop(layers, hidden, heads, heads, head_dim, 4 * hidden, gated=False, **{"vocab": 50304, **more})  # type: ignore[arg-type]


def mixtral(**more: object) -> Loop:
    """Two layers of Mixtral 8x7B."""
    return Loop(2, 4096, 32, 8, 128, 14336, experts=8, topk=2, **{"seq": 4096, **more})  # type: ignore[arg-type]


def fine(layers: int, **more: object) -> Loop:
    """Layers of 64 small experts, as in DeepSeek-V2-Lite."""
    return Loop(layers, 2048, 16, 16, 128, 1408, experts=64, topk=6, **{"grouped": True, "seq": 4096, **more})  # type: ignore[arg-type]


DENSE = {
    "124m-mbs16": gpt(12, 768, 12, 64, seq=1024, mbs=16),
    "124m-mbs4-accumulate4-clip": gpt(12, 768, 12, 64, seq=1024, mbs=4, accumulate=4, clip=True),
    "350m-mbs1": gpt(24, 1024, 16, 64, seq=2048),
    "350m-mbs8-clip": gpt(24, 1024, 16, 64, seq=2048, mbs=8, clip=True),
    "0.6b-gqa-mbs2": Loop(28, 1024, 16, 8, 128, 3072, vocab=151936, seq=4096, mbs=2),
    "760m-mbs4": gpt(24, 1536, 12, 128, seq=2048, mbs=4),
    "760m-mbs2-accumulate4-clip": gpt(24, 1536, 24, 64, seq=2048, mbs=2, accumulate=4, clip=True),
    "1.1b-gqa-mbs2-accumulate4": Loop(22, 2048, 32, 4, 64, 5632, vocab=32000, seq=4096, mbs=2, accumulate=4),
    "1.3b-mbs8-clip": gpt(24, 2048, 32, 64, seq=1024, mbs=8, clip=True),
    "1.3b-gated-mbs4": Loop(24, 2048, 16, 16, 128, 5632, vocab=32000, seq=2048, mbs=4),
    "2.7b-mbs2": gpt(32, 2560, 20, 128, seq=2048, mbs=2),
    "2.7b-mbs1-clip": gpt(32, 2560, 40, 64, seq=4096, clip=True),
    "3b-gqa-mbs1": Loop(28, 3072, 24, 8, 128, 8192, vocab=128256, seq=4096),
    "7b-recompute-mbs1": Loop(32, 4096, 32, 32, 128, 11008, vocab=32000, seq=4096, recompute=True),
    "7b-gqa-recompute-mbs4-clip": Loop(
        32, 4096, 32, 8, 128, 14336, vocab=32000, seq=2048, mbs=4, recompute=True, clip=True
    ),
    "8b-gqa-mbs1": Loop(32, 4096, 32, 8, 128, 14336, vocab=128256, seq=2048),
    "8b-8-layers-seq8192-mbs2-clip": Loop(8, 4096, 32, 8, 128, 14336, vocab=128256, seq=8192, mbs=2, clip=True),
    "70b-2-layers-mbs1": Loop(2, 8192, 64, 8, 128, 28672, seq=4096, optimizer=False),
    "70b-2-layers-seq8192-adam": Loop(2, 8192, 64, 8, 128, 28672, seq=8192),
    "70b.tp8-8-layers-seq8192": Loop(8, 8192, 8, 1, 128, 3584, seq=8192, optimizer=False),
    "175b-1-layer-mbs2-adam": Loop(1, 12288, 96, 96, 128, 49152, gated=False, seq=2048, mbs=2),
    "175b.tp4-4-layers-recompute-mbs4": Loop(
        4, 12288, 24, 24, 128, 12288, gated=False, seq=2048, mbs=4, optimizer=False, recompute=True
    ),
}
SPARSE = {
    "mixtral-loop-mbs2": mixtral(mbs=2, optimizer=False),
    "mixtral-loop-mbs1-adam-clip": mixtral(mbs=1, clip=True),
    "mixtral-grouped-mbs1": mixtral(mbs=1, grouped=True, optimizer=False),
    "mixtral-grouped-mbs4-adam": mixtral(mbs=4, grouped=True),
    "grok-1-layer-grouped-mbs1": Loop(
        1, 6144, 48, 8, 128, 32768, seq=4096, experts=8, topk=2, grouped=True, optimizer=False
    ),
    "64-experts-grouped-mbs2-head": fine(4, mbs=2, vocab=102400),
    "64-experts-grouped-mbs1-accumulate4-clip": fine(4, accumulate=4, clip=True),
    "128-experts-grouped-mbs2": Loop(
        4, 2048, 32, 4, 128, 768, seq=4096, mbs=2, experts=128, topk=8, grouped=True, optimizer=False
    ),
    "64-experts-loop-mbs4": Loop(2, 2048, 16, 16, 128, 1024, seq=2048, mbs=4, experts=64, topk=8),
    "8-small-experts-loop-accumulate4-clip": Loop(
        4, 2048, 16, 4, 128, 1536, vocab=32000, seq=4096, accumulate=4, clip=True, experts=8, topk=2
    ),
}
LOOPS = DENSE | SPARSE


def request(name: str, loop: Loop) -> dict[str, Any]:
    """Describe a loop as a request."""
    model: dict[str, Any] = {
        "name": name,
        "layers": loop.layers,
        "hidden": loop.hidden,
        "ffn": loop.ffn,
        "heads": loop.heads,
        "kv_heads": loop.kv_heads,
        "head_dim": loop.head_dim,
        "vocab": loop.vocab,
        "seq_length": loop.seq,
        "activation": "swiglu" if loop.gated else "gelu",
        "position": "none",
    }
    if loop.experts:
        model |= {"experts": loop.experts, "topk": loop.topk, "expert_ffn": loop.ffn}
    training: dict[str, Any] = {
        "seq_length": loop.seq,
        "micro_batch_size": loop.mbs,
        "global_batch_size": loop.mbs * loop.accumulate,
        "recompute": "full" if loop.recompute else "none",
        "optimizer": "adam" if loop.optimizer else "none",
        "clip_gradients": loop.clip,
    }
    if loop.experts:
        training["grouped_gemm"] = loop.grouped
    framework = {"base": "pytorch-eager", "packed_projections": False}
    return {"cluster": "h200x1", "framework": framework, "model": model, "training": training}
