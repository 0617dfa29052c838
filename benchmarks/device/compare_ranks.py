"""Put what an H200 read while it played ranks beside what was predicted before.

    python -m benchmarks.device.compare_ranks READ.csv PREDICTED.csv
"""

import argparse
import csv
import statistics
from pathlib import Path

SHOWN = {"step_time_s": "step s", "power_mean_w": "mean W", "clock_mean_mhz": "MHz", "power_peak_sensor_w": "peak W",
         "temperature_mean_c": "mean C"}  # fmt: skip


def read(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("read", type=Path)
    parser.add_argument("predicted", type=Path)
    arguments = parser.parse_args()
    measured, predicted = read(arguments.read), read(arguments.predicted)
    errors: dict[str, list[float]] = {column: [] for column in SHOWN}
    print(f"{'rank':36s}" + "".join(f"{label + ' read, predicted':>30s}" for label in SHOWN.values()))
    for name in (name for name in predicted if name in measured):
        cells = []
        for column in SHOWN:
            was, said = float(measured[name][column]), float(predicted[name][column])
            error = said - was if column.endswith("_c") else said / was - 1
            errors[column].append(abs(error))
            shown = f"{error:+.1f} K" if column.endswith("_c") else f"{100 * error:+.1f} %"
            cells.append(f"{was:10.4g} {said:10.4g} {shown:>8s}")
        print(f"{name:36s}" + "".join(cells))
    for column, found in errors.items():
        unit = 1 if column.endswith("_c") else 100
        print(f"{column}: median {unit * statistics.median(found):.1f}, largest {unit * max(found):.1f}")


if __name__ == "__main__":
    main()
