"""A GPT-NeoX settings file as a request. Its engine is DeepSpeed, whose settings stand beside its own.

Defaults: EleutherAI/gpt-neox, megatron/neox_arguments/neox_args.py.
"""

from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers import deepspeed
from charllm.spec.readers.ledger import Known, Unmodelled, list_names, sort_unread
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import count_setting, find_setting, flag_setting, number_setting, without_none
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.tokenizers import known_vocabulary
from charllm.spec.readers.values import name_from, read_choice, shown

Table = dict[str, Any]

HERE = ("",)
NORMS = {
    "layernorm": "layernorm",
    "rmsnorm": "rmsnorm",
    "scalenorm": "rmsnorm",
    "non_parametric_layernorm": "layernorm",
}
POSITIONS = {"learned": "learned", "rotary": "rope", "none": "none", "alibi": "alibi", "sinusoidal": "none",
             "rpe": "none"}  # fmt: skip
ACTIVATIONS = {"gelu": "gelu", "geglu": "geglu", "swiglu": "swiglu", "relu": "relu", "silu": "silu", "swish": "silu",
               "reglu": "swiglu", "bilinear": "swiglu"}  # fmt: skip
FORMATS = {"fp16": "fp16", "bfloat16": "bf16", "bf16": "bf16", "fp32": "fp32"}
KNOWN = Known(
    list_names(
        """
        data_path data_impl split save load *_interval *_iters *_factor lr* min_lr warmup weight_decay seed log_* wandb*
        use_wandb use_comet comet* tensorboard* git_hash hostfile launcher include num_workers keep_last* *_init_method
        init_method* distributed_backend wall_clock_breakdown steps_per_print output_layer_parallelism vocab_file
        merge_file tokenizer_type attention_dropout synchronize_each_layer partition_activations *data_paths
        *data_weights rotary_* *_fusion *_epsilon finetune text_gen* maximum_tokens top_p top_k temperature
        recompute sample_* num_samples prompt_end deepspeed* memory_profiling* profile* debug verbose use_shared_fs
        extra_save_iters train_iters do_* eval* checkpoint_* attention_softmax_in_fp32 optimizer.*
        gradient_noise* pipe_partition_method user_script print_* fp16.* bf16.* zero_optimization.* comms_logger.*
        flops_profiler.* scaled_* apply_query_key_layer_scaling adlr* master_* train_micro_batch_size_per_gpu
        train_batch_size precision data_types.* communication_data_type
        fp16_lm_cross_entropy fp32_allreduce zero_allow_untested_optimizer activation_checkpointing.*
        opt_pos_emb_offset mmap_warmup eod_mask_loss weight_by_num_documents prescale_gradients csv_monitor.*
        tensorboard.* prof_all account max_position_embeddings make_vocab_size_divisible_by comment s3_*
        attention_config gradient_clipping gmlp_attn_dim te_fp8_* slurm_comment no_ssh_check global_num_gpus scheduler.*
        """
    ),
    {
        "moe_num_experts": Unmodelled("experts of this program", (None, 0, 1)),
        "use_bnb_optimizer": Unmodelled("an 8-bit optimizer"),
        "sparsity_config.*": Unmodelled("sparse attention", ()),
        "train_impl": Unmodelled("the further passes of training by preferences", (None, "normal")),
        "soft_prompt_tuning.*": Unmodelled("a tuned prompt", ()),
        "num_unique_layers": Unmodelled("layers that share weights"),
        "te_fp8_mha": Unmodelled("attention in 8 bits"),
    },
    {
        "te_columnparallel": Unmodelled("layers of Transformer Engine"),
        "te_rowparallel": Unmodelled("layers of Transformer Engine"),
        "te_layernorm_mlp": Unmodelled("layers of Transformer Engine"),
        "te_mha": Unmodelled("layers of Transformer Engine"),
    },
)


def read_gpt_neox(found: Document, path: str) -> Reading:
    """Return the request of a file; a vocabulary that only its tokenizer knows is asked for."""
    table = {key.replace("-", "_"): found.table[key] for key in found.table}
    document = Document(table, {key.replace("-", "_"): line for key, line in found.lines.items()})
    model, missing = _model(document)
    precision = _precision(document)
    sharded, overlap = deepspeed.zero_of(table)
    pp = max(1, count_setting(document, HERE, "pipe_parallel_size") or 0)
    tp = count_setting(document, HERE, "model_parallel_size", low=1) or 1
    parallelism = {
        "tp": tp,
        "pp": pp,
        "sp": tp > 1 and flag_setting(document, HERE, "sequence_parallel"),
        "cp": count_setting(document, HERE, "context_parallel_size", low=1) or 1,
        **sharded,
        "overlap": ["dp"] if overlap and sharded["zero"] else [],
    }
    if precision == "bf16":
        # DeepSpeed's bf16 optimizer shards its state over replicas even at stage 0.
        parallelism["zero"] = max(1, parallelism["zero"])
    clip = number_setting(document, HERE, "gradient_clipping")
    training = {
        "seq_length": count_setting(document, HERE, "seq_length"),
        "precision": precision,
        "recompute": "full" if flag_setting(document, HERE, "checkpoint_activations") else "none",
        "clip_gradients": True if clip is None else clip > 0,
        **deepspeed.batch_of(table),
        **deepspeed.offload_of(table),
        **_optimizer(document),
    }
    for field, flag in (("seq_length", "--seq N"), ("micro_batch_size", "--mbs N")):
        if training.get(field) is None:
            missing[f"training.{field}"] = f"{flag} (the file states none)"
    accumulation = count_setting(document, HERE, "gradient_accumulation_steps", low=1)
    unread = sort_unread(document.settings, KNOWN, document.lines)
    return Reading(
        {
            "framework": "megatron-deepspeed",
            "model": {"name": name_from(path, "gpt-neox"), **model},
            "parallelism": parallelism,
            "training": without_none(training),
        },
        unread.not_understood,
        unread.unmodelled,
        missing,
        unread.small,
        gpus_per_node=count_setting(document, HERE, "num_gpus", low=1),
        nodes=count_setting(document, HERE, "num_nodes", low=1),
        microbatches=None if "global_batch_size" in training else accumulation or 1,
    )


def _model(document: Document) -> tuple[Table, dict[str, str]]:
    where, kind = find_setting(document, HERE, "activation")
    activation = read_choice(where, kind or "gelu", ACTIVATIONS)
    hidden = count_setting(document, HERE, "hidden_size", low=1)
    norm, position = (find_setting(document, HERE, key) for key in ("norm", "pos_emb"))
    missing = {}
    ffn = count_setting(document, HERE, "intermediate_size")
    if find_setting(document, HERE, "activation")[1] not in (None, "gelu", "relu") or document.find("mlp_type"):
        # What the widths of gated layers are worked out to has changed between its releases.
        ffn = None
        missing["model.ffn"] = "--set model.ffn=N (the width of a gated layer depends on the release of GPT-NeoX)"
    elif ffn is None and hidden is not None:
        ffn = int((number_setting(document, HERE, "expansion_factor") or 4) * hidden)
    parallel, tied = (flag_setting(document, HERE, key) for key in ("gpt_j_residual", "gpt_j_tied"))
    biased = [flag_setting(document, HERE, f"use_bias_in_{part}", otherwise=True) for part in ("attn_linear", "mlp")]
    table = {
        "layers": count_setting(document, HERE, "num_layers", low=1),
        "hidden": hidden,
        "heads": count_setting(document, HERE, "num_attention_heads", low=1),
        "kv_heads": count_setting(document, HERE, "num_kv_heads", low=1),
        "ffn": ffn,
        "vocab": _vocabulary(document),
        "activation": activation,
        "norm": read_choice(norm[0], norm[1] or "layernorm", NORMS),
        "position": read_choice(position[0], position[1] or "learned", POSITIONS),
        "bias": "all" if any(biased) else "none",
        "tied_embeddings": not flag_setting(document, HERE, "no_weight_tying"),
        "dropout_fraction": number_setting(document, HERE, "hidden_dropout") or 0.0,
        "norms_per_layer": (1 if tied else 2) if parallel else None,
        "qk_norm": flag_setting(document, HERE, "use_qk_layernorm"),
        "window": count_setting(document, HERE, "sliding_window_width"),
    }
    lengths = ("max_position_embeddings", "seq_length")
    table["seq_length"] = count_setting(document, HERE, *lengths[table["position"] != "learned" :])
    _check_attention(document)
    for field, key in (("layers", "num_layers"), ("hidden", "hidden_size"), ("heads", "num_attention_heads")):
        if table[field] is None:
            missing[f"model.{field}"] = f"--set model.{field}=N (the file states no {key})"
    if table["vocab"] is None:
        missing["model.vocab"] = "--set model.vocab=N (the file names no tokenizer that is known)"
    return without_none(table), missing


def _check_attention(document: Document) -> None:
    """Refuse layers that are no attention over all tokens."""
    where, listed = find_setting(document, HERE, "attention_config")
    kinds = (
        [word for entry in listed if isinstance(entry, list) and entry for word in _words(entry[0])] if listed else []
    )
    for kind in kinds:
        read_choice(where, kind, {"global": True, "flash": True})


def _words(kinds: Any) -> list[Any]:
    return kinds if isinstance(kinds, list) else [kinds]


def _vocabulary(document: Document) -> int | None:
    stated = count_setting(document, HERE, "padded_vocab_size", "vocab_size", low=1)
    named = [document.find(key) for key in ("vocab_file", "tokenizer_type")]
    if stated is None and isinstance(named[0], str) and "20B_tokenizer" in named[0]:
        return 50_277
    return stated or known_vocabulary(named)


def _precision(document: Document) -> str:
    for key, precision in (("fp16", "fp16"), ("bf16", "bf16")):
        table = document.find(key)
        if table is not None and flag_setting(document, (key,), "enabled"):
            return "bf16" if document.find(f"{key}.type") == "bfloat16" else precision
    where, named = find_setting(document, HERE, "precision")
    return "fp32" if named is None else read_choice(where, named, FORMATS)


def _optimizer(document: Document) -> Table:
    """Read the update rule; one with other state is refused."""
    where, kind = find_setting(document, ("optimizer",), "type")
    if kind is None:
        return {}
    try:
        return {"optimizer": read_choice(where, kind, deepspeed.OPTIMIZERS)}
    except SpecError:
        raise SpecError(where, shown(kind)[:80], f"one of {', '.join(deepspeed.OPTIMIZERS)}") from None
