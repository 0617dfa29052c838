"""What one change to a run would buy: single changes, each predicted, the best ones first."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from charllm.catalog.change import (
    LEFT_OPEN,
    Change,
    changed_run,
    microbatch_change,
    pipeline_change,
    recompute_change,
    tensor_change,
)
from charllm.errors import SpecError
from charllm.simulate.long_step import MOST_PASSES, first_part
from charllm.simulate.one_clock import solve_step
from charllm.simulate.predict import predict
from charllm.simulate.work import passes_of
from charllm.spec.parallelism import OVERLAPS, Parallelism
from charllm.spec.request import Table
from charllm.spec.run import RunSpec
from charllm.spec.training import RECOMPUTES
from charllm.workload.memory import worst_memory
from charllm.workload.misfit import fits
from charllm.workload.step import build_step

LONGEST_HINT_S = 2.0
"""Estimated seconds beyond which a change is not simulated."""
LEAST_GAIN_FRACTION = 1e-3
"""Gains below this are not worth a line."""


class Gain(NamedTuple):
    """What a change is predicted to buy, as the changed run itself reports it."""

    asked: str
    step_time_s: float
    gain_fraction: float
    """Tokens a second over those of the run as it is, less one."""
    memory_peak_bytes: float


def best_changes(run: RunSpec, step_time_s: float, limit: int = 5) -> list[Gain]:
    """List the valid changes that fit in memory and gain most over a run of known step time.

    All are screened at the one clock they settle at; the best are simulated, and only what that gives is promised.
    """
    screened = [(change, _screened_s(run, change)) for change in changes(run)]
    fitting = sorted((pair for pair in screened if pair[1] is not None), key=lambda pair: pair[1] or 0.0)
    gains = []
    for change, _seconds in fitting[:limit]:
        metrics = _simulated(changed_run(run, change))
        if metrics is None:
            continue
        gain_fraction = step_time_s / metrics["step_time_s"] - 1
        if gain_fraction >= LEAST_GAIN_FRACTION:
            gains.append(Gain(change.asked, metrics["step_time_s"], gain_fraction, metrics["memory_peak_bytes"]))
    return sorted(gains, key=lambda gain: -gain.gain_fraction)


def _simulated(run: RunSpec) -> dict[str, Any] | None:
    """Return the metrics of a changed run as it is simulated; None where that takes too long for a hint."""
    try:
        return predict(run, longest_s=LONGEST_HINT_S).result.metrics
    except SpecError:
        return None


def _screened_s(run: RunSpec, change: Change) -> float | None:
    """Return the step time of a changed run at one clock, or None where it is no run or does not fit."""
    try:
        changed = changed_run(run, change)
    except SpecError:
        return None
    step = build_step(changed)
    if not fits(changed, worst_memory(step)):
        return None
    part = first_part(step)
    if passes_of(part.run) > 2 * MOST_PASSES:
        return None
    return solve_step(part).step_time_s * changed.microbatches / part.run.microbatches


def changes(run: RunSpec) -> Iterator[Change]:
    """List the changes to try: degrees, microbatch, recomputation, overlap, schedule, faster links."""
    for factor in (2.0, 0.5):
        yield from tensor_change(run, factor)
        yield from pipeline_change(run, factor)
        yield from microbatch_change(run, factor)
    yield from _recompute_changes(run)
    yield from _overlap_change(run.parallelism)
    yield from _schedule_changes(run.parallelism)
    yield from _link_changes(run)


def _recompute_changes(run: RunSpec) -> Iterator[Change]:
    """One kind of recomputation less, and one more."""
    place = RECOMPUTES.index(run.training.recompute)
    for kind in (*RECOMPUTES[max(0, place - 1) : place], *RECOMPUTES[place + 1 : place + 2]):
        yield recompute_change(kind)


def _overlap_change(degrees: Parallelism) -> Iterator[Change]:
    """Hide every axis that has something to hide; a tensor-parallel exchange needs sequence parallelism for it."""
    sizes = {axis: degrees.data_ranks if axis == "dp" else getattr(degrees, axis) for axis in OVERLAPS}
    axes = [axis for axis in OVERLAPS if sizes[axis] > 1 and (axis != "tp" or degrees.sp)]
    if set(axes) - set(degrees.overlap):
        yield Change(f"--overlap {','.join(axes)}", {"parallelism": {"overlap": axes}})


def _schedule_changes(degrees: Parallelism) -> Iterator[Change]:
    if degrees.pp > 1:
        chunks: Table = {"vpp": 2 * degrees.vpp, "schedule": LEFT_OPEN, "layers_per_stage": LEFT_OPEN}
        yield Change(f"--vpp {2 * degrees.vpp}", {"parallelism": chunks})
    if degrees.pp > 1 and degrees.vpp == 1 and degrees.schedule != "zero-bubble":
        yield Change("--schedule zero-bubble", {"parallelism": {"schedule": "zero-bubble"}})
    if degrees.tp > 1 and not degrees.sp:
        yield Change("--sp", {"parallelism": {"sp": True}})


def _link_changes(run: RunSpec) -> Iterator[Change]:
    node, fabric = run.cluster.node, run.cluster.fabric
    link = "link_bandwidth_bytes_per_s" if node.link_bandwidth_bytes_per_s else "pcie_bandwidth_bytes_per_s"
    faster: dict[str, Any] = {"nic_bandwidth_bytes_per_s": 2 * fabric.nic_bandwidth_bytes_per_s}
    yield Change("NICs twice as fast", {"cluster": {"fabric": faster}})
    yield Change("links inside a node twice as fast", {"cluster": {"node": {link: 2 * getattr(node, link)}}})
