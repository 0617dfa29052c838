"""The architectures behind torchtitan's model names and flavors.

Source: pytorch/torchtitan, torchtitan/models/*/__init__.py, from its first release to 2026.
"""

from typing import Any

Table = dict[str, Any]


def _llama(dim: int, layers: int, heads: int, kv_heads: int = 0, multiple: int = 256, factor: float = 1.0) -> Table:
    """Work out the feed-forward width as torchtitan does: two thirds of four widths, scaled and rounded up."""
    wide = int(factor * int(2 * 4 * dim / 3))
    return {
        "layers": layers,
        "hidden": dim,
        "heads": heads,
        "kv_heads": kv_heads or heads,
        "ffn": multiple * -(-wide // multiple),
    }


def _qwen(dim: int, layers: int, heads: int, kv_heads: int, ffn: int, *, tied: bool = False) -> Table:
    return {
        "layers": layers,
        "hidden": dim,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": ffn,
        "head_dim": 128,
        "qk_norm": True,
        "tied_embeddings": tied,
    }


def _sparse(experts: int, topk: int, expert_ffn: int, shared: int = 0, **more: Any) -> Table:
    return {"experts": experts, "topk": topk, "expert_ffn": expert_ffn, "shared_ffn": shared * expert_ffn, **more}


def _latent(dim: int, layers: int, heads: int, ffn: int, q_rank: int, dense: int) -> Table:
    return {
        "layers": layers,
        "hidden": dim,
        "heads": heads,
        "kv_heads": heads,
        "ffn": ffn,
        "dense_layers": dense,
        "attention": "mla",
        "q_lora_rank": q_rank,
        "kv_lora_rank": 512,
        "head_dim": 128,
        "rope_head_dim": 64,
        "v_head_dim": 128,
    }


def _gpt_oss(layers: int, experts: int, dim: int = 2880) -> Table:
    return {
        "layers": layers,
        "hidden": dim,
        "heads": 64,
        "kv_heads": 8,
        "head_dim": 64,
        "ffn": 2880,
        "bias": "all",
        "attention_sinks": True,
        "window": 128,
        "full_attention_every": 2,
        **_sparse(experts, 4, 2880),
    }


LLAMA4 = {**_llama(5120, 48, 40, 8, 2048, 1.2), "head_dim": 128}
CHUNKED = {"window": 8192, "window_kind": "chunked", "full_attention_every": 4}
SCOUT, MAVERICK = _sparse(16, 1, 8192, 1), _sparse(128, 1, 8192, 1, sparse_layers="-E")

FLAVORS: dict[str, dict[str, Table]] = {
    "llama2": {
        "271M": _llama(1024, 16, 8),
        "1B": _llama(2048, 18, 16),
        "7B": _llama(4096, 32, 32),
        "13B": _llama(5120, 40, 40),
        "26B": _llama(5120, 80, 40),
        "70B": _llama(8192, 80, 64, 8, 4096, 1.3),
    },
    "llama3": {
        "1B": {**_llama(2048, 16, 32, 8, 1024, 1.5), "tied_embeddings": True},
        "3B": {**_llama(3072, 28, 24, 8, 1024, 1.0), "tied_embeddings": True},
        "8B": _llama(4096, 32, 32, 8, 1024, 1.3),
        "70B": _llama(8192, 80, 64, 8, 4096, 1.3),
        "405B": _llama(16384, 126, 128, 8, 4096, 1.2),
    },
    "llama4": {"17bx16e": {**LLAMA4, **SCOUT}, "17bx128e": {**LLAMA4, **MAVERICK}},
    "deepseek_v3": {
        "16B": {**_latent(2048, 27, 16, 10944, 0, 1), **_sparse(64, 6, 1408, 2), "vocab": 102_400},
        "236B": {
            **_latent(5120, 60, 128, 12288, 1536, 1),
            **_sparse(160, 6, 1536, 2, expert_groups=8, groups_per_token=3),
            "vocab": 102_400,
        },
        "671B": {
            **_latent(7168, 61, 128, 18432, 1536, 3),
            **_sparse(256, 8, 2048, 1, expert_groups=8, groups_per_token=4),
        },
    },
    "qwen3": {
        "0.6B": _qwen(1024, 28, 16, 8, 3072, tied=True),
        "1.7B": _qwen(2048, 28, 16, 8, 6144, tied=True),
        "4B": _qwen(2560, 36, 32, 8, 9728, tied=True),
        "8B": _qwen(4096, 36, 32, 8, 12288),
        "14B": _qwen(5120, 40, 40, 8, 17408),
        "32B": _qwen(5120, 64, 64, 8, 25600),
        "30B-A3B": {**_qwen(2048, 48, 32, 4, 6144), **_sparse(128, 8, 768)},
        "235B-A22B": {**_qwen(4096, 94, 64, 4, 12288), **_sparse(128, 8, 1536)},
    },
    "gpt_oss": {"20b": _gpt_oss(24, 32), "120b": _gpt_oss(36, 128)},
}
"""Name in [model]: flavor: fields of the model."""
VOCABULARIES = {
    "llama2": 32_000,
    "llama3": 128_256,
    "llama4": 202_048,
    "deepseek_v3": 129_280,
    "qwen3": 151_936,
    "gpt_oss": 201_088,
}
DEBUG: dict[str, Table] = {
    "llama2": _llama(256, 6, 16),
    "llama3": _llama(256, 6, 16),
    "llama4": {**_llama(256, 6, 16), **_sparse(8, 1, 384, 1, sparse_layers="-E")},
    "deepseek_v3": {**_latent(256, 6, 16, 1024, 0, 1), **_sparse(8, 3, 256, 2)},
    "qwen3": _qwen(256, 8, 16, 8, 3072, tied=True),
    "gpt_oss": _gpt_oss(4, 8, 256),
}
"""Flavor `debugmodel`, with the vocabulary of its test tokenizer."""
DEBUG_VOCABULARY = 2048
SUFFIXES = ("_flex_attn", "_varlen_attn", "_flex", "_varlen", "_irope", "_moe")


def find_flavor(name: str, flavor: str) -> Table | None:
    """Return the fields of a model, or None when the name or the flavor is not known."""
    base = next((flavor.removesuffix(suffix) for suffix in SUFFIXES if flavor.endswith(suffix)), flavor)
    if name not in FLAVORS:
        return None
    known = {key.lower(): table for key, table in FLAVORS[name].items()}
    table = DEBUG[name] if base == "debugmodel" else known.get(base.lower())
    if table is None:
        return None
    vocab = DEBUG_VOCABULARY if base == "debugmodel" else VOCABULARIES[name]
    sparse = _sparse(64, 8, 768) if flavor.endswith("_moe") and name == "qwen3" else {}
    chunked = CHUNKED if flavor.endswith("_irope") else {}
    return {"name": f"{name}-{flavor}", "vocab": vocab, **table, **sparse, **chunked}
