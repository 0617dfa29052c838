"""What attribution, replay and comparison give on recorded, traced runs.

    python -m benchmarks.traced_runs FOLDER...

Each FOLDER is a run of `benchmarks/device/traced_steps.py`, unpacked. For each: error of energy in bins that the fit
has not seen, unknown kernels, what profiling cost, step time of the unchanged replay, and seconds and launches of each
class beside those that `charllm simulate` assumes for the reference trainer.
"""

import argparse
import json
from pathlib import Path

from charllm.api.ops_comparison import compare_ops
from charllm.api.replay import replay
from charllm.api.trace import trace
from charllm.measure.marks import find_steps, read_marks
from charllm.measure.profiled import part_profiled


def describe(folder: Path) -> None:
    (found,) = trace(folder)["energy"]
    error, unknown = 100 * found["held_out_fraction"], 100 * found["unknown_fraction"]
    print(f"{folder.name}: held out {error:.1f} %, unknown {unknown:.2f} %, {found['bins']} bins, clocks agree within "
          f"{1e6 * found['clock_error_s']:.0f} us")  # fmt: skip
    for row in found["phases"]:
        print(f"  {row['name']:12} {row['power_w']:5.0f} W ({row['power_low_w']:.0f} to {row['power_high_w']:.0f})")
    if not found["step_time_s"]:
        return
    (marks,) = read_marks(folder).values()
    cost = part_profiled(find_steps(marks), marks).as_table()["cost_fraction"]
    again = replay(folder)
    print(f"  profiling cost {100 * cost:+.1f} %; replayed unchanged {100 * again.found.error_fraction:+.3f} %")
    spec = {**json.loads((folder / "spec.json").read_text()), "framework": "reference"}
    compared = compare_ops(folder, spec)
    for row in compared.classes:
        seconds, launches = row.seconds, row.launches
        print(f"  {row.work:14} {1e3 * seconds[0]:8.2f} ms traced, {1e3 * seconds[1]:8.2f} simulated, "
              f"{launches[0]:5.0f} and {launches[1]:5.0f} launches")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        describe(folder)


if __name__ == "__main__":
    main()
