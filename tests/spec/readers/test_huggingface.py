"""What a Hugging Face config.json becomes."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_model
from charllm.errors import SpecError
from charllm.spec.fields import read
from charllm.spec.model import Model, fill_model
from charllm.spec.readers.huggingface import read_hf_config
from charllm.spec.readers.huggingface.families import FAMILIES
from charllm.spec.readers.huggingface.refused import REFUSED
from charllm.workload.layer import layer_kinds
from charllm.workload.parameters import count_active_parameters, count_parameters

Config = dict[str, Any]

LLAMA3_70B: Config = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
MIXTRAL_8X7B: Config = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "hidden_act": "silu",
}
GPT2: Config = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "n_inner": None,
    "vocab_size": 50257,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
}
GPT_OSS_120B: Config = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
}
QWEN3_30B: Config = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "sliding_window": 4096,
    "use_sliding_window": False,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
FALCON_7B: Config = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "num_kv_heads": 71,
    "multi_query": True,
    "parallel_attn": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}
MPT_7B: Config = {
    "model_type": "mpt",
    "d_model": 4096,
    "n_heads": 32,
    "n_layers": 32,
    "expansion_ratio": 4,
    "max_seq_len": 2048,
    "no_bias": True,
    "attn_config": {"alibi": True, "attn_type": "multihead_attention"},
    "vocab_size": 50432,
}
BLOOM: Config = {
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "seq_length": 2048,
    "vocab_size": 250880,
}
NEMOTRON_340B: Config = {
    "model_type": "nemotron",
    "hidden_size": 18432,
    "intermediate_size": 73728,
    "num_hidden_layers": 96,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "hidden_act": "relu2",
    "vocab_size": 256000,
    "max_position_embeddings": 4096,
}
NEMOTRON_3_NANO: Config = {
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mlp_hidden_act": "relu2",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 3712,
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
}
DBRX: Config = {
    "model_type": "dbrx",
    "d_model": 6144,
    "n_heads": 48,
    "n_layers": 40,
    "max_seq_len": 32768,
    "vocab_size": 100352,
    "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "moe_loss_weight": 0.05},
}
GPT_J: Config = {
    "model_type": "gptj",
    "n_embd": 4096,
    "n_head": 16,
    "n_layer": 28,
    "n_positions": 2048,
    "rotary_dim": 64,
    "vocab_size": 50400,
}
LLAMA4: Config = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts_per_tok": 1,
    "attention_chunk_size": 8192,
    "vocab_size": 202048,
    "max_position_embeddings": 1048576,
}
QWEN3_NEXT: Config = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
MINIMAX_01: Config = {
    "model_type": "minimax_text_01",
    "attn_type_list": ([0] * 7 + [1]) * 10,
    "head_dim": 128,
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 0,
    "vocab_size": 200064,
    "max_position_embeddings": 10240000,
}
GLM_4_5: Config = {
    "model_type": "glm4_moe",
    "attention_bias": True,
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "num_hidden_layers": 92,
    "num_nextn_predict_layers": 1,
    "use_qk_norm": True,
    "vocab_size": 151552,
    "max_position_embeddings": 131072,
}
GRANITE_4: Config = {
    "model_type": "granitemoehybrid",
    "hidden_size": 4096,
    "intermediate_size": 768,
    "shared_intermediate_size": 1536,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 72,
    "num_experts_per_tok": 10,
    "layer_types": ["mamba"] * 5 + (["attention"] + ["mamba"] * 9) * 3 + ["attention"] + ["mamba"] * 4,
    "mamba_n_heads": 128,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "position_embedding_type": "nope",
    "tie_word_embeddings": True,
    "vocab_size": 100352,
    "max_position_embeddings": 131072,
}
SMALL: Config = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
EXTRAS: dict[str, Config] = {
    "deepseek_v2": DEEPSEEK_V3 | {"model_type": "deepseek_v2"},
    "deepseek_v3": DEEPSEEK_V3,
    **{
        name: DEEPSEEK_V3 | {"model_type": name}
        for name in ("kimi_k2", "glm4_moe_lite", "mistral4", "minicpm3", "youtu")
    },
    **{
        name: DEEPSEEK_V3 | {"model_type": name, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
        for name in ("deepseek_v32", "glm_moe_dsa")
    },
    "dbrx": DBRX,
    "falcon_h1": SMALL
    | {"mamba_n_heads": 32, "mamba_d_ssm": 1024, "mamba_d_state": 64, "mamba_n_groups": 1, "mamba_d_conv": 4},
    "gemma4_text": SMALL | {"hidden_size_per_layer_input": 0},
    "mimo_v2_flash": SMALL | {"sliding_window": 128, "head_dim": 192},
    "granitemoehybrid": GRANITE_4,
    "gpt2": GPT2,
    "mpt": MPT_7B,
    "bloom": BLOOM,
    "nemotron_h": NEMOTRON_3_NANO,
    "opt": SMALL | {"intermediate_size": None, "ffn_dim": 4096, "num_key_value_heads": None},
}


def model_of(config: Config) -> Model:
    return read(Model, fill_model(read_hf_config(config, "some/model/config.json").request["model"]), "model")


def small(model_type: str, **changes: Any) -> Config:
    sparse = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1024}
    config = SMALL | (sparse if "moe" in model_type or model_type == "llama4_text" else {})
    return EXTRAS.get(model_type, config) | {"model_type": model_type} | changes


def parameters(model: Model) -> float:
    """Count weights from the dimensions, token prediction left out."""
    hidden, heads = model.hidden, model.heads
    q_width, kv_width = heads * model.head_dim, model.kv_heads * model.head_dim
    if model.attention == "mla":
        queries = heads * (model.head_dim + model.rope_head_dim)
        rank = model.q_lora_rank
        attention = rank * (hidden + queries + 1) if rank else hidden * queries
        attention += hidden * (model.kv_lora_rank + model.rope_head_dim) + model.kv_lora_rank
        attention += model.kv_lora_rank * heads * (model.head_dim + model.v_head_dim)
        attention += heads * model.v_head_dim * hidden
    else:
        attention = hidden * (2 * q_width + 2 * kv_width)
    attention += (q_width + 2 * kv_width) * (model.bias in ("qkv", "attention", "all"))
    attention += hidden * (model.bias in ("attention", "all")) + heads * model.attention_sinks
    matrices, up = (3, 2) if model.gated else (2, 1)

    def block(width: int) -> int:
        return matrices * hidden * width + (up * width + hidden) * (model.bias == "all")

    sparse = model.experts * block(model.expert_ffn) + model.experts * (hidden + (model.bias == "all"))
    sparse += matrices * hidden * model.shared_ffn
    sparse_layers = model.layers - model.dense_layers if model.experts else 0
    norm = hidden * (2 if model.norm == "layernorm" else 1)
    total = model.layers * (attention + model.norms_per_layer * norm) + norm
    total += sparse_layers * sparse + (model.layers - sparse_layers) * block(model.ffn)
    total += model.seq_length * hidden * (model.position == "learned")
    return total + model.vocab * hidden * (1 if model.tied_embeddings else 2)


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (LLAMA3_70B, 70.55),
        (MIXTRAL_8X7B, 46.70),
        (DEEPSEEK_V3, 671.03),
        (GPT2, 0.1244),
        (GPT_OSS_120B, 116.83),
        (QWEN3_30B, 30.53),
        (FALCON_7B, 6.92),
        (MPT_7B, 6.65),
        (BLOOM, 176.25),
        (NEMOTRON_340B, 341.0),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_the_dimensions_add_up_to_the_published_size(config: Config, billions: float) -> None:
    assert parameters(model_of(config)) / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        (DBRX, 132, 36),
        (GPT_J, 6.05, 6.05),
        (LLAMA4 | {"num_local_experts": 16}, 107.8, 17),
        (LLAMA4 | {"num_local_experts": 128, "interleave_moe_layer_step": 2}, 400, 17),
        (QWEN3_NEXT, 80, 3.9),
        (MINIMAX_01, 456, 45.9),
        (GLM_4_5, 355, 32),
        (GRANITE_4, 32, 9),
        (DEEPSEEK_V3, 671, 37),
        (NEMOTRON_3_NANO, 31.6, 3.6),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_the_parameters_are_those_published(config: Config, billions: float, active: float) -> None:
    model = model_of(config)
    assert count_parameters(model) / 1e9 == pytest.approx(billions, rel=0.01)
    assert count_active_parameters(model) / 1e9 == pytest.approx(active, rel=0.06)


SIZES: Config = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "intermediate_size": 384, "vocab_size": 1000, "max_position_embeddings": 512,
}  # fmt: skip
FEW_EXPERTS: Config = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
FALCON_H1: Config = {
    "mamba_d_ssm": 512, "mamba_n_heads": 16, "mamba_d_state": 64, "mamba_n_groups": 1, "mamba_d_conv": 4
}  # fmt: skip
COUNTED: dict[str, tuple[Config, int]] = {
    "lfm2": ({"layer_types": ["conv", "full_attention", "conv", "conv"], "head_dim": 32}, 1997376),
    "lfm2_moe": (
        FEW_EXPERTS
        | {"layer_types": ["conv", "full_attention", "conv", "conv"], "head_dim": 32, "num_dense_layers": 2},
        2589248,
    ),
    "falcon_h1": (FALCON_H1 | {"head_dim": 32}, 4082624),
    "afmoe": (FEW_EXPERTS | {"num_dense_layers": 1, "num_shared_experts": 1}, 4124428),
    "mimo_v2_flash": (
        {
            "v_head_dim": 32,
            "sliding_window": 64,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 128,
        },
        3122456,
    ),
    "gemma4_text": (
        FEW_EXPERTS
        | {
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "top_k_experts": 2,
            "attention_k_eq_v": True,
            "global_head_dim": 128,
            "num_global_key_value_heads": 1,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        },
        4561808,
    ),
    "olmo2": ({"head_dim": 32}, 2350592),
    "olmo": ({"head_dim": 32}, 2347008),
    "cohere": ({"use_qk_norm": True, "head_dim": 32}, 2093568),
    "qwen2_moe": (FEW_EXPERTS | {"shared_expert_intermediate_size": 64, "head_dim": 32}, 2945792),
    "opt": ({"ffn_dim": 384, "num_key_value_heads": None, "head_dim": 32, "word_embed_proj_dim": 256}, 2233856),
    "hy_v3": (FEW_EXPERTS | {"mlp_layer_types": ["dense"] + ["sparse"] * 3}, 3598080),
    "gpt_oss": ({"num_local_experts": 4, "num_experts_per_tok": 2}, 6568240),
}


def test_gemma_4_shares_keys_and_gives_layers_embeddings_of_their_own() -> None:
    """Source: as above, with two layers that borrow keys and values from two before them, and are twice as wide."""
    config = SIZES | {
        "model_type": "gemma4_text", "num_hidden_layers": 6, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 32, "global_head_dim": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    }  # fmt: skip
    model = model_of(config)
    assert count_parameters(model) == 5716192
    assert [kind.borrows for kind in layer_kinds(model)] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("model_type", COUNTED)
def test_parameters_equal_those_of_transformers(model_type: str) -> None:
    """Source: models that transformers 5.23 builds from the same config, their parameters counted."""
    more, parameters = COUNTED[model_type]
    assert count_parameters(model_of(SIZES | more | {"model_type": model_type})) == parameters


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_family_builds_a_model(model_type: str) -> None:
    assert model_of(small(model_type)).layers > 0


def test_llama_config_gives_grouped_queries() -> None:
    model = model_of(LLAMA3_70B)
    assert (model.heads, model.kv_heads, model.head_dim) == (64, 8, 128)
    assert (model.activation, model.norm, model.position, model.bias) == ("swiglu", "rmsnorm", "rope", "none")


def test_deepseek_v3_has_latent_attention_and_shared_experts() -> None:
    model = model_of(DEEPSEEK_V3)
    assert (model.attention, model.q_lora_rank, model.kv_lora_rank) == ("mla", 1536, 512)
    assert (model.head_dim, model.rope_head_dim, model.v_head_dim) == (128, 64, 128)
    assert (model.experts, model.topk, model.expert_ffn, model.shared_ffn) == (256, 8, 2048, 2048)
    assert (model.layers, model.dense_layers, model.mtp_layers) == (61, 3, 1)


def test_an_uncompressed_query_has_rank_zero() -> None:
    assert model_of(DEEPSEEK_V3 | {"q_lora_rank": None}).q_lora_rank == 0


def test_gpt_oss_alternates_windows_and_has_sinks_and_biases() -> None:
    model = model_of(GPT_OSS_120B)
    assert (model.window, model.full_attention_every) == (128, 2)
    assert model.attention_sinks
    assert model.bias == "all"


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [
        ("llama", False),
        ("mistral", False),
        ("qwen2", False),
        ("gpt2", True),
        ("gpt_neox", False),
        ("bloom", True),
        ("mpt", True),
        ("opt", True),
        ("falcon", True),
        ("gemma", True),
        ("starcoder2", True),
        ("phi3", False),
        ("nemotron", False),
        ("granite", False),
        ("gpt_oss", False),
    ],
)
def test_tying_follows_the_default_of_the_family(model_type: str, tied: bool) -> None:
    assert model_of(small(model_type)).tied_embeddings is tied
    assert model_of(small(model_type, tie_word_embeddings=not tied)).tied_embeddings is not tied


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("qwen2", {"bias": "qkv"}),
        ("qwen3", {"qk_norm": True, "bias": "none"}),
        ("olmo2", {"qk_norm": True, "norms_per_layer": 2}),
        ("gemma", {"activation": "geglu", "head_dim": 256}),
        ("gemma2", {"norms_per_layer": 4, "window": 4096, "full_attention_every": 2}),
        ("gemma3_text", {"qk_norm": True, "full_attention_every": 6}),
        ("glm4", {"norms_per_layer": 4, "bias": "qkv", "head_dim": 128}),
        ("nemotron", {"activation": "squared-relu", "norm": "layernorm"}),
        ("gpt_neox", {"bias": "all", "activation": "gelu", "position": "rope"}),
        ("bloom", {"position": "alibi", "ffn": 4 * 14336}),
        ("mpt", {"position": "alibi", "ffn": 4 * 4096, "bias": "none"}),
        ("opt", {"position": "learned", "activation": "relu", "dropout_fraction": 0.1}),
        ("falcon", {"kv_heads": 1, "norms_per_layer": 1}),
        ("starcoder2", {"bias": "all", "activation": "gelu"}),
        ("cohere", {"norms_per_layer": 1, "norm": "layernorm-scale"}),
    ],
)
def test_families_differ_in_their_features(model_type: str, expected: Config) -> None:
    model = model_of(small(model_type))
    assert {field: getattr(model, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"attention_bias": True}, {"bias": "attention"}),
        ({"attention_bias": True, "mlp_bias": True}, {"bias": "all"}),
        ({"head_dim": 96}, {"head_dim": 96}),
        ({"head_dim": None}, {"head_dim": 64}),
        ({"num_key_value_heads": None}, {"kv_heads": 16}),
        ({"hidden_act": "gelu"}, {"activation": "geglu"}),
    ],
)
def test_stated_keys_win_over_the_family(changes: Config, expected: Config) -> None:
    model = model_of(small("llama", **changes))
    assert {field: getattr(model, field) for field in expected} == expected


def test_falcon_40b_groups_queries_and_normalises_twice() -> None:
    model = model_of(small("falcon", new_decoder_architecture=True, num_key_value_heads=None, num_kv_heads=8))
    assert (model.kv_heads, model.norms_per_layer) == (8, 2)


@pytest.mark.parametrize(
    ("changes", "window", "every"),
    [
        ({"sliding_window": None}, 0, 1),
        ({"sliding_window": 4096}, 4096, 1),
        ({"sliding_window": 4096, "use_sliding_window": False}, 0, 1),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 12}, 0, 1),
        (
            {"sliding_window": 512, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 3},
            512,
            4,
        ),
    ],
)
def test_windows_apply_to_the_stated_layers(changes: Config, window: int, every: int) -> None:
    model = model_of(small("mistral", **changes))
    assert (model.window, model.full_attention_every) == (window, every)


@pytest.mark.parametrize(
    ("changes", "mixers"),
    [
        ({"layer_types": (["full_attention"] + ["sliding_attention"] * 2) * 4}, "*ww"),
        ({"max_window_layers": 6}, "******wwwwww"),
        ({"layer_types": ["full_attention"] * 11 + ["sliding_attention"]}, "***********w"),
    ],
)
def test_windows_without_a_period_are_listed(changes: Config, mixers: str) -> None:
    model = model_of(small("mistral", sliding_window=512, **changes))
    assert (model.window, model.mixers, model.full_attention_every) == (512, mixers, 1)


def test_qwen_windows_are_off_unless_switched_on() -> None:
    assert model_of(small("qwen2", sliding_window=4096)).window == 0
    assert model_of(small("qwen2", sliding_window=4096, use_sliding_window=True)).window == 4096


def test_qwen2_moe_states_the_width_of_its_shared_expert() -> None:
    sparse = {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
    model = model_of(small("qwen2_moe", shared_expert_intermediate_size=5632, **sparse))
    assert (model.experts, model.expert_ffn, model.shared_ffn) == (60, 1408, 5632)


def test_dense_layers_before_sparse_ones_are_counted() -> None:
    assert model_of(QWEN3_30B | {"mlp_only_layers": [1, 0]}).dense_layers == 2


@pytest.mark.parametrize(
    ("changes", "letters"),
    [
        ({"decoder_sparse_step": 2}, "-E"),
        ({"mlp_only_layers": [3]}, "EEE-" + "E" * 41),
        ({"moe_layer_freq": 3}, "E--"),
        ({"mlp_layer_types": ["sparse", "dense"] * 24}, "E-"),
    ],
)
def test_dense_layers_elsewhere_are_listed(changes: Config, letters: str) -> None:
    model = model_of(QWEN3_30B | changes)
    assert (model.sparse_layers, model.dense_layers) == (letters, 0)


@pytest.mark.parametrize("changes", [{"mlp_only_layers": "all"}, {"moe_layer_freq": [0, 1]}])
def test_dense_layers_that_are_no_list_of_all_are_refused(changes: Config) -> None:
    with pytest.raises(SpecError, match=f"model.{next(iter(changes))}"):
        read_hf_config(QWEN3_30B | changes, "config.json")


def test_the_sequence_is_capped_where_the_context_was_extended() -> None:
    assert model_of(DEEPSEEK_V3).seq_length == 8192
    assert model_of(small("llama", max_position_embeddings=2048)).seq_length == 2048
    assert model_of(GPT2 | {"n_positions": 16384}).seq_length == 16384


def test_a_multimodal_config_is_read_by_its_text_part() -> None:
    config = {"model_type": "mistral3", "vision_config": {"hidden_size": 7}, "text_config": small("mistral")}
    assert model_of(config).hidden == 1024


def test_a_text_part_may_leave_out_the_defaults_of_its_family() -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    model = model_of({"model_type": "gemma3", "text_config": text | {"sliding_window": 1024}})
    assert (model.heads, model.kv_heads, model.head_dim, model.vocab) == (8, 4, 256, 262208)
    assert (model.window, model.full_attention_every, model.tied_embeddings) == (1024, 6, True)


@pytest.mark.parametrize(
    ("config", "path", "name"),
    [
        ({"_name_or_path": "org/Some-7B"}, "config.json", "Some-7B"),
        ({"_name_or_path": ""}, "models/my-model/config.json", "my-model"),
        ({}, "other.json", "other"),
        ({}, "config.json", "llama"),
        ({"_name_or_path": "x" * 1000}, "config.json", "x" * 200),
    ],
)
def test_the_name_comes_from_the_config_or_the_path(config: Config, path: str, name: str) -> None:
    assert read_hf_config(small("llama", **config), path).request["model"]["name"] == name


def test_an_unknown_type_is_answered_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean mixtral") as caught:
        read_hf_config(SMALL | {"model_type": "mixtrall"}, "config.json")
    assert caught.value.field == "model.model_type"


def test_a_hybrid_says_what_each_layer_is_in_letters_or_words() -> None:
    changes = {"num_hidden_layers": 3, "hybrid_override_pattern": "ME*", "num_nextn_predict_layers": 1}
    spelled = small("nemotron_h", **changes, mtp_hybrid_override_pattern="*E", moe_latent_size=512)
    model = model_of(spelled)
    assert (model.pattern, model.mtp_layers, model.mtp_pattern) == ("ME*", 1, "*E")
    assert (model.expert_latent, model.shared_ffn, model.activation) == (512, 3712, "squared-relu")
    words = {"layers_block_type": ["mamba", "moe", "attention"], "mtp_layers_block_type": ["attention", "moe"]}
    assert model_of(spelled | words) == model


def test_a_hybrid_is_the_catalogs() -> None:
    known = resolve_model("nemotron3-nano-30b-a3b")
    assert model_of(NEMOTRON_3_NANO) == replace(known, name="model", stated_params=None, stated_active_params=None)


def test_a_hybrid_without_experts_is_dense() -> None:
    model = model_of(small("nemotron_h", num_hidden_layers=3, hybrid_override_pattern="M-*"))
    assert (model.experts, model.shared_ffn, model.ffn) == (0, 0, 1856)


@pytest.mark.parametrize(
    "change", [{"hybrid_override_pattern": 3}, {"layers_block_type": "M"}, {"layers_block_type": ["conv"]}]
)
def test_a_pattern_that_is_none_is_named(change: Config) -> None:
    with pytest.raises(SpecError, match=next(iter(change))):
        read_hf_config(small("nemotron_h", **change), "config.json")


@pytest.mark.parametrize("model_type", REFUSED)
def test_models_with_other_layers_than_attention_are_refused(model_type: str) -> None:
    with pytest.raises(SpecError, match="not modelled"):
        read_hf_config(SMALL | {"model_type": model_type}, "config.json")


def test_linear_attention_among_the_layers_is_refused() -> None:
    with pytest.raises(SpecError, match=r"model\.layer_types"):
        read_hf_config(small("mistral", sliding_window=8, layer_types=["linear_attention"] * 12), "config.json")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_missing_size_is_named(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_hf_config(small("llama") | {key: None}, "config.json")
    assert caught.value.field == f"model.{key}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "8192"),
        ("hidden_size", True),
        ("hidden_size", -1),
        ("hidden_size", 1.5),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", [32]),
        ("vocab_size", 10**400),
        ("hidden_act", "tanh"),
        ("hidden_act", {"a": 1}),
        ("attention_bias", 1),
        ("tie_word_embeddings", "yes"),
        ("hidden_dropout", "some"),
        ("text_config", [1]),
        ("model_type", 5),
    ],
)
def test_an_absurd_value_is_named(key: str, value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        read_hf_config(small("llama") | {key: value}, "config.json")
    assert caught.value.field == f"model.{key}"


def test_a_projected_embedding_is_refused() -> None:
    with pytest.raises(SpecError, match="word_embed_proj_dim"):
        read_hf_config(small("opt", word_embed_proj_dim=512), "config.json")


BASES = (DEEPSEEK_V3, QWEN3_30B, MPT_7B, FALCON_7B, LLAMA4, QWEN3_NEXT, MINIMAX_01, DBRX, GRANITE_4, NEMOTRON_3_NANO)
MORE_KEYS = (
    *("layer_types", "mlp_layer_types", "moe_layers", "attention_types"),
    *("no_rope_layers", "text_config", "index_topk"),
)
KEYS = sorted({*MORE_KEYS, *(key for config in (*BASES, GPT2, GPT_OSS_120B) for key in config)})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None, max_examples=120)
@given(
    changes=st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), JSON, max_size=5),
    path=st.text(max_size=20),
)
def test_any_json_gives_a_table_or_a_spec_error(changes: Config, path: str) -> None:
    start = time.process_time()
    for base in ({}, small("llama"), small("gpt_neo"), *BASES):
        try:
            table = read_hf_config(base | changes, path).request["model"]
            read(Model, fill_model(table), "model")
        except SpecError:
            continue
        assert set(table) <= set(Model.__dataclass_fields__)
    assert time.process_time() - start < 1


def test_llama_4_attends_in_chunks_but_for_every_fourth_layer() -> None:
    model = model_of(LLAMA4 | {"num_local_experts": 16})
    assert (model.window, model.window_kind, model.full_attention_every) == (8192, "chunked", 4)
    assert (model.ffn, model.expert_ffn, model.shared_ffn) == (16384, 8192, 8192)


def test_qwen3_next_is_linear_but_for_every_fourth_layer() -> None:
    model = model_of(QWEN3_NEXT)
    assert (model.mixers, model.attention_gate) == ("DDD*", True)
    assert (model.ssm_heads, model.ssm_groups, model.ssm_state, model.ssm_conv) == (32, 16, 128, 4)


def test_minimax_is_lightning_but_for_every_eighth_layer() -> None:
    assert model_of(MINIMAX_01).mixers == "LLLLLLL*"


def test_deepseek_v32_has_an_indexer() -> None:
    model = model_of(small("deepseek_v32"))
    assert (model.index_heads, model.index_head_dim, model.index_topk) == (64, 128, 2048)


def test_a_vision_tower_is_unmodelled_and_named_with_its_line() -> None:
    parts = ['{"model_type": "mistral3",', '"vision_config": {"hidden_size": 7},']
    text = "\n".join([*parts, f'"text_config": {json.dumps(small("mistral"))}}}'])
    reading = read_hf_config(json.loads(text), "config.json", text)
    assert [(setting.name, setting.line) for setting in reading.unmodelled] == [("vision_config", 2)]


def test_a_key_that_no_one_knows_is_listed_with_its_line() -> None:
    text = json.dumps(small("llama", flux_capacitor=1.21), indent=1)
    (setting,) = read_hf_config(json.loads(text), "config.json", text).not_understood
    assert setting.name == "flux_capacitor"
    assert "flux_capacitor" in text.splitlines()[(setting.line or 0) - 1]


def test_settings_of_generation_have_no_effect() -> None:
    config = small("llama", rope_theta=1e6, torch_dtype="bfloat16", rms_norm_eps=1e-5, rope_scaling={"type": "yarn"})
    assert not read_hf_config(config, "config.json").not_understood


@pytest.mark.parametrize("name", ["DFlashDraftModel", "LlamaForSequenceClassification", "LlamaForCausalLMEagle3"])
def test_a_head_that_is_not_that_of_a_language_model_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"model\.architectures"):
        read_hf_config({**LLAMA3_70B, "architectures": [name]}, "config.json")
