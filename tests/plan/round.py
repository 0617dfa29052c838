"""A run of round numbers: four nodes of eight GPUs, supplies that lose a fifth, metrics as if they were measured."""

from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.spec.run import RunSpec

METRICS: dict[str, Any] = {
    "step_time_s": 2.0,
    "tokens_per_s": 1e6,
    "power_mean_w": 500.0,
    "power_peak_sensor_w": 700.0,
    "node_power_mean_w": 5000.0,
    "cluster_power_peak_w": 25_000.0,
    "energy_per_step_j": 32_000.0,
    "parameters": 8e9,
}


def round_run(read_at: str = "dc") -> RunSpec:
    """Return the run; `read_at` is the side of the supplies on which the power of its nodes is read."""
    cluster = {"base": "charllm-ppt-h200", "node": {"supply_fraction": 0.8, "overhead_w": 1000.0}}
    cooling = {"kind": "immersion", "read_at": read_at}
    return resolve_run({"model": "llama3-8b", "cluster": {**cluster, "cooling": cooling}})
