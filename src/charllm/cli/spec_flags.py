"""The flags that describe a run, shared by every command that takes one: the keywords of the Python API, as text."""

import argparse
from collections.abc import Collection
from typing import Any

from charllm.api.keywords import FIELDS, SHORT, build_request
from charllm.errors import SpecError
from charllm.spec.cooling import Cooling
from charllm.spec.fields import Rule, rules
from charllm.spec.parallelism import Parallelism
from charllm.spec.request import Table, parse_settings, parse_value
from charllm.spec.run import Conditions
from charllm.spec.training import Training
from charllm.units import si_key

NAMED = {
    "model": "NAME|FILE: The model: a name of `charllm catalog models`, FILE.toml or config.json.",
    "cluster": "NAME|FILE: The cluster: GPU and number (h100x512), a name of `charllm catalog clusters`, or FILE.toml.",
    "gpu": "NAME: With --gpus or --nodes, in place of --cluster: a name of `charllm catalog gpus`.",
    "gpus": "N: Number of GPUs, in nodes and under a network that are usual for them.",
    "nodes": "N: Number of nodes.",
    "network": "WORDS: What joins the nodes: 8x400g, 400g-per-gpu, 100g-per-node, ib, roce, efa, none, or a name of "
    "`charllm catalog fabrics` (default: what is usual for the GPU).",
    "framework": "NAME: The software profile: a name of `charllm catalog frameworks` (default megatron).",
}
TABLES: dict[str, type] = {
    "parallelism": Parallelism,
    "training": Training,
    "conditions": Conditions,
    "cluster.cooling": Cooling,
}
"""Table of a spec: the settings class that declares its fields."""
PLAIN = (
    "from_", "args", "allow_unmodelled", "model", "cluster", "gpu", "network", "framework", "fsdp", "sp",
    "recompute", "forward_only", "overlap", "layers_per_stage",
)  # fmt: skip
"""Keywords whose flag is passed on as it is; other flags hold one value, read as TOML."""
WORDS = ("placement", "schedule", "precision")
"""Keywords that are words, even where TOML would read a number."""
KEPT_AS = {"gpus": "cluster_gpus", "nodes": "cluster_nodes"}
"""Numbers of a machine: where their flags are kept, apart from flags of that name that a command has itself."""


METAVARS = {"conditions.placement": "default|thermal|FILE"}
UNITS = {"w": "W", "c": "C", "mhz": "MHZ"}
"""Suffix of a field: what its flag takes."""
GROUPS = {
    "training": "model and batch",
    "parallelism": "parallelism (see docs/concepts/glossary.md)",
    "conditions": "conditions of the GPUs",
    "cluster": "conditions of the GPUs",
}
"""Part of a spec: the group of flags that set it."""


def add_spec_flags(
    parser: argparse.ArgumentParser, *, spec_flag: bool = False, own_nodes: bool = False, several: Collection[str] = ()
) -> None:
    """Add the flags that describe a run; a command whose own words are positional takes the file by --spec.

    The --nodes of a command that starts jobs says where the job runs, not what machine is described. Flags in `several`
    may be repeated.
    """
    group = parser.add_argument_group("the run")
    place: dict[str, Any] = {} if spec_flag else {"nargs": "?"}
    group.add_argument(
        "--spec" if spec_flag else "spec",
        **place,
        metavar="SPEC",
        help="A TOML file (- for standard input), or the folder of a stored run to take the spec from.",
    )
    group.add_argument(
        "--from",
        dest="from_",
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
        help="With --from: ignore settings that are not modelled instead of refusing the file.",
    )
    _add_named_flags(group, own_nodes, several)
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="Set any field of a spec in any unit, e.g. cluster.nodes=8; may be repeated.",
    )
    groups = {title: parser.add_argument_group(title) for title in GROUPS.values()}
    for word, path in FIELDS.items():
        if word != "sp":
            rule = _rule(path)
            metavar = UNITS.get(path.rsplit("_", 1)[-1]) or "|".join(rule.options) or METAVARS.get(path, "N")
            group = groups[GROUPS[path.split(".")[0]]]
            group.add_argument(*spellings(word), dest=word, metavar=metavar, help=rule.doc)
    _add_other_flags(groups[GROUPS["training"]], groups[GROUPS["parallelism"]])


def _add_named_flags(group: argparse._ArgumentGroup, own_nodes: bool, several: Collection[str]) -> None:
    """Add the flags of model, machine and software."""
    for name, text in NAMED.items():
        if name == "nodes" and own_nodes:
            continue
        metavar, _colon, told = text.partition(": ")
        group.add_argument(
            f"--{name}",
            dest=KEPT_AS.get(name, name),
            metavar=metavar,
            help=told + (" May be repeated." if name in several else ""),
            action="append" if name in several else "store",
        )


def _add_other_flags(training: argparse._ArgumentGroup, parallelism: argparse._ArgumentGroup) -> None:
    """Add the flags that are not one field's value as it stands."""
    training.add_argument(
        "--recompute", metavar="none|selective[:module,...]|full[:layers]", help="Activation recomputation."
    )
    training.add_argument(
        "--forward-only",
        action="store_true",
        default=None,
        help="Only forward passes, without gradients and update: evaluation, log-probabilities, reward models.",
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
    parallelism.add_argument("--layers-per-stage", metavar="7,8x14,7", help="Layers of each pipeline stage, if uneven.")


def spellings(word: str) -> list[str]:
    """Return the flags of a keyword: its own, then the short one."""
    words = [word, *(short for short, full in SHORT.items() if full == word)]
    return [f"--{each.replace('_', '-')}" for each in words]


def _rule(path: str) -> Rule:
    """Return what declares a field, whatever unit its flag is in."""
    table, _dot, name = path.rpartition(".")
    return rules(TABLES[table])[si_key(name)[0]]


def request_from(arguments: argparse.Namespace) -> Table:
    """Return the request that the flags make: foreign file, spec file, flags and --set, each over the one before."""
    return build_request(arguments.spec, keywords_from(arguments))


def keywords_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of the Python API that the flags stand for."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    words = {word: given[word] for word in PLAIN if word in given}
    # One value of a flag that may be repeated is no list.
    words = {word: value[0] if isinstance(value, list) and len(value) == 1 else value for word, value in words.items()}
    words |= {word: _value(word, given[word]) for word in FIELDS if word in given and word not in PLAIN}
    words |= {word: parse_value(given[kept]) for word, kept in KEPT_AS.items() if kept in given}
    return {**words, "env": _variables(arguments.env), "set": parse_settings(arguments.set)}


def given_keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return only the keywords whose flags were given, for commands that may do without a run."""
    words = keywords_from(arguments)
    absent = {name for name in ("env", "set", "allow_unmodelled") if not words.get(name)}
    return {name: value for name, value in words.items() if name not in absent}


def _variables(entries: list[str]) -> dict[str, str]:
    """Return the environment that a script is read with."""
    pairs = [entry.partition("=") for entry in entries]
    for entry, (name, equals, _value) in zip(entries, pairs, strict=True):
        if not equals or not name.isidentifier():
            raise SpecError("--env", entry, "NAME=VALUE, e.g. NNODES=4")
    return {name: value for name, _equals, value in pairs}


def _value(word: str, raw: str) -> Any:
    """Return a number where the flag holds one."""
    return raw if word in WORDS else parse_value(raw)
