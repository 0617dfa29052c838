"""Amounts counted in bins are shared out among classes: known work is recovered, what cannot be told is joined."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

from charllm.analysis.attribution.run import GAP_S
from charllm.gpu.sensor import CounterSteps, on_grid
from charllm.trace.attribution import CONFUSED, SHORT, Bins, attribute, non_negative
from charllm.trace.states import States, part_rests

KNOWN = Path(__file__).parent / "known_work.csv.gz"
"""Phases of one kind of kernel each on an H200, 20 ms to 4 s, and its energy counter (device/traced_steps.py)."""
KINDS = ("gemm", "memcpy", "elementwise", "attention")
TRUE_W = np.array([690.0, 450.0, 430.0, 600.0, 125.0])


def made_bins(shares: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", noise_j: float) -> Bins:
    chance = np.random.default_rng(1)
    amount = shares @ TRUE_W + noise_j * chance.normal(size=len(shares))
    edges = np.linspace(0.0, 0.1 * len(shares), len(shares) + 1)
    return Bins(np.asarray(edges[:-1]), np.asarray(edges[1:]), amount)


def test_non_negative_least_squares_are_those_of_scipy() -> None:
    chance = np.random.default_rng(0)
    for _ in range(50):
        a, b = chance.random((30, 6)), chance.normal(size=30) + 1
        assert non_negative(a.T @ a, a.T @ b) == pytest.approx(nnls(a, b)[0], abs=1e-6)


def known_states() -> tuple[States, CounterSteps]:
    with gzip.open(KNOWN, "rt") as file:
        rows = list(csv.DictReader(file))
    states = [row for row in rows if row["kind"] == "state"]
    codes = [KINDS.index(row["value"]) if row["value"] in KINDS else -1 for row in states[:-1]]
    read = np.array([(float(row["time_s"]), float(row["value"])) for row in rows if row["kind"] == "energy"])
    edges = np.array([float(row["time_s"]) for row in states])
    return States(edges, np.array(codes, np.int32)), CounterSteps(read[:, 0], read[:, 1])


def counted(states: States, steps: CounterSteps, phase_s: float) -> Bins:
    found = on_grid(steps, phase_s)
    start_s, end_s = found.times_s[:-1], found.times_s[1:]
    inside = (start_s >= states.edges_s[0]) & (end_s <= states.edges_s[-1])
    return Bins(start_s[inside], end_s[inside], np.diff(found.energy_j)[inside])


def misfit(states: States, bins: Bins) -> float:
    seconds = states.seconds_in(*bins[:2], len(KINDS))
    rates = non_negative(seconds.T @ seconds, seconds.T @ bins.amount)
    return float(np.sqrt(np.mean((bins.amount - seconds @ rates) ** 2)) / np.mean(bins.amount))


def test_known_work_gives_the_power_of_each_kind_within_five_per_cent() -> None:
    states, steps = known_states()
    bins = min((counted(states, steps, phase) for phase in np.linspace(0, 0.1, 50, endpoint=False)),
               key=lambda one: misfit(states, one))  # fmt: skip
    parted = part_rests(states, len(KINDS), GAP_S)
    found = attribute(bins, parted.seconds_in(*bins[:2], len(KINDS) + 1), (*KINDS, "gap", "idle"))
    place = np.searchsorted(states.edges_s, bins.start_s, side="right") - 1
    # Bins that lie in one phase, well after its start, tell the power of its kind by themselves.
    alone = (bins.end_s <= states.edges_s[place + 1]) & (bins.start_s - states.edges_s[place] >= 0.3)
    for number, kind in enumerate((*KINDS, "idle")):
        own = alone & (states.state[place] == (number if kind in KINDS else -1))
        true_w = bins.amount[own].sum() / (bins.end_s - bins.start_s)[own].sum()
        assert found.shares[kind].rate == pytest.approx(true_w, rel=0.03), kind
        assert found.shares[kind].group == (kind,)
    assert found.shares["gap"].rate > 1.5 * found.shares["idle"].rate
    assert found.held_out_fraction is not None
    assert found.held_out_fraction < 0.037


def test_the_counter_is_explained_by_its_own_beat_and_not_by_when_it_is_seen() -> None:
    states, steps = known_states()
    start_s, end_s = steps.times_s[:-1], steps.times_s[1:]
    inside = (start_s >= states.edges_s[0]) & (end_s <= states.edges_s[-1])
    seen = Bins(start_s[inside], end_s[inside], np.diff(steps.energy_j)[inside])
    best = min(misfit(states, counted(states, steps, phase)) for phase in np.linspace(0, 0.1, 50, endpoint=False))
    assert best < 0.065 < 0.11 < misfit(states, seen)


def test_classes_that_differ_between_bins_are_told_apart_with_honest_intervals() -> None:
    shares = 0.1 * np.random.default_rng(2).dirichlet([0.4] * 5, size=400)
    found = attribute(made_bins(shares, 1.0), shares, (*KINDS, "idle"))
    for name, true_w in zip((*KINDS, "idle"), TRUE_W, strict=True):
        share = found.shares[name]
        assert share.low < true_w < share.high
        assert share.high - share.low < 0.05 * true_w + 10
    assert sum(share.amount for share in found.shares.values()) == pytest.approx(found.total, rel=0.01)


def test_classes_that_rise_and_fall_together_are_joined() -> None:
    chance = np.random.default_rng(3)
    busy = 0.1 * chance.random(300)
    shares = np.stack([0.8 * busy, 0.0 * busy, 0.2 * busy, 0.0 * busy, 0.1 - busy], axis=1)
    found = attribute(made_bins(shares, 0.5), shares, (*KINDS, "idle"))
    assert set(found.shares["gemm"].group) == {"gemm", "elementwise"}
    assert found.shares["gemm"].reason == CONFUSED
    assert found.shares["gemm"].rate == pytest.approx(0.8 * 690 + 0.2 * 430, rel=0.01)
    assert found.shares["idle"].group == ("idle",)


def test_too_few_bins_are_refused_and_too_little_time_is_joined() -> None:
    shares = np.full((6, 5), 0.02)
    refused = attribute(made_bins(shares, 0.0), shares, (*KINDS, "idle"))
    assert not refused.shares
    assert "6 bins of the counter" in refused.refused
    shares = 0.1 * np.random.default_rng(4).dirichlet([0.4] * 5, size=200)
    shares[:, 1] *= 0.01
    found = attribute(made_bins(shares, 0.5), shares, (*KINDS, "idle"))
    assert found.shares["memcpy"].reason == SHORT
    assert len(found.shares["memcpy"].group) > 1
