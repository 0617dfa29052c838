"""How probable it is that each of several strategies is the best, given how wrong predictions are.

Equation: the error of the logarithm of strategy i's step time is

    e_i = s (a ln m_i + b_i + c_i),   s = sqrt(3 / chi2), chi2 of 3 degrees of freedom

a (6.9 %) is the error that all strategies share in what a microbatch of m sequences gains (efficiency of kernels, host
and messages of each pass); b_i (3.3 %) is each one's own, c_i (3.4 % on an H200, 5.4 % on others) that of its clock
under its caps; equal strategies share b, equal surroundings c. Other errors that all strategies share cancel. s makes
large errors more frequent than those of a Gaussian. A metric moves by a power of the step time: tokens a second by -1,
energy by 0.37 (a longer step waits, and draws less).
Source: the spreads are of greatest likelihood for 173 pairs of published runs of one job that were predicted held out
(python -m benchmarks.plan_probability, which prints how often pairs of a stated probability come out in that order;
errors by label of the step time gained nothing there on sources that were left out); c_i, temperatures, peak power and
memory: result/uncertainty.py.
Ignores: limits that a strategy may break after all; that strategies with a setting in common share more of their
errors; that strategies on one machine share much of their errors of heat, peak power and memory, which are counted as
each one's own here: probabilities of those metrics are too cautious.
"""

from collections.abc import Hashable, Iterable, Sequence
from math import hypot
from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.plan.candidate import Candidate
from charllm.plan.objectives import Objective
from charllm.result.metric import HIGHER, metric_value
from charllm.result.uncertainty import READ_GPU, errors

OWN_FRACTION, MICROBATCH_FRACTION = 0.033, 0.069
FREEDOM = 3
SAMPLES = 4096
Z_90 = 3.290
"""Width of the interval of 90 % of a Gaussian, in standard deviations."""


def probability_best(candidates: Sequence[Candidate], objective: Objective, seed: int = 0) -> list[float] | None:
    """Return for each candidate the probability that it is the best; None where the metric's error is not known."""
    values = [metric_value(one.metrics, objective.metric) for one in candidates]
    moved = _metric_errors(candidates, objective.metric, seed) if values and None not in values else None
    if moved is None:
        return None
    drawn = np.array(values, dtype=np.float64) * np.exp(moved)
    best = np.argmax(drawn, axis=1) if objective.better == HIGHER else np.argmin(drawn, axis=1)
    counts: list[float] = (np.bincount(best, minlength=len(candidates)) / len(best)).tolist()
    return counts


def _metric_errors(candidates: Sequence[Candidate], metric: str, seed: int) -> Floats | None:
    """Draw errors of the logarithm of a metric: [sample, candidate]."""
    power = time_powers().get(metric)
    if power is not None:
        return power * time_errors(candidates, seed)
    spread = _own_spread(candidates, metric)
    if spread is None:
        return None
    random = np.random.default_rng(seed)
    return np.asarray(spread * random.standard_normal((SAMPLES, len(candidates))))


def time_powers() -> dict[str, float]:
    """Return for each metric that follows from the step time the power of it that it moves by."""
    waiting = float(errors()["waiting_power_fraction"])
    longer = ("step_time_s", "money_per_trillion_tokens", "run_time_s", "run_money")
    faster = ("tokens_per_s", "tokens_per_s_per_gpu", "mfu")
    energy = ("energy_per_step_j", "energy_per_trillion_tokens_j", "run_energy_j")
    power = ("power_mean_w", "node_power_mean_w", "cluster_power_mean_w", "rack_power_mean_w", "facility_power_mean_w")
    return {
        **dict.fromkeys(longer, 1.0),
        **dict.fromkeys(faster, -1.0),
        **dict.fromkeys(energy, 1 - waiting),
        **dict.fromkeys(power, -waiting),
        "tokens_per_j": waiting - 1,
        "energy_delay_product_j_s": 2 - waiting,
    }


def time_errors(candidates: Sequence[Candidate], seed: int = 0) -> Floats:
    """Draw errors of the logarithm of the step time: [sample, candidate]."""
    random = np.random.default_rng(seed)
    sequences = np.array([one.run.training.micro_batch_size for one in candidates], dtype=np.float64)
    shared = MICROBATCH_FRACTION * random.standard_normal((SAMPLES, 1)) * np.log(sequences)
    own = OWN_FRACTION * _drawn_by([_strategy(one) for one in candidates], random)
    own += _clock_fractions(candidates) * _drawn_by([_surroundings(one) for one in candidates], random)
    wide = np.sqrt(FREEDOM / random.chisquare(FREEDOM, (SAMPLES, 1)))
    return np.asarray(wide * (shared + own))


def _drawn_by(keys: Iterable[Hashable], random: np.random.Generator) -> Floats:
    """Draw one column for each key, the same for equal keys."""
    listed = list(keys)
    places = {key: place for place, key in enumerate(dict.fromkeys(listed))}
    drawn = random.standard_normal((SAMPLES, len(places)))
    return np.asarray(drawn[:, [places[key] for key in listed]])


def _strategy(one: Candidate) -> Hashable:
    return one.run.parallelism, one.run.training, one.run.framework


def _surroundings(one: Candidate) -> Hashable:
    return one.run.conditions, one.run.cluster


def _clock_fractions(candidates: Sequence[Candidate]) -> Floats:
    """Return the error of each one's clock under its caps: that read on H200 boards, and that of scaling to others."""
    bounds, other = errors()["h200"]["clock_mean_hz"], errors()["other_gpu"]
    read, scaled = bounds["high"] - bounds["low"], 2 * other["power_fraction"] * other["clock_over_power"]
    strange = np.array([one.run.cluster.gpu.name != READ_GPU for one in candidates])
    return np.asarray(np.where(strange, hypot(read, scaled), read) / Z_90)


def _own_spread(candidates: Sequence[Candidate], metric: str) -> float | None:
    """Return the relative standard deviation of a metric whose error is known by itself."""
    known: dict[str, Any] = errors()["h200"]
    same = {"cluster_power_peak_w": "power_peak_sensor_w", "node_power_peak_w": "power_peak_sensor_w",
            "rack_power_peak_w": "power_peak_sensor_w", "power_peak_w": "power_peak_sensor_w"}  # fmt: skip
    memory = {"memory_peak_bytes": "device", "memory_need_bytes": "allocated"}
    bounds = errors()["memory"][memory[metric]] if metric in memory else known.get(same.get(metric, metric))
    if bounds is None:
        return None
    spread = (bounds["high"] - bounds["low"]) / Z_90
    if not metric.endswith("_c"):
        return float(spread)
    return float(spread / np.mean([one.metrics[metric] for one in candidates]))
