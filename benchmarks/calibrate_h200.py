"""Fit an H200's power and kernels, and score them: ``python -m benchmarks.calibrate_h200 FIRST.csv [--write]``.

Three boards: the table given (one-second windows, the layout of charllm/validate/ops_table.py; not part of this
repository), and ops.csv and readings.csv of benchmarks/device/h200. First the first two are fitted and the third is
scored, which no constant has seen; then all three are fitted and scored by 4 folds of shapes, each predicted by a fit
on the others. `--write` puts the constants into the catalog; those of streams are printed for power/kernels.py.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from charllm.calibrate.least_squares import Fit, Parameter, fit
from charllm.calibrate.ops import (
    ERRORS,
    Bench,
    apply,
    apply_streams,
    errors_of,
    fit_ops,
    gather,
    held_out,
    take,
)
from charllm.calibrate.write import as_figures
from charllm.evaluate.ops import CLASSES, bench_machine, classes_of
from charllm.evaluate.ops_table import read_ops
from charllm.gpu.steady import hold_window
from charllm.report.tables import render_table
from charllm.spec.hardware import Gpu
from charllm.units import MICRO, NANO, PICO

Floats = NDArray[np.float64]
DEVICE = Path(__file__).parent / "device" / "h200"
CATALOG = Path(__file__).parent.parent / "src" / "charllm" / "catalog" / "gpus" / "h200.toml"
PRIORS = {
    "power.active_w": 9.0,
    "power.leakage_w_per_k": 0.6,
    "power.voltage_slope_per_hz": 0.4 * NANO,
    "power.flop_j": 0.75 * PICO,
    "power.fp8_flop_j": 0.45 * PICO,
    "power.softmax_flop_fraction": 0.08,
    "power.softmax_backward_flop_fraction": 0.3,
    "power.instruction_j": 13 * PICO,
    "power.cache_byte_j": 40 * PICO,
    "power.memory_byte_j": 50 * PICO,
    "kernels.cache_fraction": 1.3,
    "kernels.gap_s": 3.6 * MICRO,
    "kernels.stream_gap_s": 3.3 * MICRO,
    "kernels.split_s": 2 * MICRO,
    "kernels.launch_s": 13.5 * MICRO,
    "kernels.fill_fraction": 0.1,
    "kernels.padding_fraction": 0.4,
    "kernels.wave_fraction": 0.5,
    "kernels.ramp": 120.0,
    "kernels.roof_power": 2.4,
    "kernels.reread_factor": 1.4,
}
"""Where the fit starts and what holds it: round figures of an earlier model of one board, and what a kernel that polls
in one block draws above an idle context (133 - 124 W); what is not named starts from the catalog."""
BOARDS = ("first", "ops", "readings")


def describe(bench: Bench, kinds: Sequence[str], errors: dict[str, Floats], title: str) -> None:
    """Print medians and 90th percentiles by class and by board."""
    names = np.array(kinds)
    groups = {"all": np.ones(len(names), dtype=bool), **{kind: names == kind for kind in CLASSES}}
    groups |= {f"board {name}": bench.board == place for place, name in enumerate(BOARDS)}
    rows = []
    for name, chosen in groups.items():
        cells = []
        for found in errors.values():
            seen = found[chosen & np.isfinite(found)]
            cells.append(
                f"{100 * np.median(abs(seen)):.2f} / {100 * np.quantile(abs(seen), 0.9):.1f}" if len(seen) else "-"
            )
        if chosen.any():
            rows.append([name, str(int(chosen.sum())), *cells])
    print(render_table(f"{title}: median / 90th percentile of |error|, %", ["", "ops", *errors], rows), end="\n\n")


def own_silicon(bench: Bench, gpu: Gpu, values: dict[str, float], board: int) -> dict[str, float]:
    """Return constants with one board's factor fitted, all else kept."""

    def residuals(found: dict[str, float]) -> Floats:
        errors = errors_of(bench, gpu, {**values, **found})
        return np.concatenate([errors[name] / error for name, error in ERRORS.items()])

    return {**values, **fit(residuals, [Parameter(f"board.{board}", 1.0, 0.03, 0.7, 1.4)]).values()}


def without_boards(values: dict[str, float]) -> dict[str, float]:
    """Return constants for a board of which nothing is known."""
    return {name: value for name, value in values.items() if not name.startswith("board.")}


def show_constants(found: Fit) -> None:
    """Print each constant with its error."""
    rows = [
        [
            each.name,
            f"{each.value:.4g}",
            f"{100 * each.error_fraction:.1f} %",
            "" if each.identified else "not identified",
        ]
        for each in found.found
    ]
    print(render_table(f"All three boards (misfit {found.misfit:.2f})", ["", "value", "+-", ""], rows), end="\n\n")


def write_catalog(found: Fit) -> None:
    """Replace the tables of power and kernels in the catalog's file."""
    text = CATALOG.read_text()
    kept = {"power": KEPT_POWER, "kernels": ""}
    for part, more in kept.items():
        text = re.sub(rf"\[h200\.{part}\]\n(?:[^\[\n].*\n)*\n?", "", text)
        lines = "".join(f'{key} = [{value}, "ops"]\n' for key, value in as_figures(found, part))
        text = text.replace("[h200-nvl]\n", f"[h200.{part}]\n{more}{lines}\n[h200-nvl]\n")
    CATALOG.write_text(text)


KEPT_POWER = """idle_w = [76, "rest"]
static_w = [76, "rest"]
context_w = [45, "rest"]
polling_w = [130, "spin"]
voltage_reference_mhz = [1500, "reference"]
voltage_floor_fraction = [0.95, "floor"]
fp4_flop_pj = [0.23, "no_fp4"]
link_byte_pj = [10, "link"]
"""


def main(words: list[str]) -> None:
    """Fit, score, print."""
    paths = [words[0], str(DEVICE / "ops.csv"), str(DEVICE / "readings.csv")]
    cluster = bench_machine("h200")
    gpu = apply(cluster.gpu, PRIORS)
    bench = gather([read_ops(path)[0] for path in paths], cluster)
    everything = fit_ops(bench, gpu, streams=True)
    values = everything.values()
    shapes, fitted = apply_streams(bench.shapes, values), apply(gpu, values)
    kinds = classes_of(shapes, fitted, hold_window(shapes, fitted, bench.warm_c, bench.before_w, bench.window_s))

    third = bench.board == 2
    seen = fit_ops(take(bench, ~third, gpu), gpu, streams=True).values()
    blind, kinds_blind = (
        take(bench, third, gpu),
        [kind for kind, is_third in zip(kinds, third, strict=True) if is_third],
    )
    describe(blind, kinds_blind, errors_of(blind, gpu, without_boards(seen)), "Third board, fitted on the other two")
    fitted_once = own_silicon(blind, gpu, without_boards(seen), 2)
    print(f"its silicon: {fitted_once['board.2']:.3f}")
    describe(blind, kinds_blind, errors_of(blind, gpu, fitted_once), "The same with that one factor")

    describe(bench, kinds, errors_of(bench, gpu, values), "All three, in sample, with each board's factor")
    describe(bench, kinds, held_out(bench, gpu, streams=True), "4 folds of shapes, with each board's factor")
    describe(bench, kinds, held_out(bench, gpu, streams=True, silicon=False), "4 folds of shapes, no factor")
    show_constants(everything)
    if "--write" in words:
        write_catalog(everything)


if __name__ == "__main__":
    main(sys.argv[1:])
