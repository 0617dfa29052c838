"""How far a GPU or node lies from its peers, against what may differ between healthy ones.

Equation: z = (x - median of the others) / sigma, where sigma is the spread known beforehand, weighted as that of
PRIOR_PEERS GPUs, and the spread of the others as they were seen (1.4826 MAD), and the standard error of x. Something is
accused where z exceeds the quantile at which one of n healthy ones would in ALPHA of all runs: Phi^-1(1 - ALPHA / n).
Source: the prior spread of each quantity, below.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from charllm.analysis.doctor.observation import Observation
from charllm.arrays import Floats, Ints

ALPHA = 0.002
"""False alarms a run of one test may raise."""
MAD_TO_SIGMA = 1.4826
PRIOR_PEERS = 8
"""GPUs whose spread the spread known beforehand is worth."""
LEAST_PEERS = 4
"""A stage with fewer GPUs is compared with the others, too."""

CLOCK_SPREAD = 0.015
"""Of mean clocks between healthy GPUs: dies differ by 1.5 % in energy at equal work (8 B200 under TP8), which is 0.7 %
in clock, and twice that where the better ones wait for the worse at their highest clock."""
ROLE_SPREAD = 0.03
"""Of mean clocks between stages whose work is not known to be alike."""
POWER_SPREAD = 0.02
"""Of mean power between healthy GPUs: dies, and sensors that differ by 1 %."""
IDLE_SPREAD, IDLE_SPREAD_FRACTION = 0.0045, 0.05
"""Of the share of time GPUs of a node have no kernel: of all time, and of that share."""
LIMIT_SPREAD = 0.015
"""Of the share of time a cause that healthy GPUs do not know (heat, a brake) holds the clock."""
PORT_WAIT, PORT_SPREAD = 0.03, 0.06
"""What ports of healthy nodes wait over the time they send, and its spread; twice as wide as it is in the mean, for
queues have long tails."""
TEMPERATURE_SPREAD_K, SLOT_SPREAD_K = 4.0, 8.0
"""Of temperatures in the same slot of different nodes (sensors, sinks, inlets), and in different slots of a node."""


class Deviation(NamedTuple):
    """One value against its peers."""

    value: float
    peers: float
    """Their median."""
    z: float


def threshold(count: int) -> float:
    """Return the z that one of so many healthy ones exceeds in ALPHA of all runs."""
    return NormalDist().inv_cdf(1 - ALPHA / max(1, count))


def deviate(values: Floats, place: int, peers: Ints, prior: float, error: float = 0.0) -> Deviation:
    """Compare one value with those of its peers."""
    others = values[peers[peers != place]]
    others = others[np.isfinite(others)]
    if not len(others) or not np.isfinite(values[place]):
        return Deviation(float(values[place]), float("nan"), 0.0)
    middle = float(np.median(others))
    count = len(others) if len(others) >= LEAST_PEERS else 0
    spread = MAD_TO_SIGMA * float(np.median(np.abs(others - middle)))
    sigma = float(np.sqrt((PRIOR_PEERS * prior**2 + count * spread**2) / (PRIOR_PEERS + count) + error**2))
    return Deviation(float(values[place]), middle, (float(values[place]) - middle) / sigma)


def peers_of(seen: Observation, gpu: int) -> tuple[Ints, bool]:
    """Return the GPUs in the same role as one, itself included, and whether their roles are alike."""
    everyone = np.arange(len(seen.node))
    if seen.stage is None:
        return everyone, False
    same = np.flatnonzero(seen.stage == seen.stage[gpu])
    if len(same) >= LEAST_PEERS:
        return same, True
    return everyone, len(np.unique(seen.stage)) == 1


def by_node(seen: Observation, values: Floats) -> Floats:
    """Return the median of each node's GPUs."""
    return np.array([np.nanmedian(values[seen.node == node]) for node in range(len(seen.node_names))])
