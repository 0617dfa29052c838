"""The software profile behind Megatron-LM flags, and what flags change in it."""

from typing import Any

from charllm.spec.readers.megatron.family import Family, text_is
from charllm.spec.readers.megatron.flags import Flags, count_of, known_text_of
from charllm.spec.readers.reading import Setting
from charllm.spec.readers.values import read_choice

Table = dict[str, Any]

BACKENDS = {"auto": "flash", "flash": "flash", "fused": "flash", "unfused": "unfused", "local": "unfused"}
DISPATCHERS = {"deepep": "deepep", "hybridep": "hybridep"}


def read_software(flags: Flags, family: Family, model: Table, training: Table, ep: int) -> tuple[Any, list[Setting]]:
    """Return the profile, by its name or with changes over it, and settings that are not modelled."""
    old = family.deepspeed or family.before_flash
    base = "megatron-deepspeed" if family.deepspeed else "megatron-2020" if family.before_flash else "megatron"
    changes = {"attention": _attention(flags, old), **_fusions(flags, old, model), **_buckets(flags, training)}
    changes["vocab_multiple"] = count_of(flags, "--make-vocab-size-divisible-by", low=1)
    changes["graphs"] = _graphs(flags, "experts" in model)
    unmodelled = _dispatch(flags, family, changes, model, ep)
    changes = {field: value for field, value in changes.items() if value is not None}
    return ({"base": base, **changes} if changes else base), unmodelled


def _attention(flags: Flags, old: bool) -> str | None:
    """Return the kind of attention where it is not the profile's."""
    stated = known_text_of(flags, "--attention-backend")
    if stated is not None:
        kind = read_choice("--attention-backend", stated, BACKENDS)
    elif "--use-flash-attn" in flags:
        kind = "flash"
    elif flags.any("--use-legacy-models") or text_is(flags, "--transformer-impl", "local"):
        kind = "unfused"
    else:
        return None
    return kind if (kind == "unfused") != old else None


def _fusions(flags: Flags, old: bool, model: Table) -> Table:
    gated = model.get("activation") in ("swiglu", "geglu")
    fused_loss = "--cross-entropy-loss-fusion" in flags
    sparse = "experts" in model and not old
    return {
        "cross_entropy": None if fused_loss != old else ("fused" if old else "vocab-parallel"),
        "fused_gradients": False if "--no-gradient-accumulation-fusion" in flags and not old else None,
        "fused_activation": False if f"--no-bias-{'swiglu' if gated else 'gelu'}-fusion" in flags else None,
        "fused_rope": False if "--no-rope-fusion" in flags and model.get("position") == "rope" else None,
        "fused_permute": False if sparse and "--moe-permute-fusion" not in flags else None,
        "fused_router": True if sparse and "--moe-router-fusion" in flags else None,
    }


def _buckets(flags: Flags, training: Table) -> Table:
    narrow = training["precision"] != "fp32" and training.get("reduce_precision") == "bf16"
    bucket = count_of(flags, "--ddp-bucket-size", low=1)
    return {
        "bucket_bytes": None if bucket is None else float(bucket * (2 if narrow else 4)),
    }


def _graphs(flags: Flags, sparse: bool) -> str | None:
    implementation = known_text_of(flags, "--cuda-graph-impl") or "none"
    if implementation == "none" and not flags.any("--enable-cuda-graph", "--external-cuda-graph"):
        return None
    scopes = flags.values.get("--cuda-graph-scope") or flags.values.get("--cuda-graph-modules") or ["full"]
    return "partial" if sparse and "full_iteration" not in scopes else "full"


def _dispatch(flags: Flags, family: Family, changes: Table, model: Table, ep: int) -> list[Setting]:
    """Set what sends tokens to experts; Megatron's all-gather dispatcher is not modelled."""
    if "experts" not in model or family.deepspeed:
        return []
    kind = known_text_of(flags, "--moe-token-dispatcher-type")
    if kind == "flex" or "--moe-enable-deepep" in flags:
        backend = known_text_of(flags, "--moe-flex-dispatcher-backend") or "deepep"
        changes["dispatcher"] = read_choice("--moe-flex-dispatcher-backend", backend, DISPATCHERS)
    if kind == "allgather" and ep > 1:
        return [flags.setting("--moe-token-dispatcher-type", "tokens sent to all expert ranks")]
    return []
