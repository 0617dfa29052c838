"""Every published row beside its held-out prediction, as a table that is computed once and kept.

    python -m charllm.evaluate.predictions

Each row is predicted twice through the closed loop: with constants fitted without its model family, and without its
source. `benchmarks.uncertainty` derives the intervals of a prediction from this table.
"""

import csv
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from charllm.evaluate.held_out import Held, is_untuned, load_folds, load_rows, predict_all
from charllm.evaluate.time import row_class

FILE = Path(str(resources.files("charllm.evaluate") / "data" / "predictions.csv"))
DIGITS = 5


class Prediction(NamedTuple):
    """One published row: what it is, what was predicted without it, and what was measured."""

    id: str
    source: str
    kind: str
    """dense, moe or lora."""
    gpu: str
    model: str
    host: str
    """tuned, or untuned where the node's host is slower than a tuned one."""
    predicted_s: float
    """Step time with constants fitted without its model family."""
    source_left_out_s: float
    """The same with constants fitted without its source."""
    measured_s: float


def describe(by_family: Held, by_source: Held) -> Prediction:
    """Return a row of the table, its numbers as they are written."""
    row = by_family.row
    numbers = (by_family.predicted_s, by_source.predicted_s, row.measured_s)
    return Prediction(row.id, row.source, row_class(row.run), row.run.cluster.gpu.name, row.run.model.name,
                      "untuned" if is_untuned(row) else "tuned",
                      *(float(f"{number:.{DIGITS}g}") for number in numbers))  # fmt: skip


@cache
def load_predictions() -> tuple[Prediction, ...]:
    """Read the table that ships with charllm."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return tuple(_read(row) for row in csv.DictReader(file))


def _read(row: dict[str, str]) -> Prediction:
    numbers: dict[str, Any] = {name: float(row[name]) for name in row if name.endswith("_s")}
    return Prediction(**{**row, **numbers})


def write_predictions(predictions: Iterable[Prediction]) -> None:
    """Write the table."""
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Prediction._fields)
        writer.writerows(predictions)


def main() -> None:
    """Predict every row and write the table."""
    rows, folds = load_rows(), load_folds()
    by_family = predict_all(rows, [folds["family"][row.family] for row in rows], closed=True)
    by_source = predict_all(rows, [folds["source"][row.source] for row in rows], closed=True)
    write_predictions(describe(*pair) for pair in zip(by_family, by_source, strict=True))


if __name__ == "__main__":
    main()
