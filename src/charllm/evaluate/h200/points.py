"""What H200 boards read, beside what is predicted now: kernels, loops, training runs, emulated ranks, traces, heat."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from charllm.catalog.resolve import resolve_cluster, resolve_run, single_node
from charllm.evaluate.h200.loop_cases import LOOPS, request
from charllm.evaluate.h200.rank_cases import INTERLEAVED_RANKS, LATER_RANKS, RANKS, SPARSE_RANKS, SPARSE_S
from charllm.evaluate.h200.tables import READINGS, TIMELINES, read_table
from charllm.evaluate.h200.traced_cases import CASES
from charllm.evaluate.h200.training_cases import LATER, TRAINING
from charllm.evaluate.heat import baseline, predict, window_s
from charllm.evaluate.heat_trace import Trace, read_trace
from charllm.evaluate.ops import bench_machine, predict_ops
from charllm.evaluate.ops_table import read_ops
from charllm.evaluate.points import Point, RunReading, named_class, run_quantities
from charllm.evaluate.predictions import strategy_of
from charllm.gpu.heat import network
from charllm.gpu.shape import work
from charllm.simulate.emulated import predict_emulated
from charllm.simulate.predict import predict as simulate
from charllm.timeline.rank_timeline import read_timeline
from charllm.trace.simulated import simulated_kernels
from charllm.units import MEGA, MILLI
from charllm.workload.model_flop import model_flop

GPU = "h200"
NOT_FITTED = "no constant fitted on it"
FITTED = "in sample"
HEAT_SPLITS = {"opsA": FITTED, "opsB": FITTED}
"""Takes that constants of heat were chosen on; the others are held out."""
_EARLY = {name: case for name, (case, _) in TRAINING.items()}
TRAINED = {"training.csv": _EARLY, "training_again.csv": _EARLY, "later_training.csv": LATER,
           "interleaved_training.csv": _EARLY}  # fmt: skip
"""Training runs by the table that a board read them into."""
SCORED = ("training_again.csv", "later_training.csv", "interleaved_training.csv")
"""Tables whose board no constant comes from."""
PLAYED = {"sparse_ranks_played_again.csv": "takes 2 and 3", "dense_ranks_played_again.csv": "takes 2 and 3",
          "interleaved_ranks.csv": "in turns"}  # fmt: skip
"""Readings of emulated ranks whose timelines are kept as they were played, and their board; of a rank in several, the
last one counts."""
SAID_FIRST = {
    "later_ranks_predicted.csv": "later_ranks_played.csv",
    "third_ranks_predicted.csv": "third_ranks_played.csv",
    "training_predicted.csv": "training_again.csv",
    "loops_predicted.csv": "loops.csv",
}
"""Runs predicted before they were read with the energy model that ships: predictions, and readings."""
COLUMNS = {
    "step_time_s": ("step_time_s", 1.0), "step_s": ("step_time_s", 1.0),
    "power_mean_w": ("power_mean_w", 1.0), "mean_w": ("power_mean_w", 1.0),
    "power_peak_sensor_w": ("power_peak_sensor_w", 1.0),
    "clock_mean_mhz": ("clock_mean_hz", MEGA), "sm_mhz": ("clock_mean_hz", MEGA),
    "temperature_mean_c": ("temperature_mean_c", 1.0), "temp_c": ("temperature_mean_c", 1.0),
    "temperature_peak_c": ("temperature_peak_c", 1.0),
}  # fmt: skip
"""Column of a table of runs: the metric it holds, and its unit."""
OPS = {"seconds": "time", "watts": "mean power", "clock": "clock", "peak": "peak power"}


def kernel_points() -> list[Point]:
    """Score single ops and bursts; the constants of an H200's kernels and power are fitted on these tables."""
    found = []
    for file in ("ops.csv", "readings.csv"):
        for said in predict_ops(read_ops(str(READINGS / file))[0], bench_machine(GPU)):
            flop, least_bytes = work(said.op.shape)
            for name, (predicted, measured) in said.pairs().items():
                if measured is not None and predicted is not None:
                    amount = (flop or least_bytes) if name == "seconds" else 0.0
                    found.append(Point("kernels", FITTED, OPS[name], f"{file}:{said.op.name}", predicted, measured,
                                       {"class": said.kind}, amount))  # fmt: skip
    return found


def loop_runs() -> Iterator[RunReading]:
    """Yield bare training loops."""
    for name, row in read_table("loops.csv").items():
        yield _simulated("loops", "loops.csv", name, request(name, LOOPS[name]), row)


def training_runs(files: Iterable[str]) -> Iterator[RunReading]:
    """Yield runs of the reference trainer, each table on a board of its own."""
    for file in files:
        for name, row in read_table(file).items():
            if name in TRAINED[file]:
                yield _simulated("training", file, name, {**TRAINED[file][name], "framework": "reference"}, row)


def rank_runs() -> Iterator[RunReading]:
    """Yield emulated ranks of large jobs, predicted for the timelines that the board played."""
    alone = resolve_cluster("h200x1")
    read = {name: (board, row) for file, board in PLAYED.items() for name, row in read_table(file).items()}
    for name, (board, row) in read.items():
        seen = predict_emulated(read_timeline(TIMELINES / f"{name}.json"), alone, SPARSE_S)
        asked = (SPARSE_RANKS | INTERLEAVED_RANKS)[name][0]
        yield RunReading("ranks", board, name, asked, seen.metrics, _readings(row))


def first_rank_runs() -> Iterator[RunReading]:
    """Yield ranks as they were predicted before a board played them, with the model of that day.

    Ranks that name no overlap had none then.
    """
    for take, cases in {"ranks": RANKS, "later_ranks": LATER_RANKS}.items():
        said, read = read_table(f"{take}_predicted.csv"), read_table(f"{take}_played.csv")
        for name in cases.keys() & said.keys() & read.keys():
            asked = cases[name][0]
            asked = {**asked, "parallelism": {"overlap": [], **asked["parallelism"]}}
            yield RunReading("ranks, predicted first", take, name, asked, _readings(said[name]), _readings(read[name]))


def _simulated(part: str, board: str, name: str, asked: Mapping[str, Any], row: Mapping[str, str]) -> RunReading:
    metrics = simulate(resolve_run(dict(asked)), ignore_memory=True).result.metrics
    return RunReading(part, board, name, asked, metrics, _readings(row))


def loop_points() -> list[Point]:
    """Score bare training loops."""
    return list(_compare(loop_runs()))


def training_points() -> list[Point]:
    """Score runs of the reference trainer, on boards that no constant comes from."""
    return list(_compare(training_runs(SCORED)))


def rank_points() -> list[Point]:
    """Score emulated ranks of large jobs."""
    return list(_compare(rank_runs()))


def _readings(row: Mapping[str, str]) -> dict[str, float]:
    """Return what a board read of a run, in SI."""
    return {metric: unit * float(row[column]) for column, (metric, unit) in COLUMNS.items() if row.get(column)}


def _compare(runs: Iterable[RunReading]) -> Iterator[Point]:
    for one in runs:
        run = resolve_run(dict(one.request))
        groups = {"class": named_class(run), "strategy": strategy_of(run)}
        for quantity, predicted, measured in run_quantities(one.metrics, one.read):
            flop = model_flop(run) / run.parallelism.world if quantity == "step time" else 0.0
            yield Point(one.part, NOT_FITTED, quantity, one.name, predicted, measured, groups, flop)


def first_points() -> list[Point]:
    """Score what was written down before a board read it, with the model of that day."""
    found = []
    for said_file, read_file in SAID_FIRST.items():
        said, read = read_table(said_file), read_table(read_file)
        for name in said.keys() & read.keys():
            predicted, measured = _readings(said[name]), _readings(read[name])
            found += [Point("predicted first", "predicted before it was read", quantity, name, figure, other,
                            {"take": said_file.removesuffix("_predicted.csv")})
                      for quantity, figure, other in run_quantities(predicted, measured)]  # fmt: skip
    return sorted(found)


def traced_points() -> list[Point]:
    """Score seconds of each class of kernels, and of the step, against traces; the profile was written on them."""
    with (READINGS / "traced_classes.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    found = []
    for name, case in CASES.items():
        simulated = simulate(resolve_run({**case.request, "framework": "reference"}), ignore_memory=True)
        assert simulated.timed is not None
        seconds = {"step": simulated.timed.step_time_s}
        for kernel in simulated_kernels(simulated.step, simulated.timed, 0):
            seconds[kernel.work] = seconds.get(kernel.work, 0.0) + kernel.seconds
        for row in rows:
            if row["case"] == name and row["class"] in seconds:
                quantity = "step time" if row["class"] == "step" else "time of a class"
                found.append(Point("traced steps", FITTED, quantity, f"{name}:{row['class']}", seconds[row["class"]],
                                   MILLI * float(row["traced_ms"]), {"class": row["class"]}))  # fmt: skip
    return found


def heat_points() -> list[Point]:
    """Score the temperature of recordings, from their power alone, as means of a second."""
    found: list[Point] = []
    for path in sorted(READINGS.glob("trace_*.csv.gz")):
        take = path.name.removeprefix("trace_").removesuffix(".csv.gz")
        found += _trace_points(take, read_trace(str(path)))
    return found


def _trace_points(take: str, trace: Trace) -> Iterable[Point]:
    cluster = single_node(GPU, len(trace.gpus))
    net = network(cluster.node, cluster.cooling)
    seconds = np.floor(trace.times_s - trace.times_s[0]).astype(int)
    counts = np.bincount(seconds)
    series = (predict(trace, net, cluster.gpu)[0], trace.temperature_c, baseline(trace, net))
    counts[: int(window_s(trace)) + 1] = 0
    means = [(np.bincount(seconds, weights=one[:, 0]) / np.maximum(counts, 1))[counts > 0] for one in series]
    split = HEAT_SPLITS.get(take, NOT_FITTED)
    return [Point("thermal traces", split, "temperature", take, float(said), float(read), {"take": take},
                  baseline=float(simpler)) for said, read, simpler in zip(*means, strict=True)]  # fmt: skip
