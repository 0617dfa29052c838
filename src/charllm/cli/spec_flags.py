"""The flags that describe a run, shared by every command that takes one: the keywords of the Python API, as text."""

import argparse
from typing import Any

from charllm.api.keywords import FIELDS, SHORT, build_request
from charllm.errors import SpecError
from charllm.spec.fields import Rule, rules
from charllm.spec.hardware import Cooling
from charllm.spec.parallelism import Parallelism
from charllm.spec.request import Table, parse_settings, parse_value
from charllm.spec.run import Conditions
from charllm.spec.training import Training
from charllm.units import si_key

NAMED = {
    "model": "NAME|FILE.toml|config.json: the model (charllm catalog models)",
    "cluster": "NAME|FILE.toml: the cluster (charllm catalog clusters)",
    "framework": "NAME: the software profile (charllm catalog frameworks; default megatron)",
}
TABLES: dict[str, type] = {
    "parallelism": Parallelism,
    "training": Training,
    "conditions": Conditions,
    "cluster.cooling": Cooling,
}
"""Table of a spec: the settings class that declares its fields."""
PLAIN = (
    "from_", "args", "allow_unmodelled", "model", "cluster", "framework", "fsdp", "sp", "recompute", "overlap",
    "layers_per_stage",
)  # fmt: skip
"""Keywords whose flag is passed on as it is; other flags hold one value, read as TOML."""
WORDS = ("placement", "schedule", "precision")
"""Keywords that are words, even where TOML would read a number."""


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that describe a run."""
    group = parser.add_argument_group("the run")
    group.add_argument(
        "spec",
        nargs="?",
        metavar="SPEC",
        help="a TOML spec (- for standard input), or a stored run whose spec is reused",
    )
    group.add_argument(
        "--from",
        dest="from_",
        metavar="FILE",
        help="launch script (Megatron-LM, Megatron-DeepSpeed, Pai-Megatron-Patch), DeepSpeed JSON, NeMo yaml "
        "or HF config.json",
    )
    group.add_argument("--args", metavar="'WORDS'", help="with --from: positional arguments of the script ($1 $2 ...)")
    group.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --from: environment variable of the script; repeatable",
    )
    group.add_argument(
        "--allow-unmodelled",
        action="store_true",
        help="with --from: leave out settings that are not modelled instead of refusing the file",
    )
    for name, text in NAMED.items():
        group.add_argument(f"--{name}", metavar=text.split(":")[0], help=text.split(": ", 1)[1])
    for word, path in FIELDS.items():
        if word != "sp":
            rule = _rule(path)
            metavar = "MHZ" if path.endswith("_mhz") else "|".join(rule.options) or rule.kind[0].upper()
            group.add_argument(*spellings(word), dest=word, metavar=metavar, help=rule.doc)
    group.add_argument(
        "--fsdp", action="store_true", default=None, help="Shard weights, gradients and optimizer (--zero 3)."
    )
    group.add_argument(
        "--sp", action=argparse.BooleanOptionalAction, default=None, help="Sequence parallelism (with tp)."
    )
    group.add_argument(
        "--recompute", metavar="none|selective[:module,...]|full[:layers]", help="Activation recomputation."
    )
    group.add_argument(
        "--overlap", metavar="none|tp,dp,pp,ep,cp", help="Axes whose communication is overlapped with compute."
    )
    group.add_argument(
        "--layers-per-stage", metavar="7,8x14,7", help="Layers of each pipeline stage, where they are uneven."
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="Set any field, e.g. cluster.nodes=8.",
    )


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
    words |= {word: _value(word, given[word]) for word in FIELDS if word in given and word not in PLAIN}
    return {**words, "env": _variables(arguments.env), "set": parse_settings(arguments.set)}


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
