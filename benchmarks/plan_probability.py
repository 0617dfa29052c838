"""Fit the spreads of plan/probability.py, and check its probabilities: ``python -m benchmarks.plan_probability``.

Pairs are published runs of one job, source and GPU that state different settings (evaluate/intervals.py), each
predicted held out. A pair whose order is said to be 80 % sure should come out so in about 80 %: each pair is judged
with spreads fitted to the other sources. Pairs that are predicted to be equal say nothing and are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import t as student

from charllm.arrays import Bools, Floats
from charllm.evaluate.held_out import load_rows
from charllm.evaluate.memory import read_rows
from charllm.evaluate.predictions import Prediction, load_predictions
from charllm.plan.probability import FREEDOM

EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
EQUAL = 1e-3
"""Predicted ratios nearer to 1 than this are no order."""
START = np.log([0.04, 0.1])


class Pairs(NamedTuple):
    """Pairs of runs, an entry each."""

    source: NDArray[np.str_]
    predicted: Floats
    """ln of the ratio of step times."""
    measured: Floats
    microbatch: Floats
    """ln of the ratio of the sequences of a microbatch."""


TUNED = ("interconnect", "mbs", "tp", "pp", "vpp", "cp", "ep", "etp", "fsdp_or_zero", "sp", "recompute", "overlap",
         "graphs", "dispatcher")  # fmt: skip
"""What two rows of a pair may differ in: what single changes of a run change."""
FIXED = ("n_gpus", "gpus_per_node", "framework", "params_b", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab",
         "experts", "topk", "seq", "gbs", "precision", "capacity", "routing")  # fmt: skip


def list_pairs(rows: Iterable[Prediction]) -> Iterator[tuple[Prediction, Prediction]]:
    """Yield pairs of rows of one job, source and GPU that differ in a tunable setting which both of them state."""
    settings = {row["id"]: row for row in read_rows()}
    groups: dict[tuple[str, ...], list[Prediction]] = defaultdict(list)
    for row in (row for row in rows if row.host == "tuned"):
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


def load_pairs() -> Pairs:
    """Read the pairs."""
    listed = list(list_pairs(load_predictions()))
    sequences = {row.id: row.run.training.micro_batch_size for row in load_rows()}
    return Pairs(
        np.array([one.source for one, _ in listed]),
        np.array([log(one.predicted_s / other.predicted_s) for one, other in listed]),
        np.array([log(one.measured_s / other.measured_s) for one, other in listed]),
        np.array([log(sequences[one.id] / sequences[other.id]) for one, other in listed]),
    )


def fit(pairs: Pairs, used: Bools) -> Floats:
    """Return the spreads of greatest likelihood: own, and for each e-fold of the microbatch."""

    def cost(logs: Floats) -> float:
        spread = _pair_spread(np.exp(logs), pairs.microbatch[used])
        errors = (pairs.predicted - pairs.measured)[used]
        return float(-np.sum(student.logpdf(errors / spread, FREEDOM) - np.log(spread)))

    return np.asarray(np.exp(minimize(cost, START, method="Nelder-Mead", options={"maxiter": 4000}).x))


def _pair_spread(spreads: Floats, microbatch: Floats) -> Floats:
    return np.asarray(np.sqrt(2 * spreads[0] ** 2 + (spreads[1] * microbatch) ** 2))


def judge(pairs: Pairs) -> Floats:
    """Return for each pair the probability that its predicted order is right, by spreads of the other sources."""
    found = np.zeros(len(pairs.source))
    for source in np.unique(pairs.source):
        mine = pairs.source == source
        spread = _pair_spread(fit(pairs, ~mine), pairs.microbatch[mine])
        found[mine] = student.cdf(np.abs(pairs.predicted[mine]) / spread, FREEDOM)
    return found


def print_reliability(said: Floats, right: Bools, edges: Sequence[float] = EDGES) -> None:
    """Print how often pairs of a stated probability came out in that order."""
    print("said        pairs  mean said  right")
    for low, high in pairwise(edges):
        inside = (said >= low) & (said < high)
        if inside.any():
            print(
                f"{low:.1f} to {high:.1f}  {inside.sum():5d}  {said[inside].mean():9.2f}  {right[inside].mean():5.2f}"
            )
    print(f"all         {len(said):5d}  {said.mean():9.2f}  {right.mean():5.2f}")


def main() -> None:
    """Print fitted spreads and reliability."""
    pairs = load_pairs()
    own, microbatch = fit(pairs, np.ones(len(pairs.source), dtype=bool))
    print(f"{len(pairs.source)} pairs: own {own:.3f}, microbatch {microbatch:.3f}")
    apart = np.abs(pairs.predicted) >= EQUAL
    print_reliability(judge(pairs)[apart], (pairs.predicted * pairs.measured > 0)[apart])


if __name__ == "__main__":
    main()
