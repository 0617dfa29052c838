"""An LLM Foundry settings file as a request: an MPT in the file, or a published model, under DDP or FSDP.

Defaults: mosaicml/llm-foundry, llmfoundry/models/mpt/configuration_mpt.py and composer's Trainer.
"""

from collections.abc import Mapping
from typing import Any

from charllm.spec.readers.finetuning import EAGER, TARGETS
from charllm.spec.readers.huggingface import read_hf_config
from charllm.spec.readers.ledger import Known, Ledger, Unmodelled, list_names, sort_unread
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import count_setting, find_setting, flag_setting, without_none
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.values import MAX_TEXT, name_from, read_choice, read_count, read_table, shown
from charllm.spec.training import LORA_TARGETS as FULL

Table = dict[str, Any]

KNOWN = Known(
    list_names(
        """
        variables.* run_name tokenizer.* train_loader.* eval_loader* scheduler.* optimizer.* algorithms.* max_duration
        eval_* seed progress_bar log_* console_log* callbacks.* loggers.* save_* load_* icl_* device_eval_* dist_timeout
        python_log_level autoresume metadata.* precision model.* fsdp_config.* global_seed data_local data_remote
        max_seq_len only_* model_gauntlet* eval_gauntlet* compile_config.* expandable_segments parallelism_config.*
        """
    ),
    {"fsdp_config.activation_cpu_offload": Unmodelled("activations on the CPU"),
     "fsdp_config.load_planner": Unmodelled("another planner", (None,))},
)  # fmt: skip
FORMATS = {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "fp8", "fp32": "fp32", "bf16": "bf16"}
SHARDED = {"full_shard": 3, "shard_grad_op": 2, "no_shard": 0}
OPTIMIZERS = {"decoupled_adamw": "adam", "adamw": "adam", "adam": "adam", "decoupled_lionw": "sgd"}
"""Lion keeps one moment, as plain SGD with momentum does."""
PLAIN_MODEL = ("loss_fn", "init_device", "init_config", "name", "pretrained", "verbose", "attn_config", "ffn_config",
               "tokenizer_name", "fc_type", "embedding_fraction", "norm_eps", "use_cache", "logit_scale", "resid_pdrop",
               "emb_pdrop", "init_nonlinearity", "param_init_fn", "use_auth_token", "max_seq_len")  # fmt: skip


def read_llm_foundry(document: Document, path: str) -> Reading:
    """Return the request of a file; `auto` microbatches are asked for."""
    if isinstance(document.find("parameters"), Ledger):
        document = Document(document.find("parameters"), document.lines)
    missing: dict[str, str] = {}
    model, named = _model(document, path, missing)
    where, precision = find_setting(document, ("",), "precision")
    micro = document.find("device_train_microbatch_size")
    training: Table = {
        "seq_length": count_setting(document, ("", "variables"), "max_seq_len", low=1),
        "global_batch_size": count_setting(document, ("",), "global_train_batch_size", low=1),
        "micro_batch_size": None if micro in (None, "auto") else read_count("device_train_microbatch_size", micro, 1),
        "precision": read_choice(where, precision or "amp_fp16", FORMATS),
        "clip_gradients": document.find("algorithms.gradient_clipping") is not None,
        "recompute": "full" if flag_setting(document, ("fsdp_config",), "activation_checkpointing") else "none",
        **_adapters(document),
    }
    where, name = find_setting(document, ("optimizer",), "name")
    training["optimizer"] = read_choice(where, name or "decoupled_adamw", OPTIMIZERS)
    for field, flag in (("seq_length", "--seq N"), ("global_batch_size", "--gbs N"), ("micro_batch_size", "--mbs N")):
        if training[field] is None:
            missing[f"training.{field}"] = f"{flag} (the file leaves it open)"
    framework, zero, reduced = _sharding(document)
    training["reduce_precision"] = reduced
    unread = sort_unread(document.settings, KNOWN, document.lines)
    request: Table = {"framework": framework, "parallelism": {"tp": 1, "pp": 1, "zero": zero, "overlap": ["dp"]},
                      "training": without_none(training)}  # fmt: skip
    if model:
        request["model"] = model
    return Reading(request, unread.not_understood, unread.unmodelled, missing, unread.small, model_id=named)


def _model(document: Document, path: str, missing: dict[str, str]) -> tuple[Table, str]:
    where, kind = find_setting(document, ("model",), "name")
    if kind != "mpt_causal_lm":
        named = document.find("model.pretrained_model_name_or_path") or document.find("tokenizer.name")
        read_choice(where, kind or "hf_causal_lm", {"hf_causal_lm": True, "hf_prefix_lm": True})
        return {}, shown(named)[:MAX_TEXT] if named else ""
    table = {key: _resolved(document, f"model.{key}", value) for key, value in document.table["model"].items()}
    plain = {key: value for key, value in table.items() if key not in PLAIN_MODEL}
    attention = {key: value for key, value in read_table("model.attn_config", table.get("attn_config")).items()
                 if key in ("alibi", "attn_type", "kv_n_heads", "rope", "rope_theta", "attn_impl")}  # fmt: skip
    if read_table("model.ffn_config", table.get("ffn_config")).get("ffn_type", "mptmlp") != "mptmlp":
        missing["model"] = "--model NAME or --model config.json (a model with feed-forward layers of another kind)"
        return {}, ""
    config = {"model_type": "mpt", "d_model": 2048, "n_heads": 16, "n_layers": 24, "vocab_size": 50_368,
              "expansion_ratio": 4, "max_seq_len": table.get("max_seq_len", 2048), **plain}  # fmt: skip
    reading = read_hf_config({**config, "attn_config": {"alibi": False, **attention}}, path)
    model = {**reading.request["model"], "name": name_from(path, "mpt")}
    if not table.get("no_bias", False):
        model["bias"] = "all"
    return model, ""


def _resolved(document: Document, path: str, value: Any) -> Any:
    return document.find(path) if isinstance(value, str) and "${" in value else value


def _sharding(document: Document) -> tuple[Table | str, int, str | None]:
    config = document.find("fsdp_config") or document.find("parallelism_config.fsdp")
    if not isinstance(config, Mapping):
        return {**EAGER, "weight_precision": "fp32", "gradient_precision": "fp32", "moment_precision": "fp32"}, 0, None
    where, kind = find_setting(document, ("fsdp_config",), "sharding_strategy")
    zero = read_choice(where, kind or "full_shard", SHARDED)
    where, mixed = find_setting(document, ("fsdp_config",), "mixed_precision")
    reduced = read_choice(where, mixed or "default", {"pure": "bf16", "default": "fp32", "full": "fp32"})
    return "llm-foundry", zero, reduced


def _adapters(document: Document) -> Table:
    where, rank = find_setting(document, ("model.peft_config",), "r")
    if rank is None:
        return {}
    place, listed = find_setting(document, ("model.peft_config",), "target_modules")
    names = listed if isinstance(listed, list) else [listed or "all-linear"]
    found = {part for name in names for part in read_choice(place, shown(name), TARGETS)}
    return {"lora_rank": read_count(where, rank, 1), "lora_targets": [part for part in FULL if part in found]}
