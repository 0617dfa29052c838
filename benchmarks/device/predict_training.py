"""Predict the training runs of training_cases.py as `charllm simulate` does, before a board runs them.

python -m benchmarks.device.predict_training -o src/charllm/evaluate/h200/readings/training_predicted.csv [--later]
"""

import argparse
import csv
from pathlib import Path

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.h200.training_cases import LATER, TRAINING
from charllm.simulate.predict import predict
from charllm.units import MEGA

COLUMNS = ("name", "step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_mhz", "temperature_mean_c",
           "temperature_peak_c")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--later", action="store_true", help="the later runs instead")
    arguments = parser.parse_args()
    requests = LATER if arguments.later else {name: request for name, (request, _) in TRAINING.items()}
    rows = []
    for name, request in requests.items():
        metrics = predict(resolve_run(request)).result.metrics
        cells = [metrics["clock_mean_hz"] / MEGA if column == "clock_mean_mhz" else metrics[column]
                 for column in COLUMNS[1:]]  # fmt: skip
        rows.append([name, *(f"{cell:.5g}" for cell in cells)])
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    print(len(rows), "runs")


if __name__ == "__main__":
    main()
