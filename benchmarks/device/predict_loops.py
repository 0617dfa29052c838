"""Predict the loops of loop_cases.py as `charllm simulate` does, before a board runs them.

python -m benchmarks.device.predict_loops OUT.csv [--only TEXT]
"""

import argparse
import csv
from pathlib import Path

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.h200.loop_cases import LOOPS, request
from charllm.simulate.predict import predict
from charllm.units import MEGA

COLUMNS = ("name", "step_s", "mean_w", "sm_mhz", "instant_max_w", "temp_c", "j_per_step", "peak_mem_gib", "parameters")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="loops whose names contain one of these, apart by |")
    arguments = parser.parse_args()
    rows = []
    for name, loop in LOOPS.items():
        if not any(text in name for text in arguments.only.split("|")):
            continue
        metrics = predict(resolve_run(request(name, loop)), ignore_memory=True).result.metrics
        cells = (metrics["step_time_s"], metrics["power_mean_w"], metrics["clock_mean_hz"] / MEGA,
                 metrics["power_peak_sensor_w"], metrics["temperature_mean_c"],
                 metrics["step_time_s"] * metrics["power_mean_w"], metrics["memory_peak_bytes"] / 2**30,
                 metrics["parameters"])  # fmt: skip
        rows.append([name, *(f"{cell:.5g}" for cell in cells)])
        print(*rows[-1], flush=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
