"""A decided placement as a TOML file that `--placement FILE` reads (catalog/placement.py)."""

from typing import Any

from charllm.layout.placement import place_ranks
from charllm.spec.run import RunSpec

HEAD = (
    "# Written by `charllm place`. To simulate it: the same flags and --placement FILE.\n"
    "# GPU g is slot g % GPUs of a node of node g // GPUs of a node.\n"
)


def placement_table(run: RunSpec) -> dict[str, Any]:
    """Return the fields that a placement sets."""
    asked = run.conditions
    table: dict[str, Any] = {
        "gpu_of_rank": place_ranks(run).tolist(),
        "layers_per_stage": list(run.parallelism.layers_per_stage),
    }
    if asked.power_cap_w is not None:
        table["power_cap_w"] = asked.power_cap_w
    if asked.capped_gpus:
        limits = asked.capped_power_w
        table["capped_gpus"] = list(asked.capped_gpus)
        table["capped_power_w"] = list(limits) if isinstance(limits, tuple) else limits
    return table


def write_placement(run: RunSpec) -> str:
    """Return a placement as TOML."""
    return HEAD + "".join(f"{key} = {value!r}\n" for key, value in placement_table(run).items())
