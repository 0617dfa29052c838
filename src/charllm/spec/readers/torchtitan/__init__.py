"""A torchtitan job config in TOML as a request."""

import re
from typing import Any

from charllm.errors import SpecError, unknown_name
from charllm.spec.readers.ledger import Ledger, sort_unread
from charllm.spec.readers.reading import Reading, Setting
from charllm.spec.readers.torchtitan.flavors import FLAVORS, find_flavor
from charllm.spec.readers.torchtitan.keys import KNOWN
from charllm.spec.readers.torchtitan.stages import count_layers, split_at, spread_layers
from charllm.spec.readers.values import MAX_ENTRIES, MAX_TEXT, read_choice, read_count, read_flag, read_number, shown
from charllm.spec.request import parse_toml

Table = dict[str, Any]

DEGREES = ("parallelism", "experimental", "training")
"""Tables that held the degrees over the years."""
SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("interleaved", 2),
    "interleavedzerobubble": ("zero-bubble", 1),
    "zbvzerobubble": ("zero-bubble", 1),
    "dualpipev": ("dualpipe", 1),
}
"""Schedule in lower case: what it is called here, and the stages of a rank unless the file says."""
LOOPED = {"interleavedzerobubble", "zbvzerobubble", "dualpipev"}
"""Schedules whose ranks hold two stages, which is modelled for the interleaved one alone."""
BACKENDS = {"standard": "alltoall", "deepep": "deepep", "hybridep": "hybridep"}
PARTS = ("model", "training", "parallelism", "experimental", "activation_checkpoint", "optimizer")
NAMED_STAGES = "module_fqns_per_model_part"
NO_LANGUAGE = ("flux", "vlm")
"""Models that are trained on images."""
DEFAULT_BATCH, DEFAULT_SEQUENCE = 8, 2048

_HEADER = re.compile(r"^\s*\[+\s*([^\[\]]+?)\s*\]+")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\"'.-]+)\s*=")


def is_torchtitan(table: Table) -> bool:
    """Tell a job config from a request of our own: it has a [model] with a flavor."""
    model = table.get("model")
    return isinstance(model, dict) and "flavor" in model and "training" in table


def read_torchtitan(text: str, path: str) -> Reading:
    """Return the request that a torchtitan TOML makes; the number of GPUs is not in it."""
    values = parse_toml(text, path, "--from")
    if not is_torchtitan(values):
        raise SpecError("--from", path, "a torchtitan job config, with [model] name and flavor, and [training]")
    return read_job(Ledger(values), key_lines(text))


def key_lines(text: str) -> dict[str, int]:
    """Return the line of each key, by its dotted path."""
    lines: dict[str, int] = {}
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            above = header[1].replace('"', "") + "."
        elif key:
            lines.setdefault(above + key[1].strip("\"'"), number)
    return lines


def read_job(job: Ledger, lines: dict[str, int]) -> Reading:
    """Read a job config, whatever file it comes from."""
    for name in PARTS:
        if name in job and not isinstance(job[name], Ledger):
            raise SpecError(name, shown(job[name])[:MAX_TEXT], "a table")
    model = _model(job)
    parallelism, copies = _parallelism(job, model)
    training, microbatches = _training(job, parallelism)
    training.update(_recompute(job, max(parallelism.get("layers_per_stage", [model["layers"]]))))
    request = {"framework": _framework(job), "parallelism": parallelism, "training": training}
    missing = {}
    if "name" in model:
        request["model"] = model
    else:
        flavors = [shown(_find(job, ("model",), key)[1])[:MAX_TEXT] for key in ("name", "flavor")]
        missing["model"] = f"--model NAME (flavor {flavors[1]} of {flavors[0]} is not known)"
    small = [*([] if _compiled(job) else [_eager(lines)]), *_looped(job, lines), *_unconverted(job, lines)]
    unread = sort_unread(job, KNOWN, lines)
    return Reading(
        request, unread.not_understood, unread.unmodelled, missing, (*small, *unread.small), microbatches=microbatches,
        copies=copies,
    )  # fmt: skip


def _find(job: Ledger, tables: tuple[str, ...], *keys: str) -> tuple[str, Any]:
    """Return the first of several settings that is stated, and where."""
    places = [(table, key) for table in tables for key in keys]
    found = [(f"{table}.{key}", job[table][key]) for table, key in places if table in job and key in job[table]]
    return found[0] if found else (f"{tables[0]}.{keys[0]}", None)


def _count(job: Ledger, tables: tuple[str, ...], *keys: str, otherwise: int = 1, low: int = 1) -> int:
    where, value = _find(job, tables, *keys)
    return otherwise if value is None else read_count(where, value, low)


def _model(job: Ledger) -> Table:
    (where, name), (_, flavor) = (_find(job, ("model",), key) for key in ("name", "flavor"))
    # Experiments put a word before or after the model they build on: simple_fsdp.llama3, llama3_ft.
    name = "llama3" if name is None else name.rpartition(".")[2].removesuffix("_ft") if isinstance(name, str) else name
    if not isinstance(name, str) or name in NO_LANGUAGE:
        raise unknown_name(where, shown(name)[:MAX_TEXT], FLAVORS)
    table = find_flavor(name, shown(flavor))
    # Another model is asked for: its layers, and how stages share them, are not in this file.
    return table or {"layers": 0}


def _framework(job: Ledger) -> Table | str:
    where, stored = _find(job, ("training",), "dtype")
    words = {"float32": "fp32", "bfloat16": "16bit"}
    table: Table = {}
    if stored is not None and read_choice(where, stored, words) == "16bit":
        # Gradients and Adam's moments have the type of the weights that they belong to.
        states = dict.fromkeys(("weight_precision", "gradient_precision", "moment_precision"), "16bit")
        table = {**states, "master_weights": False}
    if any(str(room.get("recipe_name")).startswith("rowwise") for room in _float8_tables(job)):
        table["fp8_scaling"] = "row"
    where, backend = _find(job, DEGREES, "expert_parallel_comm_backend")
    if read_choice(where, backend or "standard", BACKENDS) != "alltoall":
        # Its kernels sort tokens, too.
        table |= {"dispatcher": BACKENDS[backend], "fused_permute": True}
    return {"base": "torchtitan", **table} if table else "torchtitan"


def _compiled(job: Ledger) -> bool:
    where, value = _find(job, ("compile", "training"), "enable", "compile")
    return False if value is None else read_flag(where, value)


def _eager(lines: dict[str, int]) -> Setting:
    line = lines.get("compile.enable", lines.get("training.compile"))
    return Setting("compile.enable", "compile.enable: false", line, "times are those of compiled models")


def _looped(job: Ledger, lines: dict[str, int]) -> list[Setting]:
    where, name = _find(job, DEGREES, "pipeline_parallel_schedule")
    named = _find(job, DEGREES, NAMED_STAGES)[1]
    if not isinstance(name, str) or name.lower() not in LOOPED or named:
        return []
    return [Setting(where, f"{where}: {name}", lines.get(where), "one stage for each rank is modelled, not two")]


def _parallelism(job: Ledger, model: Table) -> tuple[Table, int]:
    tp, pp, cp, ep = (
        _count(job, DEGREES, f"{axis}_parallel_degree") for axis in ("tensor", "pipeline", "context", "expert")
    )
    table: Table = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "sp": tp > 1}
    if "experts" in model:
        stated = _count(job, DEGREES, "expert_tensor_parallel_degree")
        # Experts that are not spread over ranks are cut as the other layers are.
        table["etp"] = tp if ep == 1 else stated
    if pp > 1:
        table.update(_schedule(job, model, pp))
    where, overlapped = _find(job, DEGREES, "enable_async_tensor_parallel")
    hidden = {
        "tp": overlapped is not None and read_flag(where, overlapped) and tp > 1,
        "dp": True,
        "pp": pp > 1 and table["schedule"] != "1f1b",
    }
    table["overlap"] = [axis for axis, hides in hidden.items() if hides]
    return table, _sharding(job, table)


def _sharding(job: Ledger, table: Table) -> int:
    """Read how replicas shard weights: fully, in groups, or not at all; -1 takes the ranks that are left.

    Returns how many copies of the weights share the ranks that are left.
    """
    where, replicas = _find(job, DEGREES, "data_parallel_replicate_degree")
    copies = 1 if replicas is None else read_count(where, replicas, 1)
    where, sharded = _find(job, DEGREES, "data_parallel_shard_degree", "data_parallel_degree")
    ranks = None if sharded in (None, -1) else read_count(where, sharded, 1)
    where, policy = _find(job, DEGREES, "fsdp_reshard_after_forward")
    kept = read_choice(where, policy or "default", {"default": table["pp"] > 1, "never": True, "always": False})
    table["zero"] = 0 if ranks == 1 and table["cp"] == 1 else 2 if kept else 3
    if ranks is not None:
        table["dp"] = copies * ranks
    if copies == 1 or not table["zero"]:
        return 1
    if ranks is None:
        return copies
    table["shard_size"] = ranks * table["cp"]
    return 1


def _schedule(job: Ledger, model: Table, pp: int) -> Table:
    """Read the pipeline's order and how layers are spread over its stages."""
    where, name = _find(job, DEGREES, "pipeline_parallel_schedule")
    schedule, looped = read_choice(where, "1f1b" if name is None else name, SCHEDULES)
    layers = model["layers"]
    points = _find(job, DEGREES, "pipeline_parallel_split_points")[1]
    parts = _find(job, DEGREES, NAMED_STAGES)[1]
    if isinstance(parts, list) and parts:
        split = count_layers(parts, layers)
    elif isinstance(points, list) and points:
        split = split_at(points, layers)
    elif not layers:
        return {"schedule": schedule if looped == 1 else "interleaved", "vpp": looped}
    else:
        ends = [_count(job, DEGREES, f"pipeline_parallel_{end}_stage_less_layers", low=0) for end in ("first", "last")]
        each = _find(job, DEGREES, "pipeline_parallel_layers_per_stage")
        stages = pp * looped
        if each[1] is not None:
            whole = read_count(each[0], each[1], 1)
            stages = -(-(layers + sum(ends)) // whole)
        split = spread_layers(layers, stages, ends[0], ends[1])
    if len(split) % pp or len(split) > MAX_ENTRIES:
        raise SpecError(where, f"{len(split)} stages", f"a multiple of {pp} ranks")
    vpp = len(split) // pp
    if vpp > 1 and schedule != "interleaved":
        raise SpecError(where, shown(name)[:MAX_TEXT], f"Interleaved1F1B with {vpp} stages for each rank")
    return {"schedule": schedule if vpp > 1 or schedule != "interleaved" else "1f1b", "vpp": vpp,
            "layers_per_stage": split}  # fmt: skip


def _training(job: Ledger, degrees: Table) -> tuple[Table, int | None]:
    """Read batch, sequence and formats; a global batch that is not stated is one local batch of each replica."""
    local = _count(job, ("training",), "local_batch_size", "batch_size", otherwise=DEFAULT_BATCH)
    micro = local
    if degrees["pp"] > 1:
        micro = _count(job, DEGREES, "pipeline_parallel_microbatch_size", otherwise=0, low=1)
        count = _find(job, DEGREES, "pipeline_parallel_microbatches")
        stated = read_count(count[0], count[1], 1) if count[1] is not None else 0
        micro = micro or (max(1, local // stated) if stated else 1)
    if local % micro:
        raise SpecError("training.local_batch_size", local, f"a multiple of the microbatch of {micro}")
    where, whole = _find(job, ("training",), "global_batch_size")
    stated_whole = None if whole in (None, -1) else read_count(where, whole, 1)
    where, norm = _find(job, ("training",), "max_norm")
    table: Table = {
        "seq_length": _count(job, ("training",), "seq_len", otherwise=DEFAULT_SEQUENCE),
        "micro_batch_size": micro,
        "precision": _precision(job),
        "clip_gradients": True if norm is None else read_number(where, norm) > 0,
        **_float8(job),
    }
    where, reduced = _find(job, ("training",), "mixed_precision_reduce")
    if reduced is not None:
        table["reduce_precision"] = read_choice(where, reduced, {"float32": "fp32", "bfloat16": "bf16"})
    where, name = _find(job, ("optimizer",), "name")
    table["optimizer"] = read_choice(where, "adamw" if name is None else name, {"adam": "adam", "adamw": "adam"})
    if stated_whole is not None:
        return {**table, "global_batch_size": stated_whole}, None
    if "dp" in degrees:
        return {**table, "global_batch_size": local * degrees["dp"]}, None
    return table, local // micro


def _float8(job: Ledger) -> Table:
    """Read whether FSDP gathers weights in 8 bits."""
    key = "enable_fsdp_float8_all_gather"
    on = any(read_flag(f"float8.{key}", room[key]) for room in _float8_tables(job) if key in room)
    return {"narrow_weights": True} if on and _precision(job) == "fp8" else {}


def _float8_tables(job: Ledger) -> list[Ledger]:
    """Return the settings of products in 8 bits, where releases keep them."""
    rooms = [job.get("float8"), _inside(job, "quantize", "linear", "float8")]
    return [room for room in rooms if isinstance(room, Ledger)]


def _inside(table: Any, *keys: str) -> Any:
    for key in keys:
        table = table[key] if isinstance(table, Ledger) and key in table else None
    return table


def _unconverted(job: Ledger, lines: dict[str, int]) -> list[Setting]:
    """Name the products that a filter keeps in 16 bits, beside the output layer, which all keep there."""
    where, listed = _find(job, ("float8", "mx"), "filter_fqns")
    names = [str(name) for name in listed if name != "output"] if isinstance(listed, list) else []
    if not names or _precision(job) not in ("fp8", "mxfp8"):
        return []
    text = f"{where}: {', '.join(names)}"[:MAX_TEXT]
    return [Setting(where, text, lines.get(where), "products that stay in 16 bits are timed in 8")]


def _precision(job: Ledger) -> str:
    """Read the format of products: 8 bits where a converter of that name is on."""
    listed = _find(job, ("model",), "converters")[1]
    names = " ".join(str(name) for name in listed[:MAX_ENTRIES]).lower() if isinstance(listed, list) else ""
    if "mx" in names:
        return "mxfp8"
    if "nvfp4" in names:
        return "nvfp4"
    where, old = _find(job, ("float8",), "enable_float8_linear")
    older = _find(job, ("training",), "fp8_linear", "enable_fp8_linear")[1]
    if "float8" in names or (old is not None and read_flag(where, old)) or older in (True, "dynamic", "delayed"):
        return "fp8"
    where, kind = _find(job, ("training",), "mixed_precision_param")
    return read_choice(where, kind or "bfloat16", {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"})


def _recompute(job: Ledger, layers: int) -> Table:
    """Read activation checkpointing: of all layers, of every nth, or of the ops that are cheap to run again."""
    where, mode = _find(job, ("activation_checkpoint",), "mode")
    kinds = {"none": "none", "full": "full", "selective": "selective"}
    kind = read_choice(where, "selective" if mode is None else mode, kinds)
    where, option = _find(job, ("activation_checkpoint",), "selective_ac_option")
    if kind != "selective" or option == "op":
        return {"recompute": kind}
    digits = isinstance(option, str) and option.isdigit() and len(option) < 6
    every = read_count(where, int(option) if digits else 2 if option is None else option, 1)
    return {"recompute": "full", **({"recompute_layers": layers // every} if every > 1 and layers else {})}
