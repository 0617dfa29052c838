"""Score the kernel model against operator tables: ``python -m benchmarks.gpu_tables GEMM.csv ATTENTION.csv``.

The tables (NVIDIA's aiconfigurator; not part of this repository) give seconds by GPU, software and shape, without
clocks. Most are bursts of milliseconds, faster than what a power cap sustains; those with power were looped for a
second or more and are sustained. Each kernel is predicted at the clock that the cap sustains. For each table one scale
is fitted on half of the shapes, and the other half is scored with it. A scale near 1 is expected where power was read;
bursts of an H200 read 0.87 (16 bits).

TensorRT-LLM's tables in 8 bits include quantising the activations: QUANTISE_PASSES and QUANTISE_S are fitted on the
H200 table. Its attention includes rotary embedding and cache writes: only sequences of at least 8192 are scored.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.evaluate.ops import bench_machine
from charllm.gpu.kernels import read_shapes
from charllm.gpu.shape import KernelShape
from charllm.gpu.steady import Held, hold_clocks
from charllm.report.tables import render_table
from charllm.spec.hardware import Gpu
from charllm.units import GIGA, MICRO

NAMES = {"a100_sxm": "a100-80gb", "h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "b300_sxm": "b300",
         "gb200": "gb200", "gb300": "gb300"}  # fmt: skip
TEMPERATURE_C = 55.0
LEAST_FLOP = 2e10
"""GEMMs below this take less than 40 us, where launch and graph overheads of the table's software dominate."""
LEAST_LENGTH, LEAST_BLOCKS, HEAD_DIM = 8192, 512, 128
QUANTISE_PASSES, QUANTISE_S = 8.7, 9.6 * MICRO
"""Bytes moved to quantise one activation, and the time of the kernels' launches."""


class Reading(NamedTuple):
    """One row of a table."""

    shape: KernelShape
    seconds: float
    power_w: float


Tables = dict[tuple[str, str, str], list[Reading]]


def read_tables(path: str, shape_of: Callable[[dict[str, str]], KernelShape | None]) -> Tables:
    """Read one file: readings by GPU, precision and software."""
    found: Tables = defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shape = shape_of(row) if row["gpu"] in NAMES else None
            if shape:
                software = "/".join(row["source_path"].split("/")[2:4])
                reading = Reading(shape, float(row["latency_us"]) * MICRO, float(row["power_w"] or "nan"))
                found[NAMES[row["gpu"]], shape.precision, software].append(reading)
    return dict(sorted(found.items()))


def gemm_of(row: dict[str, str]) -> KernelShape | None:
    """Return a GEMM of the table if it is large enough."""
    m, n, k = (int(row[name]) for name in "mnk")
    precision = {"bfloat16": "bf16"}.get(row["dtype"], row["dtype"])
    return KernelShape("gemm", (1, m, n, k), precision) if 2.0 * m * n * k >= LEAST_FLOP else None


def attention_of(row: dict[str, str]) -> KernelShape | None:
    """Return a forward attention kernel of the table if it is long enough."""
    batch, heads, kv_heads, seq, dim = (int(row[name]) for name in ("batch", "heads", "kv_heads", "seq", "head_dim"))
    long = seq >= LEAST_LENGTH and dim == HEAD_DIM and batch * heads * seq / 128 >= LEAST_BLOCKS
    return KernelShape("attention", (batch, heads, kv_heads, seq, dim)) if long else None


def without_launches(gpu: Gpu) -> Gpu:
    """Return the GPU as CUDA graphs see it: kernels follow each other without waiting for the host."""
    return replace(gpu, kernels=replace(gpu.kernels, launch_s=0.0))


def sustain(readings: Iterable[Reading], gpu: Gpu) -> Held:
    """Predict readings at the clock that the power cap sustains."""
    shapes = read_shapes([reading.shape for reading in readings], gpu)
    held = hold_clocks(shapes, gpu, np.full(len(shapes.flop), TEMPERATURE_C))
    extra = [_quantise_s(shape, gpu) for shape in shapes.kinds]
    return held._replace(seconds=held.seconds + np.array(extra))


def _quantise_s(shape: KernelShape, gpu: Gpu) -> float:
    if shape.precision != "fp8":
        return 0.0
    moved = QUANTISE_PASSES * shape.dims[1] * shape.dims[3]
    return QUANTISE_S + moved / (gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s)


def score(readings: list[Reading], gpu: Gpu) -> list[str]:
    """Fit one scale on every other shape, and describe the errors of the rest with and without it."""
    held = sustain(readings, gpu)
    read, power = (np.array(column) for column in ([each.seconds for each in readings],
                                                   [each.power_w for each in readings]))  # fmt: skip
    ratio = read / held.seconds
    fitted = np.random.default_rng(0).permutation(len(ratio)) % 2 == 0
    scale = float(np.median(ratio[fitted]))
    errors = 100 * np.abs(scale / ratio[~fitted] - 1)
    watts = f"{np.nanmedian(power):.0f}" if np.isfinite(power).any() else "-"
    return [str(len(ratio)), f"{scale:.3f}", f"{np.median(errors):.1f} / {np.quantile(errors, 0.9):.1f}",
            f"{np.median(held.clock_hz) / GIGA:.2f}", f"{np.median(held.power_w):.0f}", watts]  # fmt: skip


def main(words: list[str]) -> None:
    """Score every table of both files."""
    columns = ["GPU", "", "software", "shapes", "scale", "held out: median / p90 %", "GHz", "W", "W read"]
    for title, path, shape_of in (("GEMM", words[0], gemm_of), ("Attention forward", words[1], attention_of)):
        rows = []
        for (name, precision, software), readings in read_tables(path, shape_of).items():
            gpu = without_launches(bench_machine(name).gpu)
            rows.append([name, precision, software, *score(readings, gpu)])
        print(render_table(f"{title}: table over sustained prediction", columns, rows), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
