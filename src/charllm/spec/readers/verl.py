"""Supervised tuning by verl's FSDP trainer: its settings file, or the command that changes its own settings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers import recognize
from charllm.spec.readers.finetuning import FULL_SEQUENCES, TARGETS
from charllm.spec.readers.ledger import Known, Unmodelled, list_names, sort_unread
from charllm.spec.readers.megatron.flags import collect_flags
from charllm.spec.readers.megatron.launch import Launch, count_nodes
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell import Inputs, Script, read_script
from charllm.spec.readers.shell.script import OPEN
from charllm.spec.readers.surroundings import with_surroundings
from charllm.spec.readers.values import MAX_TEXT, read_choice, read_count, read_flag, read_number, shown
from charllm.spec.training import LORA_TARGETS

Table = dict[str, Any]

MODULE = "fsdp_sft_trainer"
DEFAULTS: Table = {
    "data.train_batch_size": 256, "data.micro_batch_size_per_gpu": 4, "data.max_length": 1024, "model.lora_rank": 0,
    "model.enable_gradient_checkpointing": True, "model.target_modules": "all-linear", "optim.clip_grad": 1.0,
    "model.fsdp_config.model_dtype": "fp32", "ulysses_sequence_parallel_size": 1,
}  # fmt: skip
"""Source: volcengine/verl, verl/trainer/config/sft_trainer.yaml."""
KNOWN = Known(
    list_names(
        """
        data.* optim.*lr* optim.betas optim.weight_decay optim.warmup* optim.optimizer_impl trainer.* model.use_shm
        model.trust_remote_code model.external_lib model.lora_alpha model.strategy model.override_config.* checkpoint.*
        model.fsdp_config.wrap_policy.* use_remove_padding model.tokenizer* ray_kwargs.* profiler.* engine.*
        """
    ),
    {
        "model.fsdp_config.cpu_offload": Unmodelled("weights on the CPU"),
        "model.fsdp_config.offload_params": Unmodelled("weights on the CPU"),
        "engine.*": Unmodelled("the settings of verl's later engines", ()),
    },
    {"model.use_liger": Unmodelled("Liger's kernels")},
)


def read_verl_script(text: str, path: str, inputs: Inputs) -> Reading | None:
    """Read the command of a script that tunes a model with verl; None where it starts no such trainer."""
    if MODULE not in text:
        return None
    script = read_script(text, path, inputs)
    for command in script.commands:
        place = next((index for index, word in enumerate(command.words) if MODULE in word), None)
        if place is not None:
            launcher = collect_flags([*command.outer, *command.words[:place]], script)
            nodes, gpus = count_nodes(Launch(launcher, launcher), script)
            reading = read_verl(Document(_nested(command.words[place + 1 :]), {}), path)
            return with_surroundings(replace(reading, nodes=nodes, gpus_per_node=gpus), script)
    return _refuse(script)


def _refuse(script: Script) -> Reading | None:
    if script.asked_arguments or script.exited is not None:
        asked = ", ".join(script.asked_arguments) or f"without which it exits on line {script.exited}"
        raise SpecError("--from", script.path, f"--args 'WORDS', the script's arguments ({asked})")
    return None


def _nested(words: list[str]) -> Table:
    """Return settings given as key=value, as tables."""
    values: Table = {}
    for word in words:
        key, sign, value = word.lstrip("+~").partition("=")
        if not sign or word.startswith("-"):
            continue
        if OPEN in value:
            if key in DEFAULTS:
                raise SpecError(key, value[:MAX_TEXT], "a value (--env NAME=VALUE, or --args)")
            continue
        *above, last = key.split(".")
        table = values
        for part in above:
            table = table.setdefault(part, {}) if isinstance(table.get(part, {}), dict) else {}
        table[last] = _scalar(value)
    return values


def _scalar(word: str) -> Any:
    named = {"true": True, "false": False, "null": None, "none": None}
    if word.lower() in named:
        return named[word.lower()]
    try:
        return int(word) if word.lstrip("-").isdecimal() and len(word) < 16 else float(word)
    except ValueError:
        return word


def read_verl(document: Document, path: str) -> Reading:
    """Return the request of supervised tuning; what trains by rewards is refused."""
    table = document.settings
    if document.find("model.partial_pretrain") is None and not path.endswith((".sh", ".slurm", ".sbatch")):
        raise SpecError(
            "--from", path, "supervised tuning with model.partial_pretrain: what trains by rewards is not read"
        )
    values = {key: _found(document, key, default) for key, default in DEFAULTS.items()}
    missing: dict[str, str] = {}
    cp = read_count("ulysses_sequence_parallel_size", values["ulysses_sequence_parallel_size"], 1)
    stored = read_choice(
        "model.fsdp_config.model_dtype",
        values["model.fsdp_config.model_dtype"],
        {"fp32": "fp32", "float32": "fp32", "bf16": "16bit", "bfloat16": "16bit"},
    )
    states = dict.fromkeys(("weight_precision", "gradient_precision", "moment_precision"), "16bit")
    narrow = {**states, "master_weights": False} if stored == "16bit" else {}
    recomputed = read_flag("model.enable_gradient_checkpointing", values["model.enable_gradient_checkpointing"])
    named = document.find("model.partial_pretrain")
    request = {
        "framework": {"base": "fsdp", "fused_activation": False, **narrow},
        "parallelism": {
            "tp": 1, "pp": 1, "zero": 3, "overlap": ["dp"], **({"cp": cp, "cp_kind": "all-to-all"} if cp > 1 else {}),
        },
        "training": {
            "global_batch_size": read_count("data.train_batch_size", values["data.train_batch_size"], 1),
            **_micro(document, values, missing),
            "seq_length": read_count("data.max_length", values["data.max_length"], 1),
            "precision": "bf16",
            "reduce_precision": "fp32",
            "recompute": "full" if recomputed else "none",
            "optimizer": read_choice("optim.optimizer", document.find("optim.optimizer") or "AdamW", {"adamw": "adam"}),
            "clip_gradients": read_number("optim.clip_grad", values["optim.clip_grad"]) > 0,
            **_adapters(values),
        },
    }  # fmt: skip
    unread = sort_unread(table, KNOWN, document.lines)
    if not isinstance(named, str):
        missing["model"] = "--model NAME (the script leaves it to verl's own settings)"
    notes = (f"framework: a profile of PyTorch stands for {recognize.VERL}", FULL_SEQUENCES)
    return Reading(
        request, unread.not_understood, unread.unmodelled, missing, unread.small, notes,
        model_id=named[:MAX_TEXT] if isinstance(named, str) else "",
    )  # fmt: skip


def _found(document: Document, key: str, default: Any) -> Any:
    value = document.find(key)
    return default if value is None else value


def _micro(document: Document, values: Mapping[str, Any], missing: dict[str, str]) -> Table:
    """Read the microbatch; a key of old releases is shared by all ranks there, and without effect later."""
    where = "data.micro_batch_size_per_gpu"
    if document.find(where) is None and document.find("data.micro_batch_size") is not None:
        missing["training.micro_batch_size"] = "--mbs N (data.micro_batch_size differs between releases of verl)"
        return {}
    return {"micro_batch_size": read_count(where, values[where], 1)}


def _adapters(values: Mapping[str, Any]) -> Table:
    rank = read_count("model.lora_rank", values["model.lora_rank"])
    if not rank:
        return {}
    named = shown(values["model.target_modules"]).lower()
    if named not in TARGETS:
        raise SpecError("model.target_modules", named[:MAX_TEXT], "all-linear")
    return {"lora_rank": rank, "lora_targets": [part for part in LORA_TARGETS if part in TARGETS[named]]}
