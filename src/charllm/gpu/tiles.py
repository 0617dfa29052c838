"""Tiles of a product's output, and parts of one in depth: what multiprocessors work on in waves.

Equation: waves = tiles x parts / multiprocessors, with ceil(rows / tile rows) x ceil(columns / tile columns) tiles.
A grouped product has one tile, 128 rows of one group by 256 columns, in whole steps of depth.
Source: ops on five H200 boards (benchmarks/calibrate_h200.py), with the best of these tiles in gpu/kernels.py.
Ignores: tiles that are not listed, and libraries that do not pick the fastest.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats
from charllm.gpu.formats import GROUPED_STEP, GROUPED_TILE

TILES = (
    (256, 128, 1.0), (128, 256, 1.0), (128, 192, 0.98), (192, 128, 0.98), (128, 128, 0.95), (64, 256, 0.9),
    (256, 64, 0.9), (128, 64, 0.8), (64, 128, 0.8), (64, 64, 0.55), (64, 32, 0.3),
)  # fmt: skip
SPLITS, LEAST_DEPTH = (1, 2, 3, 4, 6, 8), 256
"""Assumed: tiles a library has (rows, columns, rate over the largest one's), and parts of one in depth."""
TILE_CHOICES = np.array(
    [(rows, columns, rate, cuts) for rows, columns, rate in TILES for cuts in SPLITS], dtype=np.float64
).T
TILE_OUTPUTS = 128 * 256


class Tiles(NamedTuple):
    """Every tile and cut in depth that a product may use, [product, choice]."""

    waves: Floats
    """Multiprocessors' turns, not rounded."""
    flop_per_depth: Floats
    depths: Floats
    cuts: Floats
    grouped: Bools
    """[product, 1]"""


def lay_tiles(processors: int, sizes: Floats, grouped: Bools, uneven: Bools) -> Tiles:
    """Lay out every tile and cut in depth that products may use; `sizes[product]` is batch, m, n, k."""
    batch, m, n, k = (sizes[:, place, None] for place in range(4))
    rows, columns, rates, cuts = TILE_CHOICES
    one = (rows == GROUPED_TILE[0]) & (columns == GROUPED_TILE[1]) & (cuts == 1)
    tall = np.ceil(m / rows)
    for place in np.flatnonzero(uneven):
        tall[place] = _uneven_tiles(sizes[place, 0], sizes[place, 1], GROUPED_TILE[0])
    tiles = batch * tall * np.ceil(n / columns)
    possible = np.where(grouped[:, None], one, (cuts == 1) | (k / cuts >= LEAST_DEPTH))
    return Tiles(
        tiles * cuts / processors,
        np.where(possible, 2.0 * rows * columns / rates, np.inf),
        np.where(grouped[:, None], np.ceil(k / GROUPED_STEP) * GROUPED_STEP, k / cuts),
        np.broadcast_to(cuts, tiles.shape),
        grouped[:, None],
    )


def _uneven_tiles(groups: float, rows: float, tile: float) -> float:
    """Return the mean tiles of a group where rows are shared out unevenly (a Dirichlet distribution, 2).

    A group's share is beta distributed (2, b = 2 groups - 2): P(share > u) = (1 + b u) (1 - u)^b, and the mean of
    ceil(rows / tile) is the sum of P(rows > j tile) over j.
    """
    others = 2 * groups - 2
    shares = np.arange(0.0, groups * rows, tile) / (groups * rows)
    return float(np.sum((1 + others * shares) * (1 - shares) ** others))
