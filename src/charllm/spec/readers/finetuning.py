"""Settings of programs that tune a published model: Axolotl, LLaMA-Factory, ms-swift, TRL, NeMo Automodel.

They name the model and leave its sizes to its repository; kernels are those of PyTorch modules, wrapped by DDP, FSDP
or DeepSpeed. Defaults are those of Hugging Face's TrainingArguments and of each program's own arguments.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from charllm.errors import SpecError, Words
from charllm.spec.readers import deepspeed
from charllm.spec.readers.finetuning_words import WORDS, Spelling
from charllm.spec.readers.ledger import OFF, sort_unread
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import without_none
from charllm.spec.readers.reading import PREFERENCES, Reading, Setting
from charllm.spec.readers.values import MAX_TEXT, read_choice, read_count, read_number, shown
from charllm.spec.request import parse_json, read_text
from charllm.spec.training import LORA_TARGETS as FULL

Table = dict[str, Any]
TARGETS = {
    **dict.fromkeys(
        ("q_proj", "k_proj", "v_proj", "query_key_value", "wqkv", "qkv_proj", "c_attn", "w_pack"), ("qkv",)
    ),
    **dict.fromkeys(("*", "*_proj", "all", "all-linear", "all_linear"), FULL),
    **dict.fromkeys(("o_proj", "out_proj", "attn.dense"), ("proj",)),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "dense_h_to_4h", "w1", "w3"), ("fc1",)),
    **dict.fromkeys(("down_proj", "dense_4h_to_h", "w2"), ("fc2",)),
}
"""Name of a layer: the products that it is part of."""
OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw", "adam", "adamw_apex_fused"), "adam"),
    **dict.fromkeys(("torch.optim.adam", "torch.optim.adamw", "adamw_torch_npu_fused"), "adam"),
    **dict.fromkeys(("transformer_engine.pytorch.optimizers.fused_adam.fusedadam", "fused_adam"), "adam"),
    "sgd": "sgd",
}
FEW_BITS = ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "adamw_torch_8bit", "paged_adamw")
"""Adam with states in 8 bits, or that may leave the GPU."""
EAGER = {"base": "pytorch-eager", "clip_gradients": True}
WIDE = {"weight_precision": "fp32", "gradient_precision": "fp32", "moment_precision": "fp32"}
"""Weights in fp32 that autocast casts for each product."""
PARENTS = 5
FULL_SEQUENCES = "sequences are taken as full: documents fill them"


def read_finetuning(document: Document, path: str, program: str, *, launched: bool = False) -> Reading:
    """Return the request of a file; the model is that of the catalog, else asked for.

    `launched`: the command that starts the program is known, and so what Accelerate shards.
    """
    words = WORDS[program]
    missing: dict[str, str] = {}
    if program == "LLaMA-Factory" and not _is_on(document, "do_train"):
        raise SpecError(
            "--from", Words(f"{PurePath(path).name}, a file of {program} without do_train"), "a file that trains"
        )
    document = _with_fsdp_file(document, path, missing)
    micro, sequence = _count(document, words.micro), _count(document, words.sequence)
    micro, sequence = micro or words.micro_default, sequence or words.sequence_default
    for name, value, flag in (("micro_batch_size", micro, "--mbs N"), ("seq_length", sequence, "--seq N")):
        if value is None:
            missing[f"training.{name}"] = f"{flag} (the file states none)"
    sharding, engine, extra = _sharding(document, path, missing)
    precision = _precision(document, extra)
    adapters, unmodelled, small = _adapters(document, words, missing)
    training = {
        "micro_batch_size": micro,
        "seq_length": sequence,
        "precision": precision,
        "recompute": _recompute(document, words),
        **adapters,
        **extra.get("training", {}),
    }
    optimizer, refused = _optimizer(document)
    if refused and adapters and refused[0].text.lower().endswith(FEW_BITS):
        # States of adapters are a few megabytes, in whatever format.
        optimizer, refused, small = "adam", [], [*small, replace(refused[0], reason="states of adapters in fp32")]
    training["optimizer"] = optimizer
    unmodelled += [*refused, *extra.get("unmodelled", ()), *_stage(document)]
    request: Table = {
        "framework": _framework(engine, document, words, precision),
        "parallelism": {"tp": 1, "pp": 1, **sharding},
        "training": without_none(training),
    }
    notes: tuple[str, ...] = (f"framework: a profile of PyTorch stands for {program}", FULL_SEQUENCES)
    if engine == "ddp" and words.launched and not launched:
        _ask_for_launch(request, missing, wide=precision == "fp32" and program == "Open Instruct")
        notes = (FULL_SEQUENCES,)
    named = _first(document, words.model)[1]
    accumulation = _count(document, ("gradient_accumulation_steps",)) or 1
    unread = sort_unread(document.settings, words.known, document.lines)
    return Reading(
        request,
        unread.not_understood,
        (*unmodelled, *unread.unmodelled),
        missing,
        (*small, *unread.small),
        notes,
        microbatches=accumulation,
        model_id=named[:MAX_TEXT] if isinstance(named, str) else "",
    )


def _ask_for_launch(request: Table, missing: dict[str, str], *, wide: bool) -> None:
    """Ask for what Accelerate's launch file says: the engine, what it shards, and the format where none is stated."""
    del request["framework"]
    request["parallelism"] = {"tp": 1, "pp": 1}
    why = "(left to the file or flags of accelerate launch)"
    missing["framework"] = f"--framework fsdp, deepspeed or pytorch-eager {why}"
    missing["parallelism.zero"] = f"--zero N {why}"
    if wide:
        del request["training"]["precision"]
        missing["training.precision"] = f"--precision WORD {why}"


def _first(document: Document, keys: tuple[str, ...]) -> tuple[str, Any]:
    found = [(key, value) for key in keys if (value := document.find(key)) is not None]
    return found[0] if found else (keys[0] if keys else "", None)


def _count(document: Document, keys: tuple[str, ...]) -> int | None:
    where, value = _first(document, keys)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    return None if value is None else read_count(where, value, 1)


def _is_on(document: Document, key: str) -> bool:
    value = document.find(key)
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _stage(document: Document) -> list[Setting]:
    """Refuse what is no training on next tokens."""
    stage = document.find("stage")
    if stage not in (None, "sft", "pt"):
        return [Setting("stage", f"stage: {shown(stage)}", document.lines.get("stage"), PREFERENCES)]
    return []


def _precision(document: Document, extra: Table) -> str:
    """Read the format of products: a flag of the trainer, else the dtype of the model, else that of the engine."""
    for key, precision in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"), ("float16", "fp16")):
        if _is_on(document, key) or (document.find(key) == "auto" and key == "bf16"):
            return precision
    if _is_on(document, "pure_bf16"):
        return "bf16"
    where, dtype = _first(document, ("torch_dtype", "dtype"))
    if dtype not in (None, "auto"):
        return read_choice(where, dtype, {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16"})
    return str(extra.get("precision") or ("fp32" if dtype is None else "bf16"))


def _recompute(document: Document, words: Spelling) -> str:
    stated = document.find("gradient_checkpointing")
    inside = [
        document.find(f"fsdp_config.{key}") for key in ("activation_checkpointing", "fsdp_activation_checkpointing")
    ]
    if True in inside or "true" in inside:
        return "full"
    if _is_on(document, "disable_gradient_checkpointing"):
        return "none"
    on = words.recomputes if stated is None else stated not in OFF and str(stated).lower() != "false"
    return "full" if on else "none"


def _optimizer(document: Document) -> tuple[str | None, list[Setting]]:
    where, name = _first(document, ("optim", "optimizer"))
    if name is None:
        return "adam", []
    word = shown(name).lower().removeprefix("optimizernames.")
    if word in OPTIMIZERS:
        return OPTIMIZERS[word], []
    return None, [
        Setting(where, f"{where}: {shown(name)[:80]}", document.lines.get(where), "another optimizer's state")
    ]


def _adapters(
    document: Document, words: Spelling, missing: dict[str, str]
) -> tuple[Table, list[Setting], list[Setting]]:
    where, kind = _first(document, words.adapter)
    word = str(words.adapter_default if kind in (None, "") else kind).lower()
    if not read_choice(where or "adapter", word, {**words.adapters, words.adapter_default: False, **words.adapters}):
        return {}, [], []
    rank = _count(document, words.rank) or words.rank_default
    if rank is None:
        missing["training.lora_rank"] = "--lora N (the file leaves the rank of its adapters to its program)"
    dropout = document.find("lora_dropout")
    table: Table = {"lora_rank": rank, "lora_dropout_fraction": read_number("lora_dropout", dropout or 0.0)}
    place, named = _first(document, words.targets)
    if named is None and _is_on(document, "lora_target_linear"):
        named = "all"
    named = words.target_default if named is None else named
    if named is None:
        missing["training.lora_targets"] = "--set training.lora_targets=qkv,proj,fc1,fc2 (the file names no layers)"
        return table, [], []
    names = [
        name.strip().rpartition(".")[2] for name in (named if isinstance(named, list) else shown(named).split(","))
    ]
    strange = [name for name in names if name.lower() not in TARGETS]
    unmodelled = [
        Setting(place, f"{place}: {name[:80]}", document.lines.get(place), "adapters there") for name in strange
    ]
    found = {part for name in names for part in TARGETS.get(name.lower(), ())}
    table["lora_targets"] = [part for part in FULL if part in found] or list(FULL)
    small = []
    for parts, whole in ((("q_proj", "k_proj", "v_proj"), "q, k and v"), (("gate_proj", "up_proj"), "gate and up")):
        here = [part for part in parts if part in names]
        if here and len(here) < len(parts):
            reason = f"adapters on {' and '.join(here)} are counted as on {whole}"
            small.append(Setting(place, place, document.lines.get(place), reason))
    return table, unmodelled, small


def _sharding(document: Document, path: str, missing: dict[str, str]) -> tuple[Table, str, Table]:
    """Return what replicas shard, the engine that does it, and what the engine's own file adds."""
    named = document.find("deepspeed")
    if named in (None, True):
        named = document.find("deepspeed_config")
    if isinstance(named, str | Mapping) and named not in ("", "none"):
        table = named if isinstance(named, Mapping) else _deepspeed_beside(named, path)
        if table is None:
            file = shown(named)[:MAX_TEXT]
            stage = NAMED_STAGES.get(file)
            if stage is None:
                missing["parallelism.zero"] = f"--zero N (the ZeRO stage of {file}, which does not lie beside the file)"
            return {} if stage is None else {"zero": stage}, "deepspeed", {}
        sharded, overlap = deepspeed.zero_of(table)
        strange, unmodelled, _small = deepspeed.sort_out(table)
        extra = {
            "training": deepspeed.offload_of(table),
            "precision": deepspeed.precision_of(table),
            "unmodelled": [*unmodelled, *strange],
        }
        return {**sharded, "overlap": ["dp"] if overlap else []}, "deepspeed", extra
    fsdp = document.find("fsdp")
    config = document.find("fsdp_config")
    if "parallelism.zero" in missing:
        return {}, "fsdp", {}
    if fsdp or config or document.find("fsdp_version"):
        return _fsdp(document, fsdp, config), "fsdp", {}
    return {"zero": 0, "overlap": ["dp"]}, "ddp", {}


NAMED_STAGES = {"zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3}
"""Words of ms-swift for files of its own."""


OFFLOADED = ("activation_offload", "activation_cpu_offload")


def _with_fsdp_file(document: Document, path: str, missing: dict[str, str]) -> Document:
    """Take in the file that FSDP's settings are in: transformers' own, or ms-swift's with both of its settings."""
    for key in ("fsdp", "fsdp_config"):
        named = document.find(key)
        if not (isinstance(named, str) and named.endswith(".json")):
            continue
        table = _deepspeed_beside(named, path)
        if table is None:
            missing["parallelism.zero"] = (
                f"--zero N (what {named[:MAX_TEXT]} shards, which does not lie beside the file)"
            )
            return document
        both = table if "fsdp_config" in table else {"fsdp_config": table}
        values = {name: document.find(name) for name in document.table}
        stated = {name: both[name] for name in ("fsdp", "fsdp_config") if name in both}
        return Document({**values, **({"fsdp": "full_shard"} if key == "fsdp" else {}), **stated}, document.lines)
    return document


def _fsdp(document: Document, fsdp: Any, config: Any) -> Table:
    """Read PyTorch's FSDP: which of weights, gradients and optimizer states are sharded."""
    table = config if isinstance(config, Mapping) else {}
    words = [str(word) for word in fsdp] if isinstance(fsdp, list) else str(fsdp or "").split()
    for key in ("fsdp_offload_params", "offload_params", "cpu_offload_pin_memory", *OFFLOADED):
        if table.get(key) in (True, "true"):
            what = "activations" if key in OFFLOADED else "weights"
            raise SpecError(f"fsdp_config.{key}", True, f"false: {what} on the CPU are not modelled")
    if "offload" in words:
        raise SpecError("fsdp", "offload", "no offload: weights on the CPU are not modelled")
    kept = {"full_shard": 3, "shard_grad_op": 2, "no_shard": 0, "1": 3, "2": 2, "3": 0}
    asked = table.get("fsdp_sharding_strategy", table.get("sharding_strategy"))
    named = str(asked if asked is not None else next((word for word in words if word in kept), "full_shard")).lower()
    stage = read_choice("fsdp_config.sharding_strategy", named, kept)
    if table.get("reshard_after_forward", table.get("fsdp_reshard_after_forward")) in (False, "false"):
        stage = min(stage, 2)
    document.find("fsdp_version")
    return {"zero": stage, "overlap": ["dp"]}


def _deepspeed_beside(named: str, path: str) -> Mapping[str, Any] | None:
    """Read an engine's file that lies beside a settings file, or in the checkout above it."""
    relative = PurePath(named)
    if relative.is_absolute() or ".." in relative.parts or not named.endswith(".json"):
        return None
    for folder in list(Path(path).resolve().parents)[:PARENTS]:
        try:
            if (folder / relative).is_file():
                table = parse_json(read_text(folder / relative, "--from"), named, "deepspeed")
                return table if isinstance(table, Mapping) else None
        except OSError:
            return None
    return None


def _framework(engine: str, document: Document, words: Spelling, precision: str) -> Table | str:
    """Return the profile: which formats weights and optimizer states have beside the products."""
    if engine == "deepspeed":
        return "deepspeed"
    if engine == "fsdp":
        return {"base": "fsdp", "fused_activation": False}
    narrow = (
        words.narrow or _is_on(document, "pure_bf16") or _first(document, ("torch_dtype", "dtype"))[1] == "bfloat16"
    )
    return dict(EAGER) if narrow and precision != "fp32" else {**EAGER, **WIDE}
