"""A campaign on one real GPU: training configurations and emulated ranks, one after the other under one sampler.

    PYTHONPATH=src python3 benchmarks/device/campaign.py OUT --part training|ranks|overhead [--take A]

Needs Python, torch, numpy and pynvml. Each run leaves its window and its marks; `summarise.py` makes results of them.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.device.windows import timed
from charllm import mark
from charllm.catalog.resolve import resolve_run
from charllm.evaluate.h200.rank_cases import LATER_RANKS, RANK_S, RANKS
from charllm.evaluate.h200.training_cases import GPT, TRAINING, configured
from charllm.measure.emulation.emulator import Emulator
from charllm.measure.sampling import sampling
from charllm.measure.settings import MeasureSettings
from charllm.measure.trainer.train import train
from charllm.simulate.rank_timeline import generate_timeline

LATER_S = 11.0


def play_training(out: Path, take: str) -> None:
    for name, (request, seconds_s) in TRAINING.items():
        # Later takes tell how boards differ, for which shorter runs are enough.
        length_s = seconds_s if take == "A" else LATER_S
        timed(out, take, name, request, partial(drain, request, length_s))


def drain(request: dict[str, Any], seconds_s: float) -> list[float]:
    return [step.loss for step in train(resolve_run(request), "cuda", None, seconds_s)]


def emulate_ranks(out: Path, take: str, ranks: dict[str, tuple[dict[str, Any], int]]) -> None:
    for name, (request, rank) in ranks.items():
        timeline = generate_timeline(resolve_run(request), rank)
        emulator = Emulator(timeline, "cuda")
        timed(out, take, name, {**request, "rank": rank}, partial(emulator.run, RANK_S))


def measure_overhead(out: Path, take: str) -> None:
    """Train in turns with the sampler and without: its cost is their difference, and two turns alike are the noise."""
    run = resolve_run(configured(GPT, 8))
    turns = []
    steps = train(run, "cuda", None, 1000.0)
    for _ in range(8):
        next(steps)
    for turn in range(10):
        sampled = turn % 2 == 1
        if sampled:
            with sampling(_new(out / f"overhead-{take}-{turn}"), MeasureSettings(telemetry="nvml")):
                turns.append([sampled, _time_steps(steps)])
        else:
            turns.append([sampled, _time_steps(steps)])
    (out / f"overhead-{take}.json").write_text(json.dumps(turns))


def _time_steps(steps: Any, seconds_s: float = 4.0) -> list[float]:
    start = time.monotonic()
    times = []
    while time.monotonic() - start < seconds_s:
        times.append(next(steps).seconds_s)
    return times


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


PARTS: dict[str, Callable[[Path, str], None]] = {
    "training": play_training,
    "ranks": partial(emulate_ranks, ranks=RANKS),
    "later-ranks": partial(emulate_ranks, ranks=LATER_RANKS),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", required=True)
    parser.add_argument("--take", default="A")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for part in arguments.part.split(","):
        if part == "overhead":
            measure_overhead(arguments.out, arguments.take)
            continue
        folder = _new(arguments.out / f"{part}-{arguments.take}")
        mark.record_to(str(folder))
        with sampling(folder, MeasureSettings(telemetry="nvml")):
            time.sleep(2.0)
            PARTS[part](folder, arguments.take)
            time.sleep(2.0)


if __name__ == "__main__":
    main()
