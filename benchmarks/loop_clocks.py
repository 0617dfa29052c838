"""Step-time scores with the loop open and closed, and the clocks at which the loop plays published runs.

    python -m benchmarks.loop_clocks PUBLISHED.csv [--apply]

Rates of products were fitted on published step times, so they hold at the clock those runs had: the one at which, on
the median over the rows of a GPU, the loop takes as long as they say. --apply moves the catalog's clocks towards it,
where they are marked as found so; twice is enough.
"""

import argparse
import re
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from charllm.errors import CharllmError
from charllm.evaluate.memory import read_rows
from charllm.evaluate.scores import describe_errors
from charllm.evaluate.time import measured_step_s, resolve_row, row_class
from charllm.simulate import play
from charllm.simulate.steady import build_machine, play_to_steady
from charllm.timeline.step_time import time_step
from charllm.workload.step import build_step

CATALOG = Path(__file__).parent.parent / "src" / "charllm" / "catalog" / "gpus"
LEAST_ROWS = 8
CLOCK_SHARE = 1.5
"""How much more the clock of products moves than the step: they are about two thirds of it."""
FIELDS = ("matmul_clock_fraction", "attention_clock_fraction")


class Row(NamedTuple):
    """One published run: measured and predicted seconds, its mean clock over the highest."""

    id: str
    gpu: str
    kind: str
    measured_s: float
    open_s: float
    closed_s: float
    clock_fraction: float


def play_rows(path: str) -> list[Row]:
    found = []
    for row in read_rows(path):
        measured_s = measured_step_s(row)
        if not measured_s:
            continue
        try:
            run = resolve_row(row)
        except (CharllmError, ValueError):
            continue
        step = build_step(run)
        timed = time_step(step)
        machine = build_machine(step, timed)
        played = play_to_steady(machine)
        weights = np.tile(machine.fold.weights, run.parallelism.pp)
        clock_hz = float(np.average(played.sums[:, play.CLOCK_S], weights=weights) / played.step_time_s)
        gpu = run.cluster.gpu
        found.append(
            Row(row["id"], gpu.name, row_class(run), measured_s, timed.step_time_s, played.step_time_s,
                clock_hz / gpu.clock_max_hz)
        )  # fmt: skip
    return found


def describe(rows: list[Row]) -> str:
    parts = []
    for name in ("open_s", "closed_s"):
        errors = describe_errors([getattr(row, name) / row.measured_s - 1 for row in rows])
        shown = (100 * errors[f"{key}_error_fraction"] for key in ("median_abs", "p90_abs", "mean"))
        parts.append("{} {:.1f} / {:.1f} / {:+.1f} %".format(name.removesuffix("_s"), *shown))
    return ", ".join(parts)


def apply(ratios: dict[str, float]) -> None:
    """Lower the clock that rates hold at where the loop takes longer than they say, and the other way round."""
    for path in CATALOG.glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        for gpu, ratio in ratios.items():
            begin = text.find(f"[{gpu}]\n")
            end = text.find("\n[", begin + 1)
            part = text[begin : end if end > 0 else len(text)] if begin >= 0 else ""
            changed = part
            for field in FIELDS:
                for old in re.findall(rf'^{field} = \[([\d.]+), "loop"\]$', part, flags=re.M):
                    moved = min(1.0, float(old) * ratio**-CLOCK_SHARE)
                    changed = changed.replace(f"{field} = [{old},", f"{field} = [{moved:.3g},")
            text = text.replace(part, changed) if part else text
        path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("published")
    parser.add_argument("--apply", action="store_true")
    arguments = parser.parse_args()
    start = time.perf_counter()
    rows = play_rows(arguments.published)
    print(
        f"{len(rows)} rows in {time.perf_counter() - start:.0f} s; median / 90th percentile / mean error of step time"
    )
    print(f"all: {describe(rows)}")
    for kind in ("dense", "moe", "lora"):
        print(f"{kind}: {describe([row for row in rows if row.kind == kind])}")
    by_gpu: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_gpu[row.gpu].append(row)
    for gpu, own in sorted(by_gpu.items()):
        ratio = median(row.closed_s / row.open_s for row in own)
        print(f"{gpu}: {len(own)} rows, clock {median(row.clock_fraction for row in own):.3f} of the highest, "
              f"closed over open {ratio:.3f}; {describe(own)}")  # fmt: skip
    if arguments.apply:
        apply({gpu: median(row.closed_s / row.open_s for row in own) for gpu, own in by_gpu.items()
               if len(own) >= LEAST_ROWS})  # fmt: skip


if __name__ == "__main__":
    main()
