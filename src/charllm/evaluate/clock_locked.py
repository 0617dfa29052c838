"""Published training runs at locked and free clocks, and what is predicted for them.

Data: 39 runs of Megatron-DeepSpeed on DGX-2 nodes (V100-SXM3-32GB), 8 and 16 GPUs, clocks locked from 900 to 1597 MHz
or free, mean power by Zeus; github.com/stark-sim/megatron-deepspeed-lock-clock, raw run logs. They trained in bf16,
which a V100 computes in fp32 units.
Ignores: which slots ran where a node was not full, and the temperature of the air.
"""

import csv
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.points import RunReading
from charllm.simulate.predict import predict
from charllm.units import MEGA

LOCKED, FULL = "locked", 16
FABRIC = {"base": "ib-8x100g", "nics_per_node": 1, "nic_bandwidth_bytes_per_s": 18.8e9, "nic_fraction": 1.0}
"""What the source measured between its nodes: all-reduce of 64 MB at 18.8 GB/s, of 100 that their adapters have."""


def read_clock_locked() -> list[Mapping[str, str]]:
    """Read the runs."""
    table = resources.files("charllm.evaluate") / "data" / "clock_locked_runs.csv"
    with table.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def describe_run(row: Mapping[str, str]) -> dict[str, Any]:
    """Return a run as a request."""
    model: dict[str, Any] = {name: int(row[name]) for name in ("layers", "hidden", "ffn", "heads", "kv_heads")}
    nodes, gpus = int(row["nodes"]), int(row["n_gpus"])
    cluster: dict[str, Any] = {"base": "v100x16", "nodes": nodes}
    if gpus < FULL * nodes:
        # Which slots ran is not told: none is taken to be behind another.
        cluster["node"] = {"gpus": gpus // nodes, "upstream": [-1] * (gpus // nodes)}
    model |= {"name": f"{row['layers']} layers", "vocab": int(row["vocab_padded"]), "activation": "swiglu"}
    # DeepSpeed's default leaves memory for copies unlocked.
    offload = {"optimizer_offload_fraction": 1.0, "pinned_offload": False} if row["optimizer_offload"] == "cpu" else {}
    return {
        "model": model,
        "cluster": {**cluster, **({"fabric": FABRIC} if nodes > 1 else {})},
        "framework": "megatron-deepspeed",
        "parallelism": {"tp": int(row["tp"]), "pp": int(row["pp"]), "dp": int(row["dp"]), "zero": 1, "sp": False},
        "training": {"seq_length": int(row["seq"]), "micro_batch_size": int(row["mbs"]), "precision": "bf16",
                     "global_batch_size": int(row["gbs"]), "recompute": "full", **offload},
        "conditions": {"clock_cap_hz": MEGA * float(row["clock_mhz"]) if row["clock"] == LOCKED else None},
    }  # fmt: skip


def clock_locked_runs() -> Iterator[RunReading]:
    """Yield every run with what is predicted now and what was read."""
    for row in read_clock_locked():
        request = describe_run(row)
        metrics = predict(resolve_run(request), ignore_memory=True).result.metrics
        read = {"step_time_s": row["step_time_s"], "power_mean_w": row["power_per_gpu_w"]}
        yield RunReading("clock-locked", "V100 nodes", row["id"], request, metrics,
                         {name: float(text) for name, text in read.items() if text})  # fmt: skip
