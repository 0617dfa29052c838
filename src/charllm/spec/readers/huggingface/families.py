"""What transformers, or a model's own code, builds for each model type of a Hugging Face config."""

from collections.abc import Callable
from dataclasses import dataclass, field

from charllm.spec.readers.huggingface.layers import (
    read_chunked_layers,
    read_delta_layers,
    read_gpt_neo_layers,
    read_lightning_layers,
    read_mamba_layers,
    read_softmax_layers,
    read_window,
)
from charllm.spec.readers.huggingface.parts import (
    read_all_bias,
    read_baichuan,
    read_biases,
    read_bigcode,
    read_chatglm,
    read_dbrx,
    read_experts,
    read_falcon,
    read_granite_experts,
    read_granite_position,
    read_hybrid,
    read_latent_attention,
    read_llama4_experts,
    read_minimax_prediction,
    read_mpt,
    read_no_bias,
    read_opt,
    read_plain_bias,
    read_qk_norm,
    read_qkv_bias,
    read_qwen1,
    read_stablelm,
    read_stated_bias,
    read_token_prediction,
)
from charllm.spec.readers.huggingface.values import Config, Table

GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python")
GATED = {"silu": "swiglu", "swish": "swiglu", "swiglu": "swiglu", **dict.fromkeys(GELUS, "geglu")}
PLAIN = {
    "relu": "relu",
    "relu2": "squared-relu",
    "relu_squared": "squared-relu",
    "silu": "silu",
    # As many bytes move as for silu.
    "xielu": "silu",
    **dict.fromkeys(GELUS, "gelu"),
}

RECURRENT = "its recurrent layers are not modelled"
REFUSED = {
    "afmoe": "gated attention beside windows of this kind is not modelled",
    "bart": "an encoder and a decoder in one model are not modelled",
    "deepseek_ref": "compressed attention and several residual streams are not modelled",
    "deepseek_v4": "compressed attention and several residual streams are not modelled",
    "falcon_h1": "attention and Mamba side by side in a layer are not modelled",
    "falcon_mamba": "Mamba-1 layers are not modelled",
    "gemma3n": "embeddings of each layer and several residual streams are not modelled",
    "gemma3n_text": "embeddings of each layer and several residual streams are not modelled",
    "gemma4": "embeddings of each layer and shared keys and values are not modelled",
    "gemma4_text": "embeddings of each layer and shared keys and values are not modelled",
    "hunyuan": "keys and values shared between layers are not modelled",
    "jamba": "Mamba-1 layers are not modelled",
    "kimi_linear": "Kimi delta attention is not modelled",
    "lfm2": "short convolutions in place of attention are not modelled",
    "lfm2_moe": "short convolutions in place of attention are not modelled",
    "longcat_flash": "two attentions in a layer and experts that do nothing are not modelled",
    "mamba": "Mamba-1 layers are not modelled",
    "mamba2": "a model without attention is not modelled",
    "laguna": "head counts that differ from layer to layer are not modelled",
    "mimo_v2_flash": "heads that differ between windowed and full layers are not modelled",
    "minimax_m3": "attention to chosen blocks is not modelled",
    "minimax_m3_vl": "attention to chosen blocks is not modelled",
    "mllama": "cross attention is not modelled",
    "mllama_text_model": "cross attention is not modelled",
    "mt5": "an encoder and a decoder in one model are not modelled",
    "nemotron-nas": "widths that differ from layer to layer are not modelled",
    "olmo_hybrid": RECURRENT,
    "openelm": "widths that differ from layer to layer are not modelled",
    "phi3small": "block-sparse attention is not modelled",
    "plamo2": RECURRENT,
    "recurrent_gemma": RECURRENT,
    "rwkv": RECURRENT,
    "rwkv7": RECURRENT,
    "step3p5": "head counts that differ from layer to layer are not modelled",
    "step3p7": "head counts that differ from layer to layer are not modelled",
    "switch_transformers": "an encoder and a decoder in one model are not modelled",
    "t5": "an encoder and a decoder in one model are not modelled",
    "t5gemma": "an encoder and a decoder in one model are not modelled",
    "umt5": "an encoder and a decoder in one model are not modelled",
    "whisper": "an encoder and a decoder in one model are not modelled",
    "xlstm": RECURRENT,
    "zamba": "Mamba-1 layers and shared blocks are not modelled",
    "zamba2": "blocks shared between layers are not modelled",
}
"""Model type: what would have to be modelled to read it."""


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
GPT2: Table = {"activation_function": "gelu_new", "resid_pdrop": 0.1}
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
LLAMA4_DEFAULTS: Table = {
    **SILU,
    "head_dim": 128,
    "use_qk_norm": True,
    "attention_chunk_size": 8192,
    "interleave_moe_layer_step": 1,
    "num_experts_per_tok": 1,
}
NEXT_DEFAULTS: Table = {
    **SILU,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}

LLAMA = Family(ROPE, (read_biases,), SILU)
DEEPSEEK = Family(ROPE, (read_latent_attention, read_biases, read_experts, read_token_prediction), SILU)
QWEN2_DENSE = Family(QWEN2, (read_window, read_token_prediction), QWEN)
QWEN3_DENSE = Family(QWEN3, (read_biases, read_window), QWEN)
QWEN3_SPARSE = Family(QWEN3, (read_biases, read_window, read_experts), QWEN)
QWEN_NEXT = Family(QWEN3, (read_biases, read_delta_layers, read_experts, read_token_prediction), NEXT_DEFAULTS)
LLAMA4 = Family(ROPE, (read_biases, read_qk_norm, read_chunked_layers, read_llama4_experts), LLAMA4_DEFAULTS)
LIGHTNING = Family(ROPE, (read_lightning_layers, read_experts), SILU)
GLM_SPARSE = Family(ROPE, (read_qkv_bias, read_qk_norm, read_experts, read_token_prediction), SILU)
GLM4 = Family({**ROPE, "norms_per_layer": 4}, (read_qkv_bias,), {**SILU, "attention_bias": True, "head_dim": 128})
MISTRAL = Family(ROPE, (read_window,), SILU)
INTERNLM = Family(ROPE, (read_plain_bias,), SILU)
BAILING = Family(ROPE, (read_no_bias, read_qk_norm, read_experts, read_token_prediction), SILU)
GPTJ = Family(
    {**LAYERNORM, "bias": "mlp", "norms_per_layer": 1},
    (),
    {"activation_function": "gelu_new"},
    gated=False,
    ffn_over_hidden=4,
)
GEMMA3 = Family({**GEMMA2, "qk_norm": True}, (read_biases, read_window), GEMMA3_DEFAULTS)
GRANITE_HYBRID = Family(
    ROPE,
    (read_biases, read_granite_position, read_mamba_layers, read_granite_experts),
    {**SILU, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_n_groups": 1},
)

FAMILIES: dict[str, Family] = {
    "Yi": LLAMA,
    "apertus": Family(QWEN3, (read_biases,), {"hidden_act": "xielu"}, gated=False),
    "aquila": LLAMA,
    "arcee": Family(ROPE, (read_biases,), {"hidden_act": "relu2"}, gated=False),
    "baichuan": Family(ROPE, (read_baichuan,), SILU),
    "bailing_moe": BAILING,
    "bailing_moe_v2": Family(QWEN3, BAILING.parts, {**SILU, "use_qk_norm": True}),
    "bamba": Family(
        ROPE,
        (read_biases, read_mamba_layers),
        {**SILU, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_n_heads": 128},
    ),
    "bloom": Family({**LEARNED, "position": "alibi"}, (), GELU, gated=False, ffn_over_hidden=4),
    "chatglm": Family(ROPE, (read_chatglm,), SILU),
    "codegen": GPTJ,
    "cohere": Family({**LAYERNORM, "norms_per_layer": 1, "tied_embeddings": True}, (read_biases, read_qk_norm), SILU),
    "cohere2": Family(
        {**LAYERNORM, "norms_per_layer": 1, "tied_embeddings": True},
        (read_biases, read_window),
        {**SILU, "sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "dbrx": Family(LAYERNORM, (read_dbrx,), {**SILU, "intermediate_size": 1}),
    "deepseek": Family(ROPE, (read_biases, read_experts), SILU),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": DEEPSEEK,
    "dots1": Family(QWEN3, (read_biases, read_window, read_experts), {**SILU, "max_window_layers": 62}),
    "ernie4_5": Family({**ROPE, "tied_embeddings": True}, (read_no_bias,), {**SILU, "head_dim": 128}),
    "ernie4_5_moe": Family(
        {**ROPE, "tied_embeddings": True},
        (read_no_bias, read_experts, read_token_prediction),
        {**SILU, "moe_layer_start_index": 1},
    ),
    "exaone": Family(ROPE, (read_biases,), {"activation_function": "silu"}),
    "exaone4": Family(QWEN3, (read_window,), {**SILU, "sliding_window_pattern": 4}),
    "exaone_moe": Family(
        QWEN3, (read_window, read_experts, read_token_prediction), {**SILU, "sliding_window_pattern": 4}
    ),
    "falcon": Family({**LAYERNORM, "tied_embeddings": True}, (read_falcon,), GELU, gated=False, ffn_over_hidden=4),
    "gemma": Family(GEMMA, (read_biases,), {**TANH, "head_dim": 256}),
    "gemma2": Family(
        GEMMA2,
        (read_biases, read_window),
        {**TANH, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    ),
    "gemma3_text": GEMMA3,
    "glm": Family(ROPE, (read_qkv_bias,), {**SILU, "attention_bias": True, "head_dim": 128}),
    "glm4": GLM4,
    "glm4_moe": GLM_SPARSE,
    "glm4_moe_lite": DEEPSEEK,
    "glm4v_moe_text": GLM_SPARSE,
    "glm4v_text": GLM4,
    "glm_moe_dsa": DEEPSEEK,
    "gpt2": Family(LEARNED, (), GPT2, gated=False, ffn_over_hidden=4),
    "gpt_bigcode": Family(
        LEARNED,
        (read_bigcode,),
        {"activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1},
        gated=False,
        ffn_over_hidden=4,
    ),
    "gpt_neo": Family(
        {**LEARNED, "bias": "mlp"},
        (read_gpt_neo_layers,),
        {"activation_function": "gelu_new"},
        gated=False,
        ffn_over_hidden=4,
    ),
    "gpt_neox": Family({**LAYERNORM, "bias": "all"}, (read_stated_bias,), GELU, gated=False),
    "gpt_oss": Family(
        {**ROPE, "bias": "all", "attention_sinks": True},
        (read_stated_bias, read_window, read_experts),
        {**SILU, "head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    ),
    "gptj": GPTJ,
    "granite": Family(ROPE, (read_biases,), SILU),
    "granitemoe": Family(ROPE, (read_biases, read_experts), SILU),
    "granitemoehybrid": GRANITE_HYBRID,
    "granitemoeshared": Family(ROPE, (read_biases, read_granite_experts), SILU),
    "grok-1": Family({**GEMMA, "norms_per_layer": 4}, (read_experts,), GELU),
    "helium": LLAMA,
    "hunyuan_v1_dense": Family(QWEN3, (read_biases,), {**SILU, "use_qk_norm": True}),
    "hunyuan_v1_moe": Family(QWEN3, (read_biases, read_experts), {**SILU, "use_qk_norm": True}),
    "internlm": INTERNLM,
    "internlm2": INTERNLM,
    "internlm3": INTERNLM,
    "kimi_k2": DEEPSEEK,
    "llama": LLAMA,
    "llama4_text": LLAMA4,
    "mimo": Family(QWEN2, (read_stated_bias, read_window, read_token_prediction), QWEN),
    "minicpm": LLAMA,
    "minicpm3": Family(ROPE, (read_latent_attention, read_biases), SILU),
    "minimax": LIGHTNING,
    "minimax_m1": LIGHTNING,
    "minimax_m2": Family(
        QWEN3, (read_softmax_layers, read_experts, read_minimax_prediction), {**SILU, "head_dim": 128}
    ),
    "minimax_text_01": LIGHTNING,
    "ministral": MISTRAL,
    "ministral3": Family(ROPE, (read_window,), {**SILU, "head_dim": 128}),
    "mistral": MISTRAL,
    "mistral4": DEEPSEEK,
    "mixtral": Family(ROPE, (read_window, read_experts), {**SILU, "num_experts_per_tok": 2, "num_local_experts": 8}),
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
    "orion": Family(LAYERNORM, (read_biases,), SILU),
    "persimmon": Family(
        {**LAYERNORM, "bias": "all"}, (read_qk_norm,), {"hidden_act": "relu2", "qk_layernorm": True}, gated=False
    ),
    "phi": Family({**LAYERNORM, "bias": "all", "norms_per_layer": 1}, (read_qk_norm,), GELU, gated=False),
    "phi3": Family(ROPE, (read_window,), SILU),
    "phi3_v": Family(ROPE, (read_window,), SILU),
    "phi4mm": Family(ROPE, (read_window,), SILU),
    "phimoe": Family(LAYERNORM, (read_biases, read_window, read_experts), SILU),
    "qwen": Family(QWEN2, (read_qwen1,), SILU),
    "qwen2": QWEN2_DENSE,
    "qwen2_5_vl": QWEN2_DENSE,
    "qwen2_5_vl_text": QWEN2_DENSE,
    "qwen2_moe": Family(QWEN2, (read_window, read_experts), QWEN),
    "qwen2_vl": QWEN2_DENSE,
    "qwen2_vl_text": QWEN2_DENSE,
    "qwen3": QWEN3_DENSE,
    "qwen3_5_moe_text": QWEN_NEXT,
    "qwen3_5_text": QWEN_NEXT,
    "qwen3_moe": QWEN3_SPARSE,
    "qwen3_next": QWEN_NEXT,
    "qwen3_vl_moe_text": QWEN3_SPARSE,
    "qwen3_vl_text": QWEN3_DENSE,
    "seed_oss": Family(
        ROPE, (read_qkv_bias,), {**SILU, "head_dim": 128, "attention_bias": True, "residual_dropout": 0.1}
    ),
    "skywork": LLAMA,
    "smollm3": Family({**ROPE, "tied_embeddings": True}, (read_biases, read_window), QWEN),
    "solar_open": Family(ROPE, (read_qkv_bias, read_qk_norm, read_experts), {**SILU, "head_dim": 128}),
    "stablelm": Family(LAYERNORM, (read_stablelm,), SILU),
    "stablelm_epoch": Family(LAYERNORM, (read_stablelm,), SILU),
    "starcoder2": Family({**LAYERNORM, "tied_embeddings": True}, (read_window, read_all_bias), GELU, gated=False),
    "vaultgemma": Family(GEMMA, (read_biases, read_window), {**TANH, "head_dim": 256, "sliding_window_pattern": 2}),
    "xverse": LLAMA,
}
"""Model type in the config: what is built for it."""

PART_DEFAULTS: dict[str, Table] = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 131_072, "sliding_window": 4096,
    },
    "qwen2": {
        "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "vocab_size": 151_936, "max_position_embeddings": 32768,
    },
    "gemma": {
        "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 16, "vocab_size": 256_000, "max_position_embeddings": 8192,
    },
    "gemma2": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "vocab_size": 256_000, "max_position_embeddings": 8192,
    },
    "gemma3_text": {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
    "llama4_text": {
        "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 202_048, "num_local_experts": 16,
        "max_position_embeddings": 131_072,
    },
}  # fmt: skip
"""Sizes that a language model inside a multimodal config may leave out: there transformers writes only what differs
from its own defaults (configuration_llama.py and so on)."""
