"""Protocols of collectives against a smooth form: both fitted on NCCL tables with one GPU held out in turn.

    python -m benchmarks.fit_protocols NCCL.csv

Prints median and 90th percentile of the error in per cent, of all sizes and from 1 MiB on, and the fitted constants;
docs/concepts/time.md states what came out.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.network.collectives import RING_SHAPES, SWITCH_GAIN
from charllm.network.protocols import PROTOCOLS
from charllm.units import GIGA, MIB

Floats = NDArray[np.float64]
LINKS = {
    "a100_sxm": 300,
    "h100_sxm": 450,
    "h200_sxm": 450,
    "b200_sxm": 900,
    "b300_sxm": 900,
    "gb200": 900,
    "gb300": 900,
}
"""GPU of the table: its link in GB/s each way."""
VERSIONS = {"a100_sxm": "2.27.3"}
LATEST = "2.29.2"
SCALE, PRIOR = 0.15, 0.05
"""Errors much larger than the scale count linearly; weight of the starting values."""
SIZES = {"all": 0.0, "from 1 MiB": MIB, "from 16 MiB": 16 * MIB}


class Table(NamedTuple):
    """Collectives of one node, one entry each."""

    gpu: NDArray[np.str_]
    steps: Floats
    message: Floats
    sent: Floats
    link: Floats
    """Bytes a second of its ring over the share of a link that large rings reach."""
    seconds: Floats


Form = Callable[[Table, Floats], Floats]


def read_table(path: Path) -> Table:
    """Read half-precision collectives inside a node, of one release for each GPU."""
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            gpu = row["gpu"]
            if gpu not in LINKS or row["dtype"] != "half" or row["table_version"] != VERSIONS.get(gpu, LATEST):
                continue
            kind, ranks, message = (
                row["op"].replace("alltoall", "all_to_all"),
                int(row["n_gpus"]),
                float(row["message_bytes"]),
            )
            rounds = 2 if kind == "all_reduce" else 1
            share, loss = RING_SHAPES[kind]
            switch = SWITCH_GAIN if kind == "all_reduce" and gpu != "a100_sxm" and ranks >= 4 else 1.0
            steps = 1 if kind == "all_to_all" else rounds * (ranks - 1)
            sent = rounds * (ranks - 1) / ranks * message
            link = LINKS[gpu] * GIGA * share * (1 - loss / ranks) * switch
            found.append((gpu, steps, message, sent, link, float(row["latency_us"]) * 1e-6))
    columns = list(zip(*found, strict=True))
    return Table(np.array(columns[0]), *(np.array(column, dtype=np.float64) for column in columns[1:]))


def smooth(table: Table, constants: Floats) -> Floats:
    """Latency, hop, setup, knee in bytes, share of the link."""
    latency, hop, setup, knee, share = constants
    return np.asarray(
        latency + table.steps * hop + setup * table.sent / (table.sent + knee) + table.sent / (table.link * share)
    )


def protocols(table: Table, constants: Floats) -> Floats:
    """Latencies and hops of LL, LL128 and Simple, what copies of the first two reach, share of the link."""
    most = (*constants[6:8], np.inf)
    ways = [
        constants[place]
        + table.steps * constants[3 + place]
        + table.sent / np.minimum(protocol.share * table.link * constants[8], most[place])
        for place, protocol in enumerate(PROTOCOLS.values())
    ]
    return np.asarray(np.minimum.reduce(ways))


FORMS: dict[str, tuple[Form, tuple[float, ...]]] = {
    "smooth": (smooth, (5e-6, 1.6e-6, 45e-6, 8e6, 0.8)),
    "protocols": (protocols, (5e-6, 8e-6, 17e-6, 0.6e-6, 1.2e-6, 3.4e-6, 20e9, 150e9, 0.8)),
}
"""Name: form, and where its constants begin."""


def fit(form: Form, table: Table, kept: NDArray[np.bool_], begin: Floats, rounds: int = 60) -> Floats:
    """Fit the logarithms of constants to logarithms of times: damped Gauss-Newton, robust, held near where it began."""

    def errors(logs: Floats) -> Floats:
        return np.asarray(np.log(form(table, np.exp(logs)) / table.seconds)[kept])

    def cost(logs: Floats) -> float:
        return float(2 * np.sum(np.sqrt(1 + (errors(logs) / SCALE) ** 2) - 1) + PRIOR * np.sum((logs - start) ** 2))

    start = np.log(begin)
    now, damping = start.copy(), 1e-2
    for _ in range(rounds):
        at = errors(now)
        weights = 1 / np.sqrt(1 + (at / SCALE) ** 2) / SCALE**2
        slope = np.stack([(errors(now + 1e-4 * unit) - at) / 1e-4 for unit in np.eye(len(now))], axis=1)
        left = (slope * weights[:, None]).T @ slope + PRIOR * np.eye(len(now))
        right = (slope * weights[:, None]).T @ at + PRIOR * (now - start)
        step = np.clip(np.linalg.solve(left + damping * np.diag(np.diag(left)), -right), -0.5, 0.5)
        better = cost(now + step) < cost(now)
        now, damping = (now + step, max(damping / 3, 1e-6)) if better else (now, damping * 4)
    return np.asarray(np.exp(now))


def describe(errors: Floats) -> str:
    sizes = np.abs(np.exp(errors) - 1)
    return f"{100 * np.median(sizes):5.1f} /{100 * np.quantile(sizes, 0.9):5.1f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table", type=Path)
    table = read_table(parser.parse_args().table)
    print(f"{len(table.seconds)} collectives of {len(LINKS)} GPUs, one held out in turn")
    for name, (form, begin) in FORMS.items():
        held = np.zeros(len(table.seconds))
        for gpu in LINKS:
            own = table.gpu == gpu
            constants = fit(form, table, ~own, np.array(begin))
            held[own] = np.log(form(table, constants) / table.seconds)[own]
        scores = ", ".join(f"{label} {describe(held[table.message >= least])}" for label, least in SIZES.items())
        whole = fit(form, table, table.seconds > 0, np.array(begin))
        print(f"  {name:10s} {scores}; fitted on all: {' '.join(f'{value:.3g}' for value in whole)}")


if __name__ == "__main__":
    main()
