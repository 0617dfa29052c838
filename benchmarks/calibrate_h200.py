"""Fit an H200's power and kernels, and score them.

``python -m benchmarks.calibrate_h200 OPS.csv GROUPED.csv [--write]``

Six takes on six boards: the two tables given (the layouts of charllm/evaluate/ops_table.py; not part of this
repository), ops.csv and readings.csv of evaluate/h200/readings, and the kernels by themselves of single_kernels.csv and
single_kernels_again.csv, which are judged at the clock that was read. All are fitted together and scored in sample and
by 5 folds of shapes, each predicted by a fit on the others. `--write` puts the constants into the catalog and those of
memory-bound kernels into gpu/memory_bound.py.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from charllm.arrays import Floats
from charllm.calibrate.least_squares import Fit
from charllm.calibrate.ops import Bench, apply, errors_of, fit_ops, gather, held_out
from charllm.calibrate.write import written
from charllm.evaluate.h200.tables import READINGS
from charllm.evaluate.ops import CLASSES, bench_machine, classes_of
from charllm.evaluate.ops_table import read_ops, read_single_kernels
from charllm.gpu.memory_bound import STREAMS, StreamKind
from charllm.gpu.steady import hold_window
from charllm.report.tables import render_table
from charllm.units import MICRO, NANO, PICO

CATALOG = Path(__file__).parent.parent / "src" / "charllm" / "catalog" / "gpus" / "h200.toml"
PRIORS = {
    "power.active_w": 10.5,
    "power.leakage_w_per_k": 0.725,
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
    "kernels.fill_fraction": 0.36,
    "kernels.wave_fraction": 0.5,
    "kernels.ramp": 120.0,
    "kernels.roof_power": 2.4,
    "kernels.reread_factor": 1.4,
}
"""Where the fit starts and what holds it: round figures of an earlier model of one board; what is not named starts from
the catalog. active_w and leakage stay near a fit of the three tables with start temperatures."""
BOARDS = ("first", "grouped", "ops", "readings", "single kernels", "single kernels again")
FOLDS = 5
MEMORY_BOUND = CATALOG.parent.parent.parent / "gpu" / "memory_bound.py"


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
    print(render_table(f"All boards (misfit {found.misfit:.2f})", ["", "value", "+-", ""], rows), end="\n\n")


def write_catalog(found: Fit) -> None:
    """Replace the tables of power and kernels in the catalog's file."""
    text = CATALOG.read_text()
    kept = {"power": KEPT_POWER, "kernels": ""}
    for part, more in kept.items():
        text = re.sub(rf"\[h200\.{part}\]\n(?:[^\[\n].*\n)*\n?", "", text)
        own = [each for each in found.found if each.name.startswith(f"{part}.")]
        figures = [written(each.name.removeprefix(f"{part}."), each.value, each.error_fraction) for each in own]
        lines = "".join(f'{key} = [{value}, "ops"]\n' for key, value in figures)
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


def write_streams(values: dict[str, float]) -> None:
    """Multiply rates and instructions of memory-bound kernels by what was found."""
    text = MEMORY_BOUND.read_text()
    for kind, stream in STREAMS.items():
        rate, count = (values.get(f"stream.{kind}.{name}", 1.0) for name in ("share", "instructions"))
        if rate != 1.0 or count != 1.0:
            text = re.sub(
                rf'    "{kind}": StreamKind\(.*\),\n', f'    "{kind}": {_as_code(stream, rate, count)},\n', text
            )
    MEMORY_BOUND.write_text(text)


def _as_code(stream: StreamKind, rate: float, count: float) -> str:
    shares = ", ".join(f"{min(1.0, rate * share):.3g}" for share in stream.by_width)
    parts = [f"{stream.element_bytes:g}", f"{min(1.0, rate * stream.share):.3g}", f"{count * stream.instructions:.3g}"]
    parts += [f"{stream.width_power:g}"] if stream.width_power else []
    parts += [f"by_width=({shares})"] if shares else []
    return f"StreamKind({', '.join(parts)})"


def main(words: list[str]) -> None:
    """Fit, score, print."""
    paths = [word for word in words if not word.startswith("-")]
    cluster = bench_machine("h200")
    gpu = apply(cluster.gpu, PRIORS)
    tables = [read_ops(path)[0] for path in (*paths, str(READINGS / "ops.csv"), str(READINGS / "readings.csv"))]
    names = ("single_kernels.csv", "single_kernels_again.csv")
    bench = gather(tables, cluster, [read_single_kernels(str(READINGS / name)) for name in names])
    shapes, windows = bench.shapes, (bench.warm_c, bench.before_w, bench.window_s)
    kinds = classes_of(shapes, cluster.gpu, hold_window(shapes, cluster.gpu, *windows))
    found = fit_ops(bench, gpu, streams=True)
    show_constants(found)
    describe(bench, kinds, errors_of(bench, gpu, found.values()), "In sample, with each board's factor")
    if "--no-folds" not in words:
        errors = held_out(bench, gpu, FOLDS, streams=True)
        describe(bench, kinds, errors, f"{FOLDS} folds of shapes, each board's factor")
    if "--write" in words:
        write_catalog(found)
        write_streams(found.values())


if __name__ == "__main__":
    main(sys.argv[1:])
