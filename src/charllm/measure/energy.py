"""The energy of a job and of its parts: all GPUs together, as far as they were read.

Equation: E(a, b) = sum over GPUs of the integral of board power between its readings (trapezoids), times the growth of
the energy counter over that integral, both over the job, where a counter covers it. A gap adds nothing and is told as a
share of the time. Source: definition.
Ignores: hosts, switches and cooling; GPUs that were not sampled.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.measure.gaps import GAP_BEATS, SHORTEST_GAP_S, usual_interval_s
from charllm.measure.marks import Step, find_phases, find_steps, leading_marks
from charllm.measure.measured import Chosen, Measured
from charllm.measure.window import look
from charllm.result.columns import Columns, columns_of

Span = tuple[float, float]
LEAST_READINGS = 2


class Curve(NamedTuple):
    """What a GPU had drawn by each reading, and how long it had been read."""

    times_s: Floats
    energy_j: Floats
    read_s: Floats

    def between(self, spans: Sequence[Span]) -> tuple[float, float]:
        """Return the energy of some spans, and how much of their time was read."""
        edges = np.array(spans, dtype=np.float64).reshape(-1, 2)
        return tuple(  # type: ignore[return-value]
            float(np.sum(np.diff(np.interp(edges, self.times_s, grown)))) for grown in (self.energy_j, self.read_s)
        )


def draw_curves(measured: Measured) -> list[Curve] | None:
    """Return a curve for each sampled GPU; None where one has too few readings of power."""
    found = []
    for gpu in measured.recording.sampled:
        times, watts = measured.recording.power(gpu)
        if len(times) < LEAST_READINGS:
            return None
        apart_s = np.diff(times)
        read_s = np.where(apart_s > max(SHORTEST_GAP_S, GAP_BEATS * usual_interval_s(times)), 0.0, apart_s)
        grown = read_s * (watts[1:] + watts[:-1]) / 2
        factor = _counter_factor(measured, gpu, Curve(times, _summed(grown), _summed(read_s)))
        found.append(Curve(times, factor * _summed(grown), _summed(read_s)))
    return found or None


def _summed(grown: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(grown)])


def _counter_factor(measured: Measured, gpu: int, curve: Curve) -> float:
    """Return by how much the energy counter of a GPU exceeds the integral of its power over the job."""
    counted = look(measured.recording, gpu, measured.start_s, measured.end_s)
    integral_j, read_s = curve.between([(measured.start_s, measured.end_s)])
    whole = counted.gaps.number == 0 and read_s > 0
    return counted.energy_j.value / integral_j if counted.energy_j and whole and integral_j > 0 else 1.0


def tabulate_energy(measured: Measured, chosen: Chosen) -> dict[str, Columns]:
    """Return the energy of the recording, the job, its settled window, its steps and its phases, added up."""
    curves = draw_curves(measured)
    if curves is None:
        return {}
    first_s, last_s = min(curve.times_s[0] for curve in curves), max(curve.times_s[-1] for curve in curves)
    leading = leading_marks(measured.marks)
    steps = find_steps(leading)
    parts: dict[str, Sequence[Span]] = {
        "whole recording": [(float(first_s), float(last_s))],
        "job": [(measured.start_s, measured.end_s)],
        "steady window": [(chosen.start_s, chosen.end_s)],
        f"{len(steps)} steps": [(step.start_s, step.end_s) for step in steps],
        **{f"phase {name}": spans for name, spans in find_phases(leading).items()},
    }
    rows = [(name, *add_up(curves, spans)) for name, spans in parts.items() if spans]
    return {"energy": columns_of(("part", "seconds", "energy_j", "unread_fraction"), rows)}


def add_up(curves: Sequence[Curve], spans: Sequence[Span]) -> tuple[float, float | None, float]:
    """Return the seconds of some spans, the energy of all GPUs in them, and the share of GPU time without readings."""
    seconds = sum(end_s - start_s for start_s, end_s in spans)
    found = [curve.between(spans) for curve in curves]
    read = sum(read_s for _energy_j, read_s in found) / (len(curves) * seconds) if seconds > 0 else 0.0
    energy_j = sum(one_j for one_j, _read_s in found) if read > 0 else None
    return seconds, energy_j, min(1.0, max(0.0, 1.0 - read))


def step_energies(measured: Measured, steps: Sequence[Step]) -> list[float | None] | None:
    """Return the energy of all GPUs in each step, None where one of them was not read in it; None without any power."""
    curves = draw_curves(measured)
    if curves is None:
        return None
    edges = np.array([(step.start_s, step.end_s) for step in steps], dtype=np.float64).reshape(-1, 2)
    grown = sum(np.diff(np.interp(edges, curve.times_s, curve.energy_j))[:, 0] for curve in curves)
    read = np.min([np.diff(np.interp(edges, curve.times_s, curve.read_s))[:, 0] for curve in curves], axis=0)
    return [float(energy_j) if known > 0 else None for energy_j, known in zip(np.atleast_1d(grown), read, strict=True)]
