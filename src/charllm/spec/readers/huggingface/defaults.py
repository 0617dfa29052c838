"""Keys that a Hugging Face config may leave out, as transformers fills them."""

from charllm.spec.readers.huggingface.values import Table

SILU: Table = {"hidden_act": "silu"}
INDEXER: Table = {**SILU, "index_topk": 2048, "index_head_dim": 128}
GELU: Table = {"hidden_act": "gelu"}
TANH: Table = {"hidden_activation": "gelu_pytorch_tanh"}
QWEN: Table = {**SILU, "use_sliding_window": False}
GPT2: Table = {"activation_function": "gelu_new", "resid_pdrop": 0.1, "n_positions": 1024}
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
GEMMA4_DEFAULTS: Table = {
    **TANH,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "head_dim": 256,
    "vocab_size": 262_144,
}


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
