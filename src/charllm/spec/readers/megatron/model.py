"""The model that Megatron-LM flags describe, with what Megatron-LM derives from an absent flag."""

import re
from typing import Any

from charllm.spec.readers.megatron.derived import DEFAULT_TOPK, dense_layers, full_attention_every, sparse_letters
from charllm.spec.readers.megatron.family import Family
from charllm.spec.readers.megatron.flags import Flags, count_of, count_or, known_text_of, list_of, number_of, text_of
from charllm.spec.readers.shell.script import CLOSE, OPEN
from charllm.spec.readers.tokenizers import known_vocabulary
from charllm.spec.readers.values import read_choice

Table = dict[str, Any]

COUNTS = {
    "layers": "--num-layers",
    "hidden": "--hidden-size",
    "heads": "--num-attention-heads",
    "mtp_layers": "--mtp-num-layers",
}
NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}
POSITIONS = {
    "learned_absolute": "learned",
    "absolute": "learned",
    "rope": "rope",
    "rotary": "rope",
    "mrope": "rope",
    "yarn": "rope",
    "alibi": "alibi",
    "relative": "none",
    "none": "none",
}
GLU = {"swiglu": "swiglu", "geglu": "geglu", "reglu": "swiglu", "liglu": "swiglu"}
PATCH_VOCABULARIES = {
    "qwen2tokenizer": 151_643,
    "qwen3tokenizer": 151_643,
    "qwentokenizer": 151_851,
    "llama3tokenizer": 128_000,
    "llamatokenizer": 32_000,
    "llama2tokenizer": 32_000,
    "mistraltokenizer": 32_000,
    "mixtraltokenizer": 32_000,
    "yitokenizer": 64_000,
    "starcodertokenizerfromhf": 49_152,
}
"""Tokens that the tokenizers of Pai-Megatron-Patch count before ``--extra-vocab-size`` adds to them."""
DEEPSEEK_VOCABULARIES = {2_400: 102_400, 467: 129_280}
"""Extra tokens: vocabulary of the DeepSeek model, V2 or V3, whose tokenizer the patch's DeepSeekV2Tokenizer loads."""
TOKENIZER_FLAGS = (
    "--tokenizer-model", "--tokenizer-name-or-path", "--tokenizer-file", "--tokenizer-path", "--tokenizer-type",
    "--vocab-file",
)  # fmt: skip
GPT2_TOKENS = 50_257
LLAMA_TOKENS = 32_000
_LLAMA = re.compile(r"llama(?![-_. ]?[34])", re.IGNORECASE)
"""Llama and Llama 2, which share a tokenizer."""
_MARK = re.compile(f"{OPEN}\\d+{CLOSE}")


def read_model(flags: Flags, family: Family, program: str = "") -> Table:
    """Return the fields of the model that the flags state or imply."""
    table: Table = {field: count_of(flags, flag) for field, flag in COUNTS.items()}
    table["vocab"] = _vocab(flags, program)
    table["activation"] = _activation(flags)
    table["norm"] = _norm(flags)
    table["bias"] = _bias(flags, family)
    table["tied_embeddings"] = "--untie-embeddings-and-output-weights" not in flags
    dropout = number_of(flags, "--hidden-dropout")
    table["dropout_fraction"] = 0.1 if dropout is None else dropout
    table["ffn"] = _ffn(flags, table["hidden"])
    table["norms_per_layer"] = 1 if "--parallel-attn" in flags else None
    table.update(_positions(flags))
    table.update(_latent_attention(flags) if "--multi-latent-attention" in flags else _attention(flags))
    table.update(_window(flags))
    table.update(_experts(flags, family, table["ffn"], table["layers"]))
    if "--hybrid-override-pattern" in flags:
        table.update(_hybrid(flags, table))
    return {field: value for field, value in table.items() if value is not None}


def _ffn(flags: Flags, hidden: int | None) -> int | None:
    """Return the feed-forward width; without the flag, three matrices weigh what two of 4 x hidden do."""
    stated = count_of(flags, "--ffn-hidden-size")
    if stated is not None or hidden is None:
        return stated
    return int(4 * hidden * 2 / 3 / 64) * 64 if "--swiglu" in flags else 4 * hidden


def _hybrid(flags: Flags, table: Table) -> Table:
    """Return the layers of a hybrid of Mamba-2 and attention, with Megatron's widths where none are given."""
    flag = "--hybrid-override-pattern"
    pattern = (known_text_of(flags, flag) or "").partition("/")[0].replace("|", "")
    if not pattern or not set(pattern) <= set("M*-E"):
        raise flags.error(flag, pattern, "letters M (Mamba-2), * (attention), - (feed-forward) and E (experts)")
    head_dim = count_or(flags, "--mamba-head-dim", 64)
    return {
        "layers": len(pattern),
        "pattern": pattern,
        "ssm_heads": count_of(flags, "--mamba-num-heads", low=1) or 2 * (table["hidden"] or 0) // head_dim,
        "ssm_head_dim": head_dim,
        "ssm_state": count_or(flags, "--mamba-state-dim", 128),
        "ssm_groups": count_or(flags, "--mamba-num-groups", 8),
        "dense_layers": None,
        "sparse_layers": None,
    }


def _vocab(flags: Flags, program: str) -> int | None:
    for flag in ("--padded-vocab-size", "--pad-vocab-size-to", "--vocab-size"):
        stated = count_of(flags, flag)
        if stated:
            return stated
    patch = (text_of(flags, "--patch-tokenizer-type") or "").lower()
    if patch in PATCH_VOCABULARIES:
        return PATCH_VOCABULARIES[patch] + count_or(flags, "--extra-vocab-size", 0)
    if patch == "deepseekv2tokenizer":
        return DEEPSEEK_VOCABULARIES.get(count_or(flags, "--extra-vocab-size", 0))
    names = [_MARK.sub("", (flags.values.get(flag) or [""])[0]) for flag in TOKENIZER_FLAGS]
    known = known_vocabulary(names)
    if known is None and any(_LLAMA.search(name) for name in names):
        return LLAMA_TOKENS
    # pretrain_gpt.py takes GPT-2's tokenizer where none is named.
    default = "--tokenizer-type" not in flags and re.search(r"pretrain_gpt", program)
    return GPT2_TOKENS if known is None and (default or re.search(r"gpt2", " ".join(names))) else known


def _activation(flags: Flags) -> str:
    glu = known_text_of(flags, "--glu-activation")
    if glu is not None:
        return read_choice("--glu-activation", glu, GLU)
    choices = {"--swiglu": "swiglu", "--quick-geglu": "geglu", "--squared-relu": "squared-relu"}
    return next((activation for flag, activation in choices.items() if flag in flags), "gelu")


def _norm(flags: Flags) -> str:
    if "--rms-norm" in flags:
        return "rmsnorm"
    return read_choice("--normalization", known_text_of(flags, "--normalization") or "LayerNorm", NORMS)


def _bias(flags: Flags, family: Family) -> str:
    if family.bias_by_flag:
        return "all" if "--use-bias" in flags else "none"
    if "--disable-bias-linear" not in flags:
        return "all"
    return "qkv" if "--add-qkv-bias" in flags else "none"


def _positions(flags: Flags) -> Table:
    kind = known_text_of(flags, "--position-embedding-type") or "learned_absolute"
    position = read_choice("--position-embedding-type", kind, POSITIONS)
    if "--use-rotary-position-embeddings" in flags:
        position = "rope"
    elif "--use-alibi-mask" in flags:
        position = "alibi"
    elif "--no-position-embedding" in flags and position == "learned":
        position = "none"
    # Learned positions are weights, so their number and not the sequence is a dimension of the model.
    sequence = count_of(flags, "--seq-length")
    longest = count_of(flags, "--max-position-embeddings") if position == "learned" else None
    return {"position": position, "seq_length": longest or sequence}


def _attention(flags: Flags) -> Table:
    return {
        "kv_heads": _kv_heads(flags),
        "head_dim": count_of(flags, "--kv-channels"),
        "qk_norm": flags.any("--qk-layernorm", "--qk-l2-norm"),
    }


def _kv_heads(flags: Flags) -> int | None:
    stated = count_of(flags, "--num-key-value-heads", low=1)
    if stated is not None:
        return stated
    if text_of(flags, "--attention-head-type") == "multiquery":
        return 1
    return count_or(flags, "--num-query-groups", 1) if "--group-query-attention" in flags else None


def _latent_attention(flags: Flags) -> Table:
    return {
        "attention": "mla",
        "q_lora_rank": count_or(flags, "--q-lora-rank", 0),
        "kv_lora_rank": count_or(flags, "--kv-lora-rank", 32),
        "head_dim": count_or(flags, "--qk-head-dim", 128),
        "rope_head_dim": count_or(flags, "--qk-pos-emb-head-dim", 64),
        "v_head_dim": count_or(flags, "--v-head-dim", 128),
    }


def _window(flags: Flags) -> Table:
    table: Table = {"attention_sinks": text_of(flags, "--softmax-type") == "learnable"}
    size = known_text_of(flags, "--window-size")
    if size is None:
        return {**table, "window": count_of(flags, "--sliding-window")}
    match = re.fullmatch(r"\(?\s*(\d{1,8})\s*,\s*-?\d{1,8}\s*\)?", "".join(flags.values["--window-size"]), re.ASCII)
    if match is None:
        raise flags.error("--window-size", size, "tokens before and after, e.g. (128,0)")
    table["window"] = int(match[1])
    skip = "--window-attn-skip-freq"
    pattern = list_of(flags, skip)
    table["full_attention_every"] = full_attention_every(skip, pattern) if pattern else count_of(flags, skip, low=1)
    return table


def _experts(flags: Flags, family: Family, ffn: int | None, layers: int | None) -> Table:
    """Return the experts of a sparse model; DeepSpeed takes one expert a token in every second layer by default."""
    experts = count_experts(flags)
    if experts <= (1 if family.deepspeed else 0):
        return {}
    expert_ffn = count_of(flags, "--moe-ffn-hidden-size") or ffn
    return {
        "experts": experts,
        "topk": count_or(flags, "--moe-router-topk", 1 if family.deepspeed or family.megablocks else DEFAULT_TOPK),
        "expert_groups": count_or(flags, "--moe-router-num-groups", 1),
        **({"balancing": "bias"} if "--moe-router-enable-expert-bias" in flags else {}),
        "groups_per_token": count_or(flags, "--moe-router-group-topk", 1),
        "expert_ffn": expert_ffn,
        "shared_ffn": _shared_ffn(flags, ffn, expert_ffn),
        "expert_latent": count_or(flags, "--moe-latent-size", 0),
        **_sparse_layers(flags, family, layers),
    }


def count_experts(flags: Flags) -> int:
    """Return how many experts a sparse layer has; 0 when there are none."""
    values = flags.values.get("--num-experts", [])
    if len(set(values)) > 1:
        raise flags.error("--num-experts", " ".join(values), "one number of experts for all sparse layers")
    if values[:1] == ["None"]:
        return 0
    return count_or(flags, "--num-experts", 0)


def _shared_ffn(flags: Flags, ffn: int | None, expert_ffn: int | None) -> int:
    if text_of(flags, "--mlp-type") == "residual":
        return ffn or 0
    shared = count_or(flags, "--num-shared-experts", 0)
    if shared and expert_ffn:
        return shared * expert_ffn
    return count_or(flags, "--moe-shared-expert-intermediate-size", 0)


def _sparse_layers(flags: Flags, family: Family, layers: int | None) -> Table:
    if family.deepspeed:
        every = count_or(flags, "--expert-interval", 2)
        return {"sparse_layers": "-" * (every - 1) + "E"} if every > 1 else {"dense_layers": 0}
    flag = "--moe-layer-freq"
    pattern = list_of(flags, flag)
    if pattern is None:
        every = count_or(flags, flag, 1)
        return {"sparse_layers": "E" + "-" * (every - 1)} if every > 1 else {"dense_layers": 0}
    total = len(pattern) if layers is None else layers
    letters = sparse_letters(flag, pattern, total)
    if letters:
        return {"sparse_layers": letters}
    return {"dense_layers": dense_layers(flag, pattern, total)}


def missing_vocabulary(flags: Flags) -> str:
    """Say which setting gives a vocabulary that the script leaves open."""
    names = [(flags.values.get(flag) or [""])[0] for flag in (*TOKENIZER_FLAGS[:5], "--patch-tokenizer-type")]
    name = next((flags.script.shown(name) if flags.script else name for name in names if name), "")
    what = f"the vocabulary of tokenizer {name} is not known" if name else "the script names no tokenizer"
    return f"--set model.vocab=N ({what})"
