"""A NeMo training YAML (1.x, and the plain keys of NeMo 2 and Megatron Bridge) as a request."""

from collections.abc import Mapping
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.ledger import sort_unread
from charllm.spec.readers.megatron.derived import (
    CP_KINDS,
    DEFAULT_TOPK,
    RECOMPUTES,
    SHARDINGS,
    counted_stages,
    read_layout,
    uneven_stages,
)
from charllm.spec.readers.megatron.expression import evaluate_list
from charllm.spec.readers.nemo.document import Document, load_document
from charllm.spec.readers.nemo.keys import KNOWN, REFUSED
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
from charllm.spec.readers.patterns import describe_mixers, describe_sparse
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.tokenizers import known_vocabulary
from charllm.spec.readers.values import (
    MAX_COUNT,
    MAX_ENTRIES,
    MAX_TEXT,
    name_from,
    read_choice,
    read_count,
    read_counts,
    read_flag,
    read_number,
    shown,
)
from charllm.spec.training import RECOMPUTE_MODULES

Table = dict[str, Any]

MODEL = ("model", "model.config")
PARALLEL = ("model", "trainer.strategy", "model.config")
BATCH = ("model", "train", "data", "model.data.train_ds")
DDP = ("ddp", "trainer.strategy.ddp", "dist")
OPTIMIZER = ("optimizer", "optim.config", "model.optim")
PRECISE = (*MODEL, "mixed_precision", "trainer.plugins")

RECOMPUTE_WORDS = {word: word for word in RECOMPUTE_MODULES}
MARKS = ("num_layers", "hidden_size", "tensor_model_parallel_size", "micro_batch_size")
DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
}
DEFAULT_LORA = 32
TOKENIZERS = (
    "model.tokenizer.type",
    "model.tokenizer.model",
    "tokenizer.tokenizer_type",
    "tokenizer.tokenizer_model",
    "tokenizer.type",
    "tokenizer.model",
)


def read_nemo(text: str, path: str) -> Reading:
    """Return the request that a NeMo YAML makes, and what of it the request does not hold."""
    return read_settings(load_document(text, path), path)


def read_settings(document: Document, path: str, framework: str = "nemo") -> Reading:
    """Read the settings of NeMo or Megatron Bridge, whatever file they come from.

    What NeMo derives from an absent key is derived here too; a size that neither states is left out.
    """
    if not any(_find(document, (*PARALLEL, *BATCH), key)[1] is not None for key in MARKS):
        raise SpecError("--from", path, f"a NeMo training file, with model.{', model.'.join(MARKS)}")
    for key, missing in REFUSED.items():
        if document.names(key) and document.find(key) not in (None, False, {}):
            raise SpecError(key, shown(document.written(key))[:MAX_TEXT], f"left out: {missing}")
    model = _model(document)
    request = {
        "framework": _framework(document, framework),
        "parallelism": _parallelism(document),
        "training": _training(document, model),
    }
    # A file that overrides a recipe leaves the model to be named.
    if "layers" in model or "hidden" in model:
        request["model"] = {"name": name_from(path, "nemo"), **model}
    nodes, gpus = (_positive(document, f"trainer.{key}") for key in ("num_nodes", "devices"))
    unread = sort_unread(document.settings, KNOWN, document.lines, f"{document.mount}." if document.mount else "")
    return Reading(
        request,
        unread.not_understood,
        (*document.missing, *unread.unmodelled),
        _missing(document, request),
        unread.small,
        nodes=nodes,
        gpus_per_node=gpus,
    )


def _positive(document: Document, path: str) -> int | None:
    """Return a whole number above 0; all devices (-1, auto) leave it open."""
    value = document.find(path)
    if isinstance(value, str) and value.isdigit() and len(value) < 8:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_COUNT else None


def _missing(document: Document, request: Table) -> dict[str, str]:
    """Say what has to be added to a file that leaves the model open, or its vocabulary."""
    restored = document.written("model.restore_from_path")
    if "model" not in request:
        hint = f" (the file restores {shown(restored)[:MAX_TEXT]})" if restored not in (None, "???") else ""
        return {"model": f"--model NAME{hint}"}
    if "vocab" in request["model"]:
        return {}
    names = [shown(name)[:MAX_TEXT] for where in TOKENIZERS if (name := document.written(where)) not in (None, "???")]
    return {"model.vocab": f"--set model.vocab=N{f' (the tokens of {names[0]})' if names else ''}"}


def _framework(document: Document, name: str) -> Table | str:
    """Return the profile, with what the file says of its choices."""
    changes: Table = {}
    multiple = _count(document, MODEL, "make_vocab_size_divisible_by", low=1)
    if multiple not in (None, 128):
        changes["vocab_multiple"] = multiple
    for key, field in FUSIONS.items():
        where, value = _find(document, MODEL, key)
        if value is not None and not read_flag(where, value):
            changes[field] = "vocab-parallel" if field == "cross_entropy" else False
    fused = [_flag(document, MODEL, key) for key in ("mcore_gpt", "transformer_engine", "use_flash_attention")]
    if document.names("model.use_flash_attention") and not any(fused):
        changes["attention"] = "unfused"
    where, second_level = _find(document, ("model",), "megatron_amp_O2")
    if second_level is not None and not read_flag(where, second_level):
        # Without it weights stay in fp32 and are cast for each product (NeMo's build_transformer_config).
        changes.update(weight_precision="fp32", gradient_precision="fp32")
    changes.update(_dispatch(document), **_graphs(document), **_moments(document))
    return {"base": name, **changes} if changes else name


def _dispatch(document: Document) -> Table:
    """Read what sends tokens to experts, where it is not an all-to-all."""
    kind = _find(document, MODEL, "moe_token_dispatcher_type")[1]
    where, backend = _find(document, MODEL, "moe_flex_dispatcher_backend")
    deep = _flag(document, MODEL, "moe_enable_deepep")
    if kind in (None, "alltoall"):
        return {}
    if kind != "flex":
        raise SpecError("model.moe_token_dispatcher_type", shown(kind)[:MAX_TEXT], "alltoall or flex")
    named = "deepep" if deep or backend is None else backend
    return {"dispatcher": read_choice(where, named, {"deepep": "deepep", "hybridep": "hybridep"})}


def _graphs(document: Document) -> Table:
    """Read which launches are captured in CUDA graphs: parts of layers, or all of them."""
    impl, scope = (_find(document, MODEL, key)[1] for key in ("cuda_graph_impl", "cuda_graph_scope"))
    captured = _flag(document, MODEL, "enable_cuda_graph") or impl not in (None, "none")
    if not captured:
        return {}
    whole = not scope or scope in ("full", "full_iteration", ["full_iteration"])
    return {"graphs": "full" if whole else "partial"}


def _moments(document: Document) -> Table:
    """Read the format of the optimizer's moments."""
    if not _flag(document, OPTIMIZER, "use_precision_aware_optimizer"):
        return {}
    words = {"fp32": "fp32", "torch.float32": "fp32", "bf16": "16bit", "torch.bfloat16": "16bit", "fp16": "16bit"}
    found = [_find(document, OPTIMIZER, key) for key in ("exp_avg_dtype", "exp_avg_sq_dtype")]
    stated = {read_choice(where, value, words) for where, value in found if value is not None}
    return {"moment_precision": "16bit"} if stated == {"16bit"} else {}


FUSIONS = {
    "gradient_accumulation_fusion": "fused_gradients",
    "bias_activation_fusion": "fused_activation",
    "apply_rope_fusion": "fused_rope",
    "cross_entropy_loss_fusion": "cross_entropy",
    "moe_permute_fusion": "fused_permute",
}
"""Setting that switches one kernel for several on: the choice of a profile that it is."""


def _find(document: Document, rooms: tuple[str, ...], *keys: str) -> tuple[str, Any]:
    """Return the first value found under any of the rooms, and where it was; the others count as read."""
    places = [f"{room}.{key}" for room in rooms for key in keys]
    stated = [place for place in places if document.written(place) is not None]
    for place in stated:
        value = document.find(place)
        if value is not None:
            return place, value
    return places[0], None


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
        **_bidirectional(document),
        **_parallel_blocks(document),
        **_windows(document, layers),
    }
    latent = _flag(document, MODEL, "multi_latent_attention")
    table.update(_latent_attention(document) if latent else _attention(document))
    table.update(_experts(document, ffn, layers))
    # Learned positions are weights, so their number and not the sequence is a dimension of the model.
    lengths = ("max_position_embeddings", "encoder_seq_length", "seq_length")
    table["seq_length"] = _count(document, MODEL, *lengths[table["position"] != "learned" :])
    return _without_none(table)


def _bidirectional(document: Document) -> Table:
    """Tell BERT, which sees later tokens, by its own settings."""
    marks = ("model.bert_binary_head", "model.bert_type", "model.data.masked_lm_prob", "model.mcore_bert")
    return {"causal": False} if any(document.names(mark) for mark in marks) else {}


def _parallel_blocks(document: Document) -> Table:
    """Read Falcon's blocks, which run side by side after one norm or two, and Gemma 2's four norms."""
    rooms = ("model.mcore_customization_config", "model", "model.config")
    if _find(document, ("model.mcore_customization_config",), "query_pre_attn_scalar")[1] is not None:
        return {"norms_per_layer": 4}
    parallel, new = (_flag(document, rooms, key) for key in ("parallel_attention", "new_decoder_architecture"))
    return {"norms_per_layer": 2 if new else 1} if parallel else {}


def _windows(document: Document, layers: int | None) -> Table:
    """Read a sliding window and which layers have it; Gemma 2's is not in its file."""
    where, size = _find(document, MODEL, "window_size")
    back = size[0] if isinstance(size, list | tuple) and size else size
    if _find(document, ("model.mcore_customization_config",), "query_pre_attn_scalar")[1] is not None:
        return {"window": 4096, "full_attention_every": 2}
    if back is None or back == -1:
        return {}
    window = read_count(where, back)
    where, skipped = _find(document, MODEL, "window_attn_skip_freq")
    if isinstance(skipped, list) and layers:
        return describe_mixers("".join("w" if one else "*" for one in read_counts(where, skipped))[:layers], window)
    return {"window": window, "full_attention_every": 1 if skipped is None else read_count(where, skipped, 1)}


def _activation(document: Document) -> str:
    where, named = _find(document, MODEL, "activation")
    if named is not None:
        return read_choice(where, named, ACTIVATIONS)
    where, function = _find(document, MODEL, "activation_func")
    if isinstance(function, Mapping):
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
    return known_vocabulary([document.written(where) for where in TOKENIZERS])


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
        "expert_latent": _count(document, MODEL, "moe_latent_size"),
        **_sparse_layers(document, layers),
    }


def _sparse_layers(document: Document, layers: int | None) -> Table:
    """Read which layers have experts: every nth from the first, or a list of all."""
    where, value = _find(document, MODEL, "moe_layer_freq")
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
        "clip_gradients": _clips(document),
        "wide_layers": _wide_layers(document),
        **_recompute(document),
        **_adapters(document),
    }
    if "experts" in model:
        table["grouped_gemm"] = _flag(document, MODEL, "moe_grouped_gemm")
        table["capacity_factor"] = _number(document, MODEL, "moe_expert_capacity_factor")
    return _without_none(table)


def _clips(document: Document) -> bool | None:
    """Tell whether gradients are clipped; None where the file does not say."""
    value = _number(document, ("trainer", "optimizer", "optim.config"), "gradient_clip_val", "clip_grad")
    return None if value is None else value > 0


def _wide_layers(document: Document) -> int | None:
    """Count the layers that stay in 16 bits at either end."""
    if not _flag(document, PRECISE, "first_last_layers_bf16"):
        return None
    ends = ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16")
    return sum(1 if (found := _count(document, PRECISE, key)) is None else found for key in ends)


def _sequence(document: Document) -> int | None:
    """Return the length that is trained with: that of the fine-tuning data before that of the model."""
    stated = _count(document, ("model.data.train_ds",), "max_seq_length")
    if stated is not None:
        return stated
    return _count(document, (*MODEL, "dataset", "data"), "encoder_seq_length", "seq_length", "sequence_length")


def _precision(document: Document) -> str | None:
    where, fp4 = _find(document, PRECISE, "fp4")
    if fp4 is not None and read_choice(where, shown(fp4), {**FP8, "nvfp4": True, "e2m1": True}):
        return "nvfp4"
    where, fp8 = _find(document, PRECISE, "fp8")
    recipe = _find(document, PRECISE, "fp8_recipe")[1]
    if read_choice(where, shown(fp8), FP8):
        document.written("trainer.precision")
        return "mxfp8" if recipe == "mxfp8" else "fp8"
    if isinstance(document.find("mixed_precision"), Mapping):
        return "bf16" if _flag(document, ("mixed_precision",), "bf16", otherwise=True) else "fp16"
    for where in ("trainer.precision", "trainer.plugins.precision", "mixed_precision", "model.precision"):
        value = document.find(where)
        if value is not None and not isinstance(value, Mapping):
            return read_choice(where, value, PRECISIONS)
    return None


def _reduce_precision(document: Document) -> str | None:
    key = "model.fsdp_grad_reduce_dtype" if _is_fsdp(document) else "model.optim.grad_sync_dtype"
    value = document.find(key)
    if value is not None:
        return read_choice(key, value, GRADIENTS)
    where, in_fp32 = _find(document, DDP, "grad_reduce_in_fp32")
    return None if in_fp32 is None else "fp32" if read_flag(where, in_fp32) else "bf16"


def _recompute(document: Document) -> Table:
    where, granularity = _find(document, MODEL, "activations_checkpoint_granularity", "recompute_granularity")
    if granularity is None:
        return {"recompute": "none"}
    kind = read_choice(where, granularity, RECOMPUTES)
    where, listed = _find(document, MODEL, "recompute_modules")
    modules = None
    if kind == "selective" and isinstance(listed, list):
        modules = [read_choice(where, word, RECOMPUTE_WORDS) for word in listed]
    method = _find(document, MODEL, "activations_checkpoint_method", "recompute_method")[1]
    layers = _count(document, MODEL, "activations_checkpoint_num_layers", "recompute_num_layers")
    # The uniform method groups layers but recomputes all of them.
    recomputed = layers if kind == "full" and method == "block" else None
    return {"recompute": kind, "recompute_layers": recomputed, "recompute_modules": modules}


def _adapters(document: Document) -> Table:
    """Read LoRA adapters; other ways of tuning few weights are refused."""
    where, scheme = _find(document, ("model.peft",), "peft_scheme")
    if scheme not in (None, "none", "lora", "qlora"):
        raise SpecError(where, shown(scheme)[:MAX_TEXT], "lora or none: other adapters are not modelled")
    if scheme in ("lora", "qlora"):
        room, otherwise = "model.peft.lora_tuning", ["attention_qkv"]
    elif document.find("peft.dim") is not None:
        room, otherwise = "peft", ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    else:
        return {}
    where, targets = _find(document, (room,), "target_modules")
    if not isinstance(targets or otherwise, list):
        raise SpecError(where, shown(targets), f"a list of {', '.join(LORA_TARGETS)}")
    found = [target for name in targets or otherwise for target in read_choice(where, name, LORA_TARGETS)]
    return {
        "lora_rank": _count(document, (room,), "adapter_dim", "dim") or DEFAULT_LORA,
        "lora_targets": list(dict.fromkeys(found)),
    }
