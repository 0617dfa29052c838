"""Predict the loops of loop_cases.py as `charllm simulate` does, before a board runs them.

python -m benchmarks.device.predict_loops OUT.csv [--only TEXT]
"""

import argparse
import csv
from pathlib import Path
from typing import Any

from benchmarks.device.loop_cases import LOOPS, Loop
from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import predict
from charllm.units import MEGA

COLUMNS = ("name", "step_s", "mean_w", "sm_mhz", "instant_max_w", "temp_c", "j_per_step", "peak_mem_gib", "parameters")


def request(name: str, loop: Loop) -> dict[str, Any]:
    """Describe a loop as a request."""
    model: dict[str, Any] = {
        "name": name,
        "layers": loop.layers,
        "hidden": loop.hidden,
        "ffn": loop.ffn,
        "heads": loop.heads,
        "kv_heads": loop.kv_heads,
        "head_dim": loop.head_dim,
        "vocab": loop.vocab,
        "seq_length": loop.seq,
        "activation": "swiglu" if loop.gated else "gelu",
        "position": "none",
    }
    if loop.experts:
        model |= {"experts": loop.experts, "topk": loop.topk, "expert_ffn": loop.ffn}
    training: dict[str, Any] = {
        "seq_length": loop.seq,
        "micro_batch_size": loop.mbs,
        "global_batch_size": loop.mbs * loop.accumulate,
        "recompute": "full" if loop.recompute else "none",
        "optimizer": "adam" if loop.optimizer else "none",
        "clip_gradients": loop.clip,
    }
    if loop.experts:
        training["grouped_gemm"] = loop.grouped
    return {"cluster": "h200x1", "framework": "pytorch-eager", "model": model, "training": training}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="loops whose names contain one of these, apart by |")
    arguments = parser.parse_args()
    rows = []
    for name, loop in LOOPS.items():
        if not any(text in name for text in arguments.only.split("|")):
            continue
        metrics = predict(resolve_run(request(name, loop)), ignore_memory=True).result.metrics
        cells = (metrics["step_time_s"], metrics["power_mean_w"], metrics["clock_mean_hz"] / MEGA,
                 metrics["power_peak_sensor_w"], metrics["temperature_mean_c"],
                 metrics["step_time_s"] * metrics["power_mean_w"], metrics["memory_peak_bytes"] / 2**30,
                 metrics["parameters"])  # fmt: skip
        rows.append([name, *(f"{cell:.5g}" for cell in cells)])
        print(*rows[-1], flush=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
