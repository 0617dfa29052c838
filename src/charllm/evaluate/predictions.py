"""Every published row beside its held-out predictions, as a table that is computed once and kept.

    python -m charllm.evaluate.predictions

`charllm validate all` scores this table, computed anew; intervals of predictions are derived from it
(evaluate/intervals.py).
"""

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from charllm.evaluate.held_out import Held, hold_out_all, load_rows
from charllm.result.uncertainty import share_of
from charllm.spec.grades import is_untuned
from charllm.spec.run import RunSpec
from charllm.workload.model_flop import model_flop
from charllm.workload.parameters import count_parameters

FILE = Path(str(resources.files("charllm.evaluate") / "data" / "predictions.csv"))
DIGITS = 5
TEXTS = ("id", "source", "kind", "gpu", "model", "precision", "host", "strategy")


class Prediction(NamedTuple):
    """One published row: what it is, what was predicted without it, and what was measured."""

    id: str
    source: str
    kind: str
    """dense, moe or lora."""
    gpu: str
    model: str
    precision: str
    host: str
    """tuned, or untuned: as users run it, or on a host that is not tuned."""
    strategy: str
    """Axes that cut the model, such as tp+pp; fsdp: weights sharded (ZeRO stage 3)."""
    gpus: float
    parameters: float
    flop_per_gpu: float
    """Model FLOPs of a step on one GPU."""
    exposed_fraction: float
    """Shares of the predicted step: exposed communication, bubbles and waiting, the host."""
    wait_fraction: float
    overhead_fraction: float
    predicted_s: float
    """Step time with constants fitted without its model family."""
    source_left_out_s: float
    """The same with constants fitted without its source."""
    gpu_left_out_s: float
    """The same with constants fitted without its GPU."""
    prior_s: float
    """The same with every constant at its prior: nothing fitted."""
    shipped_s: float
    """The same with the constants that ship, which were fitted on all rows."""
    measured_s: float


def describe(held: Held) -> Prediction:
    """Return a row of the table, its numbers as they are written."""
    row, run = held.row, held.row.run
    shares = share_of(held.breakdown_s)
    numbers = (
        run.parallelism.world, count_parameters(run.model, with_mtp=True), model_flop(run) / run.parallelism.world,
        shares["exposed"], shares["wait"], shares["overhead"],
        held.family_s, held.source_s, held.gpu_s, held.prior_s, held.shipped_s, row.measured_s,
    )  # fmt: skip
    return Prediction(row.id, row.source, run.scored_as, run.cluster.gpu.name, run.model.name,
                      run.training.precision, "untuned" if is_untuned(run) else "tuned", strategy_of(run),
                      *(float(f"{number:.{DIGITS}g}") for number in numbers))  # fmt: skip


def strategy_of(run: RunSpec) -> str:
    """Name the axes that cut a model."""
    degrees = run.parallelism
    axes = [name for name in ("tp", "pp", "cp", "ep") if getattr(degrees, name) > 1]
    axes += ["fsdp"] if degrees.zero == 3 and degrees.dp > 1 else []
    return "+".join(axes) or ("dp" if degrees.world > 1 else "one GPU")


@cache
def load_predictions() -> tuple[Prediction, ...]:
    """Read the table that ships with charllm."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return tuple(_read(row) for row in csv.DictReader(file))


def _read(row: dict[str, str]) -> Prediction:
    cells: dict[str, Any] = {name: text if name in TEXTS else float(text) for name, text in row.items()}
    return Prediction(**cells)


def write_rows(path: Path, fields: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table that ships with charllm as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(fields)
        writer.writerows(rows)


def main() -> None:
    """Predict every row and write the table."""
    write_rows(FILE, Prediction._fields, [describe(held) for held in hold_out_all(load_rows())])


if __name__ == "__main__":
    main()
