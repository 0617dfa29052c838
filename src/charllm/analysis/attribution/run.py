"""Attribute the energy and the lost clock of a measured run to classes of kernels and to phases of a step.

A trace of some steps says what each GPU did, to the microsecond; the energy counter says what it drew, in steps of
0.1 s. Steps that were marked but not traced are taken to do what the traced ones did, so that a trace of a few steps
and a record of many make enough bins (trace/attribution.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.analysis.attribution.bins import cycle_bins, energy_bins, limit_bins, possible_power_w
from charllm.analysis.attribution.timeline import place_trace
from charllm.errors import SpecError
from charllm.measure.marks import Mark
from charllm.measure.parts import Part, merge, read_parts
from charllm.measure.record import read_job
from charllm.measure.recording import Recording
from charllm.trace.analyses.kernels import as_table, kernel_rows
from charllm.trace.attribution import Attribution, Bins, attribute
from charllm.trace.phases import PHASES, find_phases
from charllm.trace.run import TracedRank
from charllm.trace.states import part_rests

IDLE, GAP = "idle", "gap"
GAP_S = 0.02
"""Measured: for so long after a kernel an H200 at rest draws 283 W, 129 W later on (docs/concepts/attribution.md)."""
WIDEST_CLOCK_FRACTION = 0.02
"""Clocks of classes differ by some per cent: what is less sure than this is not told apart."""


class GpuAttribution(NamedTuple):
    """What one rank's GPU spent its time, energy and clock on."""

    rank: int
    step_time_s: float | None
    """Length of a traced step; None where no steps are marked."""
    traced_steps: int
    like_steps: int
    """Steps that were not traced and are taken to be like those that were."""
    observed_s: float
    """Seconds of the bins that the fit rests on."""
    clock_error_s: float
    """How far the trace's clock may lie from that of the readings."""
    counter_phase_s: float
    """When the board counts, in each of its periods."""
    classes: Attribution
    phases: Attribution
    clock: Attribution
    """Cycles by class: rates are mean clocks."""
    full_clock_hz: float
    limited: dict[str, Attribution]
    """Cause: seconds in which it held the clock down, by class."""
    kernels: list[dict[str, Any]]
    """Of a mean step, by name: calls, seconds, joules, watts and lost clock."""
    unknown_fraction: float
    """Of the time the GPU was busy, in kernels of unknown class."""


class RankPlace(NamedTuple):
    """Where the readings and marks of a traced rank are."""

    recording: Recording
    gpu: int
    part: Part
    marks: list[Mark]


def attribute_run(folder: Path, ranks: Sequence[TracedRank]) -> list[GpuAttribution]:
    """Attribute what a measured run recorded, for each rank that was traced."""
    return [attribute_gpu(rank, *place) for rank, place in find_places(folder, ranks)]


def find_places(folder: Path, ranks: Sequence[TracedRank]) -> list[tuple[TracedRank, RankPlace]]:
    """Find the readings of the GPU that each traced rank had."""
    job = read_job(folder)
    parts = read_parts(folder, job)
    whole = merge(job, parts)
    found = []
    for rank in ranks:
        part = next((part for part in parts if part.folder == rank.trace.path.parent), None)
        gpu = next((gpu for gpu, place in whole.places.items() if place.rank == rank.rank), None)
        if part is None or gpu is None or gpu not in whole.recording.sampled:
            raise SpecError("RUN", f"a trace of rank {rank.rank}", "readings of the GPU that this rank had")
        marks = next((own for name, own in part.marks.items() if name.split("-")[0] == str(rank.rank)), [])
        found.append((rank, RankPlace(whole.recording, gpu, part, marks)))
    return found


def attribute_gpu(rank: TracedRank, recording: Recording, gpu: int, part: Part, marks: list[Mark]) -> GpuAttribution:
    """Attribute what was read of one GPU to what its trace shows."""
    activity = rank.activity
    if not len(activity.row):
        raise SpecError("RUN", rank.trace.path.name, "a trace with work on a GPU")
    traced = place_trace(rank.trace, activity, recording, gpu, part, marks)
    names = (*(work.name for work in activity.works), GAP, IDLE)
    states, windows = traced.by_class()
    parted = part_rests(states, len(activity.works), GAP_S)
    by_phase, _ = traced.states(find_phases(rank.trace, activity), np.zeros(len(PHASES), np.int32))
    bins, phase_s = energy_bins(recording, gpu, states, windows, len(activity.works))
    power = possible_power_w(recording, gpu)
    cycles, full_hz = cycle_bins(recording, gpu, windows)

    def shared(counted: Bins, **limits: float) -> Attribution:
        return attribute(counted, parted.seconds_in(*counted[:2], len(activity.works) + 1), names, **limits)

    classes = shared(bins, least=power[0], most=power[1])
    clock = shared(cycles, most=full_hz, widest=WIDEST_CLOCK_FRACTION)
    return GpuAttribution(
        rank=rank.rank,
        step_time_s=float(np.mean([end - start for start, end in traced.recorded])) if traced.recorded else None,
        traced_steps=len(traced.recorded),
        like_steps=len(windows) - len(traced.spans),
        observed_s=float(np.sum(bins.end_s - bins.start_s)),
        clock_error_s=traced.clock.error_s,
        counter_phase_s=phase_s,
        classes=classes,
        phases=attribute(bins, by_phase.seconds_in(*bins[:2], len(PHASES)), (*PHASES, IDLE), *power),
        clock=clock,
        full_clock_hz=full_hz,
        limited={cause: shared(own, most=1.0) for cause, own in limit_bins(recording, gpu, windows).items()},
        kernels=_kernels(rank, classes, clock, full_hz),
        unknown_fraction=float(activity.seconds[activity.unknown].sum() / activity.seconds.sum()),
    )


def _kernels(rank: TracedRank, classes: Attribution, clock: Attribution, full_hz: float) -> list[dict[str, Any]]:
    """List the kernels of a mean step by name, with joules, watts and lost clock at the rates of their class."""
    rows = []
    for row in kernel_rows(rank):
        drawn, run = classes.shares.get(row.work), clock.shares.get(row.work)
        rows.append(
            {
                **as_table(row),
                "energy_j": row.seconds * drawn.rate if drawn else None,
                "power_w": drawn.rate if drawn else None,
                "clock_hz": run.rate if run else None,
                "clock_lost_fraction": max(0.0, 1 - run.rate / full_hz) if run else None,
            }
        )
    return rows
