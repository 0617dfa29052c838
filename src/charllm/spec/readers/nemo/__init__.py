"""A NeMo training YAML (1.x, and the plain keys of NeMo 2 and Megatron Bridge) as a request."""

from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.megatron.derived import (
    CP_KINDS,
    DEFAULT_TOPK,
    RECOMPUTES,
    SHARDINGS,
    counted_stages,
    dense_layers,
    read_layout,
    uneven_stages,
)
from charllm.spec.readers.megatron.expression import evaluate_list
from charllm.spec.readers.nemo.document import Document, find_value, load_document, raw_value
from charllm.spec.readers.nemo.words import (
    ACTIVATIONS,
    FP8,
    FSDP,
    GATED,
    GRADIENTS,
    LORA_TARGETS,
    NORMS,
    OPTIMIZERS,
    POSITIONS,
    PRECISIONS,
)
from charllm.spec.readers.tokenizers import known_vocabulary
from charllm.spec.readers.values import (
    name_from,
    read_choice,
    read_count,
    read_counts,
    read_flag,
    read_number,
    shown,
)

Table = dict[str, Any]

MODEL = ("model", "model.config")
PARALLEL = ("model", "trainer.strategy", "model.config")
BATCH = ("model", "train", "data", "model.data.train_ds")
DDP = ("ddp", "trainer.strategy.ddp")
OPTIMIZER = ("optimizer", "optim.config", "model.optim")

MARKS = ("num_layers", "hidden_size", "tensor_model_parallel_size", "micro_batch_size")
DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
}
TOKENIZERS = (
    "model.tokenizer.type",
    "model.tokenizer.model",
    "tokenizer.tokenizer_type",
    "tokenizer.tokenizer_model",
    "tokenizer.type",
    "tokenizer.model",
)


def read_nemo(text: str, path: str) -> dict[str, Any]:
    """Return the request that a NeMo YAML makes; the machine it names is left to the user.

    What NeMo derives from an absent key is derived here too; a size that neither states is left out.
    """
    document = load_document(text, path)
    if not any(_find(document, (*PARALLEL, *BATCH), key)[1] is not None for key in MARKS):
        raise SpecError("--from", path, f"a NeMo training file, with model.{', model.'.join(MARKS)}")
    if find_value(document, "model.hybrid_override_pattern") is not None:
        raise SpecError("model.hybrid_override_pattern", "given", "a transformer: hybrids are read from a config.json")
    model = _model(document)
    request = {
        "framework": "nemo",
        "parallelism": _parallelism(document),
        "training": _training(document, model),
    }
    # A file that overrides a recipe leaves the model to be named.
    if "layers" in model or "hidden" in model:
        request["model"] = {"name": name_from(path, "nemo"), **model}
    return request


def _find(document: Document, rooms: tuple[str, ...], *keys: str) -> tuple[str, Any]:
    """Return the first value found under any of the rooms, and where it was."""
    for room in rooms:
        for key in keys:
            value = find_value(document, f"{room}.{key}")
            if value is not None:
                return f"{room}.{key}", value
    return f"{rooms[0]}.{keys[0]}", None


def _count(document: Document, rooms: tuple[str, ...], *keys: str, low: int = 0) -> int | None:
    where, value = _find(document, rooms, *keys)
    return None if value is None else read_count(where, value, low)


def _flag(document: Document, rooms: tuple[str, ...], *keys: str, otherwise: bool = False) -> bool:
    where, value = _find(document, rooms, *keys)
    return otherwise if value is None else read_flag(where, value)


def _number(document: Document, rooms: tuple[str, ...], *keys: str) -> float | None:
    where, value = _find(document, rooms, *keys)
    return None if value is None else read_number(where, value)


def _without_none(table: Table) -> Table:
    return {field: value for field, value in table.items() if value is not None}


def _model(document: Document) -> Table:
    layers, hidden = _count(document, MODEL, "num_layers"), _count(document, MODEL, "hidden_size")
    ffn = _count(document, MODEL, "ffn_hidden_size")
    if ffn is None and hidden is not None:
        ffn = 4 * hidden
    norm = _find(document, MODEL, "normalization")
    position = _find(document, MODEL, "position_embedding_type")
    dropout = _number(document, MODEL, "hidden_dropout")
    table = {
        "layers": layers,
        "hidden": hidden,
        "ffn": ffn,
        "heads": _count(document, MODEL, "num_attention_heads"),
        "vocab": _vocab(document),
        "activation": _activation(document),
        "norm": read_choice(norm[0], norm[1] or "layernorm", NORMS),
        "position": read_choice(position[0], position[1] or "learned_absolute", POSITIONS),
        "bias": _bias(document),
        "tied_embeddings": _flag(document, MODEL, "share_embeddings_and_output_weights", otherwise=True),
        "dropout_fraction": 0.1 if dropout is None else dropout,
        "mtp_layers": _count(document, MODEL, "mtp_num_layers"),
    }
    latent = _flag(document, MODEL, "multi_latent_attention")
    table.update(_latent_attention(document) if latent else _attention(document))
    table.update(_experts(document, ffn, layers))
    # Learned positions are weights, so their number and not the sequence is a dimension of the model.
    lengths = ("max_position_embeddings", "encoder_seq_length", "seq_length")
    table["seq_length"] = _count(document, MODEL, *lengths[table["position"] != "learned" :])
    return _without_none(table)


def _activation(document: Document) -> str:
    where, named = _find(document, MODEL, "activation")
    if named is not None:
        return read_choice(where, named, ACTIVATIONS)
    where, function = _find(document, MODEL, "activation_func")
    if isinstance(function, dict):
        function = function.get("_target_")
    word = function.rpartition(".")[2] if isinstance(function, str) else function
    gated = _flag(document, MODEL, "gated_linear_unit")
    return read_choice(where, "gelu" if word is None else word, GATED if gated else ACTIVATIONS)


def _bias(document: Document) -> str:
    if _flag(document, MODEL, "bias", "add_bias_linear", otherwise=True):
        return "all"
    return "qkv" if _flag(document, MODEL, "qkv_bias", "add_qkv_bias") else "none"


def _vocab(document: Document) -> int | None:
    stated = _count(document, (*MODEL, "tokenizer", "model.tokenizer"), "override_vocab_size", "vocab_size")
    if stated is not None:
        return stated
    return known_vocabulary(raw_value(document, where) for where in TOKENIZERS)


def _attention(document: Document) -> Table:
    return {
        "kv_heads": _count(document, MODEL, "num_query_groups", low=1),
        "head_dim": _count(document, MODEL, "kv_channels"),
        "qk_norm": _flag(document, MODEL, "qk_layernorm"),
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
        stated = _count(document, MODEL, key)
        table[field] = otherwise if stated is None else stated
    return table


def _experts(document: Document, ffn: int | None, layers: int | None) -> Table:
    experts = _count(document, MODEL, "num_moe_experts")
    if not experts:
        return {}
    return {
        "experts": experts,
        "topk": _count(document, MODEL, "moe_router_topk") or DEFAULT_TOPK,
        "expert_groups": _count(document, MODEL, "moe_router_num_groups") or 1,
        "groups_per_token": _count(document, MODEL, "moe_router_group_topk") or 1,
        "expert_ffn": _count(document, MODEL, "moe_ffn_hidden_size") or ffn,
        "shared_ffn": _count(document, MODEL, "moe_shared_expert_intermediate_size") or 0,
        "dense_layers": _dense_layers(document, layers),
    }


def _dense_layers(document: Document, layers: int | None) -> int:
    where, value = _find(document, MODEL, "moe_layer_freq")
    if value is None or value == 1:
        return 0
    pattern = evaluate_list(value) if isinstance(value, str) else value
    if not isinstance(pattern, list):
        raise SpecError(where, shown(value), "1, or a list with dense layers (0) before sparse ones (1)")
    return dense_layers(where, read_counts(where, pattern), len(pattern) if layers is None else layers)


def _parallelism(document: Document) -> Table:
    table: Table = {axis: _count(document, PARALLEL, key, low=1) or 1 for axis, key in DEGREES.items()}
    table["etp"] = _count(document, PARALLEL, "expert_tensor_parallel_size", low=1)
    table["sp"] = _flag(document, PARALLEL, "sequence_parallel") and table["tp"] > 1
    table.update(_stages(document, table))
    table.update(_sharding(document, table["tp"]))
    where, kind = _find(document, PARALLEL, "cp_comm_type")
    table["cp_kind"] = read_choice(where, kind or "p2p", CP_KINDS) if table["cp"] > 1 else None
    table["overlap"] = _overlap(document, table)
    return _without_none(table)


def _stages(document: Document, table: Table) -> Table:
    pp, vpp = table["pp"], table["vpp"]
    where, layout = _find(document, PARALLEL, "pipeline_model_parallel_layout")
    if layout is not None:
        split = read_layout(where, layout, pp)
        return {"vpp": len(split) // pp, "layers_per_stage": split}
    ends = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
    first, last = (_count(document, PARALLEL, key) for key in ends)
    counted = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
    embedding, loss = (_flag(document, PARALLEL, key) for key in counted)
    layers, field = _count(document, MODEL, "num_layers") or 0, f"model.{DEGREES['pp']}"
    if pp > 1 and (first is not None or last is not None):
        return {"layers_per_stage": uneven_stages(field, layers, pp, vpp, (first, last))}
    if pp > 1 and (embedding or loss):
        return {"layers_per_stage": counted_stages(field, layers, pp * vpp, embedding, loss)}
    return {}


def _is_fsdp(document: Document) -> bool:
    return _flag(document, ("model",), "fsdp")


def _sharding(document: Document, tp: int) -> Table:
    """Read what the replicas shard: FSDP, Megatron's FSDP, or a distributed optimizer."""
    if _is_fsdp(document):
        where, strategy = _find(document, ("model",), "fsdp_sharding_strategy")
        table: Table = {"zero": read_choice(where, strategy or "full", FSDP)}
        devices = _count(document, ("trainer",), "devices") if strategy == "hybrid" else None
        return {**table, "shard_size": devices // tp} if devices and not devices % tp else table
    if _flag(document, DDP, "use_megatron_fsdp", "use_custom_fsdp"):
        where, strategy = _find(document, DDP, "data_parallel_sharding_strategy")
        return {"zero": read_choice(where, strategy or "no_shard", SHARDINGS)}
    distributed = _flag(document, (*DDP, *OPTIMIZER), "use_distributed_optimizer")
    return {"zero": max(int(distributed), _optimizer(document)[1])}


def _optimizer(document: Document) -> tuple[str | None, int]:
    where, name = _find(document, OPTIMIZER, "name", "optimizer")
    return (None, 0) if name is None else read_choice(where, name, OPTIMIZERS)


def _overlap(document: Document, table: Table) -> list[str]:
    tp_rooms = ("model", "comm_overlap", "trainer.strategy")
    dp_keys = ("overlap_grad_sync", "overlap_grad_reduce", "overlap_param_sync", "overlap_param_gather")
    asked_tp = _flag(document, tp_rooms, "ub_tp_comm_overlap", "tp_comm_overlap")
    hidden = {
        # NeMo turns the overlap off itself without sequence parallelism and under FSDP.
        "tp": asked_tp and table["sp"] and not _is_fsdp(document),
        "dp": _is_fsdp(document) or any(_flag(document, (*DDP, *OPTIMIZER, "comm_overlap"), key) for key in dp_keys),
        "pp": table["vpp"] > 1 and _flag(document, ("model", "comm_overlap"), "overlap_p2p_comm"),
        "ep": _flag(document, ("model", "comm_overlap"), "overlap_moe_expert_parallel_comm"),
        "cp": table["cp_kind"] == "ring",
    }
    return [axis for axis, hides in hidden.items() if hides]


def _training(document: Document, model: Table) -> Table:
    table = {
        "seq_length": _sequence(document),
        "micro_batch_size": _count(document, BATCH, "micro_batch_size"),
        "global_batch_size": _count(document, BATCH, "global_batch_size"),
        "precision": _precision(document),
        "optimizer": _optimizer(document)[0],
        "reduce_precision": _reduce_precision(document),
        **_recompute(document),
        **_adapters(document),
    }
    if "experts" in model:
        table["grouped_gemm"] = _flag(document, MODEL, "moe_grouped_gemm")
        table["capacity_factor"] = _number(document, MODEL, "moe_expert_capacity_factor")
    return _without_none(table)


def _sequence(document: Document) -> int | None:
    """Return the length that is trained with: that of the fine-tuning data before that of the model."""
    stated = _count(document, ("model.data.train_ds",), "max_seq_length")
    if stated is not None:
        return stated
    return _count(document, (*MODEL, "dataset", "data"), "encoder_seq_length", "seq_length", "sequence_length")


def _precision(document: Document) -> str | None:
    where, fp8 = _find(document, MODEL, "fp8")
    if read_choice(where, shown(fp8), FP8):
        return "mxfp8" if _find(document, MODEL, "fp8_recipe")[1] == "mxfp8" else "fp8"
    for where in ("trainer.precision", "mixed_precision", "model.precision"):
        value = find_value(document, where)
        if value is not None and not isinstance(value, dict):
            return read_choice(where, value, PRECISIONS)
    return None


def _reduce_precision(document: Document) -> str | None:
    key = "model.fsdp_grad_reduce_dtype" if _is_fsdp(document) else "model.optim.grad_sync_dtype"
    value = find_value(document, key)
    if value is not None:
        return read_choice(key, value, GRADIENTS)
    where, in_fp32 = _find(document, DDP, "grad_reduce_in_fp32")
    return None if in_fp32 is None else "fp32" if read_flag(where, in_fp32) else "bf16"


def _recompute(document: Document) -> Table:
    where, granularity = _find(document, MODEL, "activations_checkpoint_granularity", "recompute_granularity")
    if granularity is None:
        return {"recompute": "none"}
    kind = read_choice(where, granularity, RECOMPUTES)
    method = _find(document, MODEL, "activations_checkpoint_method", "recompute_method")[1]
    layers = _count(document, MODEL, "activations_checkpoint_num_layers", "recompute_num_layers")
    # The uniform method groups layers but recomputes all of them.
    return {"recompute": kind, "recompute_layers": layers if kind == "full" and method == "block" else None}


def _adapters(document: Document) -> Table:
    """Read LoRA adapters; other ways of tuning few weights are refused."""
    where, scheme = _find(document, ("model.peft",), "peft_scheme")
    if read_choice(where, "none" if scheme is None else scheme, {"lora": True, "none": False}):
        room, otherwise = "model.peft.lora_tuning", ["attention_qkv"]
    elif find_value(document, "peft.dim") is not None:
        room, otherwise = "peft", ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    else:
        return {}
    where, targets = _find(document, (room,), "target_modules")
    if not isinstance(targets or otherwise, list):
        raise SpecError(where, shown(targets), f"a list of {', '.join(LORA_TARGETS)}")
    found = [target for name in targets or otherwise for target in read_choice(where, name, LORA_TARGETS)]
    return {
        "lora_rank": _count(document, (room,), "adapter_dim", "dim"),
        "lora_targets": list(dict.fromkeys(found)),
    }
