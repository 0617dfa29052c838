"""An experiment of Primus that trains with torchtitan: its model file, its defaults and what it overrides."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.ledger import Ledger
from charllm.spec.readers.nemo.document import Document, load_document
from charllm.spec.readers.reading import Reading, Setting
from charllm.spec.readers.torchtitan import read_job
from charllm.spec.readers.values import MAX_TEXT, read_count, shown
from charllm.spec.request import read_text

Table = dict[str, Any]

DEFAULTS: Table = {
    "training": {"local_batch_size": 8, "seq_len": 2048, "mixed_precision_reduce": "float32"},
    "activation_checkpoint": {"mode": "none"},
    "compile": {"enable": True},
}
"""Source: AMD-AGI/Primus, primus/configs/modules/torchtitan/pre_trainer.yaml."""
MODELS = "primus/configs/models/torchtitan"
FLAVORS = {
    **{f"llama{release}_{size}": ("llama3", size) for release in ("3", "3.1", "3.3") for size in ("8B", "70B", "405B")},
    "llama3.2_1B": ("llama3", "1B"),
    **{f"qwen3_{size}b": ("qwen3", f"{size}B") for size in ("0.6", "1.7", "4", "8", "14", "32")},
    **{f"deepseek_v3_{size}b": ("deepseek_v3", f"{size}B") for size in ("16", "236", "671")},
    **{f"gpt_oss_{size}b": ("gpt_oss", f"{size}b") for size in ("20", "120")},
    **{f"llama4_17Bx{experts}E": ("llama4", f"17bx{experts}e") for experts in ("16", "128")},
}
"""Model file of Primus: torchtitan's name and flavor of it; in 8 bits where the file's name ends in -fp8."""
NARROW = ("enable_attention_float8",)
"""Switches of Primus-Turbo that change a format; others choose the kernels of what is converted anyway."""
PARENTS = 8


def read_titan_experiment(document: Document, room: str, path: str) -> Reading:
    """Return the request of an experiment whose framework is torchtitan."""
    stated = _resolved(document, f"{room}.overrides")
    turbo = stated.pop("primus_turbo", None) or {}
    file = shown(document.find(f"{room}.model"))[:MAX_TEXT]
    model = _model_file(file, path) or _named(file)
    lines = {key.removeprefix(f"{room}.overrides."): line for key, line in document.lines.items()}
    layers = (stated.get("model") or {}).pop("n_layers", None)
    reading = read_job(Ledger(_over(_over(DEFAULTS, model), stated)), lines)
    _with_layers(reading, layers)
    if "model" not in reading.request:
        reading.missing["model"] = f"--model NAME (the file takes {file} from Primus's own configs)"
    on = [key for key, value in turbo.items() if value not in (None, False)]
    settings = {key: Setting(f"primus_turbo.{key}", f"primus_turbo.{key}: true", lines.get(f"primus_turbo.{key}"))
                for key in on}  # fmt: skip
    narrow = [replace(settings[key], reason="products in few bits of Primus-Turbo") for key in on if key in NARROW]
    small = [replace(settings[key], reason="kernels of Primus-Turbo") for key in on if key not in NARROW][:1]
    return replace(reading, unmodelled=(*reading.unmodelled, *narrow), small=(*reading.small, *small))


def _with_layers(reading: Reading, layers: Any) -> None:
    """Give the model as many layers as an experiment asks for."""
    model = reading.request.get("model")
    if layers is None or model is None or model["layers"] == read_count("model.n_layers", layers, 1):
        return
    if reading.request["parallelism"]["pp"] > 1:
        raise SpecError("model.n_layers", layers, f"{model['layers']}, as the flavor has, in a pipeline")
    model["layers"] = layers


def _named(file: str) -> Table:
    stem = PurePath(file).stem
    name, flavor = FLAVORS.get(stem.removesuffix("-fp8"), ("", ""))
    if not name:
        return {}
    converters = ["quantize.linear.float8"] if stem.endswith("-fp8") else []
    return {"model": {"name": name, "flavor": flavor, "converters": converters}}


def _model_file(file: str, path: str) -> Table | None:
    """Return a model's file of the checkout that the experiment lies in."""
    for folder in list(Path(path).resolve().parents)[:PARENTS]:
        found = folder / MODELS / PurePath(file).name
        if found.is_file():
            document = load_document(read_text(found, "--from"), str(found))
            return {key: _resolved(document, key) for key in document.table if key != "job"}
    return None


def _resolved(document: Document, path: str) -> Table:
    """Return a table with references followed."""
    table = document.written(path)
    return {
        key: _resolved(document, f"{path}.{key}")
        if isinstance(document.written(f"{path}.{key}"), Mapping)
        else document.find(f"{path}.{key}")
        for key in (table if isinstance(table, Mapping) else ())
    }


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    return {
        **below,
        **{
            key: _over(below[key], value)
            if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
            else value
            for key, value in above.items()
        },
    }
