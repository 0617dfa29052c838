"""Derive how wrong predictions are, and write it where results read it: ``python -m benchmarks.uncertainty``.

Errors are ln(predicted / measured), or predicted - measured for degrees; their 10th and 90th percentiles bound an
interval of 80 %. Seconds: evaluate/data/predictions.csv. Watts, clocks and degrees: runs on H200 boards that were
predicted before they were read (device/h200). Memory: published and H200 rows (benchmarks/memory.py).
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import READINGS, training_scores
from charllm.evaluate.memory import held_out, read_rows, resolve_rows
from charllm.evaluate.predictions import Prediction, load_predictions
from charllm.result.uncertainty import FILE, LEVEL

TAKES = {
    "later_ranks_predicted.csv": "later_ranks_played.csv",
    "third_ranks_predicted.csv": "third_ranks_played.csv",
    "training_predicted.csv": "training_again.csv",
    "loops_predicted.csv": "loops.csv",
}
"""Runs predicted before they were read with the energy model that ships: predictions, and readings."""
READ_AS = {
    "power_mean_w": ("power_mean_w", "mean_w"),
    "power_peak_sensor_w": ("power_peak_sensor_w",),
    "clock_mean_hz": ("clock_mean_mhz", "sm_mhz"),
    "temperature_mean_c": ("temperature_mean_c", "temp_c"),
    "temperature_peak_c": ("temperature_peak_c",),
}
"""Metric: its columns in the files of takes. The loops' highest readings were taken at another rate."""
WORKING_W, WAITING_W = 691.0, 256.0
"""An H200 at its cap, and the same waiting in a collective that spins (device/h200/README.md)."""
LEAST_ROWS = 8
"""A GPU with as many published rows counts as known."""
# Median power of a node 6.88 kW, predicted 8.07 kW. At a power limit an H100's clock goes with power to the 0.485
# (1501 MHz at 400 W, 1969 at 700 W; arXiv:2604.11391).
OTHER_GPU = {
    "power_fraction": 0.16,
    "clock_over_power": 0.485,
    "basis": "power of other GPUs is scaled from the H200, and the one published run to compare it with (GPT-3 on 512 "
    "H100, MLPerf Training 4.0) is predicted 16 % too high",
}
# python -m benchmarks.h100_caps
CONDITIONS = {
    "low": -0.022,
    "high": 0.022,
    "rows": 6,
    "basis": "Llama 3 8B on four H100 under limits of 200 to 700 W (arXiv:2603.16164; at most 2.2 %)",
}
TUNED = ("interconnect", "mbs", "tp", "pp", "vpp", "cp", "ep", "etp", "fsdp_or_zero", "sp", "recompute", "overlap",
         "graphs", "dispatcher")  # fmt: skip
"""What two rows of a pair may differ in: what single changes of a run change."""
FIXED = ("n_gpus", "gpus_per_node", "framework", "params_b", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab",
         "experts", "topk", "seq", "gbs", "precision", "capacity", "routing")  # fmt: skip
SMALL_EFFECT = 0.05


def quantiles(errors: Sequence[float], *more: Sequence[float]) -> dict[str, Any]:
    """Return the bounds of an interval, the widest over several sets of the same rows, and how many rows those are."""
    tail = (1 - LEVEL) / 2
    low = min(float(np.quantile(one, tail)) for one in (errors, *more))
    high = max(float(np.quantile(one, 1 - tail)) for one in (errors, *more))
    return {"low": round(low, 4), "high": round(high, 4), "rows": len(errors)}


def derive() -> dict[str, Any]:
    """Return everything that intervals of a result rest on."""
    rows = load_predictions()
    return {
        "level": LEVEL,
        "step_time": step_errors(rows),
        "known_gpus": sorted(gpu for gpu, of_gpu in _by_gpu(rows).items() if len(of_gpu) >= LEAST_ROWS),
        "unknown_gpu_factor": unknown_gpu_factor(rows),
        "effect": effect_errors(rows),
        "h200": {metric: quantiles(device_errors(metric)) for metric in READ_AS},
        "waiting_power_fraction": round(1 - WAITING_W / WORKING_W, 3),
        "other_gpu": OTHER_GPU,
        "memory": memory_errors(),
    }


def step_errors(rows: Iterable[Prediction]) -> dict[str, Any]:
    """Return the errors of step time by class; slow hosts are a class of their own."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for row in rows:
        groups[row.kind if row.host == "tuned" else "untuned"].append(row)
    return {kind: quantiles(*_errors(groups[kind])) for kind in sorted(groups)}


def _errors(rows: Iterable[Prediction]) -> tuple[list[float], list[float]]:
    """Return the errors with families left out, and with sources left out."""
    pairs = [(log(row.predicted_s / row.measured_s), log(row.source_left_out_s / row.measured_s)) for row in rows]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _by_gpu(rows: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    found: dict[str, list[Prediction]] = defaultdict(list)
    for row in rows:
        if row.host == "tuned":
            found[row.gpu].append(row)
    return found


def unknown_gpu_factor(rows: Sequence[Prediction]) -> float:
    """Return by how much intervals must be wider so that they hold for four in five GPUs when each is left out."""
    by_gpu = {gpu: own for gpu, own in _by_gpu(rows).items() if len(own) >= LEAST_ROWS}
    for factor in np.arange(1.0, 4.0, 0.1).round(1).tolist():
        held = [_held_fraction(own, rows, factor) >= LEVEL for own in by_gpu.values()]
        if sum(held) >= LEVEL * len(held):
            return float(factor)
    raise ValueError("no factor below 4 covers the GPUs that were left out")


def _held_fraction(own: Sequence[Prediction], rows: Sequence[Prediction], factor: float) -> float:
    """Return the share of a GPU's rows inside intervals that the other GPUs give, widened."""
    others = step_errors(row for row in rows if row.gpu != own[0].gpu)
    inside: list[bool] = [
        factor * others[row.kind]["low"] <= log(row.predicted_s / row.measured_s) <= factor * others[row.kind]["high"]
        for row in own
    ]
    return sum(inside) / len(inside)


def effect_errors(rows: Iterable[Prediction]) -> dict[str, Any]:
    """Return the errors of the ratio of two runs, of small and of larger effects.

    Pairs are rows of one source, model and GPU that differ in tunable settings alone, the predicted gain positive.
    """
    found: dict[str, list[float]] = {"small": [], "large": []}
    for one, other in list_pairs(rows):
        predicted, measured = log(one.predicted_s / other.predicted_s), log(one.measured_s / other.measured_s)
        sign = 1 if predicted >= 0 else -1
        found["small" if abs(predicted) < SMALL_EFFECT else "large"].append(sign * (predicted - measured))
    sizes = {size: quantiles(errors) for size, errors in found.items()}
    return {"below": SMALL_EFFECT, **sizes, "conditions": CONDITIONS}


def list_pairs(rows: Iterable[Prediction]) -> Iterator[tuple[Prediction, Prediction]]:
    """Yield pairs of rows of one job, source and GPU that differ in a tunable setting which both of them state."""
    settings = {row["id"]: row for row in read_rows()}
    groups: dict[tuple[str, ...], list[Prediction]] = defaultdict(list)
    for row in rows:
        if row.host == "tuned":
            alike = (settings[row.id].get(column, "") for column in FIXED)
            groups[row.source, row.model, row.gpu, *alike].append(row)
    for members in groups.values():
        for one, other in combinations(members, 2):
            if _differ(settings[one.id], settings[other.id]):
                yield one, other


def _differ(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Tell whether two rows state different settings; a setting that a row leaves out may be the other's."""
    values = [(one.get(column, "").strip(), other.get(column, "").strip()) for column in TUNED]
    return any(first and second and first != second for first, second in values)


def device_errors(metric: str) -> list[float]:
    """Return the errors of a metric over all runs that an H200 read after they had been predicted."""
    found = []
    for said_file, read_file in TAKES.items():
        said_rows, read_rows_ = _read(said_file), _read(read_file)
        for name in said_rows.keys() & read_rows_.keys():
            for column in READ_AS[metric]:
                said, read = said_rows[name].get(column), read_rows_[name].get(column)
                if said and read:
                    difference = float(said) - float(read)
                    found.append(difference if metric.endswith("_c") else log(float(said) / float(read)))
    return sorted(found)


def _read(file: str) -> dict[str, dict[str, str]]:
    with (READINGS / file).open(newline="", encoding="utf-8") as lines:
        return {row["name"]: row for row in csv.DictReader(lines) if not row.get("error")}


def memory_errors() -> dict[str, Any]:
    """Return the errors of device memory, published rows with their source left out, and runs on an H200."""
    scores = [*held_out(resolve_rows(read_rows())[0]), *training_scores()]
    return quantiles([log(1 + score.error_fraction) for score in scores if score.measure == "device"])


def write(path: Path = FILE) -> None:
    """Write the table that results read."""
    path.write_text(json.dumps(derive(), indent=1) + "\n", encoding="utf-8")


def main() -> None:
    write()
    found = json.loads(FILE.read_text(encoding="utf-8"))
    for kind, one in {**found["step_time"], "memory": found["memory"]}.items():
        print(f"{kind}: {100 * (exp(-one['high']) - 1):+.1f} to {100 * (exp(-one['low']) - 1):+.1f} % ({one['rows']})")


if __name__ == "__main__":
    main()
