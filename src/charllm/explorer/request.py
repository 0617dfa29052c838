"""A request from a browser: words and values that anybody may have written, checked before any work is done."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from charllm.api.keywords import build_request
from charllm.catalog.resolve import is_file, resolve_run
from charllm.catalog.sizes import NETWORKS
from charllm.catalog.tables import entries, find_model, find_name
from charllm.errors import SpecError, Words, unknown_name
from charllm.spec.run import RunSpec
from charllm.units import KIB

MOST_BODY_BYTES = int(64 * KIB)
LONGEST_TEXT, MOST_LISTED = 200, 64
NAMES = {"model": "models", "cluster": "clusters", "framework": "frameworks"}
"""Word whose value is a name, the kind of the catalog's entries. No files and no tables; machines of any size."""
WORDS = (
    "model", "cluster", "framework", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "fsdp", "sp", "schedule",
    "overlap", "layers_per_stage", "seq_length", "gbs", "mbs", "precision", "recompute", "lora", "power_cap",
    "clock_cap", "inlet", "nodes", "network", "optimizer_offload", "activation_offload", "seed",
)  # fmt: skip
"""Keywords of `charllm.simulate` that a browser may send; none of them reads a file."""
FIELDS = {
    "nodes": "cluster.nodes",
    "optimizer_offload": "training.optimizer_offload_fraction",
    "activation_offload": "training.activation_offload_fraction",
}
"""Word of the explorer alone: the field that it sets."""
KEYS = ("client", "request", "coupled")
PLAN_KEYS = ("client", "request", "objective", "limit", "top", "sensitivity", "machines", "whole_run")
MOST_MACHINES = 8
TOP, MOST_TOP = 10, 24
"""Strategies that a plan simulates in full."""


class RunRequest(NamedTuple):
    """What one POST asks for."""

    client: str
    """Whose requests follow each other: a new one of the same client replaces the one before."""
    words: dict[str, Any]
    coupled: bool


class PlanRequest(NamedTuple):
    """What one POST asks to be planned; the words fix settings, all others are searched."""

    client: str
    words: dict[str, Any]
    objective: str
    limit: list[str]
    top: int
    sensitivity: bool
    machines: list[str]
    """Further machines that the job is planned on, beside that of the words."""
    whole_run: dict[str, float]
    """Tokens or days of the whole run."""


def read_run_request(body: bytes) -> RunRequest:
    """Read the body of a POST."""
    table = _table(body, KEYS)
    client, coupled = _client(table), _truth(table, "coupled", default=True)
    return RunRequest(client, _check_words(_object(table.get("request"), "request")), coupled)


def _table(body: bytes, keys: Sequence[str]) -> dict[str, Any]:
    table = _object(_parse(body), "body")
    for key in table:
        if key not in keys:
            raise unknown_name("body", key, keys)
    return table


def _client(table: Mapping[str, Any]) -> str:
    client = table.get("client")
    if not isinstance(client, str) or not 0 < len(client) <= LONGEST_TEXT:
        raise SpecError("client", client, f"a text of 1 to {LONGEST_TEXT} characters")
    return client


def _truth(table: Mapping[str, Any], key: str, *, default: bool) -> bool:
    found = table.get(key, default)
    if not isinstance(found, bool):
        raise SpecError(key, found, "true or false")
    return found


def read_plan_request(body: bytes) -> PlanRequest:
    """Read the body of a POST that asks for a plan."""
    table = _table(body, PLAN_KEYS)
    client, sensitivity = _client(table), _truth(table, "sensitivity", default=False)
    objective, limit, top = table.get("objective", "throughput"), table.get("limit", []), table.get("top", TOP)
    _check_value("objective", objective)
    if not isinstance(limit, list) or not all(isinstance(one, str) for one in limit):
        raise SpecError("limit", limit, "a list of texts such as temperature_peak_c<80")
    _check_value("limit", limit)
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= MOST_TOP:
        raise SpecError("top", top, f"a whole number from 1 to {MOST_TOP}")
    words = _check_words(_object(table.get("request"), "request"))
    machines, whole = table.get("machines", []), _object(table.get("whole_run", {}), "whole_run")
    if not isinstance(machines, list) or len(machines) > MOST_MACHINES:
        raise SpecError("machines", Words("something else"), f"a list of at most {MOST_MACHINES} machines")
    for machine in machines:
        _check_words({"cluster": machine})
    for name, value in whole.items():
        if name not in ("tokens", "days") or isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError("whole_run", Words(f"{str(name)[:LONGEST_TEXT]}"), "tokens or days, a number")
    return PlanRequest(client, words, str(objective), limit, top, sensitivity, machines, whole)


def resolve_words(words: Mapping[str, Any]) -> RunSpec:
    """Build the run that checked words describe."""
    return resolve_run(build_request(None, keywords_of(words)))


def keywords_of(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked words as keywords of the Python functions."""
    return {FIELDS.get(word, word): value for word, value in words.items()}


def _parse(body: bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise SpecError("body", Words(constant), "finite numbers")

    try:
        return json.loads(body, parse_constant=refuse)
    except RecursionError:
        raise SpecError("body", Words("tables nested too deep"), "a table of words and values") from None
    except ValueError as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError("body", Words("something else"), "JSON in UTF-8") from None


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(field, value, "a table")
    return value


def _check_words(given: dict[str, Any]) -> dict[str, Any]:
    words = {word: value for word, value in given.items() if value is not None}
    for word, value in words.items():
        if word not in WORDS:
            raise unknown_name("request", word, WORDS)
        _check_value(word, value)
    for word, kind in NAMES.items():
        name = words.get(word)
        if name is None:
            continue
        known = (
            find_name(kind, name) or (find_model(name) if word == "model" else None) if isinstance(name, str) else None
        )
        if known is None and not (word == "cluster" and isinstance(name, str) and not is_file(name)):
            raise unknown_name(word, str(name)[:LONGEST_TEXT], entries(kind))
        if known and "/" in name:
            words[word] = known
    network = words.get("network", "")
    if not isinstance(network, str) or is_file(network):
        raise SpecError("cluster.fabric", network, f"a name: {NETWORKS}")
    return words


def _check_value(word: str, value: Any) -> None:
    """Refuse tables, and lists and texts that are longer than any setting's."""
    if isinstance(value, list):
        if len(value) > MOST_LISTED or any(isinstance(item, list | dict) for item in value):
            raise SpecError(word, Words("a long or nested list"), f"at most {MOST_LISTED} plain values")
        for item in value:
            _check_value(word, item)
    elif isinstance(value, dict) or (isinstance(value, str) and len(value) > LONGEST_TEXT):
        raise SpecError(word, value, f"a number, a name, or a text of at most {LONGEST_TEXT} characters")
