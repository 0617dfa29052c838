"""Read what a host needs to launch a step of the reference trainer: seconds of steps, of launching alone, of kernels.

python -m benchmarks.device.host -o FILE.csv [--later]

Where the host binds, seconds of launching are its own; else they include waiting for a full launch queue.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.h200.training_cases import GPT, LATER, LLAMA, MOE, configured
from charllm.measure.trainer.data import synthetic_batches
from charllm.measure.trainer.train import build_network, plain_step
from charllm.measure.trainer.work import make_optimizer
from charllm.spec.request import merge

ALIGNED = merge(GPT, {"model": {"vocab": 50304}})
CASES: dict[str, dict[str, Any]] = {
    "gpt-mbs1": configured(GPT, 1),
    "gpt-mbs2": configured(GPT, 2),
    "gpt-mbs4": configured(GPT, 4),
    "gpt-aligned-mbs1": configured(ALIGNED, 1),
    "gpt-aligned-mbs4": configured(ALIGNED, 4),
    "gpt-mbs4-selective": configured(GPT, 4, "selective"),
    "llama-mbs1": configured(LLAMA, 1),
    "llama-mbs4": configured(LLAMA, 4),
    "llama-mbs4-selective": configured(LLAMA, 4, "selective"),
    "moe-mbs1": configured(MOE, 1),
}
COLUMNS = ("name", "step_time_s", "launch_s", "kernels", "kernels_s", "microbatches", "layers")
WINDOW_S = 6.0


def read(request: dict[str, Any]) -> tuple[float, float, int, float, int, int]:
    """Train a while, launch one step without waiting, and count the kernels of one step."""
    run = resolve_run(request)
    torch.manual_seed(0)
    network = build_network(run, "cuda")
    optimizer = make_optimizer(run, [weight for weight in network.parameters() if weight.requires_grad], "cuda")
    training = run.training
    batches = synthetic_batches(run.model.vocab, training.micro_batch_size, training.seq_length, 0, "cuda")
    for _ in range(4):
        plain_step(network, optimizer, batches, run.microbatches)
    steps, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < WINDOW_S:
        plain_step(network, optimizer, batches, run.microbatches)
        steps += 1
    step_s = (time.perf_counter() - began_s) / steps
    began_s = time.perf_counter()
    for _ in range(run.microbatches):
        tokens, targets = next(batches)
        network(tokens, targets).backward()
    launch_s = time.perf_counter() - began_s
    network.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        plain_step(network, optimizer, batches, run.microbatches)
        torch.cuda.synchronize()
    kernels = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    kernels_s = sum(event.device_time for event in kernels) / 1e6
    return step_s, launch_s, len(kernels), kernels_s, run.microbatches, run.model.layers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--later", action="store_true", help="the later runs of training_cases.py instead")
    arguments = parser.parse_args()
    rows = []
    for name, request in (LATER if arguments.later else CASES).items():
        rows.append((name, *(f"{cell:.5g}" if isinstance(cell, float) else cell for cell in read(request))))
        print(*rows[-1], flush=True)
        torch.cuda.empty_cache()
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
