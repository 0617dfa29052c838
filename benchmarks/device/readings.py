"""Ops and bursts that the power, heat and clock models were not fitted on, read on one real GPU.

    PYTHONPATH=src python3 benchmarks/device/readings.py OUT [--take A]

Shapes differ from the bench's; bursts last 20 s with periods that are no multiple of the sensor's 100 ms.
Needs Python, torch, numpy and pynvml.
"""

import argparse
import time
from pathlib import Path

from charllm.gpu.shape import KernelShape
from charllm.measure.bench.run import run_suite
from charllm.measure.bench.suite import OpCase
from charllm.measure.bench.table import tabulate, to_csv
from charllm.measure.recording import read_recording
from charllm.measure.sampling import sampling
from charllm.measure.settings import MeasureSettings

GEMMS = (
    ("gemm", 3072, 10240, 5120), ("gemm", 6144, 20480, 5120), ("gemm", 2048, 22016, 8192), ("gemm", 10240, 4096, 11008),
    ("gemm", 4096, 8192, 1024), ("gemm", 5120, 5120, 5120), ("small gemm", 96, 14336, 4096),
    ("small gemm", 192, 8192, 8192), ("small gemm", 384, 11008, 4096), ("small gemm", 768, 4096, 4096),
    ("small gemm", 4096, 256, 4096), ("small gemm", 1536, 1536, 1536), ("host-bound", 768, 768, 768),
)  # fmt: skip
ATTENTION = ((1, 40, 40, 2048), (2, 16, 4, 8192), (1, 28, 4, 4096), (8, 8, 8, 1024), (1, 32, 8, 16384))
STREAMS = (
    ("copy", (96 << 20,)), ("add", (96 << 20,)), ("norm", (6144, 8192)), ("rmsnorm", (6144, 5120)),
    ("gelu", (6144, 16384)), ("swiglu", (6144, 13824)), ("softmax", (16384, 4096)), ("optimizer", (100_000_000,)),
)  # fmt: skip
BURSTS = ((0.05, 0.107), (0.07, 0.153), (0.15, 0.33), (0.3, 0.61), (0.5, 1.017), (1.0, 2.3), (0.1, 0.507))
PRODUCT = KernelShape("gemm", (1, 4096, 12288, 12288))


def cases() -> list[OpCase]:
    """List what is read."""
    gemms = [
        OpCase(group, f"gemm.{m}x{n}x{k}", KernelShape("gemm", (1, m, n, k)), 4.0 if group == "gemm" else 2.5)
        for group, m, n, k in GEMMS
    ]
    attention = [
        OpCase("attention", f"{kind}.b{b}h{h}kv{kv}s{s}", KernelShape(kind, (b, h, kv, s, 128)), 3.0)
        for b, h, kv, s in ATTENTION
        for kind in ("attention", "attention_backward")
    ]
    streams = [
        OpCase("memory", f"{kind}.{'x'.join(map(str, dims))}",
               KernelShape(kind, dims, "fp32" if kind == "optimizer" else "bf16"), 2.5)
        for kind, dims in STREAMS
    ]  # fmt: skip
    values = [
        OpCase("values", f"{kind}.{values}", KernelShape(kind, (512 << 20,), values=values), 2.5)
        for kind in ("copy", "add", "gelu")
        for values in ("random", "zeros", "trained")
    ]
    bursts = [
        OpCase("square wave", f"burst.{on_s:g}of{period_s:g}", PRODUCT, 20.0, "burst", on_s=on_s, period_s=period_s)
        for on_s, period_s in BURSTS
    ]
    starts = [OpCase("start", "start.0.5of3.05", PRODUCT, 24.0, "burst", on_s=0.5, period_s=3.05)]
    soak = [OpCase("soak", "soak", PRODUCT, 30.0), OpCase("soak", "cool-down", None, 20.0)]
    return [*gemms, *attention, *streams, *values, *bursts, *starts, *soak]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--take", default="A")
    arguments = parser.parse_args()
    folder = arguments.out / f"readings-{arguments.take}"
    folder.mkdir(parents=True)
    chosen = cases()
    with sampling(folder, MeasureSettings(telemetry="nvml")):
        time.sleep(3.0)
        runs = [outcome for _, outcome in run_suite(chosen, folder, "cuda", 7)]
        time.sleep(2.0)
    (folder / "ops.csv").write_text(to_csv(tabulate(chosen, runs, read_recording(folder))))
    print(folder, len(runs), [run.name for run in runs if run.error])


if __name__ == "__main__":
    main()
