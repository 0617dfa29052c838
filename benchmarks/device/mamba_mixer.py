"""Read what the parts of a Mamba-2 mixer take: kernels and GPU time of its convolution, scan and gated scan.

python benchmarks/device/mamba_mixer.py -o FILE.csv

Needs mamba_ssm and causal_conv1d (their own sources on the path are enough, the latter's extension built).
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import torch
from causal_conv1d import causal_conv1d_fn
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined, mamba_split_conv1d_scan_combined
from torch.profiler import ProfilerActivity, profile

CONVOLUTIONS = ((8192, 6144), (8192, 10240), (8192, 5120))
"""Tokens, channels."""
GATED = ((8192, 64, 8), (8192, 128, 8), (8192, 64, 4))
"""Tokens, heads, groups; heads of 64, state 128, chunks of 128."""
SCANS = (
    (8192, 128, 8, 64, 128, 128), (8192, 64, 4, 64, 128, 128), (8192, 64, 8, 64, 128, 128), (8192, 32, 2, 64, 128, 128),
    (4096, 128, 8, 64, 128, 128), (16384, 128, 8, 64, 128, 128), (8192, 128, 8, 64, 128, 256),
    (8192, 128, 1, 64, 128, 128), (8192, 128, 8, 80, 128, 128), (8192, 128, 8, 64, 256, 128),
    (2048, 128, 8, 64, 128, 128), (8192, 256, 8, 64, 128, 128),
)  # fmt: skip
"""Tokens, heads, groups, width of a head, state, chunk."""
COLUMNS = (
    "part", "tokens", "heads", "groups", "head_dim", "state", "chunk", "channels", "forward_kernels", "forward_us",
    "backward_kernels", "backward_us",
)  # fmt: skip
LEAF = "CUDAFunctor_add<c10::BFloat16"
"""Additions into gradients of leaves, which a layer inside a model has not."""
Part = Callable[[], torch.Tensor]


def narrow(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def wide(size: int) -> torch.Tensor:
    return torch.randn(size, device="cuda", requires_grad=True)


def convolution(tokens: int, channels: int) -> Part:
    x, weight, bias = narrow(1, tokens, channels), narrow(channels, 4), narrow(channels)
    return lambda: causal_conv1d_fn(x.transpose(1, 2), weight, bias, activation="silu")


def scan(tokens: int, heads: int, groups: int, width: int, state: int, chunk: int) -> Part:
    x, steps = narrow(1, tokens, heads, width), narrow(1, tokens, heads)
    decay, skip, bias = (-torch.rand(heads, device="cuda") - 0.5).requires_grad_(), wide(heads), wide(heads)
    into, out = narrow(1, tokens, groups, state), narrow(1, tokens, groups, state)
    return lambda: mamba_chunk_scan_combined(x, steps, decay, into, out, chunk, D=skip, dt_bias=bias, dt_softplus=True)


def gated(tokens: int, heads: int, groups: int) -> Part:
    inner, channels = 64 * heads, 64 * heads + 2 * groups * 128
    projected, weight, bias = narrow(1, tokens, inner + channels + heads), narrow(channels, 4), narrow(channels)
    decay, skip, offset = (-torch.rand(heads, device="cuda") - 0.5).requires_grad_(), wide(heads), wide(heads)
    return lambda: mamba_split_conv1d_scan_combined(
        projected, weight, bias, offset, decay, D=skip, chunk_size=128, activation="silu", headdim=64, ngroups=groups,
        norm_before_gate=False,
    )  # fmt: skip


def kernels(call: Callable[[], object], convolutions: bool) -> tuple[int, float]:
    """Return the number and microseconds of the kernels of a call, those of the convolution or the others."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    found = [one for one in profiled.key_averages() if one.device_time_total and LEAF not in one.key]
    asked = [one for one in found if ("causal_conv1d" in one.key) == convolutions]
    return sum(one.count for one in asked), sum(one.device_time_total for one in asked)


def read(part: str, make: Part) -> dict[str, object]:
    out = make()
    gradient = torch.randn_like(out)
    for _ in range(25):
        make().backward(gradient)
    forward = kernels(make, part == "convolution")
    out = make()
    backward = kernels(lambda: out.backward(gradient), part == "convolution")
    return {
        "part": part,
        "forward_kernels": forward[0],
        "forward_us": round(forward[1], 1),
        "backward_kernels": backward[0],
        "backward_us": round(backward[1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path, required=True)
    names = COLUMNS[1:7]
    rows = [
        {**read("convolution", convolution(*case)), "tokens": case[0], "channels": case[1]} for case in CONVOLUTIONS
    ]
    shape = {"head_dim": 64, "state": 128, "chunk": 128}
    rows += [{**read("gated scan", gated(*case)), **dict(zip(names, case, strict=False)), **shape} for case in GATED]
    rows += [{**read("scan", scan(*case)), **dict(zip(names, case, strict=True))} for case in SCANS]
    with parser.parse_args().o.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
