"""An A/B campaign on one real GPU: pairs of runs in turns (ABABAB), predicted and committed before.

    python -m benchmarks.device.ab_campaign predict -o ab_predicted.csv --timelines DIR     (then commit that file)
    PYTHONPATH=src:. python3 benchmarks/device/ab_campaign.py play OUT --predicted ab_predicted.csv --timelines DIR
    python -m benchmarks.device.ab_campaign score OUT --predicted ab_predicted.csv

`play` asks for a prediction of every pair, and takes about 25 s a pair (`--only` names kinds of change or pairs,
`--turns` and the like shorten them; what is in OUT is not played again). DIR holds the timelines of emulated ranks, as
they were predicted: the GPU's machine simulates nothing. Each side warms up together with the other, then windows of
some seconds follow in turns; the beginning of each is dropped. An effect is the mean over turns of ln(B / A) of
neighbouring windows, its error their standard error.
"""

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.device.ab_pairs import PAIRS, AbPair, Burst, Rank, Side
from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.evaluate.h200.tables import TIMELINES
from charllm.evaluate.h200.training_cases import TRAINING
from charllm.result.metrics import selected
from charllm.units import MEGA

METRICS = selected("step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_hz")
WINDOW_S, DROPPED_S = 3.0, 0.75
WINDOWS = "windows.jsonl"


class Windows(NamedTuple):
    """How long both sides warm up together, how long each window is, and how often the sides take turns."""

    warm_up_s: float = 6.0
    window_s: float = WINDOW_S
    turns: int = 3


WHOLE = Windows()


def predict_side(side: Side, timeline: Path | None = None) -> dict[str, float]:
    """Return what is predicted of one side; an emulated rank's timeline is written for the machine that plays it."""
    from charllm.gpu.heat import network
    from charllm.simulate.emulated import predict_emulated
    from charllm.simulate.one_gpu import simulate_burst
    from charllm.simulate.predict import predict
    from charllm.simulate.rank_timeline import generate_timeline
    from charllm.timeline.rank_timeline import to_text

    alone = resolve_cluster("h200x1")
    if isinstance(side, Burst):
        net = network(alone.node, alone.cooling)
        seen, _ = simulate_burst(side.shape, alone.gpu, net, alone.cooling.warmest_c, side.on_s, side.period_s, 20.0)
        return {name: float(getattr(seen, name)) for name in METRICS[1:]}
    if isinstance(side, Rank):
        found = generate_timeline(resolve_run(side.request), side.rank)
        if timeline is not None:
            timeline.write_text(to_text(found), encoding="utf-8")
        metrics = predict_emulated(found, alone, WINDOW_S).metrics
    else:
        metrics = predict(resolve_run(side), ignore_memory=True).result.metrics
    return {name: float(metrics[name]) for name in METRICS}


def predict_pairs(pairs: Mapping[str, AbPair], timelines: Path | None = None) -> list[dict[str, Any]]:
    """Return the predicted effect of every pair on every metric, ln(B / A), and both levels."""
    rows = []
    for name, pair in pairs.items():
        first, second = (predict_side(side, timelines and timeline_of(timelines, name, label))
                         for label, side in zip("AB", (pair.first, pair.second), strict=True))  # fmt: skip
        rows += [{"pair": name, "change": pair.change, "metric": metric, "effect": f"{log(second[metric] / one):.5g}",
                  "A": f"{one:.6g}", "B": f"{second[metric]:.6g}"} for metric, one in first.items()]  # fmt: skip
    return rows


def timeline_of(folder: Path, pair: str, label: str) -> Path:
    """Return where the timeline of one side lies: with the readings, where it was played before."""
    name = f"{pair}-{label}.json"
    return TIMELINES / name if (TIMELINES / name).exists() else folder / name


def read_predicted(path: Path, pairs: Mapping[str, AbPair]) -> dict[tuple[str, str], float]:
    """Read predictions; every pair must have one before it is played."""
    with path.open(newline="", encoding="utf-8") as lines:
        found = {(row["pair"], row["metric"]): float(row["effect"]) for row in csv.DictReader(lines)}
    absent = [name for name in pairs if (name, "power_mean_w") not in found]
    if absent:
        sys.exit(f"{path} has no prediction of {', '.join(absent)}: predict and commit first")
    return found


def player(side: Side, timeline: Path) -> Callable[[float], Any]:
    """Prepare one side on the GPU; returns what runs it for some seconds."""
    from charllm.measure.bench.run import MODES
    from charllm.measure.bench.suite import OpCase
    from charllm.measure.emulation.emulator import Emulator
    from charllm.measure.trainer.train import train
    from charllm.timeline.rank_timeline import read_timeline

    if isinstance(side, Burst):
        return lambda seconds_s: MODES["burst"](
            OpCase("ab", "ab", side.shape, seconds_s, "burst", on_s=side.on_s, period_s=side.period_s), "cuda"
        )
    if isinstance(side, Rank):
        return Emulator(read_timeline(timeline), "cuda").run
    steps = train(resolve_run(side), "cuda", None, 1e6)

    def steps_for(seconds_s: float) -> None:
        end_s = time.monotonic() + seconds_s
        while time.monotonic() < end_s:
            next(steps)

    return steps_for


def play_pair(
    name: str, pair: AbPair, out: Path, timelines: Path,
    prepare: Callable[[Side, Path], Callable[[float], Any]] = player,
    windows: Windows = WHOLE,
) -> None:  # fmt: skip
    """Warm both sides up, then run them in turns; a line for each window as it ends."""
    sides = [prepare(side, timeline_of(timelines, name, label))
             for label, side in zip("AB", (pair.first, pair.second), strict=True)]  # fmt: skip
    for side in sides:
        side(windows.warm_up_s / len(sides))
    lines = []
    for turn in range(windows.turns):
        for label, side in zip("AB", sides, strict=True):
            start_s = time.monotonic()
            side(windows.window_s)
            lines.append({"pair": name, "side": label, "turn": turn, "start_s": start_s, "end_s": time.monotonic()})
    with (out / WINDOWS).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def read_windows(out: Path) -> list[dict[str, Any]]:
    """Return the windows that were played whole."""
    path = out / WINDOWS
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def play(out: Path, pairs: Mapping[str, AbPair], timelines: Path, windows: Windows) -> None:
    """Play every pair that is not in the folder, each under a sampler of its own."""
    import gc
    import traceback

    import torch

    from charllm import mark
    from charllm.measure.sampling import sampling
    from charllm.measure.settings import MeasureSettings

    out.mkdir(parents=True, exist_ok=True)
    done = {line["pair"] for line in read_windows(out)}
    for name, pair in pairs.items():
        if name not in done:
            folder = out / f"{name}-{time.time_ns()}"
            folder.mkdir()
            try:
                with sampling(folder, MeasureSettings(telemetry="nvml")), mark.recording_to(str(folder)):
                    play_pair(name, pair, folder, timelines, windows=windows)
            except Exception:
                # One pair must not cost the others their turn.
                traceback.print_exc()
            with (out / WINDOWS).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps({**line, "folder": folder.name}) + "\n" for line in read_windows(folder))
            gc.collect()
            torch.cuda.empty_cache()
            print(name, flush=True)


def read_window(out: Path, line: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what the board read in a window: in whole steps but the first of several, else after its beginning."""
    from charllm.measure.marks import find_steps, read_marks
    from charllm.measure.recording import read_recording
    from charllm.measure.window import look

    folder, start_s, end_s = out / line["folder"], line["start_s"] + DROPPED_S, line["end_s"]
    steps = [step for marks in read_marks(folder).values() for step in find_steps(marks)
             if step.start_s >= line["start_s"] and step.end_s <= end_s]  # fmt: skip
    steps = steps[1:] or steps
    if steps:
        start_s, end_s = steps[0].start_s, steps[-1].end_s
    seen = look(read_recording(folder), 0, start_s, end_s)
    return {"step_time_s": (end_s - start_s) / len(steps) if steps else None, "power_mean_w": seen.power_mean_w,
            "power_peak_sensor_w": seen.power_peak_sensor_w, "clock_mean_hz": seen.clock_mean_hz}  # fmt: skip


def score(
    windows: Sequence[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], Mapping[str, float | None]],
    predicted: Mapping[tuple[str, str], float],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return each effect as it was read, its standard error over turns, and the prediction."""
    figures = {(line["pair"], line["side"], line["turn"]): read(line) for line in windows}
    rows = []
    for name in dict.fromkeys(line["pair"] for line in windows):
        turns = sorted({line["turn"] for line in windows if line["pair"] == name})
        for metric in METRICS:
            sides = [[figures[name, side, turn][metric] for turn in turns] for side in "AB"]
            if (name, metric) in predicted and all(one for side in sides for one in side):
                first, second = np.array(sides, dtype=float)
                effects = np.log(second / first)
                error = float(np.std(effects, ddof=1) / np.sqrt(len(turns)))
                rows.append({"pair": name, "change": PAIRS[name].change, "metric": metric, "standard_error": error,
                             "read": float(effects.mean()), "predicted": predicted[name, metric],
                             "A": float(first.mean()), "B": float(second.mean())})  # fmt: skip
    return rows


SIDE_COLUMNS = ("name", "windows", "step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_mhz")


def levels(
    windows: Sequence[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], Mapping[str, float | None]]
) -> list[dict[str, Any]]:
    """Return what each side that was trained or emulated read, over all its windows, by the name of its case."""
    found: dict[str, list[Mapping[str, float | None]]] = {}
    for line in windows:
        pair = PAIRS[line["pair"]]
        side = pair.first if line["side"] == "A" else pair.second
        names = [name for name, (case, _) in TRAINING.items() if case == side]
        if names or isinstance(side, Rank):
            found.setdefault(names[0] if names else f"{line['pair']}-{line['side']}", []).append(read(line))
    rows = []
    for name, every in found.items():
        means = {metric: float(np.mean([one[metric] or np.nan for one in every])) for metric in METRICS}
        means["power_peak_sensor_w"] = max(one["power_peak_sensor_w"] or 0.0 for one in every)
        cells = {column: means.get(column, means["clock_mean_hz"] / MEGA) for column in SIDE_COLUMNS[2:]}
        rows.append({"name": name, "windows": len(every), **{key: f"{value:.5g}" for key, value in cells.items()}})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = {name: commands.add_parser(name) for name in ("predict", "play", "score")}
    asked["predict"].add_argument("-o", "--out", type=Path, required=True)
    for name in ("play", "score"):
        asked[name].add_argument("out", type=Path)
        asked[name].add_argument("--predicted", type=Path, required=True)
    for name in ("predict", "play"):
        asked[name].add_argument("--timelines", type=Path, required=True)
    for one in asked.values():
        one.add_argument("--only", default="", help="kinds of change or pairs, such as microbatch,duty-100-70")
    for field, default in WHOLE._asdict().items():
        asked["play"].add_argument("--" + field.replace("_", "-"), type=type(default), default=default)
    arguments = parser.parse_args()
    kinds = [kind for kind in arguments.only.split(",") if kind]
    pairs = {name: pair for name, pair in PAIRS.items() if not kinds or {name, pair.change} & set(kinds)}
    if arguments.command == "predict":
        arguments.timelines.mkdir(parents=True, exist_ok=True)
        write_rows(arguments.out, predict_pairs(pairs, arguments.timelines))
        return
    predicted = read_predicted(arguments.predicted, pairs)
    if arguments.command == "play":
        length = Windows(**{field: getattr(arguments, field) for field in Windows._fields})
        play(arguments.out, pairs, arguments.timelines, length)
    windows, read = read_windows(arguments.out), lambda line: read_window(arguments.out, line)
    rows = score(windows, read, predicted)
    write_rows(arguments.out / "levels.csv", levels(windows, read))
    write_rows(arguments.out / "effects.csv", rows)
    for row in rows:
        print(f"{row['pair']:32s}{row['metric']:22s}read {row['read']:+.4f} +- {row['standard_error']:.4f}, "
              f"predicted {row['predicted']:+.4f}")  # fmt: skip


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["pair"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
