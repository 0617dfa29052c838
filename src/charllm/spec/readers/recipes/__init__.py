"""A Python recipe of NeMo 2, Megatron Bridge or torchtitan as a request, as far as the recipe is data."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers import SEPARATOR
from charllm.spec.readers.ledger import Ledger
from charllm.spec.readers.nemo import left_to_recipe, read_settings
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.training import DEFAULT_LORA
from charllm.spec.readers.reading import NOT_UNDERSTOOD, Reading, Setting, names_size
from charllm.spec.readers.recipes.classes import find_class, find_version
from charllm.spec.readers.recipes.data import Module, Opaque, Traced
from charllm.spec.readers.torchtitan import read_job
from charllm.spec.readers.torchtitan.flavors import FLAVORS
from charllm.spec.readers.values import MAX_TEXT

Table = dict[str, Any]

PREFERRED = ("pretrain_recipe", "pretrain_config", "finetune_recipe")
NO_SETTING = (
    *("_target_", "_base_", "log", "resume", "callbacks", "env_vars", "fn", "pipeline_dtype", "loss", "validator"),
    *("hf_assets_path", "dataloader", "checkpoint", "metrics", "profiler"),
)
"""Keys of a recipe that describe no step."""
TABLES = (
    *("model", "config", "trainer", "strategy", "plugins", "optim", "optimizer", "data", "dataset", "train", "ddp"),
    *("dist", "comm_overlap", "mixed_precision", "tokenizer", "scheduler", "logger", "rng", "profiling", "peft"),
    *("training", "parallelism", "compile", "lr_scheduler", "validation"),
)
"""Keys of a recipe whose values are tables, even where code that is not followed makes them."""
UNTOLD = ("model.", "data", "tokenizer", "lr_scheduler")
"""Tables whose maker need not be named: what is left open of a model is asked for."""
PRECISIONS = {
    "bf16": "bf16_mixed",
    "bf16_mixed": "bf16_mixed",
    "fp16_mixed": "fp16_mixed",
    "fp8_cs": "bf16_with_fp8_current_scaling_mixed",
    "fp8_ds": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8_sc": "bf16_with_fp8_subchannel_scaling_mixed",
    "fp8_mx": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
    "bf16_with_fp8_mixed": "bf16_with_fp8_mixed",
    "bf16_with_mxfp8_mixed": "bf16_with_mxfp8_mixed",
    "bf16_with_fp8_current_scaling_mixed": "bf16_with_fp8_current_scaling_mixed",
    "bf16_with_fp8_subchannel_scaling_mixed": "bf16_with_fp8_subchannel_scaling_mixed",
    "nemotron_h_bf16_with_fp8_current_scaling_mixed": "bf16_with_fp8_current_scaling_mixed",
}
"""Word of a recipe for a format, as argument or as name of the helper that makes it: what the settings call it."""
_CALL = re.compile(r"([A-Za-z0-9_.]+)\((.*)\)", re.DOTALL)
_QUOTED = re.compile(r"""["']([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+|[A-Za-z0-9_]+)["']""")


def read_recipe(text: str, path: str, function: str = "") -> Reading:
    """Return the request that one function of a recipe file makes; what is not a literal is listed with its line."""
    module = Module(text, path)
    name = _choose(module, path, function)
    recipe = module.call(name)
    if not isinstance(recipe, Traced):
        raise SpecError("--from", f"{path}{SEPARATOR}{name}", "a function that returns a configuration")
    if "model_spec" in recipe:
        return _read_titan(recipe, module, path, name)
    origin = _origin(recipe)
    adapters = _adapters(recipe)
    bridge = any(key in recipe for key in ("train", "ddp", "comm_overlap", "mixed_precision"))
    _fill_helpers(recipe)
    lines: dict[str, int] = {}
    values, opaque = _plain(recipe, "", lines)
    skipped = [*opaque, *(Setting("statement", item.text, item.line) for item in module.skipped)]
    called = path if name in PREFERRED else f"{name}.py"
    reading = read_settings(
        Document(values, lines), called, "megatron-bridge" if bridge else "nemo", called_by_file=False
    )
    refused = [replace(setting, reason=NOT_UNDERSTOOD) for setting in skipped if _is_size(setting)]
    skipped = [setting for setting in skipped if not _is_size(setting)]
    missing, model_id = dict(reading.missing), ""
    request = dict(reading.request)
    if origin and any(field.partition(".")[0] == "model" for field in missing):
        # Sizes beside a model of another file change it; the rest of that model is not here.
        changed = [f"{key} {value}" for key, value in request.pop("model", {}).items() if key in ("layers", "hidden")]
        missing = {field: text for field, text in missing.items() if not field.startswith("model")}
        told = f", with {', '.join(changed)}" if changed else ""
        model_id = origin if "/" in origin and not changed else ""
        missing |= {} if model_id else {"model": f"--model NAME (the recipe builds on {origin}{told})"}
    if isinstance(recipe.get("_base_"), Opaque):
        base = f"{recipe['_base_'].text[:80]}, which is not in the checkout"
        missing |= left_to_recipe(Document(values, lines), reading.request, base)
    return replace(
        reading,
        request=request,
        not_understood=(*skipped, *reading.not_understood),
        unmodelled=(*adapters, *refused, *reading.unmodelled),
        missing=missing,
        model_id=model_id,
    )


def _is_size(setting: Setting) -> bool:
    """Tell whether code that is not followed gives a size; a table that it makes is named by its settings."""
    return setting.name == "mixed_precision" or names_size(setting.name)


def _adapters(recipe: Traced) -> list[Setting]:
    """Put the adapters that a recipe trains in place of the helper or class that makes them; refuse others."""
    made = recipe.get("peft")
    if made is None:
        return []
    table = made if isinstance(made, Traced) else Traced(_base_=made)
    base, scheme = table.pop("_base_", None), table.pop("scheme", "")
    text = base.text if isinstance(base, Opaque) else str(table.get("_target_", ""))
    kind = (
        scheme.lower()
        if isinstance(scheme, str) and scheme
        else ""
        if scheme is None
        else text.rpartition(".")[2].lower()
    )
    if kind in ("none", ""):
        recipe.pop("peft")
        return []
    recipe["peft"] = table
    table.setdefault("dim", DEFAULT_LORA)
    if kind == "lora":
        return []
    return [Setting("peft", f"peft = {text}"[:MAX_TEXT], recipe.lines.get("peft"), "these adapters")]


def _choose(module: Module, path: str, asked: str) -> str:
    """Return the function that is meant: the one named, the usual one, or the only one."""
    public = [name for name in module.functions if not name.startswith("_")]
    if asked:
        if module.find(asked) is None:
            raise SpecError("--from", f"{path}{SEPARATOR}{asked}", f"one of {', '.join(public)[:1000]}")
        return asked
    usual = next((name for name in PREFERRED if name in public), None)
    recipes = [name for name in public if name.endswith(("_config", "_recipe"))] or public
    if usual is None and len(recipes) != 1:
        listed = ", ".join(recipes)[:1000] or "a function that returns a configuration"
        raise SpecError("--from", path, f"FILE.py{SEPARATOR}NAME with one of {listed}")
    return usual or recipes[0]


def _origin(recipe: Traced) -> str:
    """Return what a recipe builds on: a model repository, or a function of another file."""
    model = recipe.get("model")
    for base in (model.get("_base_") if isinstance(model, Traced) else None, recipe.get("_base_")):
        if isinstance(base, Opaque):
            quoted = _QUOTED.search(base.text)
            return quoted[1] if quoted else base.text.partition("(")[0]
    return ""


def _fill_helpers(recipe: Traced) -> None:
    """Put in what well known helpers and classes stand for."""
    model = recipe.get("model")
    config = model.get("config") if isinstance(model, Traced) else None
    target = str(config.get("_target_", "")) if isinstance(config, Traced) else ""
    known = find_class(target) or find_version(_version(model)) or find_version(_shortened(_origin(recipe)))
    if known is not None and not isinstance(model, Traced):
        model = recipe["model"] = Traced()
    if known is not None and isinstance(model, Traced):
        settings = model.setdefault("config", Traced())
        for key, value in known.items():
            settings.setdefault(key, value)
        for key in ("_base_", "version"):
            model.pop(key, None)
    trainer = recipe.get("trainer")
    if isinstance(trainer, Traced):
        _fill_trainer(trainer)
    for table, key in ((recipe, "mixed_precision"), (trainer, "plugins")):
        if isinstance(table, Traced) and key in table:
            word = _precision_word(table[key])
            if word:
                table[key] = word if table is recipe else Traced(precision=word)
    made = recipe.get("optimizer")
    if isinstance(made, Traced) and isinstance(made.get("_base_"), Opaque) and "fused_adam" in made["_base_"].text:
        recipe["optimizer"] = Traced(optimizer="adam", use_distributed_optimizer=True)
    optim = recipe.get("optim")
    if isinstance(optim, Traced) and isinstance(optim.get("_base_"), Opaque) and "adam" in optim["_base_"].text:
        del optim["_base_"]
        optim["config"] = Traced(optimizer="adam", use_distributed_optimizer=True)


def _shortened(origin: str) -> str:
    """Shorten ``meta-llama/Meta-Llama-3-8B-Instruct`` and ``llama3_8b_pretrain_config`` to the model they mean."""
    name = origin.rpartition("/")[2].lower().removeprefix("meta-")
    return re.split(r"[_-](?:pretrain|sft|peft|finetune|instruct|base|hf|v0)", name)[0]


def _version(model: Any) -> str:
    """Return the name in ``nemotron_model(version="nemotron4_15b")`` or ``llama3_70b.model()``."""
    if not isinstance(model, Traced) or "_base_" not in model:
        return ""
    stated = model.get("version")
    if isinstance(stated, str):
        return stated
    return model["_base_"].text.partition("(")[0].partition(".model")[0] if isinstance(model["_base_"], Opaque) else ""


def _fill_trainer(trainer: Traced) -> None:
    """Put the arguments of NeMo's helpers for trainers where the trainer they make has them."""
    for key, path in TRAINER_ARGUMENTS.items():
        if key in trainer:
            table = trainer
            *above, last = path.split(".")
            for part in above:
                table = table.setdefault(part, Traced())
            table.setdefault(last, trainer[key])
            table.lines.setdefault(last, trainer.lines.get(key, 0))
            del trainer[key]


TRAINER_ARGUMENTS = {
    "tensor_parallelism": "strategy.tensor_model_parallel_size",
    "pipeline_parallelism": "strategy.pipeline_model_parallel_size",
    "virtual_pipeline_parallelism": "strategy.virtual_pipeline_model_parallel_size",
    "context_parallelism": "strategy.context_parallel_size",
    "sequence_parallelism": "strategy.sequence_parallel",
    "expert_parallelism": "strategy.expert_model_parallel_size",
    "num_gpus_per_node": "devices",
}
"""Argument of the helpers in nemo/collections/llm/recipes: the setting it becomes."""


def _read_titan(recipe: Traced, module: Module, path: str, name: str) -> Reading:
    """Read a function of torchtitan's config registry: the tables of its job configs, built by classes."""
    spec = recipe.pop("model_spec")
    text = spec["_base_"].text if isinstance(spec, Traced) and isinstance(spec.get("_base_"), Opaque) else ""
    flavor = _QUOTED.search(text)
    folder = PurePath(path).parent.name
    model = folder if folder in FLAVORS else next((known for known in FLAVORS if name.startswith(known)), name)
    checkpointing = recipe.pop("activation_checkpoint", None)
    target = str(checkpointing.get("_target_", "")) if isinstance(checkpointing, Traced) else ""
    lines: dict[str, int] = {}
    values, opaque = _plain(recipe, "", lines)
    job = {
        **{key: value for key, value in values.items() if isinstance(value, dict) and key in TITAN_TABLES},
        "model": {"name": model, "flavor": flavor[1] if flavor else "", "converters": _CONVERTER.findall(text)},
        "activation_checkpoint": CHECKPOINTING.get(target.partition(".")[0], {"mode": "none"}),
    }
    _rename_batch(job.setdefault("training", {}))
    reading = read_job(Ledger(job), lines)
    skipped = [Setting("statement", item.text, item.line) for item in module.skipped]
    return replace(reading, not_understood=(*opaque, *skipped, *reading.not_understood))


def _rename_batch(training: Table) -> None:
    """Give tokens of a microbatch, which the newest registry states, as sequences."""
    tokens, length = (
        training.pop("num_tokens_per_microbatch_per_dp_rank", None),
        training.pop("max_context_length", None),
    )
    if isinstance(tokens, int) and isinstance(length, int) and length > 0:
        training.update(local_batch_size=tokens // length, seq_len=length)


TITAN_TABLES = ("training", "parallelism", "compile", "optimizer")
CHECKPOINTING = {
    "FullAC": {"mode": "full"},
    "SelectiveAC": {"mode": "selective", "selective_ac_option": "op"},
    "ActivationCheckpointConfig": {"mode": "selective", "selective_ac_option": "op"},
}
_CONVERTER = re.compile(r"(Float8|MXFP8|NVFP4)\w*Converter")


def _precision_word(value: Any) -> str:
    """Return the format that a helper such as ``bf16_mixed()`` or ``_perf_precision("fp8_cs")`` makes."""
    if isinstance(value, str):
        return PRECISIONS.get(value, value)
    base = value.get("_base_") if isinstance(value, Traced) else value
    match = _CALL.fullmatch(base.text) if isinstance(base, Opaque) else None
    if match is None:
        return ""
    quoted = _QUOTED.search(match[2])
    word = quoted[1] if quoted else match[1].rpartition(".")[2]
    return PRECISIONS.get(word, "")


def _plain(table: Traced, above: str, lines: dict[str, int]) -> tuple[Table, list[Setting]]:
    """Return a table without what is not data, which is listed."""
    values: Table = {}
    opaque: list[Setting] = []
    for key, value in table.items():
        path = f"{above}{key}"
        lines[path] = table.lines.get(key, 0)
        if isinstance(value, Traced) and isinstance(value.get("_base_"), Opaque) and key not in TABLES:
            value = value["_base_"]
        if isinstance(value, Traced) and key not in NO_SETTING:
            values[key], inner = _plain(value, f"{path}.", lines)
            opaque += inner
        elif isinstance(value, Opaque):
            if key == "_base_" and not above.startswith(UNTOLD) and not value.text.startswith("default_adam"):
                opaque.append(Setting(above.rstrip(".") or "recipe", value.text[:MAX_TEXT], value.line or None))
            elif key not in NO_SETTING and not value.text.startswith("torch."):
                opaque.append(Setting(path, f"{path} = {value.text}"[:MAX_TEXT], value.line or None))
        elif key not in NO_SETTING and not _has_opaque(value):
            values[key] = value
    return values, opaque


def _has_opaque(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, Opaque | Traced) for item in _items(value))


def _items(value: list[Any]) -> Iterator[Any]:
    for item in value:
        yield from _items(item) if isinstance(item, list) else (item,)
