"""From a request to a RunSpec: names looked up, defaults filled in, everything checked."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from charllm.catalog.defaults import (
    default_batch,
    default_chunks,
    default_overlap,
    describe_defaults,
    split_by_products,
    training_defaults,
)
from charllm.catalog.sizes import NETWORKS, USUAL_GPUS, find_cluster, read_network, resized, usual_network
from charllm.catalog.tables import Entry, entries, find, find_model, read_entry
from charllm.errors import SpecError, Words, unknown_name
from charllm.spec.fields import read, read_field, rules
from charllm.spec.framework import Framework
from charllm.spec.generation import Generation
from charllm.spec.hardware import BOARD_PARTS, Cluster, Gpu, Node, read_cluster
from charllm.spec.model import Model, fill_model
from charllm.spec.parallelism import Parallelism
from charllm.spec.request import Table, as_table, check_plain, merge, read_json, read_toml
from charllm.spec.run import Conditions, RunSpec, check_run
from charllm.spec.training import Training

PARTS = ("model", "cluster", "framework", "parallelism", "training", "conditions")
GENERATION = "generation"
NOTES = "notes"
"""Key of a request that holds what its reader has to say, a sentence each."""
DEFAULT_FRAMEWORK = "megatron"
FILE_SIGNS = (".toml", ".json", "/")
"""What tells a file from a name."""
HUB_ID = re.compile(r"[\w.-]+/(?!.*\.(?:toml|json)$)[\w.-]+")
"""A model of the Hugging Face hub: ``Qwen/Qwen3-32B``."""
MOST_BASES = 8
"""Files that may rest on each other."""


def resolve_run(request: Mapping[str, Any]) -> RunSpec:
    """Build the run a request describes, or raise SpecError naming what is wrong."""
    run = read_run(request)
    check_run(run)
    return run


def read_run(request: Mapping[str, Any]) -> RunSpec:
    """Build the parts of a run, each checked alone; whether they agree with each other is not checked."""
    from charllm.catalog.placement import apply_placement

    check_plain(request, "request")
    for key in request:
        if key not in (*PARTS, GENERATION, NOTES):
            raise unknown_name(key, key, PARTS)
    for key in ("model", "cluster"):
        if request.get(key) is None:
            raise SpecError(key, None, f"a name from `charllm catalog {key}s`, or a file")
    model = resolve_model(request["model"])
    cluster = resolve_cluster(request["cluster"])
    framework = resolve_framework(request.get("framework", DEFAULT_FRAMEWORK))
    request = apply_placement(request, cluster)
    taken: Table = {}
    degrees = _fill_degrees(_table(request, "parallelism"), model, cluster, framework)
    training = _fill_training(_table(request, "training"), model, degrees, framework, taken)
    parallelism = _fill_schedule(degrees, model, training, framework, taken)
    return RunSpec(
        model=model,
        training=training,
        parallelism=parallelism,
        cluster=cluster,
        framework=framework,
        conditions=read(Conditions, _table(request, "conditions"), "conditions"),
        generation=read(Generation, _table(request, GENERATION), GENERATION) if GENERATION in request else None,
        defaults_taken=describe_defaults(taken),
        notes=tuple(request.get(NOTES, ())),
    )


def resolve_model(asked: Any) -> Model:
    """Build a model from its name, its file or a table over one of these."""
    model: Model = _resolve("models", asked)
    return model


def resolve_cluster(asked: Any) -> Cluster:
    """Build a cluster from its name, its file or a table over one of these."""
    cluster: Cluster = _resolve("clusters", asked)
    return cluster


def resolve_framework(asked: Any) -> Framework:
    """Build a framework profile from its name or a table over it."""
    changes = {"base": DEFAULT_FRAMEWORK, **asked} if isinstance(asked, Mapping) else asked
    framework: Framework = _resolve("frameworks", changes)
    return framework


def _resolve(kind: str, asked: Any) -> Any:
    """Build what was asked for; what rests on the catalog alone is remembered, what rests on files is not."""
    key = _cache_key(asked)
    return _build(kind, asked) if key is None else _build_once(kind, key)


def _cache_key(asked: Any) -> str | None:
    try:
        key = json.dumps(asked, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
    return None if any(sign in key for sign in FILE_SIGNS) else key


@lru_cache(maxsize=4096)
def _build_once(kind: str, key: str) -> Any:
    return _build(kind, json.loads(key))


def _build(kind: str, asked: Any) -> Any:
    builder, field = BUILDERS[kind]
    return builder(dict(find_entry(kind, asked, field).values))


def _build_model(values: Table) -> Model:
    return read(Model, fill_model(values), "model")


def _build_framework(values: Table) -> Framework:
    return read(Framework, values, "framework")


def _build_cluster(values: Table) -> Cluster:
    if values.get("node") is None:
        given = " and ".join(key for key in values if key not in ("name", "node")) or "no node"
        nodes = values["nodes"] if isinstance(values.get("nodes"), int) else 2
        form = (
            f"a machine: --gpu h100 --nodes {nodes}, --cluster h100x{nodes * USUAL_GPUS}, or base or node in its table"
        )
        raise SpecError("cluster", Words(f"{given} alone"), form)
    whole = {**values, "node": _node_values(values.get("node"), "cluster.node")}
    whole["mixed"] = _mixed_values(values.get("mixed", []))
    whole["fabric"] = _fabric_values(whole)
    cluster = read_cluster(whole)
    return replace(cluster, name=resized(cluster.name, cluster.gpus))


def _fabric_values(cluster: Table) -> Table:
    """Return the fabric of a cluster; left open, it is the usual one of its GPU, or none for a single machine."""
    field, asked = "cluster.fabric", cluster.get("fabric")
    gpu, gpus = cluster["node"]["gpu"]["name"], read_field(Node, "gpus", cluster["node"].get("gpus"), "cluster.node")
    nodes, domain = (read_field(Cluster, key, cluster.get(key, 1), "cluster") for key in ("nodes", "domain_nodes"))
    single = isinstance(asked, Mapping) and not {"base", "nics_per_node"} & asked.keys()
    if asked is None or single:
        # Single figures of a network are set over the usual one.
        usual = usual_network(gpu) if nodes > domain else "none"
        if usual is None:
            raise SpecError(field, None, f"a network, as none is usual for {gpu}: {NETWORKS}")
        asked = {"base": usual, **(asked or {})} if single else usual
    base = asked.get("base") if isinstance(asked, Mapping) else asked
    if isinstance(base, str) and not is_file(base):
        named, over = read_network(base, gpu, gpus, field), asked if isinstance(asked, Mapping) else {}
        asked = merge(named, {key: value for key, value in over.items() if key != "base"}) if over else named
    return _values("fabrics", asked, field)


def _node_values(asked: Any, field: str) -> Table:
    node_values = _values("nodes", asked, field)
    gpu_values = _values("gpus", node_values.get("gpu"), f"{field}.gpu")
    return {**node_values, "gpu": {**gpu_values, **_board_parts(gpu_values, f"{field}.gpu")}}


def _mixed_values(asked: Any) -> list[Table]:
    """Return the nodes that differ from the usual ones: a list of tables with the kind and the numbers of each."""
    if not isinstance(asked, list | tuple):
        raise SpecError("cluster.mixed", asked, 'a list such as [{ node = "hgx-h100", nodes = [2, 3] }]')
    found = []
    for place, listed in enumerate(asked):
        field = f"cluster.mixed[{place}]"
        table = as_table(listed, field)
        found.append({**table, "node": _node_values(table.get("node"), f"{field}.node")})
    return found


def _board_parts(values: Table, field: str) -> dict[str, Mapping[str, Any]]:
    """Return the tables inside a GPU's table; what they leave open is scaled from an H200's."""
    from charllm.catalog.scale import fill_board

    gpu_values = dict(values)
    given = {part: as_table(gpu_values.pop(part, {}), f"{field}.{part}") for part in BOARD_PARTS}
    given["kernels"] = {**entries("gpus")["h200"].values["kernels"], **given["kernels"]}
    # What others are scaled by has to be a number of its kind first.
    checked = _checked(Gpu, gpu_values, field)
    return fill_board(
        checked, {part: _checked(BOARD_PARTS[part], table, f"{field}.{part}") for part, table in given.items()}
    )


def _checked(cls: Any, table: Table, where: str) -> Table:
    """Read the fields of a table that its class knows; the others are refused when all of it is read."""
    known = rules(cls)
    return {name: read_field(cls, name, value, where) if name in known else value for name, value in table.items()}


BUILDERS: dict[str, tuple[Callable[[Table], Any], str]] = {
    "models": (_build_model, "model"),
    "clusters": (_build_cluster, "cluster"),
    "frameworks": (_build_framework, "framework"),
}
"""Kind of entry: what builds it, and the field it is asked for in."""


def _values(kind: str, asked: Any, field: str) -> Table:
    """Return the plain table behind a name, a file, or a table with a base and changes over it."""
    return dict(find_entry(kind, asked, field).values)


def find_entry(kind: str, asked: Any, field: str) -> Entry:
    """Return values and sources behind a name, a file, or a table with a base and changes over it."""
    if isinstance(asked, str):
        if kind == "models" and HUB_ID.fullmatch(asked) and not Path(asked).exists():
            if find_model(asked) is None:
                raise SpecError(
                    field, asked, "a model of `charllm catalog models`, or the config.json of its repository"
                )
            return find(kind, asked, field)
        if is_file(asked):
            return _read_file(kind, asked, field)
        return find_cluster(asked, field) if kind == "clusters" else find(kind, asked, field)
    if not isinstance(asked, Mapping):
        raise SpecError(field, asked, f"a name from the catalog's {kind}, a file, or a table")
    changes = dict(asked)
    base = changes.pop("base", None)
    under = find_entry(kind, base, field) if base is not None else Entry("custom", {"name": "custom"})
    values = merge(under.values, changes)
    sources = {key: text for key, text in under.sources.items() if key not in changes}
    sources.update(dict.fromkeys(changes, "given"))
    return Entry(values["name"], values, sources)


def is_file(asked: str) -> bool:
    """Tell a file from a name."""
    return any(sign in asked for sign in FILE_SIGNS)


def _read_file(kind: str, path: str, field: str, depth: int = 0) -> Entry:
    if path.endswith(".json") and kind == "models":
        return Entry(Path(path).stem, _read_config(path, field), {})
    table = read_toml(path, field)
    citations = table.pop("sources", {})
    name = str(table.pop("name", Path(path).stem))
    base = table.get("base")
    known = entries(kind)
    if base is not None and is_file(str(base)):
        if depth == MOST_BASES:
            raise SpecError(f"{field}.base", base, f"at most {MOST_BASES} files that rest on each other")
        known = {base: _read_file(kind, base, f"{field}.base", depth + 1)}
    elif base is not None:
        found = find_entry(kind, str(base), f"{field}.base")
        known = {**known, str(base): found}
    entry = read_entry(name, table, citations if isinstance(citations, Mapping) else {}, known)
    return Entry(name, entry.values, entry.sources or dict.fromkeys(entry.values, f"given: {path}"))


def _read_config(path: str, field: str) -> Table:
    """Read a Hugging Face config that stands for a model; one that is not modelled as it is is refused."""
    from charllm.spec.readers.huggingface import read_hf_config

    reading = read_hf_config(read_json(path, field), path)
    for setting in reading.unmodelled:
        possible = f"left out ({setting.reason}), or --from {path} --allow-unmodelled"
        raise SpecError(f"{field}.{setting.name}", setting.text.partition(": ")[2], possible)
    model: Table = reading.request["model"]
    return model


def _table(request: Mapping[str, Any], key: str) -> Table:
    return as_table(request.get(key, {}), key)


def _fill_degrees(table: Table, model: Model, cluster: Cluster, framework: Framework) -> Table:
    """Fill the degrees that were left open: dp takes the GPUs that are left, the rest follows the framework."""
    tp, cp, pp = (read_field(Parallelism, axis, table.get(axis, 1), "parallelism") for axis in ("tp", "cp", "pp"))
    filled = dict(table)
    if "dp" not in filled:
        if cluster.gpus % (tp * cp * pp):
            product = f"tp {tp} x cp {cp} x pp {pp} = {tp * cp * pp}"
            raise SpecError("parallelism", product, f"a divisor of the {cluster.gpus} GPUs of {cluster.name}")
        filled["dp"] = cluster.gpus // (tp * cp * pp)
    data_ranks = read_field(Parallelism, "dp", filled["dp"], "parallelism") * cp
    filled.setdefault("sp", framework.default_sp and tp > 1)
    trains = filled.get("schedule") != "forward-only"
    filled.setdefault("zero", framework.default_zero if data_ranks > 1 and trains else 0)
    if model.experts:
        filled.setdefault("etp", tp if framework.default_etp else 1)
    return filled


def _fill_schedule(degrees: Table, model: Model, training: Training, framework: Framework, taken: Table) -> Parallelism:
    """Fill chunks, schedule, layers of each stage and overlap; what the profile supplies is added to `taken`."""
    filled = dict(degrees)
    pp, vpp = (read_field(Parallelism, axis, degrees.get(axis, 1), "parallelism") for axis in ("pp", "vpp"))
    if framework.default_interleaving and not {"vpp", "schedule", "layers_per_stage"} & set(degrees):
        per_round = training.micro_batch_size * degrees["dp"]
        whole = training.global_batch_size % per_round == 0
        vpp, split = default_chunks(model.layers, pp, training.global_batch_size // per_round if whole else 0)
        if vpp > 1:
            filled["layers_per_stage"] = split
            filled["vpp"] = taken["vpp"] = vpp
    if vpp > 1:
        filled.setdefault("schedule", "interleaved")
    if not filled.get("layers_per_stage"):
        by_products = framework.counts_head and pp > 1 and vpp == 1 and not model.experts
        filled["layers_per_stage"] = split_by_products(model, pp) if by_products else _even_split(model, pp, vpp)
    found = read(Parallelism, filled, "parallelism")
    if "overlap" not in degrees and (axes := default_overlap(framework, found, sparse=bool(model.experts))):
        taken["overlap"] = axes
        return replace(found, overlap=tuple(axes))
    return found


def _even_split(model: Model, pp: int, vpp: int) -> tuple[int, ...]:
    chunks = pp * vpp
    if model.layers % chunks == 0:
        return (model.layers // chunks,) * chunks
    low, more = divmod(model.layers, chunks)
    split = ",".join(f"{layers}x{repeat}" for layers, repeat in ((low + 1, more), (low, chunks - more)))
    possible = f"a divisor of the {model.layers} layers of {model.name}, or --layers-per-stage {split}"
    raise SpecError("parallelism.pp", f"pp {pp} x vpp {vpp} = {chunks} chunks", possible)


def _fill_training(table: Table, model: Model, degrees: Table, framework: Framework, taken: Table) -> Training:
    """Fill the sequence length from the model, a batch of 128 rounded up to whole microbatches, the profile's rest."""
    if degrees.get("schedule") == "forward-only":
        table = {"optimizer": "none", "clip_gradients": False, "recompute": "none", **table}
    supplied = training_defaults(framework, table, sparse=bool(model.experts))
    taken.update(supplied)
    filled = {**table, **supplied}
    filled.setdefault("clip_gradients", framework.clip_gradients)
    filled.setdefault("seq_length", model.seq_length)
    if "global_batch_size" not in filled:
        micro = read_field(Training, "micro_batch_size", filled.get("micro_batch_size", 1), "training")
        filled["global_batch_size"] = default_batch(degrees["dp"], micro)
    return read(Training, filled, "training")


def single_node(gpu: str, gpus: int) -> Cluster:
    """Return one node of the catalog that holds this many of a GPU (the first that has no other name for itself)."""
    name = find("gpus", gpu, "--gpu").name
    sizes = {node.name: int(node.values["gpus"]) for node in entries("nodes").values() if node.values["gpu"] == name}
    fitting = [node for node, size in sizes.items() if size == gpus]
    if not fitting:
        held = ", ".join(f"{size}" for size in sorted(set(sizes.values())))
        raise SpecError("gpu_index", f"{gpus} of {name}", f"as many GPUs as a node of the catalog holds: {held}")
    return resolve_cluster({"node": fitting[0], "nodes": 1, "fabric": "none"})
