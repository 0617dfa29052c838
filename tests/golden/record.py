"""Write the golden results anew: ``make golden`` shows what changed."""

import json
from pathlib import Path
from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import simulate

HERE = Path(__file__).parent
RUNS: dict[str, dict[str, Any]] = {
    "gpt3-175b-h200x32-tp8-pp4": {
        "model": "gpt3-175b",
        "cluster": "h200x32",
        "parallelism": {"tp": 8, "pp": 4},
        "training": {"global_batch_size": 128},
    },
    "llama3-70b-h100x64-interleaved-fp8": {
        "model": "llama3-70b",
        "cluster": "h100x64",
        "framework": "nemo",
        "parallelism": {"tp": 4, "pp": 4, "vpp": 5, "overlap": ["tp", "dp"]},
        "training": {"global_batch_size": 128, "precision": "fp8", "recompute": "selective"},
    },
    "mixtral-8x22b-mi250x32": {
        "model": "mixtral-8x22b",
        "cluster": "mi250x32",
        "parallelism": {"tp": 4, "ep": 8, "pp": 1},
        "training": {"global_batch_size": 128, "recompute": "full", "capacity_factor": 1.0},
    },
    "deepseek-v3-gb200": {
        "model": "deepseek-v3",
        "cluster": {"base": "gb200-nvl72", "nodes": 64, "domain_nodes": 16},
        "framework": "megatron-bridge",
        "parallelism": {"pp": 4, "ep": 64, "layers_per_stage": [16, 16, 16, 13]},
        "training": {"global_batch_size": 2048, "precision": "mxfp8", "routing_skew": 1.2},
    },
    "llama3-8b-h100x8-fsdp": {
        "model": "llama3-8b",
        "cluster": "h100x8",
        "framework": "fsdp",
        "training": {"global_batch_size": 16, "micro_batch_size": 2, "recompute": "selective"},
    },
    "llama2-70b-h200x8-lora-cp": {
        "model": "llama2-70b",
        "cluster": "h200x8",
        "parallelism": {"tp": 4, "cp": 2},
        "training": {"global_batch_size": 8, "seq_length": 8192, "lora_rank": 16},
    },
    "gpt-oss-20b-h200x1-eager": {
        "model": "gpt-oss-20b",
        "cluster": "h200x1",
        "framework": "pytorch-eager",
        "training": {"global_batch_size": 1, "seq_length": 2048},
    },
}


def golden_result(name: str) -> dict[str, Any]:
    """Return what of a result is kept: versions change with every release."""
    table = simulate(resolve_run(RUNS[name])).as_table()
    table["gpus"] = table["gpus"][::8]
    return {key: table[key] for key in ("origin", "spec", "metrics", "gpus", "warnings")}


def main() -> None:
    for name in RUNS:
        (HERE / f"{name}.json").write_text(json.dumps(golden_result(name), indent=1) + "\n")


if __name__ == "__main__":
    main()
