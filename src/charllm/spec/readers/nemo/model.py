"""The model that settings of NeMo describe."""

from collections.abc import Mapping

from charllm.errors import SpecError
from charllm.spec.readers.megatron.derived import DEFAULT_TOPK
from charllm.spec.readers.megatron.expression import evaluate_list
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import (
    MODEL,
    Table,
    count_setting,
    find_setting,
    flag_setting,
    number_setting,
    without_none,
)
from charllm.spec.readers.nemo.words import ACTIVATIONS, GATED, NORMS, POSITIONS
from charllm.spec.readers.patterns import describe_mixers, describe_sparse
from charllm.spec.readers.tokenizers import known_vocabulary
from charllm.spec.readers.values import MAX_ENTRIES, MAX_TEXT, read_choice, read_count, read_counts, shown

TOKENIZERS = (
    "model.tokenizer.type",
    "model.tokenizer.model",
    "tokenizer.tokenizer_type",
    "tokenizer.tokenizer_model",
    "tokenizer.type",
    "tokenizer.model",
)


def read_model(document: Document) -> Table:
    """Return the fields of the model that the settings state, with what NeMo derives from those left out."""
    layers, hidden = count_setting(document, MODEL, "num_layers"), count_setting(document, MODEL, "hidden_size")
    ffn = count_setting(document, MODEL, "ffn_hidden_size")
    if ffn is None and hidden is not None:
        ffn = 4 * hidden
    norm = find_setting(document, MODEL, "normalization")
    position = find_setting(document, MODEL, "position_embedding_type")
    dropout = number_setting(document, MODEL, "hidden_dropout")
    table = {
        "layers": layers,
        "hidden": hidden,
        "ffn": ffn,
        "heads": count_setting(document, MODEL, "num_attention_heads"),
        "vocab": _vocab(document),
        "activation": _activation(document),
        "norm": read_choice(norm[0], norm[1] or "layernorm", NORMS),
        "position": read_choice(position[0], position[1] or "learned_absolute", POSITIONS),
        "bias": _bias(document),
        "tied_embeddings": flag_setting(document, MODEL, "share_embeddings_and_output_weights", otherwise=True),
        "dropout_fraction": 0.1 if dropout is None else dropout,
        "mtp_layers": count_setting(document, MODEL, "mtp_num_layers"),
        **_bidirectional(document),
        **_parallel_blocks(document),
        **_windows(document, layers),
    }
    latent = flag_setting(document, MODEL, "multi_latent_attention")
    table.update(_latent_attention(document) if latent else _attention(document))
    table.update(_experts(document, ffn, layers))
    # Learned positions are weights, so their number and not the sequence is a dimension of the model.
    lengths = ("max_position_embeddings", "encoder_seq_length", "seq_length")
    table["seq_length"] = count_setting(document, MODEL, *lengths[table["position"] != "learned" :])
    return without_none(table)


def _bidirectional(document: Document) -> Table:
    """Tell BERT, which sees later tokens, by its own settings."""
    marks = ("model.bert_binary_head", "model.bert_type", "model.data.masked_lm_prob", "model.mcore_bert")
    return {"causal": False} if any(document.names(mark) for mark in marks) else {}


def _parallel_blocks(document: Document) -> Table:
    """Read Falcon's blocks, which run side by side after one norm or two, and Gemma 2's four norms."""
    rooms = ("model.mcore_customization_config", "model", "model.config")
    if find_setting(document, ("model.mcore_customization_config",), "query_pre_attn_scalar")[1] is not None:
        return {"norms_per_layer": 4}
    parallel, new = (flag_setting(document, rooms, key) for key in ("parallel_attention", "new_decoder_architecture"))
    return {"norms_per_layer": 2 if new else 1} if parallel else {}


def _windows(document: Document, layers: int | None) -> Table:
    """Read a sliding window and which layers have it; Gemma 2's is not in its file."""
    where, size = find_setting(document, MODEL, "window_size")
    back = size[0] if isinstance(size, list | tuple) and size else size
    if find_setting(document, ("model.mcore_customization_config",), "query_pre_attn_scalar")[1] is not None:
        return {"window": 4096, "full_attention_every": 2}
    if back is None or back == -1:
        return {}
    window = read_count(where, back)
    where, skipped = find_setting(document, MODEL, "window_attn_skip_freq")
    if isinstance(skipped, list) and layers:
        return describe_mixers("".join("w" if one else "*" for one in read_counts(where, skipped))[:layers], window)
    return {"window": window, "full_attention_every": 1 if skipped is None else read_count(where, skipped, 1)}


def _activation(document: Document) -> str:
    where, named = find_setting(document, MODEL, "activation")
    if named is not None:
        return read_choice(where, named, ACTIVATIONS)
    where, function = find_setting(document, MODEL, "activation_func")
    if isinstance(function, Mapping):
        function = function.get("_target_")
    word = function.rpartition(".")[2] if isinstance(function, str) else function
    gated = flag_setting(document, MODEL, "gated_linear_unit")
    return read_choice(where, "gelu" if word is None else word, GATED if gated else ACTIVATIONS)


def _bias(document: Document) -> str:
    if flag_setting(document, MODEL, "bias", "add_bias_linear", otherwise=True):
        return "all"
    return "qkv" if flag_setting(document, MODEL, "qkv_bias", "add_qkv_bias") else "none"


def _vocab(document: Document) -> int | None:
    stated = count_setting(document, (*MODEL, "tokenizer", "model.tokenizer"), "override_vocab_size", "vocab_size")
    if stated is not None:
        return stated
    return known_vocabulary([document.written(where) for where in TOKENIZERS])


def _attention(document: Document) -> Table:
    return {
        "kv_heads": count_setting(document, MODEL, "num_query_groups", low=1),
        "head_dim": count_setting(document, MODEL, "kv_channels"),
        "qk_norm": flag_setting(document, MODEL, "qk_layernorm"),
    }


def _latent_attention(document: Document) -> Table:
    sizes = {
        "q_lora_rank": ("q_lora_rank", 512),
        "kv_lora_rank": ("kv_lora_rank", 512),
        "head_dim": ("qk_head_dim", 128),
        "rope_head_dim": ("qk_pos_emb_head_dim", 64),
        "v_head_dim": ("v_head_dim", 128),
    }
    table: Table = {"attention": "mla"}
    for field, (key, otherwise) in sizes.items():
        stated = count_setting(document, MODEL, key)
        table[field] = otherwise if stated is None else stated
    return table


def _experts(document: Document, ffn: int | None, layers: int | None) -> Table:
    experts = count_setting(document, MODEL, "num_moe_experts")
    if not experts:
        return {}
    return {
        "experts": experts,
        "topk": count_setting(document, MODEL, "moe_router_topk") or DEFAULT_TOPK,
        "expert_groups": count_setting(document, MODEL, "moe_router_num_groups") or 1,
        "groups_per_token": count_setting(document, MODEL, "moe_router_group_topk") or 1,
        "expert_ffn": count_setting(document, MODEL, "moe_ffn_hidden_size") or ffn,
        "shared_ffn": count_setting(document, MODEL, "moe_shared_expert_intermediate_size") or 0,
        "expert_latent": count_setting(document, MODEL, "moe_latent_size"),
        **_sparse_layers(document, layers),
    }


def _sparse_layers(document: Document, layers: int | None) -> Table:
    """Read which layers have experts: every nth from the first, or a list of all."""
    where, value = find_setting(document, MODEL, "moe_layer_freq")
    pattern = evaluate_list(value) if isinstance(value, str) else value
    if value is None:
        return {"dense_layers": 0}
    if pattern is None:
        raise SpecError(where, shown(value)[:MAX_TEXT], "a number, or a list with 0 for dense layers and 1 for sparse")
    if not isinstance(pattern, list):
        period = read_count(where, pattern, 1, MAX_ENTRIES)
        return {"sparse_layers": "E" + "-" * (period - 1)} if period > 1 else {"dense_layers": 0}
    letters = "".join("E" if one else "-" for one in read_counts(where, pattern))
    if layers is not None and len(letters) != layers:
        raise SpecError(where, f"{len(letters)} entries", f"{layers} entries, dense layers (0) and sparse ones (1)")
    return describe_sparse(letters)
