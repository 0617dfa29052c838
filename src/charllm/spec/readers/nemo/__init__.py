"""A NeMo training YAML (1.x, and the plain keys of NeMo 2 and Megatron Bridge) as a request."""

from collections.abc import Mapping
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.ledger import sort_unread
from charllm.spec.readers.nemo.document import Document, load_document
from charllm.spec.readers.nemo.find import BATCH, PARALLEL, Table, find_setting
from charllm.spec.readers.nemo.framework import read_framework
from charllm.spec.readers.nemo.keys import KNOWN, REFUSED
from charllm.spec.readers.nemo.model import TOKENIZERS, read_model
from charllm.spec.readers.nemo.parallelism import DEGREES, read_parallelism
from charllm.spec.readers.nemo.training import read_training
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.values import MAX_COUNT, MAX_TEXT, name_from, shown

MARKS = ("num_layers", "hidden_size", "tensor_model_parallel_size", "micro_batch_size")


def read_nemo(text: str, path: str, environment: Mapping[str, str] | None = None) -> Reading:
    """Return the request that a NeMo YAML makes, and what of it the request does not hold."""
    return read_settings(load_document(text, path, environment), path)


def read_settings(document: Document, path: str, framework: str = "nemo", *, called_by_file: bool = True) -> Reading:
    """Read the settings of NeMo or Megatron Bridge, whatever file they come from.

    What NeMo derives from an absent key is derived here too; a size that neither states is left out.
    """
    if not any(find_setting(document, (*PARALLEL, *BATCH), key)[1] is not None for key in MARKS):
        raise SpecError("--from", path, f"a NeMo training file, with model.{', model.'.join(MARKS)}")
    for key, missing in REFUSED.items():
        if document.names(key) and document.find(key) not in (None, False, {}):
            raise SpecError(key, shown(document.written(key))[:MAX_TEXT], f"left out: {missing}")
    model = read_model(document)
    request = {
        "framework": read_framework(document, framework),
        "parallelism": read_parallelism(document, framework),
        "training": read_training(document, model),
    }
    notes = _evaluate(document, request)
    left_open = {}
    if document.names("train") or document.names("ddp"):
        # A file that changes a recipe of Megatron-Bridge: what it does not say is the recipe's.
        framework = "megatron-bridge" if framework == "nemo" else framework
        request["framework"], request["parallelism"] = (
            read_framework(document, framework), read_parallelism(document, framework),
        )  # fmt: skip
        left_open = left_to_recipe(document, request) if called_by_file else {}
    # A file that overrides a recipe leaves the model to be named.
    stated = [f"{field} {model[field]}" for field in SIZES if field in model]
    if len(stated) == len(SIZES) or (stated and not left_open):
        request["model"] = {"name": name_from(path, "nemo"), **model}
    elif stated:
        left_open["model"] = f"--model NAME (the file changes {', '.join(stated)} of a model that it does not name)"
    nodes, gpus = (_positive(document, f"trainer.{key}") for key in ("num_nodes", "devices"))
    above = f"{document.mount}." if document.mount else ""
    unread = sort_unread(document.settings, KNOWN, document.lines, above, lambda key: _resolved(document, key))
    return Reading(
        request,
        unread.not_understood,
        (*document.missing, *unread.unmodelled),
        {**_missing(document, request), **left_open},
        unread.small,
        nodes=nodes,
        gpus_per_node=gpus,
        notes=notes,
    )


SIZES = ("layers", "hidden", "heads")
OPEN = {
    "training.global_batch_size": "--gbs N", "training.micro_batch_size": "--mbs N", "training.seq_length": "--seq N",
    "training.precision": "--precision WORD",
}  # fmt: skip
"""Field that a recipe gives where a file over it does not: the flag for it."""


def left_to_recipe(
    document: Document, request: Table, base: str = "the recipe that the file changes"
) -> dict[str, str]:
    """Ask for what a file leaves to the recipe under it."""
    asked = {field: f"{flag} (left to {base})" for field, flag in OPEN.items()
             if field.partition(".")[2] not in request["training"]}  # fmt: skip
    for axis in ("tp", "pp", "cp"):
        if find_setting(document, PARALLEL, DEGREES[axis])[1] is None and not document.names(f"model.{DEGREES[axis]}"):
            asked[f"parallelism.{axis}"] = f"--{axis} N (left to {base})"
    return asked


GRADIENTS_ALONE = (
    "optimizer", "clip_gradients", "reduce_precision", "recompute", "recompute_layers", "recompute_modules",
)  # fmt: skip


def _evaluate(document: Document, request: Table) -> tuple[str, ...]:
    """Make forward passes of a file that skips training, and say so: megatron_gpt_generate.py with a loss as metric.

    What the file says of gradients and updates stays unused then.
    """
    if document.find("model.skip_train") is not True or request["training"].get("lora_rank"):
        return ()
    training = {name: value for name, value in request["training"].items() if name not in GRADIENTS_ALONE}
    batch = {name: document.find(f"model.data.test_ds.{name}") for name in ("micro_batch_size", "global_batch_size")}
    length = document.find("model.data.test_ds.max_seq_length")
    given = {name: value for name, value in {**batch, "seq_length": length}.items() if value is not None}
    request["training"] = {**training, **given}
    degrees = {name: value for name, value in request["parallelism"].items() if name not in ("zero", "shard_size")}
    sharded = {"zero": 3} if request["parallelism"].get("zero") == 3 else {}
    request["parallelism"] = {**degrees, **sharded, "schedule": "forward-only"}
    found = ["model.skip_train: forward passes alone over model.data.test_ds, without gradients and update"]
    if document.find("model.data.test_ds.tokens_to_generate"):
        found.append("model.data.test_ds.tokens_to_generate: pads the sequences of a loss; nothing is generated")
    return tuple(found)


def _resolved(document: Document, path: str) -> Any:
    """Return a setting with its references worked out, or as it is written where they cannot be."""
    try:
        return document.find(path)
    except SpecError:
        return document.written(path)


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
    needed = ("layers", "hidden", "heads")
    sizes = {field: f"--set model.{field}=N" for field in needed if field not in request["model"]}
    if sizes:
        return {f"model.{field}": text for field, text in sizes.items()}
    if "vocab" in request["model"]:
        return {}
    names = [shown(name)[:MAX_TEXT] for where in TOKENIZERS if (name := document.written(where)) not in (None, "???")]
    return {"model.vocab": f"--set model.vocab=N{f' (the tokens of {names[0]})' if names else ''}"}
