"""The flags that describe a run, shared by every command that takes one, and how they become a request."""

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from charllm.catalog.foreign import complete_request
from charllm.catalog.resolve import PARTS
from charllm.errors import SpecError
from charllm.result.store import load_run
from charllm.spec.fields import rules
from charllm.spec.hardware import Cooling
from charllm.spec.parallelism import Parallelism
from charllm.spec.readers import Inputs, read_foreign
from charllm.spec.request import (
    Table,
    merge,
    parse_layer_split,
    parse_recompute,
    parse_settings,
    parse_value,
    read_toml,
)
from charllm.spec.run import Conditions
from charllm.spec.training import Training

NAMED = {
    "model": "NAME|FILE: The model: a name of `charllm catalog models`, FILE.toml or config.json.",
    "cluster": "NAME|FILE: The cluster: a name of `charllm catalog clusters`, or FILE.toml.",
    "framework": "NAME: The software profile: a name of `charllm catalog frameworks` (default megatron).",
}
SETTINGS: dict[str, tuple[str, type]] = {
    "--tp": ("parallelism.tp", Parallelism),
    "--pp": ("parallelism.pp", Parallelism),
    "--vpp": ("parallelism.vpp", Parallelism),
    "--cp": ("parallelism.cp", Parallelism),
    "--ep": ("parallelism.ep", Parallelism),
    "--etp": ("parallelism.etp", Parallelism),
    "--dp": ("parallelism.dp", Parallelism),
    "--zero": ("parallelism.zero", Parallelism),
    "--shard-size": ("parallelism.shard_size", Parallelism),
    "--schedule": ("parallelism.schedule", Parallelism),
    "--seq-length,--seq": ("training.seq_length", Training),
    "--global-batch-size,--gbs": ("training.global_batch_size", Training),
    "--micro-batch-size,--mbs": ("training.micro_batch_size", Training),
    "--precision": ("training.precision", Training),
    "--lora": ("training.lora_rank", Training),
    "--placement": ("conditions.placement", Conditions),
    "--power-cap": ("conditions.power_cap_w", Conditions),
    "--clock-cap": ("conditions.clock_cap_mhz", Conditions),
    "--inlet": ("cluster.cooling.inlet_c", Cooling),
    "--seed": ("conditions.seed", Conditions),
}
"""Flag: (field it sets, settings class that declares it)."""


FOLLOWS = {
    "dp": ("tp", "cp", "pp", "cluster"),
    "sp": ("tp",),
    "etp": ("tp",),
    "schedule": ("vpp",),
    "layers_per_stage": ("pp", "vpp", "model"),
}
"""Degree: the settings it follows from unless it is given."""


METAVARS = {"conditions.placement": "default|FILE.json"}
UNITS = {"w": "W", "c": "C", "mhz": "MHZ"}
"""Suffix of a field: what its flag takes."""
GROUPS = {
    "training": "model and batch",
    "parallelism": "parallelism (see docs/concepts/glossary.md)",
    "conditions": "conditions of the GPUs",
    "cluster": "conditions of the GPUs",
}
"""Part of a spec: the group of flags that set it."""


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that describe a run."""
    group = parser.add_argument_group("the run")
    group.add_argument(
        "spec",
        nargs="?",
        metavar="SPEC",
        help="A TOML file (- for standard input), or the folder of a stored run whose spec is used again.",
    )
    group.add_argument(
        "--from",
        dest="foreign",
        metavar="FILE",
        help="Launch script (Megatron-LM, Megatron-DeepSpeed, Pai-Megatron-Patch), DeepSpeed JSON, NeMo yaml "
        "or Hugging Face config.json.",
    )
    group.add_argument("--args", metavar="'WORDS'", help="With --from: positional arguments of the script ($1 $2 ...).")
    group.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="With --from: environment variable of the script; may be repeated.",
    )
    group.add_argument(
        "--allow-unmodelled",
        action="store_true",
        help="With --from: leave out settings that are not modelled instead of refusing the file.",
    )
    for name, text in NAMED.items():
        group.add_argument(f"--{name}", metavar=text.split(":")[0], help=text.split(": ", 1)[1])
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="Set any field of a spec in any unit, e.g. cluster.nodes=8; may be repeated.",
    )
    groups = {title: parser.add_argument_group(title) for title in GROUPS.values()}
    for flags, (path, cls) in SETTINGS.items():
        rule = next(
            rule for name, rule in rules(cls).items() if name.split("_")[0] == path.split(".")[-1].split("_")[0]
        )
        metavar = UNITS.get(path.rsplit("_", 1)[-1]) or "|".join(rule.options) or METAVARS.get(path, "N")
        groups[GROUPS[path.split(".")[0]]].add_argument(*flags.split(","), dest=path, metavar=metavar, help=rule.doc)
    _add_other_flags(groups[GROUPS["training"]], groups[GROUPS["parallelism"]])


def _add_other_flags(training: argparse._ArgumentGroup, parallelism: argparse._ArgumentGroup) -> None:
    """Add the flags that are not one field's value as it stands."""
    training.add_argument(
        "--recompute", metavar="none|selective[:module,...]|full[:layers]", help="Activation recomputation."
    )
    parallelism.add_argument(
        "--fsdp", action="store_true", default=None, help="Shard weights, gradients and optimizer (--zero 3)."
    )
    parallelism.add_argument(
        "--sp", action=argparse.BooleanOptionalAction, default=None, help="Sequence parallelism (with tp)."
    )
    parallelism.add_argument(
        "--overlap", metavar="none|tp,dp,pp,ep,cp", help="Axes whose communication is overlapped with compute."
    )
    parallelism.add_argument(
        "--layers-per-stage", metavar="7,8x14,7", help="Layers of each pipeline stage, where they are uneven."
    )


def request_from(arguments: argparse.Namespace) -> Table:
    """Merge foreign file, spec file, flags and --set, each over the one before."""
    changes: Table = merge(_flag_request(arguments), parse_settings(arguments.set))
    reading = read_foreign(arguments.foreign, _script_inputs(arguments)) if arguments.foreign else None
    request: Table = reading.request if reading else {}
    if arguments.spec:
        request = merge(request, _read_spec(arguments.spec, changes))
    if arguments.recompute is not None:
        # The flag replaces all of a file's recomputation, not a part of it.
        training = request.get("training", {})
        request["training"] = {key: value for key, value in training.items() if not key.startswith("recompute")}
    merged: Table = merge(request, changes)
    return complete_request(reading, merged, allow_unmodelled=arguments.allow_unmodelled) if reading else merged


def _script_inputs(arguments: argparse.Namespace) -> Inputs:
    """Return the positional arguments and the environment that a script is read with."""
    environment = {}
    for entry in arguments.env:
        name, equals, value = entry.partition("=")
        if not equals or not name.isidentifier():
            raise SpecError("--env", entry, "NAME=VALUE, e.g. NNODES=4")
        environment[name] = value
    try:
        words = None if arguments.args is None else tuple(shlex.split(arguments.args))
    except ValueError:
        raise SpecError("--args", arguments.args, "words with matching quotes") from None
    return Inputs(words, environment)


def _read_spec(path: str, changes: Table) -> Table:
    """Read a spec file; a stored run gives the spec it ran, less what followed from something that is now changed."""
    if not (os.path.isdir(path) or path.endswith(".json")):
        return read_toml(path, "SPEC")
    stored = load_run(Path(path)).spec
    spec = {part: stored[part] for part in PARTS if part in stored}
    changed = {*changes.get("parallelism", {}), *changes}
    for field, causes in FOLLOWS.items():
        if not changed.isdisjoint(causes):
            spec.get("parallelism", {}).pop(field, None)
    return spec


def _flag_request(arguments: argparse.Namespace) -> Table:
    request: Table = {}
    given = vars(arguments)
    for name in NAMED:
        if given[name] is not None:
            request = merge(request, {name: given[name]})
    for path, _cls in SETTINGS.values():
        if given[path] is not None:
            request = merge(request, _nest(path, _flag_value(path, given[path])))
    if arguments.fsdp:
        if given["parallelism.zero"] not in (None, "3"):
            raise SpecError("--fsdp", f"with --zero {given['parallelism.zero']}", "--fsdp alone, or --zero 3")
        request = merge(request, _nest("parallelism.zero", 3))
    if arguments.sp is not None:
        request = merge(request, _nest("parallelism.sp", arguments.sp))
    if arguments.recompute is not None:
        request = merge(request, {"training": parse_recompute(arguments.recompute)})
    if arguments.overlap is not None:
        axes = [] if arguments.overlap == "none" else arguments.overlap.split(",")
        request = merge(request, _nest("parallelism.overlap", axes))
    if arguments.layers_per_stage is not None:
        request = merge(request, _nest("parallelism.layers_per_stage", parse_layer_split(arguments.layers_per_stage)))
    return request


def _flag_value(path: str, raw: str) -> Any:
    """A number where the flag wants one; a placement or schedule stays a word."""
    return raw if path in ("conditions.placement", "parallelism.schedule", "training.precision") else parse_value(raw)


def _nest(path: str, value: Any) -> Table:
    for key in reversed(path.split(".")):
        value = {key: value}
    nested: Table = value
    return nested
