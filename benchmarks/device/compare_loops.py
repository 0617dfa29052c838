"""Put what an H200 read of bare loops beside what was predicted before.

python -m benchmarks.device.compare_loops READ.csv PREDICTED.csv
"""

import argparse
import csv
import statistics
from pathlib import Path

from charllm.evaluate.h200.loop_cases import DENSE, SPARSE

SHOWN = {"step_s": "step s", "mean_w": "mean W", "sm_mhz": "MHz"}


def read(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file) if not row.get("error")}


def percentile(errors: list[float], share: float) -> float:
    """The smallest error that as large a share of them does not exceed."""
    return sorted(errors)[min(len(errors) - 1, int(share * len(errors)))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("read", type=Path)
    parser.add_argument("predicted", type=Path)
    arguments = parser.parse_args()
    measured, predicted = read(arguments.read), read(arguments.predicted)
    print(f"{'loop':42s}" + "".join(f"{label + ' read, predicted':>30s}" for label in SHOWN.values()))
    for group, names in {"dense": DENSE, "sparse": SPARSE}.items():
        known = [name for name in names if name in measured and name in predicted]
        errors: dict[str, list[float]] = {column: [] for column in SHOWN}
        for name in known:
            cells = []
            for column in SHOWN:
                was, said = float(measured[name][column]), float(predicted[name][column])
                errors[column].append(said / was - 1)
                cells.append(f"{was:10.4g} {said:10.4g} {100 * errors[column][-1]:+7.1f}%")
            print(f"{name:42s}" + "".join(cells))
        for column, found in errors.items():
            if found:
                sizes = [abs(error) for error in found]
                worst = 100 * percentile(sizes, 0.9)
                print(f"{group}, {len(found)} loops, {SHOWN[column]}: median {100 * statistics.median(sizes):.1f} %, "
                      f"p90 {worst:.1f} %, mean {100 * statistics.fmean(found):+.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
