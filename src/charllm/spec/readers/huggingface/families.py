"""What transformers builds for each model type of a Hugging Face config."""

from collections.abc import Callable
from dataclasses import dataclass, field

from charllm.spec.readers.huggingface.parts import (
    Config,
    Table,
    read_all_bias,
    read_biases,
    read_bigcode,
    read_experts,
    read_falcon,
    read_hybrid,
    read_latent_attention,
    read_mpt,
    read_opt,
    read_qk_norm,
    read_qkv_bias,
    read_stablelm,
    read_token_prediction,
    read_window,
)

GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
GATED = {"silu": "swiglu", "swish": "swiglu", **dict.fromkeys(GELUS, "geglu")}
PLAIN = {"relu": "relu", "relu2": "squared-relu", "silu": "silu", **dict.fromkeys(GELUS, "gelu")}
HYBRIDS = (
    "bamba",
    "falcon_h1",
    "falcon_mamba",
    "granitemoehybrid",
    "jamba",
    "kimi_linear",
    "lfm2",
    "mamba",
    "mamba2",
    "minimax",
    "plamo2",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "recurrent_gemma",
    "rwkv",
    "zamba",
    "zamba2",
)


@dataclass(frozen=True, slots=True)
class Family:
    """What a model type implies: fixed features, the parts its config spells out, keys it may leave out."""

    features: Table
    parts: tuple[Callable[[Config], Table], ...] = ()
    defaults: Table = field(default_factory=dict)
    gated: bool = True
    ffn_over_hidden: int = 0


ROPE: Table = {"norm": "rmsnorm", "position": "rope", "tied_embeddings": False}
LAYERNORM: Table = {"norm": "layernorm", "position": "rope", "tied_embeddings": False}
LEARNED: Table = {"norm": "layernorm", "position": "learned", "bias": "all", "tied_embeddings": True}
QWEN2: Table = {**ROPE, "bias": "qkv"}
QWEN3: Table = {**ROPE, "qk_norm": True}
GEMMA: Table = {**ROPE, "tied_embeddings": True}
GEMMA2: Table = {**GEMMA, "norms_per_layer": 4}

SILU: Table = {"hidden_act": "silu"}
GELU: Table = {"hidden_act": "gelu"}
TANH: Table = {"hidden_activation": "gelu_pytorch_tanh"}
QWEN: Table = {**SILU, "use_sliding_window": False}
GEMMA3_DEFAULTS: Table = {
    **TANH,
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}

DEEPSEEK = Family(ROPE, (read_latent_attention, read_biases, read_experts, read_token_prediction), SILU)
QWEN2_DENSE = Family(QWEN2, (read_window,), QWEN)
QWEN3_DENSE = Family(QWEN3, (read_biases, read_window), QWEN)
QWEN3_SPARSE = Family(QWEN3, (read_biases, read_window, read_experts), QWEN)

FAMILIES: dict[str, Family] = {
    "bloom": Family({**LEARNED, "position": "alibi"}, (), GELU, gated=False, ffn_over_hidden=4),
    "cohere": Family({**LAYERNORM, "norms_per_layer": 1, "tied_embeddings": True}, (read_biases, read_qk_norm), SILU),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "falcon": Family({**LAYERNORM, "tied_embeddings": True}, (read_falcon,), GELU, gated=False, ffn_over_hidden=4),
    "gemma": Family(GEMMA, (read_biases,), {**TANH, "head_dim": 256}),
    "gemma2": Family(
        GEMMA2,
        (read_biases, read_window),
        {**TANH, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    ),
    "gemma3_text": Family({**GEMMA2, "qk_norm": True}, (read_biases, read_window), GEMMA3_DEFAULTS),
    "glm": Family(ROPE, (read_qkv_bias,), {**SILU, "attention_bias": True, "head_dim": 128}),
    "glm4": Family({**ROPE, "norms_per_layer": 4}, (read_qkv_bias,), {**SILU, "attention_bias": True, "head_dim": 128}),
    "glm4_moe": Family(ROPE, (read_qkv_bias, read_qk_norm, read_experts, read_token_prediction), SILU),
    "gpt2": Family(
        LEARNED, (), {"activation_function": "gelu_new", "resid_pdrop": 0.1}, gated=False, ffn_over_hidden=4
    ),
    "gpt_bigcode": Family(
        LEARNED,
        (read_bigcode,),
        {"activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1},
        gated=False,
        ffn_over_hidden=4,
    ),
    "gpt_neox": Family({**LAYERNORM, "bias": "all"}, (), GELU, gated=False),
    "gpt_oss": Family(
        {**ROPE, "bias": "all", "attention_sinks": True},
        (read_window, read_experts),
        {**SILU, "head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    ),
    "granite": Family(ROPE, (read_biases,), SILU),
    "granitemoe": Family(ROPE, (read_biases, read_experts), SILU),
    "kimi_k2": DEEPSEEK,
    "llama": Family(ROPE, (read_biases,), SILU),
    "mistral": Family(ROPE, (read_window,), SILU),
    "mixtral": Family(ROPE, (read_window, read_experts), SILU),
    "mpt": Family({**LAYERNORM, "tied_embeddings": True}, (read_mpt,), GELU, gated=False, ffn_over_hidden=4),
    "nemotron": Family(LAYERNORM, (read_biases,), {"hidden_act": "relu2"}, gated=False),
    "nemotron_h": Family(
        {**ROPE, "position": "none"}, (read_biases, read_hybrid), {"mlp_hidden_act": "relu2"}, gated=False
    ),
    "olmo": Family(LAYERNORM, (read_biases,), SILU),
    "olmo2": Family(QWEN3, (read_biases,), SILU),
    "olmo3": Family(QWEN3, (read_biases, read_window), {**SILU, "sliding_window": 4096, "sliding_window_pattern": 4}),
    "olmoe": Family(QWEN3, (read_biases, read_experts), SILU),
    "opt": Family(LEARNED, (read_opt,), {"activation_function": "relu", "dropout": 0.1}, gated=False),
    "phi": Family({**LAYERNORM, "bias": "all", "norms_per_layer": 1}, (), GELU, gated=False),
    "phi3": Family(ROPE, (read_window,), SILU),
    "qwen2": QWEN2_DENSE,
    "qwen2_5_vl_text": QWEN2_DENSE,
    "qwen2_moe": Family(QWEN2, (read_window, read_experts), QWEN),
    "qwen2_vl_text": QWEN2_DENSE,
    "qwen3": QWEN3_DENSE,
    "qwen3_moe": QWEN3_SPARSE,
    "qwen3_vl_moe_text": QWEN3_SPARSE,
    "qwen3_vl_text": QWEN3_DENSE,
    "stablelm": Family(LAYERNORM, (read_stablelm,), SILU),
    "starcoder2": Family({**LAYERNORM, "tied_embeddings": True}, (read_window, read_all_bias), GELU, gated=False),
}
"""Model type in the config: what transformers builds for it."""
