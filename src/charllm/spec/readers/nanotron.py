"""A nanotron settings file as a request.

Defaults: huggingface/nanotron, src/nanotron/config.
"""

from typing import Any

from charllm.spec.readers.huggingface import read_hf_config
from charllm.spec.readers.ledger import Known, Unmodelled, list_names, sort_unread
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import count_setting, find_setting, flag_setting, number_setting, without_none
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.values import name_from, read_choice, read_table

Table = dict[str, Any]

KNOWN = Known(
    list_names(
        """
        checkpoints.* data_stages data_stages.* general.* lighteval.* logging.* profiler.* tokenizer.* metrics_logging.*
        model.init_method.* model.ddp_bucket_cap_mb model.make_vocab_size_divisible_by model.model_config.*
        optimizer.learning_rate_scheduler.* optimizer.optimizer_factory.* optimizer.weight_decay*
        optimizer.clip_grad optimizer.adam_* doremi.* parallelism.moe_layer_recompute tokens.* s3_upload.* data.*
        wandb.* slurm.* *_slurm* parallelism.tp_recompute_allgather
        """
    ),
    {
        "optimizer.finetune.*": Unmodelled("frozen weights", ()),
        "parallelism.tp_recompute_allgather": Unmodelled("kept gathered inputs", (None, True)),
    },
)
FAMILIES = {
    "is_llama_config": ("llama", "LlamaForCausalLM"),
    "is_qwen2_config": ("qwen2", "Qwen2ForCausalLM"),
}
"""Mark in `model_config`: the family of Hugging Face whose settings it takes."""
ENGINES = {"1f1b": "1f1b", "afab": "gpipe"}
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def read_nanotron(document: Document, path: str) -> Reading:
    """Return the request of a file: its model is in the words of a Hugging Face config."""
    missing: dict[str, str] = {}
    model, unmodelled, small = _model(document, path, missing)
    degrees = {
        axis: count_setting(document, ("parallelism",), key, low=1) or 1
        for axis, key in {"dp": "dp", "tp": "tp", "pp": "pp", "cp": "context_parallel_size",
                          "ep": "expert_parallel_size"}.items()
    }  # fmt: skip
    where, engine = find_setting(document, ("parallelism",), "pp_engine")
    mode = find_setting(document, ("parallelism",), "tp_mode")
    scattered = read_choice(mode[0], mode[1] or "all_reduce", {"all_reduce": False, "reduce_scatter": True})
    hidden = flag_setting(document, ("parallelism",), "tp_linear_async_communication")
    zero = count_setting(document, ("optimizer",), "zero_stage") or 0
    clip = number_setting(document, ("optimizer",), "clip_grad")
    dtype = find_setting(document, ("model",), "dtype")
    in_fp32 = flag_setting(document, ("optimizer",), "accumulate_grad_in_fp32")
    micro = count_setting(document, ("tokens",), "micro_batch_size", low=1)
    training: Table = {
        "micro_batch_size": micro,
        "seq_length": count_setting(document, ("tokens",), "sequence_length", low=1),
        "precision": read_choice(dtype[0], dtype[1] or "bfloat16", TYPES),
        "recompute": "full" if flag_setting(document, ("parallelism",), "recompute_layer") else "none",
        "clip_gradients": clip is not None and clip > 0,
        "reduce_precision": "fp32" if in_fp32 else "bf16",
    }
    name = find_setting(document, ("optimizer.optimizer_factory",), "name")
    training["optimizer"] = read_choice(name[0], name[1] or "adamw", {"adamw": "adam", "adam": "adam", "sgd": "sgd"})
    accumulation = count_setting(document, ("tokens",), "batch_accumulation_per_replica", low=1) or 1
    for field, flag in (("seq_length", "--seq N"), ("micro_batch_size", "--mbs N")):
        if training[field] is None:
            missing[f"training.{field}"] = f"{flag} (the file states none)"
        elif field == "micro_batch_size":
            training["global_batch_size"] = (micro or 1) * accumulation * degrees["dp"]
    framework = {
        "base": "nanotron",
        # Weights in 16 bits beside master weights of its optimizer, reduced by one all-reduce or scattered.
        "weight_precision": "16bit" if training["precision"] != "fp32" else "fp32",
        "master_weights": in_fp32,
        "gradient_precision": "fp32" if in_fp32 else "16bit",
    }
    parallelism = {
        **degrees,
        "zero": min(zero, 1),
        "sp": scattered and degrees["tp"] > 1,
        "schedule": read_choice(where, engine or "afab", ENGINES) if degrees["pp"] > 1 else "1f1b",
        "overlap": ["tp"] if hidden and scattered and degrees["tp"] > 1 else [],
    }
    unread = sort_unread(document.settings, KNOWN, document.lines)
    return Reading(
        {"framework": framework, **({"model": model} if model else {}), "parallelism": parallelism,
         "training": without_none(training)},
        unread.not_understood, (*unmodelled, *unread.unmodelled), missing, (*small, *unread.small),
    )  # fmt: skip


def _model(document: Document, path: str, missing: dict[str, str]) -> tuple[Table, tuple[Any, ...], tuple[Any, ...]]:
    """Read the model as the Hugging Face config that it is, in which nanotron keeps its own marks."""
    table = dict(read_table("model.model_config", document.find("model.model_config")))
    family = next((names for mark, names in FAMILIES.items() if table.pop(mark, False) is True), None)
    if family is None or table.get("moe_config"):
        missing["model"] = "--model NAME (model.model_config is of no family whose layers are known: llama, qwen2)"
        return {}, (), ()
    kept = {key: value for key, value in table.items() if not key.startswith("_") and key not in OWN}
    kept.setdefault("num_key_value_heads", kept.get("num_attention_heads"))
    reading = read_hf_config({"model_type": family[0], "architectures": [family[1]], **kept}, path)
    model = {**reading.request["model"], "name": name_from(path, "nanotron")}
    if family[0] == "qwen2" and not kept.get("attention_bias"):
        model["bias"] = "none"
    missing.update(reading.missing)
    return model, reading.unmodelled, reading.small


OWN = ("rope_interleaved", "z_loss_enabled", "z_loss_coefficient", "flex_attention_mask", "no_rope_layer", "moe_config",
       "log_attn_probs", "ring_attn_heads_k_stride", "rope_seq_len_interpolation_factor", "sliding_window_size",
       "attention_bias")  # fmt: skip
"""Settings of nanotron's own in `model_config`; of those that change a layer its configs in public set none."""
