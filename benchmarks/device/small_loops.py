"""Small loops on one real GPU, in turns: launches, operands, transfers, duty cycles, memory-bound kernels.

    python -m benchmarks.device.small_loops predict -o small_predicted.csv     (then commit that file)
    PYTHONPATH=src:. python3 benchmarks/device/small_loops.py play OUT [--only launches,operands]

Loops of a group run in turns (ABCABC) under one sampler, so that what drifts is shared. They ask what a step of
training cannot tell: whether time between kernels is the host's or the kernel's, whether operands in the cache make
products faster, what a hidden transfer costs the product beside it, what a governor does with bursts of equal mean, and
what kernels that wait for memory draw. Of single kernels clock, seconds and watts are predicted.
"""

import argparse
import csv
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from charllm.gpu.shape import KernelShape

TURNS, WINDOW_S, WARM_UP_S, CHUNK_S, IN_FLIGHT = 2, 2.5, 1.5, 0.02, 3
WINDOWS = "windows.jsonl"
FAST_LINK_BYTES_PER_S, BLOCKS = 300e9, 24
SETS, LAUNCHES = 8, 32
PAGE_BYTES = 32 << 20
COLUMNS = ("group", "name", "step_s", "power_mean_w", "clock_mean_hz", "power_peak_sensor_w", "temperature_c",
           "memory_temperature_c", "spread_step", "spread_w", "turns")  # fmt: skip


class Loop(NamedTuple):
    """What is launched over and over."""

    group: str
    kernels: tuple[KernelShape, ...]
    mode: str = "eager"
    """eager: one after the other. graph: captured. rotated: each launch has one of SETS operand sets. serial, hidden,
    joined: a transfer before the first kernel, beside it, or streams that join without a transfer."""
    transfer_s: float = 0.0
    engine: str = "blocks"
    """What transfers: blocks of multiprocessors as collectives use, or the copy engine from page-locked memory."""
    on_s: float = 0.0
    period_s: float = 0.0
    launches: int = 1


def gemm(m: int, n: int, k: int) -> KernelShape:
    return KernelShape("gemm", (1, m, n, k))


TINY = KernelShape("tiny", (4096,))
SQUARE, LARGE = gemm(2048, 2048, 2048), gemm(8192, 8192, 8192)
PRODUCTS = {"0.2ms": gemm(4096, 4096, 4096), "1ms": gemm(8192, 8192, 5120), "3ms": gemm(8192, 8192, 16384)}


def _beside() -> dict[str, Loop]:
    found = {}
    for length, product in PRODUCTS.items():
        found[f"{length}-joined"] = Loop("transfers", (product,), "joined")
        for transfer_s in (0.15e-3, 0.6e-3):
            for mode in ("serial", "hidden"):
                found[f"{length}-{mode}-{transfer_s * 1e3:g}ms"] = Loop("transfers", (product,), mode, transfer_s)
    stream = KernelShape("add", (8192 * 8192,))
    for mode in ("serial", "hidden"):
        found[f"1ms-{mode}-engine"] = Loop("transfers", (PRODUCTS["1ms"],), mode, 0.6e-3, "engine")
        found[f"add-{mode}-0.15ms"] = Loop("transfers", (stream, stream), mode, 0.15e-3)
    return found


def _memory_bound() -> dict[str, Loop]:
    found = {}
    for rows in (1, 8, 16, 32, 64, 128, 256):
        found[f"gemm-m{rows}-8192x28672"] = Loop("memory", (gemm(rows, 28672, 8192),), "rotated", launches=SETS)
    for rows in (1, 16, 64):
        found[f"gemm-m{rows}-4096x4096"] = Loop("memory", (gemm(rows, 4096, 4096),), "rotated-graph", launches=SETS)
    size = 1 << 28
    for kind in ("copy", "add", "fill", "optimizer", "optimizer_16bit", "rmsnorm", "swiglu"):
        dims = (size // 8192, 8192) if kind == "rmsnorm" else (size,)
        found[kind] = Loop("memory", (KernelShape(kind, dims),))
    for batch in (8, 64):
        found[f"cache-b{batch}"] = Loop("memory", (KernelShape("cached_attention", (batch, 64, 8, 4096, 128)),))
    return found


LOOPS: Mapping[str, Loop] = {
    "square-eager": Loop("launches", (SQUARE,), launches=LAUNCHES),
    "square-graph": Loop("launches", (SQUARE,), "graph", launches=LAUNCHES),
    "square-tiny-eager": Loop("launches", (SQUARE, TINY), launches=LAUNCHES),
    "square-tiny-graph": Loop("launches", (SQUARE, TINY), "graph", launches=LAUNCHES),
    "square-one-set": Loop("operands", (SQUARE,), "graph", launches=SETS),
    "square-rotated": Loop("operands", (SQUARE,), "rotated-graph", launches=SETS),
    "4096-one-set": Loop("operands", (PRODUCTS["0.2ms"],), "graph", launches=SETS),
    "4096-rotated": Loop("operands", (PRODUCTS["0.2ms"],), "rotated-graph", launches=SETS),
    **_beside(),
    **{f"duty-{on_ms:g}-of-{period_ms:g}": Loop("duty", (LARGE,), on_s=on_ms / 1e3, period_s=period_ms / 1e3)
       for on_ms, period_ms in ((1.5, 2.14), (3, 4.29), (5, 7.14), (10, 14.3), (30, 42.9))},
    **_memory_bound(),
}  # fmt: skip
"""Loop by name. Of the duty cycles each is on for 70 % of the time."""


def predict_loops() -> list[dict[str, Any]]:
    """Return what is predicted of loops of one kernel: seconds a launch, watts and clock where it is held."""
    import numpy as np

    from charllm.catalog.resolve import resolve_cluster
    from charllm.gpu.kernels import read_shapes
    from charllm.gpu.steady import hold_clocks

    gpu = resolve_cluster("h200x1").gpu
    rows = []
    for name, loop in LOOPS.items():
        if loop.group in ("memory", "operands", "launches") and len(loop.kernels) == 1:
            held = hold_clocks(read_shapes(list(loop.kernels), gpu), gpu, np.array([55.0]))
            cells = {"step_s": held.seconds[0], "power_mean_w": held.power_w[0], "clock_mean_hz": held.clock_hz[0]}
            rows.append({"group": loop.group, "name": name, **{key: f"{value:.6g}" for key, value in cells.items()}})
    return rows


def prepare(loop: Loop) -> tuple[Callable[[], Any], int]:
    """Make operands; returns what launches the loop's body once, and how many units of work that is."""
    from charllm.measure.kernels.torch_kernels import make_kernel

    sets = SETS if loop.mode.startswith("rotated") else 1
    kernels = [[make_kernel(shape, "cuda") for shape in loop.kernels] for _ in range(sets)]

    def body() -> None:
        for turn in range(loop.launches):
            for launch in kernels[turn % sets]:
                launch()

    if loop.mode in ("serial", "hidden", "joined"):
        return _with_transfer(loop, kernels[0]), 1
    return (_captured(body) if loop.mode.endswith("graph") else body), loop.launches


def _captured(body: Callable[[], Any]) -> Callable[[], Any]:
    import torch

    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    # The graph knows addresses alone; the body keeps the operands behind them.

    def replay(_kept: Any = body) -> None:
        graph.replay()

    return replay


def _with_transfer(loop: Loop, kernels: list[Callable[[], Any]]) -> Callable[[], Any]:
    import torch

    from charllm.measure.kernels.device_code import make_limited_copy

    if loop.engine == "engine":
        source = torch.empty(PAGE_BYTES, dtype=torch.uint8).pin_memory()
        target = torch.empty(PAGE_BYTES, dtype=torch.uint8, device="cuda")
        transfer: Callable[[], Any] = lambda: target.copy_(source, non_blocking=True)  # noqa: E731
    elif loop.mode == "joined":
        transfer = lambda: None  # noqa: E731
    else:
        moved = FAST_LINK_BYTES_PER_S * loop.transfer_s
        transfer = make_limited_copy(BLOCKS, 256 << 20, loop.transfer_s, moved)
    side = torch.cuda.Stream()

    def serial() -> None:
        transfer()
        for launch in kernels:
            launch()

    def beside() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            transfer()
        for launch in kernels:
            launch()
        torch.cuda.current_stream().wait_stream(side)

    return serial if loop.mode == "serial" else beside


def run_for(launch: Callable[[], Any], seconds_s: float) -> int:
    """Launch back to back, a few chunks ahead of the GPU, for some seconds; returns how often."""
    import torch

    launch()
    torch.cuda.synchronize()
    began_s = time.monotonic()
    for _ in range(3):
        launch()
    torch.cuda.synchronize()
    chunk = max(1, int(CHUNK_S / max((time.monotonic() - began_s) / 3, 1e-6)))
    queued: list[Any] = []
    calls, began_s = 4, time.monotonic()
    while time.monotonic() - began_s < seconds_s:
        for _ in range(chunk):
            launch()
        calls += chunk
        queued.append(torch.cuda.Event())
        queued[-1].record()
        if len(queued) >= IN_FLIGHT:
            queued.pop(0).synchronize()
    torch.cuda.synchronize()
    return calls


def player(loop: Loop) -> Callable[[float], int]:
    """Prepare a loop; returns what runs it for some seconds and tells how many units of work that was."""
    if not loop.on_s:
        launch, units = prepare(loop)
        return lambda seconds_s: run_for(launch, seconds_s) * units
    from charllm.measure.bench.run import MODES
    from charllm.measure.bench.suite import OpCase

    case = OpCase("duty", "duty", loop.kernels[0], 0.0, "burst", on_s=loop.on_s, period_s=loop.period_s)
    return lambda seconds_s: MODES["burst"](case._replace(seconds_s=seconds_s), "cuda").calls


def play_group(folder: Path, loops: Mapping[str, Loop], warm_up_s: float, window_s: float) -> None:
    """Run the loops of one group in turns; a line for each window as it ends."""
    import torch

    # Operands of all memory-bound kernels would not fit at once.
    ready = {name: player(loop) for name, loop in loops.items() if loop.group != "memory"}
    for turn in range(TURNS):
        for name, loop in loops.items():
            run = ready.get(name) or player(loop)
            run(warm_up_s if turn == 0 else warm_up_s / 3)
            start_s = time.monotonic()
            units = run(window_s)
            line = {"group": loop.group, "name": name, "turn": turn, "start_s": start_s, "end_s": time.monotonic(),
                    "units": units}  # fmt: skip
            with (folder / WINDOWS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            del run
            torch.cuda.empty_cache()


def play(out: Path, groups: list[str], warm_up_s: float, window_s: float) -> None:
    """Play every group that was asked for, each under a sampler of its own."""
    import traceback

    from charllm.measure.sampling import sampling
    from charllm.measure.settings import MeasureSettings

    for group in dict.fromkeys(loop.group for loop in LOOPS.values()):
        if groups and group not in groups:
            continue
        folder = out / group
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with sampling(folder, MeasureSettings(telemetry="nvml")):
                found = {name: loop for name, loop in LOOPS.items() if loop.group == group}
                play_group(folder, found, warm_up_s, window_s)
        except Exception:
            # One group must not cost the others.
            traceback.print_exc()
        print(group, flush=True)


def score(out: Path) -> list[dict[str, Any]]:
    """Return what each loop took and drew: means over its turns, and how far these lie apart."""
    import numpy as np

    from charllm.measure.recording import read_recording
    from charllm.measure.window import highest, look

    rows = []
    for path in sorted(out.glob(f"*/{WINDOWS}")):
        recording = read_recording(path.parent)
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for name in dict.fromkeys(line["name"] for line in lines):
            mine = [line for line in lines if line["name"] == name]
            seen = [look(recording, 0, line["start_s"] + 0.3, line["end_s"]) for line in mine]
            steps = [(line["end_s"] - line["start_s"]) / line["units"] for line in mine]
            watts = [one.power_mean_w or np.nan for one in seen]
            hot = [highest(recording, 0, "memory_temperature_c", line["start_s"], line["end_s"]) for line in mine]
            cells = {
                "step_s": np.mean(steps), "power_mean_w": np.mean(watts),
                "clock_mean_hz": np.mean([one.clock_mean_hz or np.nan for one in seen]),
                "power_peak_sensor_w": max(one.power_peak_sensor_w or np.nan for one in seen),
                "temperature_c": np.mean([one.temperature_mean_c or np.nan for one in seen]),
                "memory_temperature_c": np.mean([np.nan if one is None else one for one in hot]),
                "spread_step": np.ptp(steps) / np.mean(steps), "spread_w": np.ptp(watts),
            }  # fmt: skip
            rows.append({"group": mine[0]["group"], "name": name, "turns": len(mine),
                         **{key: f"{value:.6g}" for key, value in cells.items()}})  # fmt: skip
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, [name for name in COLUMNS if any(name in row for row in rows)], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("predict").add_argument("-o", "--out", type=Path, required=True)
    played = commands.add_parser("play")
    played.add_argument("out", type=Path)
    played.add_argument("--only", default="", help="groups, such as launches,memory")
    played.add_argument("--warm-up-s", type=float, default=WARM_UP_S)
    played.add_argument("--window-s", type=float, default=WINDOW_S)
    asked = parser.parse_args()
    if asked.command == "predict":
        write_rows(asked.out, predict_loops())
        return
    play(asked.out, [group for group in asked.only.split(",") if group], asked.warm_up_s, asked.window_s)
    rows = score(asked.out)
    write_rows(asked.out / "small_loops.csv", rows)
    for row in rows:
        print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
