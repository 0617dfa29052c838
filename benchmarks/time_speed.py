"""Rates of timing a step, one core, warm: at one clock, and 16,384 GPUs in the loop."""

import resource
import sys
import time
from collections.abc import Callable

from charllm.catalog.resolve import resolve_run
from charllm.simulate.one_clock import solve_step
from charllm.simulate.predict import simulate
from charllm.spec.run import RunSpec
from charllm.units import GIB
from charllm.workload.step import build_step

SECONDS = 3.0
GPT3 = {
    "model": "gpt3-175b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 8, "pp": 4},
    "training": {"global_batch_size": 128},
}
LLAMA_405B = {
    "model": "llama3-405b",
    "cluster": {"base": "charllm-ppt-h100", "nodes": 2048},
    "parallelism": {"tp": 8, "pp": 16, "dp": 128, "layers_per_stage": [7, *[8] * 14, 7]},
    "training": {"global_batch_size": 2048},
}
PEERS = {
    "llm-analysis": "~2,700 a second: closed form, no schedule",
    "Calculon": "47 a second as shipped, 336 quiet",
    "SimuMax": "10 a second",
}
"""Rates of other tools, one prediction each: as reported, not measured here."""


def main() -> None:
    run = resolve_run(GPT3)
    rate = _rate(lambda: solve_step(build_step(run)).step_time_s)
    print(f"GPT3-175B on charllm-ppt-h200, tp 8, pp 4, {run.microbatches} microbatches")
    print(f"  at one clock              {rate:8,.0f} simulations a second (target 200)")
    _print_large(resolve_run(LLAMA_405B))
    print("others, as reported, not measured here")
    for name, reported in PEERS.items():
        print(f"  {name:<25} {reported}")


def _rate(simulation: Callable[[], float]) -> float:
    """Return how often a second it runs; what is compiled or remembered by the first time is not counted."""
    simulation()
    start, times = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        simulation()
        times += 1
    return times / (time.perf_counter() - start)


def _print_large(run: RunSpec) -> None:
    simulate(resolve_run(GPT3))
    first_s = _seconds(lambda: simulate(run, ignore_memory=True).metrics["step_time_s"])
    again_s = _seconds(lambda: simulate(run, ignore_memory=True).metrics["step_time_s"])
    peak_gib = _peak_bytes() / GIB
    print(f"Llama3-405B on {run.parallelism.world:,} GPUs, {run.microbatches} microbatches")
    print(f"  simulate                  {first_s:8.2f} s (target 5), {again_s:.2f} s with its links remembered")
    print(f"  peak memory               {peak_gib:8.2f} GiB of this process (target 4)")


def _seconds(simulation: Callable[[], float]) -> float:
    start = time.perf_counter()
    simulation()
    return time.perf_counter() - start


def _peak_bytes() -> int:
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
