"""The architectures behind the config classes that NeMo 2 recipes name.

Source: NVIDIA/NeMo, nemo/collections/llm/gpt/model/*.py; vocabularies are those of the models' tokenizers.
"""

import re
from functools import lru_cache
from typing import Any

Table = dict[str, Any]

TABLE = """
Baichuan2Config7B llama 32 4096 11008 32 32 125696
GPTConfig126M gpt 12 768 3072 12 12 50257
GPTConfig5B gpt 24 4096 16384 32 32 50257
GPTConfig7B gpt 32 4096 10880 32 32 50257
GPTConfig20B gpt 44 6144 24576 48 48 50257
GPTConfig40B gpt 48 8192 32768 64 64 50257
GPTConfig175B gpt 96 12288 49152 96 96 50257
ChatGLM2Config6B chatglm 28 4096 13696 32 2 65024
ChatGLM3Config6B chatglm 28 4096 13696 32 2 65024
DeepSeekV2Config deepseek 60 5120 12288 128 128 102400 experts=160 topk=6 expert_ffn=1536 shared_ffn=3072 groups=8 group_topk=3 q_lora_rank=1536 dense=1
DeepSeekV2LiteConfig deepseek 27 2048 10944 16 16 102400 experts=64 topk=6 expert_ffn=1408 shared_ffn=2816 groups=1 group_topk=1 dense=1 q_lora_rank=0
DeepSeekV3Config deepseek 61 7168 18432 128 128 129280 experts=256 topk=8 expert_ffn=2048 shared_ffn=2048 groups=8 group_topk=4 q_lora_rank=1536 dense=3
GemmaConfig2B gemma 18 2048 16384 8 1 256000 kv_channels=256
GemmaConfig7B gemma 28 3072 24576 16 16 256000 kv_channels=256
CodeGemmaConfig2B gemma 18 2048 16384 8 1 256000 kv_channels=256
CodeGemmaConfig7B gemma 28 3072 24576 16 16 256000 kv_channels=256
Gemma2Config2B gemma2 26 2304 9216 8 4 256000 kv_channels=256
Gemma2Config9B gemma2 42 3584 14336 16 8 256000 kv_channels=256
Gemma2Config27B gemma2 46 4608 36864 32 16 256000 kv_channels=128
GPTOSSConfig120B gpt_oss 36 2880 2880 64 8 201088 kv_channels=64 experts=128 topk=4 expert_ffn=2880
GPTOSSConfig20B gpt_oss 24 2880 2880 64 8 201088 kv_channels=64 experts=32 topk=4 expert_ffn=2880
Llama2Config7B llama 32 4096 11008 32 32 32000
Llama2Config13B llama 40 5120 13824 40 40 32000
Llama2Config70B llama 80 8192 28672 64 8 32000
Llama3Config8B llama 32 4096 14336 32 8 128256
Llama3Config70B llama 80 8192 28672 64 8 128256
Llama31Config8B llama 32 4096 14336 32 8 128256
Llama31Config70B llama 80 8192 28672 64 8 128256
Llama31Config405B llama 126 16384 53248 128 8 128256
Llama32Config1B llama 16 2048 8192 32 8 128256 tied
Llama32Config3B llama 28 3072 8192 24 8 128256 tied
CodeLlamaConfig7B llama 32 4096 11008 32 32 32016
CodeLlamaConfig13B llama 40 5120 13824 40 40 32016
CodeLlamaConfig34B llama 48 8192 22016 64 8 32000
CodeLlamaConfig70B llama 80 8192 28672 64 8 32016
Llama31NemotronNano8BConfig llama 32 4096 14336 32 8 128256 kv_channels=128
Llama31Nemotron70BConfig llama 80 8192 28672 64 8 128256 kv_channels=128
MistralConfig7B llama 32 4096 14336 32 8 32000 window=4096
MistralNeMoConfig12B llama 40 5120 14336 32 8 131072 kv_channels=128 window=4096
MistralNeMoConfig123B llama 88 12288 28672 96 8 131072 kv_channels=128 window=4096
MixtralConfig8x3B llama 32 2560 8960 32 8 32000 experts=8 topk=2
MixtralConfig8x7B llama 32 4096 14336 32 8 32000 experts=8 topk=2
MixtralConfig8x22B llama 56 6144 16384 48 8 32000 experts=8 topk=2
Nemotron3Config4B nemotron 32 3072 9216 24 8 256000 kv_channels=128
Nemotron3Config8B nemotron 32 4096 16384 32 32 256000
Nemotron3Config22B nemotron 40 6144 24576 48 48 256000
Nemotron4Config15B nemotron 32 6144 24576 48 8 256000
Nemotron4Config340B nemotron 96 18432 73728 96 8 256000
Phi3ConfigMini llama 32 3072 8192 32 32 32064
Qwen2Config500M qwen2 24 896 4864 14 2 151936
Qwen25Config500M qwen2 24 896 4864 14 2 151936
Qwen2Config1P5B qwen2 28 1536 8960 12 2 151936
Qwen25Config3B qwen2 36 2048 11008 16 2 151936 tied
Qwen25Config1P5B qwen2 28 1536 8960 12 2 151936
Qwen2Config7B qwen2 28 3584 18944 28 4 152064
Qwen25Config7B qwen2 28 3584 18944 28 4 152064
Qwen25Config14B qwen2 48 5120 13824 40 8 152064
Qwen25Config32B qwen2 64 5120 27648 40 8 152064
Qwen2Config72B qwen2 80 8192 29568 64 8 152064
Qwen25Config72B qwen2 80 8192 29568 64 8 152064
Qwen3Config600M qwen3 28 1024 3072 16 8 151936 kv_channels=128 tied
Qwen3Config1P7B qwen3 28 2048 6144 16 8 151936 kv_channels=128 tied
Qwen3Config4B qwen3 36 2560 9728 32 8 151936 kv_channels=128 tied
Qwen3Config8B qwen3 36 4096 12288 32 8 151936 kv_channels=128
Qwen3Config14B qwen3 40 5120 17408 40 8 151936 kv_channels=128
Qwen3Config32B qwen3 64 5120 25600 64 8 151936 kv_channels=128
Qwen3Config30B_A3B qwen3 48 2048 6144 32 4 151936 kv_channels=128 experts=128 topk=8 expert_ffn=768
Qwen3Config235B_A22B qwen3 94 4096 12288 64 4 151936 kv_channels=128 experts=128 topk=8 expert_ffn=1536
StarcoderConfig15B starcoder 40 6144 24576 48 1 49152
Starcoder2Config3B starcoder2 30 3072 12288 24 2 49152
Starcoder2Config7B starcoder2 32 4608 18432 36 4 49152
Starcoder2Config15B starcoder2 40 6144 24576 48 4 49152
"""  # noqa: E501
"""Class, family, layers, width, feed-forward width, heads, key-value heads, vocabulary, and what else it sets."""

_ROPE: Table = {"position_embedding_type": "rope", "add_bias_linear": False, "hidden_dropout": 0.0}
_LLAMA: Table = {
    **_ROPE,
    "normalization": "RMSNorm",
    "activation_func": "silu",
    "gated_linear_unit": True,
    "share_embeddings_and_output_weights": False,
}
_GEMMA: Table = {**_LLAMA, "activation_func": "gelu", "share_embeddings_and_output_weights": True}
_PLAIN: Table = {**_ROPE, "normalization": "LayerNorm", "share_embeddings_and_output_weights": False}
FAMILIES: dict[str, Table] = {
    "llama": _LLAMA,
    "chatglm": {**_LLAMA, "add_qkv_bias": True},
    "deepseek": {**_LLAMA, "multi_latent_attention": True},
    "gemma": _GEMMA,
    "gemma2": {**_GEMMA, "mcore_customization_config": {"query_pre_attn_scalar": 256}},
    "gpt": {},
    "gpt_oss": {
        **_LLAMA,
        "add_bias_linear": True,
        "softmax_type": "learnable",
        "window_size": [128, 0],
        "window_attn_skip_freq": 2,
    },
    "nemotron": {**_PLAIN, "activation_func": "squared_relu"},
    "qwen2": {**_LLAMA, "add_qkv_bias": True},
    "qwen3": {**_LLAMA, "qk_layernorm": True},
    "starcoder": {"hidden_dropout": 0.2, "share_embeddings_and_output_weights": False},
    "starcoder2": {**_PLAIN, "add_bias_linear": True},
}
"""What all classes of a family set; the rest is as Megatron-Core's defaults."""
COLUMNS = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "vocab_size",
)
NAMES = {
    "experts": "num_moe_experts",
    "topk": "moe_router_topk",
    "expert_ffn": "moe_ffn_hidden_size",
    "shared_ffn": "moe_shared_expert_intermediate_size",
    "groups": "moe_router_num_groups",
    "group_topk": "moe_router_group_topk",
}


def find_class(name: str) -> Table | None:
    """Return the settings that a config class stands for; None when it is not known."""
    row = _rows().get(name)
    if row is None:
        return None
    family, *rest = row
    settings = {**FAMILIES[family], **dict(zip(COLUMNS, (int(number) for number in rest[:6]), strict=True))}
    for word in rest[6:]:
        settings.update(_setting(word, settings["num_layers"]))
    if settings.get("num_moe_experts"):
        settings["moe_grouped_gemm"] = True
    if settings.get("multi_latent_attention"):
        del settings["num_query_groups"]
    return settings


def find_version(text: str) -> Table | None:
    """Return the settings behind a name such as ``nemotron4_15b``; None when it is not known."""
    asked = _compact(text)
    return next((find_class(name) for name in _rows() if _compact(name.replace("Config", "")) == asked), None)


def _compact(text: str) -> str:
    """Spell 500m, 1p5b and 1.5b alike, without dashes and dots."""
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("p5b", "5b").replace("p7b", "7b").replace("0.6b", "600m"))


@lru_cache(maxsize=1)
def _rows() -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in TABLE.strip().splitlines()}


def _setting(word: str, layers: int) -> Table:
    key, _, value = word.partition("=")
    if key == "tied":
        return {"share_embeddings_and_output_weights": True}
    if key == "window":
        return {"window_size": [int(value), 0]}
    if key == "dense":
        return {"moe_layer_freq": [0] * int(value) + [1] * (layers - int(value))}
    return {NAMES.get(key, key): int(value)}
