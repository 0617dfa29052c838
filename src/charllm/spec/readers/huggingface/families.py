"""What transformers, or a model's own code, builds for each model type of a Hugging Face config."""

from collections.abc import Callable
from dataclasses import dataclass, field

from charllm.spec.readers.huggingface.defaults import (
    GELU,
    GEMMA3_DEFAULTS,
    GEMMA4_DEFAULTS,
    GPT2,
    INDEXER,
    LLAMA4_DEFAULTS,
    NEXT_DEFAULTS,
    QWEN,
    SILU,
    TANH,
)
from charllm.spec.readers.huggingface.layers import (
    read_chunked_layers,
    read_delta_layers,
    read_gpt_neo_layers,
    read_lightning_layers,
    read_mamba_layers,
    read_softmax_layers,
    read_window,
    read_window_after_first,
)
from charllm.spec.readers.huggingface.mixed import (
    read_gemma4,
    read_mimo_windows,
    read_short_convolutions,
    read_side_by_side,
)
from charllm.spec.readers.huggingface.parts import (
    EXPERTS,
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
    read_japanese_neox,
    read_latent_attention,
    read_llama4_experts,
    read_minimax_prediction,
    read_mpt,
    read_no_bias,
    read_opt,
    read_plain_bias,
    read_post_norms,
    read_qk_norm,
    read_qkv_bias,
    read_qkv_switch,
    read_qwen1,
    read_shared_gate,
    read_stablelm,
    read_stated_bias,
    read_token_prediction,
    vectors,
)
from charllm.spec.readers.huggingface.values import HEADS, HIDDEN, VOCAB, Config, Table

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

COHERE: Table = {**LAYERNORM, "norm": "layernorm-scale", "norms_per_layer": 1, "tied_embeddings": True}
COHERE2: Table = {**SILU, "sliding_window": 4096, "sliding_window_pattern": 4}
OLMO2: Table = {**QWEN3, "qk_norm_weights": "each"}
SANDWICH: Table = {**QWEN3, "norms_per_layer": 4}
SANDWICH_TIED: Table = {**SANDWICH, "tied_embeddings": True}
GPT_OSS: Table = {**ROPE, "bias": "all", "attention_sinks": True}
LFM2: Table = {**QWEN3, "tied_embeddings": True}

TWO_ROWS = vectors("end_vectors", HIDDEN, 2)
"""Two rows before the first learned position, or scale and shift of a norm of the embedding."""
HEAD_BIAS = vectors("end_vectors", VOCAB)

LLAMA = Family(ROPE, (read_biases,), SILU)
DEEPSEEK = Family(ROPE, (read_latent_attention, read_biases, read_experts, read_token_prediction), SILU)
QWEN2_DENSE = Family(QWEN2, (read_window, read_token_prediction), QWEN)
QWEN3_DENSE = Family(QWEN3, (read_biases, read_window), QWEN)
QWEN3_SPARSE = Family(QWEN3, (read_biases, read_window, read_experts), QWEN)
QWEN_NEXT = Family(
    QWEN3, (read_biases, read_delta_layers, read_experts, read_shared_gate, read_token_prediction), NEXT_DEFAULTS
)
LLAMA4 = Family(
    {**ROPE, "qk_norm_weights": "none"},
    (read_biases, read_qk_norm, read_chunked_layers, read_llama4_experts),
    LLAMA4_DEFAULTS,
)
LIGHTNING = Family(ROPE, (read_lightning_layers, read_experts), SILU)
GLM_SPARSE = Family(ROPE, (read_qkv_bias, read_qk_norm, read_experts, read_token_prediction), SILU)
GLM4 = Family({**ROPE, "norms_per_layer": 4}, (read_qkv_bias,), {**SILU, "attention_bias": True, "head_dim": 128})
MISTRAL = Family(ROPE, (read_window,), SILU)
INTERNLM = Family(ROPE, (read_plain_bias,), SILU)
BAILING = Family(ROPE, (read_no_bias, read_qk_norm, read_experts, read_token_prediction), SILU)
GPTJ = Family(
    {**LAYERNORM, "bias": "mlp", "norms_per_layer": 1},
    (HEAD_BIAS,),
    {"activation_function": "gelu_new"},
    gated=False,
    ffn_over_hidden=4,
)
GEMMA3 = Family(SANDWICH_TIED, (read_biases, read_window), GEMMA3_DEFAULTS)
GEMMA4_PARTS = (read_biases, read_window, read_gemma4)
GRANITE_HYBRID = Family(
    ROPE,
    (read_biases, read_granite_position, read_mamba_layers, read_granite_experts),
    {**SILU, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_n_groups": 1},
)

FAMILIES: dict[str, Family] = {
    "Yi": LLAMA,
    "afmoe": Family(
        {**SANDWICH, "attention_gate": True},
        (read_window, read_experts, vectors("sparse_vectors", EXPERTS)),
        {**SILU, "sliding_window": 1024, "global_attn_every_n_layers": 4, "num_shared_experts": 2},
    ),
    # Its activation has two weights.
    "apertus": Family({**QWEN3, "layer_vectors": 2}, (read_biases,), {"hidden_act": "xielu"}, gated=False),
    "aquila": LLAMA,
    "aria_text": Family(
        ROPE, (read_biases, read_experts), {**SILU, "moe_num_experts": 8, "moe_num_shared_experts": 2, "moe_topk": 2}
    ),
    "arcee": Family(ROPE, (read_biases,), {"hidden_act": "relu2"}, gated=False),
    "baichuan": Family(ROPE, (read_baichuan,), SILU),
    "bailing_moe": BAILING,
    "bailing_moe_v2": Family(QWEN3, BAILING.parts, {**SILU, "use_qk_norm": True}),
    "bamba": Family(
        ROPE,
        (read_biases, read_mamba_layers),
        {**SILU, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_n_heads": 128},
    ),
    "beam": Family(
        {**SANDWICH, "attention_gate": True},
        (read_window, read_experts, vectors("layer_vectors", HEADS)),
        {**SILU, "sliding_window": 512, "sliding_window_pattern": 6},
    ),
    "biogpt": Family(
        LEARNED, (TWO_ROWS,), {**GELU, "hidden_dropout": 0.1, "max_position_embeddings": 1024}, gated=False
    ),
    "bloom": Family({**LEARNED, "position": "alibi"}, (TWO_ROWS,), GELU, gated=False, ffn_over_hidden=4),
    "chatglm": Family(ROPE, (read_chatglm,), SILU),
    "codegen": GPTJ,
    "cohere": Family({**COHERE, "qk_norm_weights": "each"}, (read_biases, read_qk_norm), SILU),
    "cohere2": Family(COHERE, (read_biases, read_window), COHERE2),
    "cohere2_moe": Family(COHERE, (read_biases, read_window, read_experts), COHERE2),
    "ctrl": Family(
        {**LEARNED, "position": "none"},
        (HEAD_BIAS,),
        {"activation_function": "relu", "resid_pdrop": 0.1},
        gated=False,
    ),
    "cwm": Family(ROPE, (read_biases, read_window_after_first), {**SILU, "sliding_window": 8192, "head_dim": 128}),
    "dbrx": Family({**LAYERNORM, "norm": "layernorm-scale"}, (read_dbrx,), {**SILU, "intermediate_size": 1}),
    "deepseek": Family(ROPE, (read_biases, read_experts), SILU),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": Family(ROPE, DEEPSEEK.parts, {**INDEXER, "index_n_heads": 64}),
    "dots1": Family(QWEN3, (read_biases, read_window, read_experts), {**SILU, "max_window_layers": 62}),
    "emu3_text_model": LLAMA,
    "ernie4_5": Family({**ROPE, "tied_embeddings": True}, (read_no_bias,), {**SILU, "head_dim": 128}),
    "ernie4_5_moe": Family(
        {**ROPE, "tied_embeddings": True},
        (read_no_bias, read_experts, read_token_prediction, vectors("sparse_vectors", EXPERTS)),
        {**SILU, "moe_layer_start_index": 1},
    ),
    "exaone": Family(ROPE, (read_biases,), {"activation_function": "silu"}),
    "exaone4": Family(QWEN3, (read_window,), {**SILU, "sliding_window_pattern": 4}),
    "exaone_moe": Family(
        QWEN3, (read_window, read_experts, read_token_prediction), {**SILU, "sliding_window_pattern": 4}
    ),
    "falcon": Family({**LAYERNORM, "tied_embeddings": True}, (read_falcon,), GELU, gated=False, ffn_over_hidden=4),
    "falcon_h1": Family(ROPE, (read_side_by_side,), SILU),
    "flex_olmo": Family(OLMO2, (read_biases, read_experts), SILU),
    "flint": Family({**QWEN3, "attention_sinks": True}, (read_biases, read_window, read_experts), SILU),
    "gemma": Family(GEMMA, (read_biases,), {**TANH, "head_dim": 256}),
    "gemma2": Family(
        GEMMA2,
        (read_biases, read_window),
        {**TANH, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    ),
    "gemma3_text": GEMMA3,
    "gemma4_text": Family(SANDWICH_TIED, GEMMA4_PARTS, {**GEMMA4_DEFAULTS, "hidden_size_per_layer_input": 256}),
    "gemma4_unified_text": Family(SANDWICH_TIED, GEMMA4_PARTS, GEMMA4_DEFAULTS),
    "glm": Family(ROPE, (read_qkv_bias,), {**SILU, "attention_bias": True, "head_dim": 128}),
    "glm4": GLM4,
    "glm4_moe": GLM_SPARSE,
    "glm4_moe_lite": DEEPSEEK,
    "glm4v_moe_text": GLM_SPARSE,
    "glm4v_text": GLM4,
    "glm_moe_dsa": Family(ROPE, DEEPSEEK.parts, {**INDEXER, "index_n_heads": 32}),
    "gpt2": Family(LEARNED, (), GPT2, gated=False, ffn_over_hidden=4),
    "gpt-sw3": Family(LEARNED, (), GPT2, gated=False, ffn_over_hidden=4),
    "gpt_bigcode": Family(
        LEARNED,
        (read_bigcode,),
        {"activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1, "n_positions": 1024},
        gated=False,
        ffn_over_hidden=4,
    ),
    "gpt_neo": Family(
        {**LEARNED, "bias": "mlp"},
        (read_gpt_neo_layers, vectors("layer_vectors", HIDDEN)),
        {"activation_function": "gelu_new"},
        gated=False,
        ffn_over_hidden=4,
    ),
    "gpt_neox_japanese": Family(
        {**LAYERNORM, "tied_embeddings": True}, (read_japanese_neox,), GELU, gated=False, ffn_over_hidden=4
    ),
    "gpt_neox": Family({**LAYERNORM, "bias": "all"}, (read_stated_bias,), GELU, gated=False),
    "gpt_oss": Family(
        GPT_OSS,
        (read_stated_bias, read_window, read_experts, vectors("sparse_vectors", EXPERTS)),
        {**SILU, "head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    ),
    "gptj": GPTJ,
    "granite": Family(ROPE, (read_biases,), SILU),
    "granitemoe": Family(ROPE, (read_biases, read_experts), SILU),
    "granite_swa": Family(
        {**ROPE, "attention_sinks": True}, (read_biases, read_window_after_first), {**SILU, "sliding_window": 128}
    ),
    "granitemoe_swa": Family(
        {**ROPE, "attention_sinks": True}, (read_biases, read_window_after_first, read_experts), SILU
    ),
    "granitemoehybrid": GRANITE_HYBRID,
    "granitemoeshared": Family(ROPE, (read_biases, read_granite_experts), SILU),
    "grok-1": Family({**GEMMA, "norms_per_layer": 4}, (read_experts,), GELU),
    "helium": LLAMA,
    "hy_v3": Family(
        QWEN3,
        (read_biases, read_experts, read_token_prediction),
        {**SILU, "head_dim": 128, "num_shared_experts": 1, "first_k_dense_replace": 1},
    ),
    "hyperclovax": Family(ROPE, (read_biases, read_post_norms), {**SILU, "use_post_norm": True}),
    "hunyuan_v1_dense": Family(QWEN3, (read_biases,), {**SILU, "use_qk_norm": True}),
    "hunyuan_v1_moe": Family(QWEN3, (read_biases, read_experts), {**SILU, "use_qk_norm": True}),
    "internlm": INTERNLM,
    "internlm2": INTERNLM,
    "internlm3": INTERNLM,
    "iquestcoder": LLAMA,
    "jais2": Family(
        LAYERNORM, (read_biases,), {"hidden_act": "relu2", "attention_bias": True, "mlp_bias": True}, gated=False
    ),
    "kimi_k2": DEEPSEEK,
    "kolibri1": Family(
        SANDWICH, (read_biases, read_window, read_experts), {**SILU, "sliding_window": 513, "sliding_window_pattern": 5}
    ),
    "lfm2": Family(LFM2, (read_short_convolutions,), {**SILU, "block_auto_adjust_ff_dim": True}),
    "lfm2_moe": Family(
        LFM2, (read_short_convolutions, read_experts), {**SILU, "use_expert_bias": True, "num_dense_layers": 2}
    ),
    "llama": LLAMA,
    "llama4_text": LLAMA4,
    "mellum": Family(QWEN3, (read_biases, read_window, read_experts, read_token_prediction), SILU),
    "mimo_v2_flash": Family(
        ROPE, (read_mimo_windows, read_experts), {**SILU, "v_head_dim": 128, "first_k_dense_replace": 1}
    ),
    "mimo": Family(QWEN2, (read_stated_bias, read_window, read_token_prediction), QWEN),
    "minicpm": LLAMA,
    "minicpm3": Family(ROPE, (read_latent_attention, read_biases), SILU),
    "minimax": LIGHTNING,
    "minimax_m1": LIGHTNING,
    "minimax_m2": Family(
        OLMO2, (read_softmax_layers, read_experts, read_minimax_prediction), {**SILU, "head_dim": 128}
    ),
    "minimax_text_01": LIGHTNING,
    "ministral": MISTRAL,
    "ministral3": Family(ROPE, (read_window,), {**SILU, "head_dim": 128}),
    "mistral": MISTRAL,
    "mistral4": DEEPSEEK,
    "mixtral": Family(ROPE, (read_window, read_experts), {**SILU, "num_experts_per_tok": 2, "num_local_experts": 8}),
    "mpt": Family(
        {**LAYERNORM, "norm": "layernorm-scale", "tied_embeddings": True},
        (read_mpt,),
        GELU,
        gated=False,
        ffn_over_hidden=4,
    ),
    "nanochat": Family(
        {**QWEN3, "norm": "rmsnorm-plain", "qk_norm_weights": "none"},
        (read_biases,),
        {"hidden_act": "relu2"},
        gated=False,
    ),
    "nemotron": Family(LAYERNORM, (read_biases,), {"hidden_act": "relu2"}, gated=False),
    "nemotron_h": Family(
        {**ROPE, "position": "none"}, (read_biases, read_hybrid), {"mlp_hidden_act": "relu2"}, gated=False
    ),
    "olmo_hybrid": Family(
        OLMO2, (read_biases, read_delta_layers), {**NEXT_DEFAULTS, "attn_output_gate": False, "head_dim": None}
    ),
    "olmo": Family({**LAYERNORM, "norm": "layernorm-plain"}, (read_biases,), SILU),
    "olmo2": Family(OLMO2, (read_biases,), SILU),
    "olmo3": Family(OLMO2, (read_biases, read_window), {**SILU, "sliding_window": 4096, "sliding_window_pattern": 4}),
    "olmoe": Family(OLMO2, (read_biases, read_experts), SILU),
    "opt": Family(
        LEARNED,
        (read_opt, TWO_ROWS),
        {"activation_function": "relu", "dropout": 0.1},
        gated=False,
    ),
    "orion": Family(LAYERNORM, (read_biases,), SILU),
    "persimmon": Family(
        {**LAYERNORM, "bias": "all"}, (read_qk_norm,), {"hidden_act": "relu2", "qk_layernorm": True}, gated=False
    ),
    "phi": Family(
        {**LAYERNORM, "bias": "all", "norms_per_layer": 1},
        (read_qk_norm, HEAD_BIAS),
        GELU,
        gated=False,
    ),
    "phi3": Family(ROPE, (read_window,), SILU),
    "phi3_v": Family(ROPE, (read_window,), SILU),
    "phi4mm": Family(ROPE, (read_window,), SILU),
    "phimoe": Family(LAYERNORM, (read_biases, read_window, read_experts), SILU),
    "qwen": Family(QWEN2, (read_qwen1,), SILU),
    "qwen2": QWEN2_DENSE,
    "qwen2_5_vl": QWEN2_DENSE,
    "qwen2_5_vl_text": QWEN2_DENSE,
    "qwen2_moe": Family(QWEN2, (read_qkv_switch, read_window, read_experts, read_shared_gate), QWEN),
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
    "stablelm": Family({**LAYERNORM, "qk_norm_weights": "none"}, (read_stablelm,), SILU),
    "stablelm_epoch": Family({**LAYERNORM, "qk_norm_weights": "none"}, (read_stablelm,), SILU),
    "starcoder2": Family({**LAYERNORM, "tied_embeddings": True}, (read_window, read_all_bias), GELU, gated=False),
    "vaultgemma": Family(GEMMA, (read_biases, read_window), {**TANH, "head_dim": 256, "sliding_window_pattern": 2}),
    "xglm": Family({**LEARNED, "position": "none"}, (), {"activation_function": "gelu", "dropout": 0.1}, gated=False),
    "xverse": LLAMA,
    "youtu": Family({**ROPE, "tied_embeddings": True}, (read_latent_attention, read_biases), SILU),
}
"""Model type in the config: what is built for it."""
