"""Play ranks on a real GPU from their timelines, one after the other under one sampler.

    python3 -m benchmarks.device.emulate_ranks FOLDER OUT [--seconds 11] [--take F] [--device cpu --telemetry none]

FOLDER holds the timelines that `predict_ranks.py --timelines` wrote; the GPU's machine need not simulate. OUT gets the
recording, a line for each rank as it ends, what single kernels took (kernels.csv), and at the end a table
(ranks_played.csv); `--table` makes it of a recording that was cut off. Needs Python, torch, numpy and pynvml.
"""

import argparse
import csv
import gc
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.device.summarise import summarise_runs, to_csv
from benchmarks.device.windows import timed
from charllm import mark
from charllm.gpu.shape import KernelShape
from charllm.measure.emulation.emulator import Emulator, require_emulable
from charllm.measure.sampling import sampling
from charllm.measure.settings import MeasureSettings
from charllm.timeline.rank_timeline import RankTimeline, read_timeline

KERNEL_S = 0.02


def emulate_timeline(path: Path, folder: Path, take: str, seconds_s: float, device: str) -> None:
    """Emulate one timeline; what went wrong with it is in its window."""
    began_s = time.monotonic()
    timeline = read_timeline(path)
    require_emulable(timeline)
    emulator = Emulator(timeline, device)
    made_s = time.monotonic() - began_s
    timed(folder, take, path.stem, {"rank": timeline.rank}, partial(emulator.run, seconds_s))
    time_kernels(emulator, path.stem, timeline, folder.parent / "kernels.csv", device)
    used = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    print(path.stem, f"{made_s:.1f} s to make, {used:.1f} GiB", flush=True)


def time_kernels(emulator: Emulator, name: str, timeline: RankTimeline, path: Path, device: str) -> None:
    """Append how long each kernel takes back to back, at whatever clock, to find one that is not what was predicted."""
    counts = Counter(item.shape for item in timeline.items() if item.kind == "kernel")
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(("rank", "kind", "dims", "precision", "variant", "times", "seconds"))
        for shape, times in counts.items():
            kernel, known = emulator._kernels[shape], KernelShape(*shape)
            first_s = elapsed_s(kernel, 1, device)
            repeats = 1 if device == "cpu" else max(3, min(200, int(KERNEL_S / first_s)))
            dims = "x".join(map(str, known.dims))
            seconds = f"{elapsed_s(kernel, repeats, device) / repeats:.4g}"
            writer.writerow((name, known.kind, dims, known.precision, known.variant, times, seconds))


def elapsed_s(kernel: Callable[[], Any], repeats: int, device: str) -> float:
    """Time launches until the last has ended."""
    if device == "cuda":
        torch.cuda.synchronize()
    start_s = time.perf_counter()
    for _ in range(repeats):
        kernel()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start_s


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("timelines", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=11.0)
    parser.add_argument("--take", default="F")
    parser.add_argument("--only", default="", help="ranks whose names contain one of these, apart by |")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--telemetry", default="nvml")
    parser.add_argument("--table", action="store_true", help="play nothing, write the table of what was played")
    arguments = parser.parse_args()
    folder: Path = arguments.out / f"ranks-{arguments.take}"
    if not arguments.table:
        play_all(arguments, folder)
    if arguments.telemetry != "none":
        write_table(folder, arguments.out / "ranks_played.csv")


def play_all(arguments: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(parents=True)
    mark.record_to(str(folder))
    warnings.simplefilter("always")
    with sampling(folder, MeasureSettings(telemetry=arguments.telemetry)):
        time.sleep(1.0)
        for path in sorted(arguments.timelines.glob("*.json")):
            if not any(text in path.stem for text in arguments.only.split("|")):
                continue
            try:
                emulate_timeline(path, folder, arguments.take, arguments.seconds, arguments.device)
            except Exception as error:
                # One rank must not end the others.
                print(path.stem, "FAILED", type(error).__name__, str(error).splitlines()[:1], flush=True)
            gc.collect()
            if arguments.device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
        time.sleep(1.0)


def write_table(folder: Path, path: Path) -> None:
    rows = summarise_runs(folder)
    path.write_text(to_csv(rows))
    print(len(rows), "ranks played", flush=True)


if __name__ == "__main__":
    main()
