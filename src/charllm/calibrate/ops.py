"""Fit what a GPU's ops cost: the constants of its board power and of its kernels, from tables of ops.

Equation: every op's seconds, clock and watts as evaluate/ops.py predicts them, and again seconds and watts at the clock
that was read, against the readings, in units of 1 %, 1 % and 1.2 % (half as heavy at the clock that was read). Boards
differ in the energy of all they do on the die: one factor for each table, 3 % apart.
Source: priors are the constants of the GPU that calibration starts from; their spreads are set here.
Ignores: errors that the rows of a table share beyond that factor.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats, Ints
from charllm.calibrate.least_squares import Fit, Parameter, fit
from charllm.errors import SpecError
from charllm.evaluate.ops import start_of, starts_c, warm_c
from charllm.evaluate.ops_table import OpRow, SingleKernel
from charllm.gpu.heat import network
from charllm.gpu.kernels import (
    VALUES,
    ZERO_FLOP_FRACTION,
    KernelEnergies,
    Shapes,
    energy_of_kernels,
    matrix_clock_hz,
    read_shapes,
    time_kernels,
    with_constants,
)
from charllm.gpu.memory_bound import STREAMS
from charllm.gpu.steady import board_w, hold_window
from charllm.spec.hardware import Cluster, Gpu

ERRORS = {"seconds": 0.01, "clock": 0.01, "watts": 0.012}
SINGLE_ERRORS = {"seconds": 0.015, "watts": 0.1}
"""Of kernels by themselves: in half a second the energy counter and the sensor differ by up to 10 %."""
AT_CLOCK_WEIGHT = 0.5
BOARD_SPREAD = 0.03
MIN_OPS = 10
USUAL_SPREAD, STREAM_SPREAD, INSTRUCTION_SPREAD = 0.25, 0.1, 0.7
SPREADS = {
    "power.active_w": 0.05,
    "power.leakage_w_per_k": 0.02,
    "power.voltage_slope_per_hz": 0.08,
    "power.flop_j": 0.25,
    "power.fp8_flop_j": 0.25,
    "power.softmax_flop_fraction": 0.5,
    "power.softmax_backward_flop_fraction": 0.5,
    "power.instruction_j": 0.05,
    "power.cache_byte_j": 0.15,
    "power.memory_byte_j": 0.15,
    "kernels.reread_factor": 0.2,
    "kernels.gap_s": 0.1,
    "kernels.stream_gap_s": 0.1,
    "kernels.queued_gap_s": 0.2,
    "kernels.fill_fraction": 0.2,
    "kernels.grouped_fraction": 0.05,
    "kernels.grouped_roof_power": 0.05,
    "kernels.flash2_fraction": 0.1,
    "kernels.flash2_backward_fraction": 0.1,
}
"""How far off the constants of a GPU of the same kind may be, where that is not a quarter."""
KERNEL_FIELDS = (
    "matrix_fraction", "fp8_fraction", "grouped_fraction", "grouped_ramp", "grouped_s", "grouped_roof_power",
    "grouped_memory_fraction", "ramp", "gap_s", "queued_gap_s", "stream_gap_s", "roof_power",
    "wave_fraction", "fill_fraction", "reread_factor", "split_s", "memory_fraction",
    "cache_fraction", "attention_fraction", "attention_backward_fraction", "attention_ramp",
    "attention_backward_ramp", "flash2_fraction", "flash2_backward_fraction", "tile_ramp", "softmax_ramp", "launch_s",
)  # fmt: skip


class Bench(NamedTuple):
    """The steady ops of all tables, and what does not change while constants are fitted."""

    rows: tuple[OpRow, ...]
    board: Ints
    """Which table each row is from."""
    shapes: Shapes
    before_w: Floats
    window_s: Floats
    warm_c: Floats
    seconds_s: Floats
    power_w: Floats
    clock_hz: Floats
    at_clock: Bools
    """Rows judged at the clock that was read alone: kernels by themselves in windows too short for the governor."""
    queued: Bools


def gather(
    tables: Sequence[Sequence[OpRow]], cluster: Cluster, singles: Sequence[Sequence[SingleKernel]] = ()
) -> Bench:
    """Join tables, each of one board; rows without a reading of all three, and bursts, are left out."""
    gpu, net = cluster.gpu, network(cluster.node, cluster.cooling)
    kept = [
        (board, row)
        for board, table in enumerate(tables)
        for row in table
        if not row.on_s and None not in (row.measured.seconds_s, row.measured.power_w, row.measured.clock_hz)
    ]
    if len(kept) < MIN_OPS:
        needed = f"at least {MIN_OPS} ops that ran continuously, with time, power and clock"
        raise SpecError(
            "power.flop_j", f"{len(kept)} ops", f"{needed}: `charllm bench ops --suite short` takes 1 minute"
        )
    rows = tuple(row for _, row in kept)
    board = np.array([board for board, _ in kept])
    seconds, watts, clock = (
        np.array([getattr(row.measured, name) for row in rows]) for name in ("seconds_s", "power_w", "clock_hz")
    )
    shapes, window = read_shapes([row.shape for row in rows], gpu), np.array([row.window_s for row in rows])
    traffic = time_kernels(shapes, gpu, clock).memory_bytes / seconds
    before, warm = np.empty(len(rows)), np.empty(len(rows))
    for number in range(len(tables)):
        mine = board == number
        if mine.any():
            start = start_of(starts_c(rows)[mine], gpu, net, cluster.cooling.inlet_of(0))[1]
            before[mine] = start.mean_w
            warm[mine] = warm_c(start, watts[mine], traffic[mine], window[mine], gpu, net)
    none = np.zeros(len(rows), dtype=np.bool_)
    bench = Bench(rows, board, shapes, before, window, warm, seconds, watts, clock, none, none)
    for number, kernels in enumerate(singles, start=len(tables)):
        bench = _join(bench, kernels, number, gpu)
    return bench


def _join(bench: Bench, kernels: Sequence[SingleKernel], board: int, gpu: Gpu) -> Bench:
    """Add kernels by themselves."""
    count = len(kernels)
    rows = tuple(OpRow(each.shape.label, each.shape, None, 1.0, 0.0, 0.0, each.measured) for each in kernels)
    more: dict[str, Any] = {
        "board": np.full(count, board), "before_w": np.zeros(count), "window_s": np.ones(count),
        "warm_c": np.array([each.temperature_c for each in kernels]),
        "at_clock": np.ones(count, dtype=np.bool_), "queued": np.array([each.queued for each in kernels]),
        **{name: np.array([getattr(each.measured, name) for each in kernels])
           for name in ("seconds_s", "power_w", "clock_hz")},
    }  # fmt: skip
    joined = {name: np.concatenate([getattr(bench, name), values]) for name, values in more.items()}
    every = (*bench.rows, *rows)
    # Operands were taken in turn, so that none stayed in cache.
    shapes = read_shapes([row.shape for row in every], gpu, cold=joined["at_clock"])
    return Bench(rows=every, shapes=shapes._replace(queued=joined["queued"]), **joined)


def take(bench: Bench, chosen: Bools, gpu: Gpu) -> Bench:
    """Return some of the rows."""
    rows = tuple(row for row, keep in zip(bench.rows, chosen, strict=True) if keep)
    arrays = {name: getattr(bench, name)[chosen] for name in Bench._fields if name not in ("rows", "shapes")}
    shapes = read_shapes([row.shape for row in rows], gpu, cold=arrays["at_clock"])
    return Bench(rows=rows, shapes=shapes._replace(queued=arrays["queued"]), **arrays)


def parameters_of(gpu: Gpu, bench: Bench, streams: bool = False) -> list[Parameter]:
    """Return what is to be found: the constants of the ops that are there, and a factor for each board."""
    names = [name for name in SPREADS if name.startswith("power.")] + [f"kernels.{name}" for name in KERNEL_FIELDS]
    found = []
    for name in names:
        part, field = name.split(".")
        value = float(getattr(getattr(gpu, part), field))
        if value > 0:
            found.append(Parameter(name, value, SPREADS.get(name, USUAL_SPREAD), *bounds_of(gpu, part, field)))
    if streams:
        for kind in sorted({row.shape.kind for row in bench.rows} & set(STREAMS)):
            if kind not in ("copy", "add"):
                found.append(Parameter(f"stream.{kind}.share", 1.0, STREAM_SPREAD))
            if STREAMS[kind].instructions > 0:
                found.append(Parameter(f"stream.{kind}.instructions", 1.0, INSTRUCTION_SPREAD))
        if any(row.shape.values == "unknown" for row in bench.rows):
            found.append(Parameter("values.unknown", 0.95, 0.1))
        if any(row.shape.values == "zeros" for row in bench.rows):
            found += [Parameter("values.zeros", 0.69, 0.3), Parameter("values.zero_flop", 0.45, 0.5)]
    boards = sorted(set(bench.board.tolist()))
    if len(boards) == 1:
        # One board alone is the GPU: its silicon is in its constants.
        return found
    found += [Parameter(f"board.{number}", 1.0, BOARD_SPREAD, 0.7, 1.4) for number in boards]
    return found


def bounds_of(gpu: Gpu, part: str, field: str) -> tuple[float, float]:
    """Return what a field of a GPU may hold."""
    rules = {each.name: each.metadata["rule"] for each in fields(getattr(gpu, part))}
    return max(1e-30, rules[field].low), rules[field].high


def apply(gpu: Gpu, values: Mapping[str, float]) -> Gpu:
    """Return a GPU with other constants."""
    changes: dict[str, dict[str, Any]] = {"power": {}, "kernels": {}}
    for name, value in values.items():
        part, _, field = name.partition(".")
        if part in changes:
            changes[part][field] = value
    return replace(
        gpu, power=replace(gpu.power, **changes["power"]), kernels=replace(gpu.kernels, **changes["kernels"])
    )


def apply_streams(shapes: Shapes, values: Mapping[str, float]) -> Shapes:
    """Return kernels with other constants of streams and operands, where they are given."""
    if not any(name.startswith(("stream.", "values.")) for name in values):
        return shapes
    changed = {
        name: column * np.array([values.get(f"stream.{shape.kind}.{name}", 1.0) for shape in shapes.kinds])
        for name, column in (("share", shapes.share), ("instructions", shapes.instructions))
    }
    zeros = np.array([shape.values == "zeros" for shape in shapes.kinds])
    unknown = np.array([shape.values == "unknown" and shape.kind in STREAMS for shape in shapes.kinds])
    operands = np.where(zeros, values.get("values.zeros", VALUES["zeros"]), shapes.values)
    operands = np.where(unknown, values.get("values.unknown", VALUES["unknown"]), operands)
    flop_values = np.where(zeros, values.get("values.zero_flop", ZERO_FLOP_FRACTION), shapes.flop_values)
    return shapes._replace(
        share=np.minimum(1.0, changed["share"]), instructions=changed["instructions"], values=operands,
        flop_values=flop_values,
    )  # fmt: skip


def predict(bench: Bench, gpu: Gpu, values: Mapping[str, float]) -> dict[str, Floats]:
    """Return seconds, clock and watts over each window, and seconds and watts at the clock that was read."""
    changed = apply(gpu, values)
    shapes = with_constants(apply_streams(bench.shapes, values), changed)
    silicon = np.array([values.get(f"board.{number}", 1.0) for number in bench.board])
    held = hold_window(shapes, changed, bench.warm_c, bench.before_w, bench.window_s, silicon=silicon)
    times = time_kernels(shapes, changed, bench.clock_hz)
    energies: KernelEnergies = energy_of_kernels(shapes, changed, times)
    matrix = matrix_clock_hz(shapes, changed, bench.clock_hz)
    watts = board_w(changed, energies, bench.seconds_s, bench.clock_hz, matrix, bench.warm_c, silicon)
    return {
        "seconds": np.where(bench.at_clock, times.seconds, held.seconds),
        "clock": np.where(bench.at_clock, bench.clock_hz, held.clock_hz),
        "watts": np.where(bench.at_clock, watts, held.power_w),
        "seconds at clock": times.seconds,
        "watts at clock": watts,
    }


def fit_ops(bench: Bench, gpu: Gpu, streams: bool = False, without: Collection[str] = ()) -> Fit:
    """Fit constants to a bench, all but some that keep the GPU's own value."""
    read = {"seconds": bench.seconds_s, "clock": bench.clock_hz, "watts": bench.power_w}

    errors = {name: np.where(bench.at_clock, SINGLE_ERRORS.get(name, np.inf), error) for name, error in ERRORS.items()}
    weight = np.where(bench.at_clock, 0.0, AT_CLOCK_WEIGHT)

    def residuals(values: dict[str, float]) -> Floats:
        said = predict(bench, gpu, values)
        parts = [np.log(said[name] / read[name]) / error for name, error in errors.items()]
        parts += [
            weight * np.log(said[f"{name} at clock"] / read[name]) / errors[name] for name in ("seconds", "watts")
        ]
        return np.concatenate(parts)

    return fit(residuals, [each for each in parameters_of(gpu, bench, streams) if each.name not in without])


def fit_identified(bench: Bench, gpu: Gpu) -> Fit:
    """Fit twice: first all, to see what the readings tell; then only that, the rest staying what it was."""
    first = fit_ops(bench, gpu)
    vague = {each.name for each in first.found if not each.identified and not each.name.startswith("board.")}
    again = fit_ops(bench, gpu, without=vague)
    found = {each.name: each for each in again.found}
    kept = tuple(found.get(each.name, each._replace(value=each.prior)) for each in first.found)
    return Fit(
        tuple(each._replace(identified=was.identified) for each, was in zip(kept, first.found, strict=True)),
        again.misfit,
    )


def errors_of(bench: Bench, gpu: Gpu, values: Mapping[str, float]) -> dict[str, Floats]:
    """Return the relative error of every op."""
    said = predict(bench, gpu, values)
    read = {"seconds": bench.seconds_s, "watts": bench.power_w, "clock": bench.clock_hz}
    errors = {name: said[name] / figures - 1 for name, figures in read.items()}
    # No clock is predicted for a row that is judged at the clock that was read.
    return {**errors, "clock": np.where(bench.at_clock, np.nan, errors["clock"])}


def folds_by_shape(bench: Bench, folds: int) -> Ints:
    """Deal shapes into folds, so that no shape is both fitted and judged."""
    shapes = sorted({(row.shape.kind, row.shape.dims, row.shape.precision) for row in bench.rows})
    turn = {shape: place % folds for place, shape in enumerate(shapes)}
    return np.array([turn[row.shape.kind, row.shape.dims, row.shape.precision] for row in bench.rows])


def held_out(
    bench: Bench,
    gpu: Gpu,
    folds: int = 4,
    streams: bool = False,
    silicon: bool = True,
    track: Callable[[Iterator[int], int, str], Iterator[int]] = lambda items, _total, _title: items,
) -> dict[str, Floats]:
    """Return the error of every op, predicted by a fit on other shapes; `silicon`: with its board's fitted factor."""
    fold = folds_by_shape(bench, folds)
    errors = {name: np.full(len(bench.rows), np.nan) for name in ERRORS}
    for number in track(iter(range(folds)), folds, "fits"):
        judged = fold == number
        if not judged.any() or judged.all():
            continue
        values = fit_ops(take(bench, ~judged, gpu), gpu, streams).values()
        if not silicon:
            values = {name: value for name, value in values.items() if not name.startswith("board.")}
        for name, found in errors_of(take(bench, judged, gpu), gpu, values).items():
            errors[name][judged] = found
    return errors
