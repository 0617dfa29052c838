"""Read what adding experts' biases takes, expert by expert in fp32, as Megatron-Core does: kernels, GPU and host.

python benchmarks/device/expert_bias.py -o FILE.csv
"""

import argparse
import csv
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

CASES = ((16, 1041, 2880), (2, 33138, 2880), (8, 8268, 2880))
"""Experts of a rank, tokens of each, hidden: GPT-OSS on 8, 64 and 16 ranks."""
COLUMNS = ("experts", "tokens_each", "hidden", "kernels", "gpu_us", "forward_us", "both_us")
TURNS = 10


class Biased:
    """Outputs of some experts, their biases and the probabilities of their tokens."""

    def __init__(self, experts: int, each: int, hidden: int) -> None:
        make = {"device": "cuda", "requires_grad": True}
        self.out = torch.randn(experts * each, hidden, dtype=torch.bfloat16, **make)
        self.bias = [torch.randn(hidden, dtype=torch.bfloat16, **make) for _ in range(experts)]
        self.probability = torch.rand(experts * each, 1, **make)
        self.sizes = [each] * experts
        self.gradient = torch.randn(experts * each, hidden, dtype=torch.bfloat16, device="cuda")

    def forward(self) -> torch.Tensor:
        parts = zip(self.out.split(self.sizes), self.bias, self.probability.split(self.sizes), strict=True)
        return torch.cat([out + bias * probability for out, bias, probability in parts]).to(torch.bfloat16)

    def both(self) -> None:
        inputs = (self.out, self.probability, *self.bias)
        torch.autograd.grad(self.forward(), inputs, self.gradient)


def timed_us(call: object) -> float:
    """Return the length of a call among others."""
    assert callable(call)
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    for _ in range(TURNS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began_s) / TURNS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path, required=True, metavar="FILE.csv")
    with parser.parse_args().o.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for case in CASES:
            biased = Biased(*case)
            forward_us, both_us = timed_us(biased.forward), timed_us(biased.both)
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                biased.both()
                torch.cuda.synchronize()
            kernels = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
            gpu_us = sum(event.device_time for event in kernels)
            table.writerow([*case, len(kernels), *(round(value) for value in (gpu_us, forward_us, both_us))])


if __name__ == "__main__":
    main()
