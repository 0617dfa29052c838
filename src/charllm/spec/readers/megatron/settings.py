"""Arguments of Megatron-LM in YAML, under the names that its parser stores them by: Primus and FlagScale."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.ledger import list_names
from charllm.spec.readers.megatron import read_launch
from charllm.spec.readers.megatron.effects import effects
from charllm.spec.readers.megatron.flags import Flags, canonical
from charllm.spec.readers.megatron.launch import Launch
from charllm.spec.readers.nemo.document import Document, load_document
from charllm.spec.readers.reading import NOT_UNDERSTOOD, Reading, Setting
from charllm.spec.readers.shell import NO_INPUTS, Script
from charllm.spec.readers.torchtitan.primus import read_titan_experiment
from charllm.spec.readers.values import MAX_TEXT, read_count, read_number, shown
from charllm.spec.request import read_text

Table = dict[str, Any]

SWITCHED_OFF = {
    "add_bias_linear": "--disable-bias-linear",
    "add_position_embedding": "--no-position-embedding",
    "bias_gelu_fusion": "--no-bias-gelu-fusion",
    "bias_swiglu_fusion": "--no-bias-swiglu-fusion",
    "apply_rope_fusion": "--no-rope-fusion",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
    "overlap_p2p_comm": "--no-overlap-p2p-communication",
    "async_tensor_model_parallel_allreduce": "--no-async-tensor-model-parallel-allreduce",
}
"""Argument that is on unless the flag is given: that flag."""
RENAMED = {"fp8": "--fp8-format", "fp4": "--fp4-format", "fp4_param": "--fp4-param-gather"}
PRIMUS_DEFAULTS: Table = {
    "bf16": True, "use_distributed_optimizer": True, "micro_batch_size": 2, "global_batch_size": 16, "seq_length": 1024,
    "use_flash_attn": True, "sequence_parallel": True, "moe_token_dispatcher_type": "allgather",
    "add_bias_linear": False,
}  # fmt: skip
"""Source: AMD-AGI/Primus, primus/configs/modules/megatron/pre_trainer.yaml and trainer_base.yaml."""
NO_EFFECT = list_names(
    """
    stderr_sink_level disable_last_saving auto_continue_train disable_wandb disable_tensorboard disable_mlflow hf_path
    original_max_position_embeddings sft_dataset_name sft_conversation_format final_logit_softcapping stage
    disable_compile_dependencies use_rocm_mem_info use_rocm_mem_info_iters norm_init_weight rampup_save_interval
    special_tokens_file no_fp8_weight_transpose_cache disable_delayed_scaling router_logit_softcapping model_type
    profile_step_start profile_step_end disable_profiler_activity_cpu mlflow_run_name mlflow_experiment_name
    """
)
TURBO = ("turbo_", "use_turbo_", "enable_primus_turbo", "enable_turbo_")
_ORDERS = ("patch_zero_bubble", "enable_zero_bubble", "pp_algorithm", "use_dualpipev")
SCHEDULES = {
    **dict.fromkeys(_ORDERS, "another pipeline schedule"),
    "moe_fb_overlap": "overlap of forward with backward",
    "enable_hetero": "devices of several kinds",
    "use_sink_attention": "attention sinks and windows in this spelling",
    "enable_odc": "reduction by direct stores",
    "lora": "adapters of this program",
    "peft": "adapters of this program",
}
COMMON = "language_model.yaml"
MODELS = "primus/configs/models/megatron"
PARENTS, MOST_BASES = 8, 8


def read_primus(document: Document, path: str) -> Reading:
    """Return the request of a Primus experiment; its model file is looked for in the checkout above it."""
    room = next(f"modules.{name}" for name in ("pre_trainer", "post_trainer", "sft_trainer", "") if not name or
                document.find(f"modules.{name}") is not None)  # fmt: skip
    engine = document.find(f"{room}.framework")
    if engine == "torchtitan":
        return read_titan_experiment(document, room, path)
    if engine != "megatron" or room == "modules.":
        raise SpecError(f"{room}.framework", shown(engine)[:MAX_TEXT], "megatron or torchtitan")
    file = document.find(f"{room}.model")
    base = _model_file(str(file), path) if isinstance(file, str) else {}
    stated = _flat(document, f"{room}.overrides", deep=False)
    values = {**PRIMUS_DEFAULTS, **(base or {}), **stated}
    reading = read_arguments(values, document.lines, path, f"{room}.overrides.")
    if base is not None:
        # An argument of a model that no one knows makes it another model.
        strange = [setting for setting in reading.not_understood if setting.name in base]
        known = tuple(setting for setting in reading.not_understood if setting not in strange)
        refused = tuple(replace(setting, reason=NOT_UNDERSTOOD) for setting in strange)
        return replace(reading, not_understood=known, unmodelled=(*reading.unmodelled, *refused))
    request = {part: table for part, table in reading.request.items() if part != "model"}
    missing = {field: text for field, text in reading.missing.items() if not field.startswith("model")}
    changed = [f"{key}: {shown(value)}" for key, value in stated.items() if key in MODEL_KEYS]
    told = f", with {', '.join(changed)}" if changed else ""
    missing["model"] = f"--model NAME (the file takes {file} from Primus's own configs{told})"
    return replace(reading, request=request, missing=missing)


MODEL_KEYS = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "num_experts")


def read_flagscale(document: Document, path: str) -> Reading:
    """Return the request of a FlagScale experiment, or of the training file that it names."""
    above = "train." if document.find("train") is not None else ""
    if document.find(f"{above}system") is None or document.find(f"{above}model") is None:
        raise SpecError("--from", path, "the training file of this experiment beside it, with system, model and data")
    values: Table = {}
    for part in ("system", "model", "data"):
        values.update(_flat(document, f"{above}{part}"))
    values = _gated_width(values)
    reading = read_arguments(values, document.lines, path, above)
    nodes, gpus = (document.find(f"experiment.runner.{key}") for key in ("nnodes", "nproc_per_node"))
    counts = [value if isinstance(value, int) and value > 0 else None for value in (nodes, gpus)]
    return replace(reading, nodes=counts[0], gpus_per_node=counts[1])


def _gated_width(values: Table) -> Table:
    """Work out the feed-forward width where FlagScale does: two thirds of four widths, scaled and rounded up."""
    numbers = [values.pop(key, None) for key in ("multiple_of", "hidden_dim_multiplier")]
    hidden = values.get("hidden_size")
    if values.get("ffn_hidden_size") is not None or not isinstance(numbers[0], int) or not isinstance(hidden, int):
        return values
    scale = read_number("hidden_dim_multiplier", numbers[1] if numbers[1] is not None else 1.0)
    multiple = read_count("multiple_of", numbers[0], 1)
    return {**values, "ffn_hidden_size": multiple * -(-int(int(4 * hidden * 2 / 3) * scale) // multiple)}


def read_arguments(values: Mapping[str, Any], lines: Mapping[str, int], path: str, above: str = "") -> Reading:
    """Read arguments by the names that Megatron's parser stores them by."""
    turbo = [key for key in values if key.startswith(TURBO) and values[key] not in (None, False)]
    refused = {key: SCHEDULES[key] for key in SCHEDULES if values.get(key) not in (None, False, "none")}
    words: dict[str, list[str]] = {"--use-mcore-models": []}
    written = {}
    for key, value in values.items():
        flag = _flag_of(key, value)
        if flag and not key.startswith(TURBO) and key not in (*SCHEDULES, *NO_EFFECT):
            name = canonical(flag)
            words[name], written[name] = _words_of(value, flag), key
    flags = Flags(words, written, {name: lines[above + key] for name, key in written.items() if above + key in lines})
    reading = read_launch(Launch(flags, Flags({}, {}, {}), "train.py"), Script(path, None, NO_INPUTS), path)
    small = [Setting(key, key, lines.get(above + key), "kernels of Primus-Turbo") for key in turbo[:1]]
    unmodelled = [Setting(key, f"{key}: {values[key]}", lines.get(above + key), why) for key, why in refused.items()]
    return replace(reading, small=(*reading.small, *small), unmodelled=(*reading.unmodelled, *unmodelled))


def _flag_of(key: str, value: Any) -> str:
    """Return the flag that stores a value; nothing where it stores what holds without it."""
    if key in SWITCHED_OFF:
        return SWITCHED_OFF[key] if value is False else ""
    flag = RENAMED.get(key, "--" + key.replace("_", "-"))
    off = value is None or value is False or value in ("", "none", "null") or value == []
    return "" if off or (value == 0 and canonical(flag) not in effects().used) else flag


def _words_of(value: Any, flag: str) -> list[str]:
    if value is True or flag in SWITCHED_OFF.values():
        return []
    return [shown(item) for item in value] if isinstance(value, list) else [shown(value)]


def _flat(document: Document, path: str, *, deep: bool = True) -> Table:
    """Return the settings of a table and of the tables in it, by their last names; without depth, which are on."""
    table = document.written(path)
    found: Table = {}
    for key in table if isinstance(table, Mapping) else ():
        where = f"{path}.{key}"
        if isinstance(document.written(where), Mapping):
            inner = _flat(document, where)
            found.update(inner if deep else {key: inner.get("enabled", True)})
        else:
            try:
                found[key] = document.find(where)
            except SpecError:
                # A path or a name that the user's environment gives.
                found[key] = None
    return found


def _model_file(name: str, path: str) -> Table | None:
    """Return a model's arguments with those of the files that it extends; None where they are not there."""
    for folder in list(Path(path).resolve().parents)[:PARENTS]:
        file = folder / MODELS / PurePath(name).name
        if file.is_file():
            common = _extended(folder / MODELS / COMMON, MOST_BASES)
            return {key: value for key, value in _extended(file, MOST_BASES).items() if _tells(key, value, common)}
    return None


def _tells(key: str, value: Any, common: Mapping[str, Any]) -> bool:
    """Tell whether a model's argument matters: one that is used, or that is not as for every model."""
    used = key in SWITCHED_OFF or canonical(RENAMED.get(key, "--" + key.replace("_", "-"))) in effects().used
    return used or key not in common or common[key] != value


def _extended(file: Path, depth: int) -> Table:
    if not file.is_file():
        return {}
    document = load_document(read_text(file, "--from"), str(file))
    bases = document.find("extends")
    values: Table = {}
    for base in bases if isinstance(bases, list) and depth > 0 else ():
        beside = file.parent / PurePath(str(base)).name
        if beside.is_file() and beside != file:
            values.update(_extended(beside, depth - 1))
    return {**values, **{key: document.find(key) for key in document.table if key not in ("extends", "bases")}}
