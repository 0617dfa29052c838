"""Keywords that describe a run, the same words as the flags of the command line, and how they become a request.

A keyword without a dot is one of `RunKeywords`; one with a dot sets that field of the spec: ``**{"training.optimizer":
"none"}``. A keyword that is None counts as not given.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from charllm.catalog.resolve import PARTS
from charllm.catalog.sizes import Size, name_of, node_gpus, usual_machine
from charllm.catalog.tables import spell
from charllm.errors import SpecError, unknown_name
from charllm.result.result import RunResult
from charllm.result.store import load_run
from charllm.spec.request import Table, as_table, merge, nest, parse_layer_split, parse_recompute, read_toml

if TYPE_CHECKING:
    from charllm.spec.readers import Inputs, Reading

File = str | os.PathLike[str]
Named = str | os.PathLike[str] | Mapping[str, Any]
"""A name from the catalog, a file, or a table: ``{"base": "llama3-70b", "layers": 40}``."""
Spec = str | os.PathLike[str] | Mapping[str, Any] | RunResult
"""A TOML file, the folder of a stored run, a table, or a result whose spec is used again."""


class RunKeywords(TypedDict, total=False):
    """Every keyword that describes a run, with the type of its value."""

    from_: str | os.PathLike[str] | None
    args: str | Sequence[str] | None
    env: Mapping[str, str] | None
    allow_unmodelled: bool | None
    model: Named | None
    cluster: Named | Sequence[Named] | None
    gpu: str | None
    gpus: int | None
    nodes: int | str | None
    network: Named | None
    framework: Named | None
    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    etp: int | None
    dp: int | None
    zero: int | None
    fsdp: bool | None
    shard_size: int | None
    sp: bool | None
    schedule: str | None
    overlap: str | Sequence[str] | None
    layers_per_stage: str | Sequence[int] | None
    seq_length: int | None
    seq: int | None
    global_batch_size: int | None
    gbs: int | None
    micro_batch_size: int | None
    mbs: int | None
    precision: str | None
    recompute: str | None
    forward_only: bool | None
    lora: int | None
    placement: str | os.PathLike[str] | None
    power_cap: float | None
    clock_cap: float | None
    inlet: float | None
    seed: int | None
    set: Mapping[str, Any] | None
    parallelism: Mapping[str, Any] | None
    training: Mapping[str, Any] | None
    conditions: Mapping[str, Any] | None


FIELDS = {
    "tp": "parallelism.tp",
    "pp": "parallelism.pp",
    "vpp": "parallelism.vpp",
    "cp": "parallelism.cp",
    "ep": "parallelism.ep",
    "etp": "parallelism.etp",
    "dp": "parallelism.dp",
    "zero": "parallelism.zero",
    "shard_size": "parallelism.shard_size",
    "sp": "parallelism.sp",
    "schedule": "parallelism.schedule",
    "seq_length": "training.seq_length",
    "global_batch_size": "training.global_batch_size",
    "micro_batch_size": "training.micro_batch_size",
    "precision": "training.precision",
    "lora": "training.lora_rank",
    "placement": "conditions.placement",
    "power_cap": "conditions.power_cap_w",
    "clock_cap": "conditions.clock_cap_mhz",
    "inlet": "cluster.cooling.inlet_c",
    "seed": "conditions.seed",
}
"""Keyword: the field that it sets as it is."""
SHORT = {"seq": "seq_length", "gbs": "global_batch_size", "mbs": "micro_batch_size"}
"""Short spelling: the keyword it stands for."""
FOLLOWS = {
    "dp": ("tp", "cp", "pp", "cluster"),
    "sp": ("tp",),
    "etp": ("tp",),
    "schedule": ("vpp",),
    "layers_per_stage": ("pp", "vpp", "model"),
}
"""Degree: the settings it follows from unless it is given."""
LARGEST_DIGITS, DEEPEST, DEEPEST_FIELD = 300, 20, 8


def build_request(spec: Spec | None, words: Mapping[str, Any]) -> Table:
    """Merge foreign file, spec, keywords and dotted fields, each over the one before."""
    given = {word: _plain(value, word) for word, value in words.items() if value is not None}
    _check_words(given)
    changes = _changes(given)
    reading = _read_foreign(given)
    request: Table = {} if reading is None else reading.request
    if spec is not None:
        request = merge(request, _read_spec(spec, changes))
    for part in ("model", "cluster", "framework"):
        # A name stands for a whole model or cluster, of which nothing remains of a file's.
        if isinstance(given.get(part), str) or (part == "cluster" and "gpu" in given):
            request.pop(part, None)
    if "recompute" in given:
        # The keyword replaces all of a file's recomputation, not a part of it.
        training = request.get("training", {})
        request["training"] = {key: value for key, value in training.items() if not key.startswith("recompute")}
    merged: Table = merge(request, changes)
    if reading is None:
        return merged
    from charllm.catalog.foreign import complete_request

    return complete_request(reading, merged, allow_unmodelled=bool(given.get("allow_unmodelled")))


def changes_of(spec: Spec | None, words: Mapping[str, Any]) -> Table:
    """Return what a spec, keywords and dotted fields say, without the foreign file below them."""
    given = {word: _plain(value, word) for word, value in words.items() if value is not None}
    changes = _changes(given)
    return changes if spec is None else merge(_read_spec(spec, changes), changes)


def _read_foreign(given: Mapping[str, Any]) -> Reading | None:
    """Read the foreign file, a script with its positional arguments and its environment."""
    from charllm.spec.readers import read_foreign

    file = foreign_file(given)
    return None if file is None else read_foreign(*file)


def foreign_file(given: Mapping[str, Any]) -> tuple[str, Inputs] | None:
    """Return the foreign file that is asked for, and what a script of it is given."""
    if given.get("from_") is None:
        return None
    from charllm.spec.readers import Inputs

    words, environment = given.get("args"), as_table(given.get("env") or {}, "env")
    try:
        args = shlex.split(words) if isinstance(words, str) else words
    except ValueError:
        raise SpecError("args", words, "words with matching quotes") from None
    if args is not None and not (isinstance(args, list) and all(isinstance(word, str) for word in args)):
        raise SpecError("args", words, "a text, or a list of words")
    if not all(isinstance(value, str) for value in environment.values()):
        raise SpecError("env", environment, "a text for each variable")
    inputs = Inputs(None if args is None else tuple(args), environment)
    return str(as_path(given["from_"], "from_")), inputs


def _check_words(given: Mapping[str, Any]) -> None:
    """Refuse a keyword that does not exist, and one that is given in two spellings."""
    for word in given:
        if word not in RunKeywords.__annotations__ and "." not in word:
            raise unknown_name(word, word, RunKeywords.__annotations__)
    for short, word in SHORT.items():
        if short in given and word in given:
            raise SpecError(short, given[short], f"{short} or {word}, not both")


def _changes(given: Mapping[str, Any]) -> Table:
    """Turn keywords into a request: tables first, then single settings, then dotted fields."""
    tables = [{part: given[part]} for part in PARTS if part in given]
    tables += [{"cluster": _sized_cluster(given)}] if "gpu" in given or "gpus" in given else []
    settings = [nest(FIELDS[word], value) for word, value in _spelled_out(given).items() if word in FIELDS]
    settings += [write(given[word], given) for word, write in WRITERS.items() if word in given]
    dotted = {**{word: value for word, value in given.items() if "." in word}, **as_table(given.get("set", {}), "set")}
    fields = [_set_field(path, value) for path, value in dotted.items()]
    changes: Table = reduce(merge, [*tables, *settings, *fields], {})
    return changes


def _spelled_out(given: Mapping[str, Any]) -> Table:
    return {SHORT.get(word, word): value for word, value in given.items()}


def _sized_cluster(given: Mapping[str, Any]) -> str:
    """Return the name of the machine that a GPU and a number of GPUs or nodes ask for."""
    gpu, gpus, nodes = given.get("gpu"), given.get("gpus"), given.get("nodes")
    if "cluster" in given:
        raise SpecError("--cluster", given["cluster"], "the name of a cluster, or --gpu and --gpus, not both")
    if gpu is None:
        raise SpecError("--gpus", gpus, f"with --gpu NAME, or as one word: --cluster h100x{gpus}")
    if not isinstance(gpu, str):
        raise SpecError("--gpu", gpu, "a name from `charllm catalog gpus`, such as h100")
    per_node = node_gpus(usual_machine(gpu, "--gpu"))
    for word, number in (("gpus", gpus), ("nodes", nodes)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise SpecError(f"--{word}", number, "a whole number of at least 1")
    if gpus is None and nodes is None:
        raise SpecError("--gpus", None, f"how many {gpu}: --gpus {per_node}, or --nodes 1")
    if gpus is not None and nodes is not None and gpus != nodes * per_node:
        possible = (
            f"{nodes * per_node}: a node of {gpu} holds {per_node} GPUs (a file or --set cluster.node for others)"
        )
        raise SpecError("--gpus", f"{gpus} on {nodes} nodes", possible)
    return name_of(Size(spell(gpu), gpus or int(nodes or 1) * per_node))


def _set_field(path: str, value: Any) -> Table:
    keys = path.split(".")
    if not all(keys) or len(keys) > DEEPEST_FIELD:
        raise SpecError(path, value, "a dotted field, e.g. cluster.nodes")
    return nest(path, value)


def _fsdp(value: Any, given: Mapping[str, Any]) -> Table:
    if not isinstance(value, bool):
        raise SpecError("fsdp", value, "true or false")
    if value and given.get("zero", 3) != 3:
        raise SpecError("fsdp", f"with zero {given['zero']}", "fsdp alone, or zero 3")
    return nest("parallelism.zero", 3) if value else {}


def _forward_only(value: Any, given: Mapping[str, Any]) -> Table:
    if not isinstance(value, bool):
        raise SpecError("forward_only", value, "true or false")
    if value and given.get("schedule", "forward-only") != "forward-only":
        raise SpecError("forward_only", f"with schedule {given['schedule']}", "forward_only alone")
    return nest("parallelism.schedule", "forward-only") if value else {}


def _recompute(value: Any, _given: Mapping[str, Any]) -> Table:
    if not isinstance(value, str):
        raise SpecError("training.recompute", value, "none, selective[:module,...] or full[:layers]")
    return {"training": parse_recompute(value)}


def _overlap(value: Any, _given: Mapping[str, Any]) -> Table:
    axes = [] if value == "none" else value.split(",") if isinstance(value, str) else value
    return nest("parallelism.overlap", axes)


def _layers_per_stage(value: Any, _given: Mapping[str, Any]) -> Table:
    return nest("parallelism.layers_per_stage", parse_layer_split(value) if isinstance(value, str) else value)


WRITERS: dict[str, Callable[[Any, Mapping[str, Any]], Table]] = {
    "fsdp": _fsdp,
    "recompute": _recompute,
    "forward_only": _forward_only,
    "overlap": _overlap,
    "layers_per_stage": _layers_per_stage,
    "nodes": lambda value, _given: nest("cluster.nodes", value),
    "network": lambda value, _given: nest("cluster.fabric", value),
}
"""Keyword with a notation of its own: the request that it makes."""


def _read_spec(spec: Spec, changes: Table) -> Table:
    """Read a spec; that of a finished run is used less what followed from something that is now changed."""
    if isinstance(spec, Mapping):
        table: Table = _plain(spec, "spec")
        return table
    if isinstance(spec, RunResult):
        return _reuse(spec, changes)
    path = as_path(spec, "spec")
    if os.path.isdir(path) or path.suffix == ".json":
        return _reuse(load_run(path), changes)
    return read_toml(path, "SPEC")


def _reuse(run: RunResult, changes: Table) -> Table:
    spec = {part: as_table(run.spec[part], part) for part in PARTS if part in run.spec}
    changed = {*as_table(changes.get("parallelism", {}), "parallelism"), *changes}
    degrees = dict(spec.get("parallelism", {}))
    for field, causes in FOLLOWS.items():
        if not changed.isdisjoint(causes):
            degrees.pop(field, None)
    return {**spec, "parallelism": degrees}


def as_path(value: Any, word: str) -> Path:
    """Return a path, or say that something else was given."""
    if not isinstance(value, str | os.PathLike):
        raise SpecError(word, value, "a path")
    try:
        return Path(value)
    except TypeError:
        raise SpecError(word, value, "a path of text, not bytes") from None


def as_file(value: Any, word: str) -> Path:
    """Return where a file is to be written; a folder that is not there is refused before anything is computed."""
    path = as_path(value, word)
    if not path.parent.is_dir() or path.is_dir():
        raise SpecError(word, str(path), "a file in a folder that exists")
    return path


def _plain(value: Any, word: str, depth: int = 0) -> Any:
    """Turn what Python code passes (numpy numbers, paths, tuples) into what a file could hold."""
    if depth > DEEPEST:
        raise SpecError(word[:40], "a table inside itself", f"tables at most {DEEPEST} deep")
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        if abs(int(value)) >= 10**LARGEST_DIGITS:
            raise SpecError(word, "a very large number", f"a number of at most {LARGEST_DIGITS} digits")
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {_key(key, word): _plain(item, f"{word}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_plain(item, word, depth + 1) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), word, depth + 1)
    raise SpecError(word, value, "a number, a text, a list or a table")


def _key(key: Any, word: str) -> str:
    if not isinstance(key, str) or not key:
        raise SpecError(word, key, "a table whose keys are names")
    return key
