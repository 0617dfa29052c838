"""The Pareto front: rows of which no other is at least as good in every metric and better in one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.result.metric import HIGHER, metric_value


def front(rows: Sequence[Mapping[str, Any]], axes: Mapping[str, str]) -> list[int]:
    """Return the places of the rows on the front, in order; a row without one of the metrics is not on it.

    `axes` names the metrics, each ``"higher"`` or ``"lower"`` where that is better. Rows that are equal in all of them
    are all on the front.
    """
    columns = [[metric_value(row, name) for row in rows] for name in axes]
    values = np.array([[np.nan if one is None else one for one in column] for column in columns], dtype=np.float64).T
    if not values.size:
        return []
    signs = np.array([-1.0 if better == HIGHER else 1.0 for better in axes.values()])
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    return sorted(known[not_dominated(values[known] * signs)].tolist())


def not_dominated(costs: Floats) -> Ints:
    """Return the places of the rows of [row, metric] that no other dominates; lower is better in every column.

    Rows are taken in the order of their sum, after which none can dominate one before it; each that is kept removes
    all that it dominates at once, so that the work is rows x front.
    """
    left = np.argsort(_ranks(costs).sum(axis=1), kind="stable")
    kept = []
    while len(left):
        best = costs[left[0]]
        kept.append(left[0])
        rest = costs[left]
        dominated = (best <= rest).all(axis=1) & (best < rest).any(axis=1)
        dominated[0] = True
        left = left[~dominated]
    return np.array(kept, dtype=np.int64)


def _ranks(costs: Floats) -> Floats:
    """Return dense ranks of each column, whose sums are exact where those of the values would round."""
    return np.stack([np.unique(column, return_inverse=True)[1].ravel() for column in costs.T], axis=1).astype(float)
