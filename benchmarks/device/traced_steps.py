"""Kernels, joules and lost clock on one GPU: phases of known work, and traced training steps, each with telemetry.

    PYTHONPATH=src python3 benchmarks/device/traced_steps.py OUT [--only known,dense,...] [--budget 480] [--smoke]

Needs Python, torch, numpy and pynvml. Each case is recorded as `charllm measure --profile` records a job (100 Hz, the
energy and violation counters at each of their steps, marks, Kineto traces) and packed into OUT/CASE.tar.gz as it ends.
`--smoke`: toy sizes on a CPU, to test the script.

Known work is phases of one kind of kernel, or of none, each waited for and marked: first each kind for some seconds
(its true power), then kinds in random order for 20 ms to 2 s each. Training is the reference trainer's: steps without
the profiler, some with it, and steps without it again, so that its cost is seen.
"""

import argparse
import gc
import json
import random
import statistics
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from charllm import mark
from charllm.catalog.resolve import resolve_run
from charllm.evaluate.h200.traced_cases import CASES, Case
from charllm.measure.device import telemetry_gpus
from charllm.measure.job import Job
from charllm.measure.marks import find_phases, find_steps, read_marks
from charllm.measure.recording import read_recording
from charllm.measure.session import measure_here
from charllm.measure.settings import MeasureSettings
from charllm.measure.trainer.train import train
from charllm.measure.window import counted, look
from charllm.profile import PHASE, ProfiledSteps, StepProfiler, make_profiler, tell_clock, trace_path
from charllm.spec.request import merge

IDLE = "idle"
NEVER = f"1@{10**9}"
AHEAD = 2
"""Launches that may wait on the GPU: a phase ends within two kernels of its time."""


class Sizes(NamedTuple):
    """How long and how large."""

    device: str = "cuda"
    telemetry: str = "nvml"
    steady_s: float = 4.0
    random_s: float = 60.0
    shortest_s: float = 0.02
    longest_s: float = 2.0
    before_s: float = 15.0
    after_s: float = 6.0
    side: int = 8192
    """Of square operands of the product; other kernels follow it."""


FULL = Sizes()
SMOKE = Sizes("cpu", "replay:tests/measure/captures/h200-train", 0.1, 1.0, 0.01, 0.1, 0.5, 0.2, 128)
SMALLER = {"model": {"layers": 1, "hidden": 64, "heads": 2, "kv_heads": 2, "head_dim": 32, "ffn": 128, "vocab": 512},
           "training": {"seq_length": 64}}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- known work


def make_kinds(sizes: Sizes) -> dict[str, Callable[[], Any]]:
    """Return one launch of each kind of kernel, of some milliseconds, on operands that are there."""
    side, device = sizes.side, sizes.device
    dtype = torch.bfloat16
    left, right = (torch.randn(rows, 2 * side, device=device, dtype=dtype) for rows in (side, 2 * side))
    product = torch.empty_like(left)
    source = torch.randn(16 * side, 2 * side, device=device, dtype=dtype)
    target = torch.empty_like(source)
    query, key, value = (torch.randn(4, 32, side, 128, device=device, dtype=dtype) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    return {
        "gemm": lambda: torch.mm(left, right, out=product),
        "copy": lambda: target.copy_(source),
        "elementwise": lambda: torch.nn.functional.gelu(source),
        "attention": lambda: attend(query, key, value, is_causal=True),
    }


def keep_busy(launch: Callable[[], Any], seconds_s: float, device: str) -> None:
    """Launch until the time is up, a few launches ahead, and wait for the last."""
    pending: list[Any] = []
    end_s = time.monotonic() + seconds_s
    while time.monotonic() < end_s:
        launch()
        if device != "cpu":
            event = torch.cuda.Event()
            event.record()
            pending.append(event)
            if len(pending) > AHEAD:
                pending.pop(0).synchronize()
    wait(device)


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def planned(sizes: Sizes) -> Iterator[tuple[str, str, float]]:
    """Yield (part, kind, seconds): each kind alone between rests, then kinds in random order."""
    kinds = ["gemm", "copy", "elementwise", "attention"]
    for kind in kinds:
        yield "steady", kind, sizes.steady_s
        yield "steady", IDLE, sizes.steady_s / 4
    yield "steady", IDLE, sizes.steady_s
    chance = random.Random(15)
    left_s, before = sizes.random_s, ""
    while left_s > 0:
        kind = chance.choice([each for each in (*kinds, IDLE) if each != before])
        seconds_s = sizes.shortest_s * (sizes.longest_s / sizes.shortest_s) ** chance.random()
        yield "random", kind, seconds_s
        left_s, before = left_s - seconds_s, kind


def run_known(folder: Path, sizes: Sizes) -> None:
    """Play the planned phases under the profiler."""
    kinds = make_kinds(sizes)
    for launch in kinds.values():
        launch()
    wait(sizes.device)
    with measured(folder, sizes):
        profiler = make_profiler()
        profiler.start()
        tell_clock()
        for part, kind, seconds_s in planned(sizes):
            with mark.phase(f"{part} {kind}"):
                if kind == IDLE:
                    time.sleep(seconds_s)
                else:
                    keep_busy(kinds[kind], seconds_s, sizes.device)
        tell_clock()
        profiler.stop()
        profiler.export_chrome_trace(str(trace_path(folder, 0)))


# ------------------------------------------------------------------------------------------------------------ training


def run_training(folder: Path, case: Case, sizes: Sizes) -> None:
    """Train without the profiler, with it, and without it again."""
    run = resolve_run(merge(case.request, SMALLER) if sizes.device == "cpu" else case.request)
    with measured(folder, sizes, run.as_table()):
        steps = train(run, sizes.device, None, 10_000.0)
        step_s = statistics.median(next(steps).seconds_s for _ in range(5))
        spend(steps, sizes.before_s)
        with mark.profiling_by(StepProfiler(ProfiledSteps(case.steps, 1), trace_path(folder, 0))):
            for _ in range(case.steps + 2):
                next(steps)
        spend(steps, sizes.after_s)
        print(f"  a step takes about {step_s:.4f} s", flush=True)


def spend(steps: Iterator[Any], seconds_s: float) -> None:
    end_s = time.monotonic() + seconds_s
    while time.monotonic() < end_s:
        next(steps)


def measured(folder: Path, sizes: Sizes, spec: dict[str, Any] | None = None) -> Any:
    # An asked profile has counters read at each of their steps; the cases start the profiler themselves.
    settings = MeasureSettings(telemetry=sizes.telemetry, idle_s=1.0, host="none", profile=NEVER)
    job = Job(("traced_steps",), folder, settings)
    return measure_here(job, telemetry_gpus(sizes.telemetry, {}), {}, spec)


# --------------------------------------------------------------------------------------------------------- the summary


def summarise(folder: Path) -> list[str]:
    """Say in a few lines what a case recorded."""
    lines = [f"  {path.name} {path.stat().st_size / 1e6:.2f} MB" for path in sorted(folder.glob("kineto-*"))]
    (marks,) = read_marks(folder).values()
    recording = read_recording(folder)
    phases = find_phases(marks)
    for name, windows in sorted(phases.items()):
        if name.startswith("steady"):
            lines.append(f"  {name}: " + describe(recording, max(windows, key=lambda window: window[1] - window[0])))
    steps = [step for step in find_steps(marks) if step.tokens]
    if steps and PHASE in phases:
        ((start_s, end_s),) = phases[PHASE]
        groups = {
            "before": [step for step in steps if step.end_s <= start_s][5:],
            "profiled": [step for step in steps if step.start_s >= start_s and step.end_s <= end_s][1:],
            "after": [step for step in steps if step.start_s >= end_s][1:],
        }
        for name, group in groups.items():
            if group:
                seconds_s = statistics.median(step.end_s - step.start_s for step in group)
                window = describe(recording, (group[0].start_s, group[-1].end_s))
                lines.append(f"  {name}: {len(group)} steps, median {seconds_s:.5f} s, {window}")
    gaps: Any = recording.known(0, "energy_j")[0] if recording.sampled else []
    if len(gaps) > 2:
        lines.append(f"  counter read every {statistics.median(b - a for a, b in pairwise(gaps)):.3f} s")
    return lines


def describe(recording: Any, window: tuple[float, float]) -> str:
    if not recording.sampled:
        return "no telemetry"
    seen = look(recording, 0, *window)
    limited_s = counted(recording, 0, "power_limited_s", *window)
    numbers = {
        "W": seen.power_mean_w,
        "MHz": (seen.clock_mean_hz or 0) / 1e6,
        "C": seen.temperature_mean_c,
        "s under the cap": limited_s,
    }
    return f"{window[1] - window[0]:.2f} s, " + ", ".join(
        f"{value:.4g} {unit}" for unit, value in numbers.items() if value is not None
    )


def pack(folder: Path, out: Path) -> None:
    with tarfile.open(out / f"{folder.name}.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds after which no case is begun")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    sizes = SMOKE if arguments.smoke else FULL
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    began_s, said = time.monotonic(), [f"torch {torch.__version__}, cuda {torch.version.cuda}"]
    wanted = [name for name in arguments.only.split(",") if name] or ["known", *CASES]
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            if time.monotonic() - began_s > arguments.budget:
                said.append(f"{name}: left out, {arguments.budget:g} s are over")
                continue
            said += run_case(name, Path(folder) / name, arguments.out, sizes)
            print(*said, sep="\n", flush=True)
            (arguments.out / "summary.txt").write_text("\n".join(said) + "\n")


def run_case(name: str, folder: Path, out: Path, sizes: Sizes) -> list[str]:
    """Run one case and pack it; a failure is told and costs that case alone."""
    start_s = time.monotonic()
    try:
        if name == "known":
            run_known(folder, sizes)
        else:
            run_training(folder, CASES[name], sizes)
        lines = summarise(folder)
    except Exception as failure:
        traceback.print_exc()
        lines = [f"  FAILED {type(failure).__name__}: {str(failure).splitlines()[:1]}"]
    if folder.is_dir():
        (folder / "case.json").write_text(json.dumps({"name": name, "torch": torch.__version__}))
        pack(folder, out)
    gc.collect()
    if sizes.device != "cpu":
        torch.cuda.empty_cache()
    return [f"{name} ({time.monotonic() - start_s:.0f} s)", *lines]


if __name__ == "__main__":
    main()
