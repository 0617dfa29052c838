"""How fast the closed loop runs, on one core, warm: `python -m benchmarks.loop_speed [--large]`.

Prints seconds to thermal steady state, their estimate, and memory; 131,072 GPUs unfolded only with --large (minutes).
"""

import argparse
import resource
import time
from math import inf
from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import predict
from charllm.simulate.work import estimate_rounds_s
from charllm.units import GIB, KIB

GPT3: dict[str, Any] = {
    "model": "gpt3-175b", "cluster": "charllm-ppt-h200", "framework": "nemo",
    "parallelism": {"tp": 8, "pp": 4}, "training": {"global_batch_size": 128, "micro_batch_size": 1},
}  # fmt: skip


def llama405(nodes: int, spread: float) -> dict[str, Any]:
    """Return Llama 3 405B on TP8 PP16 with 16 microbatches a replica."""
    replicas = nodes * 8 // 128
    return {
        "model": "llama3-405b",
        "cluster": {"base": "charllm-ppt-h100", "nodes": nodes, "fabric": "ib-8x400g"},
        "parallelism": {"tp": 8, "pp": 16, "dp": replicas, "layers_per_stage": [7, *[8] * 14, 7]},
        "training": {"global_batch_size": 16 * replicas, "micro_batch_size": 1},
        "conditions": {"silicon_spread_fraction": spread, "seed": 1},
    }


def clock(name: str, request: dict[str, Any]) -> None:
    run = resolve_run(request)
    start = time.perf_counter()
    found = predict(run, ignore_memory=True, longest_s=inf)
    took = time.perf_counter() - start
    assert found.machine is not None
    assert found.simulated_step is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB / GIB
    print(
        f"{name}: {took:.2f} s to steady state (estimated {estimate_rounds_s(found.machine):.2f} s), "
        f"{len(found.machine.gpus):,} of {run.cluster.gpus:,} GPUs simulated "
        f"{found.simulated_step.rounds} times, {peak:.1f} GiB; step {found.result.metrics['step_time_s']:.3f} s, "
        f"{found.result.metrics['power_mean_w']:.0f} W",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    predict(resolve_run(GPT3))
    clock("32 GPUs, GPT-3 175B, 128 microbatches", GPT3)
    clock("16,384 GPUs, Llama 3 405B, silicon spread", llama405(2048, 0.03))
    clock("131,072 GPUs, folded", llama405(16384, 0.0))
    if arguments.large:
        clock("131,072 GPUs, silicon spread", llama405(16384, 0.03))


if __name__ == "__main__":
    main()
