"""Placements by name or from a file, as the fields of a request that they set.

A TOML file, as `charllm place` writes it, holds `gpu_of_rank` and, where they were decided, `layers_per_stage`,
`power_cap_w`, `capped_gpus` and `capped_power_w`; what the request states itself wins. A JSON file is the list of GPUs
alone.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from charllm.errors import SpecError, unknown_name
from charllm.gpu.heat import network, steady_temperature_c
from charllm.spec.cooling import Cooling
from charllm.spec.hardware import Cluster, Node
from charllm.spec.request import Table, merge, parse_json, read_text, read_toml

FIELD = "conditions.placement"
PART_OF = {
    "gpu_of_rank": "conditions",
    "power_cap_w": "conditions",
    "capped_gpus": "conditions",
    "capped_power_w": "conditions",
    "layers_per_stage": "parallelism",
}
"""Key of a placement file: the part of a request that it sets."""


def apply_placement(request: Mapping[str, Any], cluster: Cluster) -> Mapping[str, Any]:
    """Return a request with what its placement says; as it is where it has none, or has already been read."""
    conditions = request.get("conditions")
    asked = conditions.get("placement", "default") if isinstance(conditions, Mapping) else "default"
    if not isinstance(asked, str) or asked == "default" or request["conditions"].get("gpu_of_rank"):
        return request
    placed: Table = {}
    for key, value in _read(asked, cluster).items():
        placed = merge(placed, {PART_OF[key]: {key: value}})
    merged: Table = merge(placed, request)
    return merged


def _read(asked: str, cluster: Cluster) -> Table:
    if asked == "thermal":
        return {"gpu_of_rank": cool_to_hot(cluster)}
    if asked.endswith(".json"):
        return {"gpu_of_rank": parse_json(read_text(asked, FIELD), asked, FIELD)}
    if not asked.endswith(".toml"):
        raise SpecError(FIELD, asked, "default, thermal, a TOML file of `charllm place`, or a JSON list of GPUs")
    table = read_toml(asked, FIELD)
    for key in table:
        if key not in PART_OF:
            raise unknown_name(f"{FIELD}: {asked}", key, PART_OF)
    if not table.get("gpu_of_rank"):
        raise SpecError(f"{FIELD}: {asked}: gpu_of_rank", None, "the GPU of each rank")
    return table


def cool_to_hot(cluster: Cluster) -> list[int]:
    """List the GPUs of a cluster, those of each node from the coolest slot to the hottest at equal power."""
    order = {place: slots_by_temperature(node, cluster.cooling) for place, node in enumerate(cluster.kinds)}
    kinds = dict.fromkeys(range(cluster.nodes), 0)
    kinds |= {node: place for place, other in enumerate(cluster.mixed, start=1) for node in other.nodes}
    return [node * cluster.node.gpus + slot for node in range(cluster.nodes) for slot in order[kinds[node]]]


def slots_by_temperature(node: Node, cooling: Cooling) -> list[int]:
    """List the slots of a node from the coolest to the hottest, all GPUs drawing the same."""
    degrees_c = steady_temperature_c(np.ones(node.gpus), network(node, cooling.of(0)), 0.0)
    found: list[int] = np.argsort(degrees_c, kind="stable").tolist()
    return found
