"""What one change to a run would buy: single changes, each predicted, the best ones first."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.simulate.long_step import MOST_PASSES, first_part
from charllm.simulate.one_clock import solve_step
from charllm.simulate.predict import predict
from charllm.simulate.work import passes_of
from charllm.spec.parallelism import OVERLAPS, Parallelism
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec
from charllm.spec.training import RECOMPUTES
from charllm.timeline.step_time import StepTime
from charllm.workload.memory import worst_memory
from charllm.workload.misfit import fits
from charllm.workload.step import build_step

FOLLOWS = None
"""As a value of a change: the setting is left open and follows from the others."""
LONGEST_HINT_S = 2.0
"""Estimated seconds beyond which a change is not simulated."""
LEAST_GAIN_FRACTION = 1e-3
"""Gains below this are not worth a line."""


class Change(NamedTuple):
    """One change to a run's table."""

    asked: str
    """The flags that ask for it, or what would have to be bought."""
    settings: Table


class Gain(NamedTuple):
    """What a change is predicted to buy."""

    asked: str
    step_time_s: float
    gain_fraction: float
    """Tokens a second over those of the run as it is, less one."""


def best_changes(run: RunSpec, step_time_s: float, limit: int = 5) -> list[Gain]:
    """List the valid changes that fit in memory and gain most over a run of known step time.

    All are screened at the one clock they settle at; the best are simulated, and only what that gives is promised.
    """
    table = run.as_table()
    screened = [(change, _screened_s(table, change.settings)) for change in changes(run)]
    fitting = sorted((pair for pair in screened if pair[1] is not None), key=lambda pair: pair[1] or 0.0)
    gains = []
    for change, _seconds in fitting[:limit]:
        found = _simulated(changed_run(table, change.settings))
        if found is not None and step_time_s / found.step_time_s - 1 >= LEAST_GAIN_FRACTION:
            gains.append(Gain(change.asked, found.step_time_s, step_time_s / found.step_time_s - 1))
    return sorted(gains, key=lambda gain: -gain.gain_fraction)


def changed_run(table: Table, settings: Table) -> RunSpec:
    """Return a run with one change."""
    return resolve_run(_without_open(merge(table, settings)))


def _simulated(run: RunSpec) -> StepTime | None:
    """Return the step of a changed run as it is simulated; None where that takes too long for a hint."""
    try:
        return predict(run, longest_s=LONGEST_HINT_S).timed
    except SpecError:
        return None


def _screened_s(table: Table, settings: Table) -> float | None:
    """Return the step time of a changed run at one clock, or None where it is no run or does not fit."""
    try:
        run = changed_run(table, settings)
    except SpecError:
        return None
    step = build_step(run)
    if not fits(run, worst_memory(step)):
        return None
    part = first_part(step)
    if passes_of(part.run) > 2 * MOST_PASSES:
        return None
    return solve_step(part).step_time_s * run.microbatches / part.run.microbatches


def _without_open(table: Table) -> Table:
    return {
        part: {name: value for name, value in settings.items() if value is not FOLLOWS}
        for part, settings in table.items()
    }


def changes(run: RunSpec) -> Iterator[Change]:
    """List the changes to try: degrees, microbatch, recomputation, overlap, schedule, faster links."""
    for factor in (2.0, 0.5):
        yield from _tensor_change(run.parallelism, factor)
        yield from _pipeline_change(run.parallelism, factor)
        yield from _microbatch_change(run, factor)
    yield from _recompute_changes(run)
    yield from _overlap_change(run.parallelism)
    yield from _schedule_changes(run.parallelism)
    yield from _link_changes(run)


def _times(value: int, factor: float) -> int | None:
    """Return a whole multiple, or None."""
    scaled = value * factor
    return int(scaled) if scaled == int(scaled) and scaled >= 1 else None


def _tensor_change(degrees: Parallelism, factor: float) -> Iterator[Change]:
    tp, dp = _times(degrees.tp, factor), _times(degrees.dp, 1 / factor)
    if tp is None or dp is None:
        return
    settings: Table = {"tp": tp, "dp": dp, **_sharding(degrees)}
    if degrees.tp == 1 or tp == 1:
        settings["sp"] = FOLLOWS
    if degrees.etp == degrees.tp:
        settings["etp"] = FOLLOWS
    yield Change(f"--tp {tp} --dp {dp}", {"parallelism": settings})


def _pipeline_change(degrees: Parallelism, factor: float) -> Iterator[Change]:
    pp, dp = _times(degrees.pp, factor), _times(degrees.dp, 1 / factor)
    if pp is None or dp is None:
        return
    settings: Table = {"pp": pp, "dp": dp, "layers_per_stage": FOLLOWS, **_sharding(degrees)}
    if pp == 1:
        settings.update(vpp=1, schedule=FOLLOWS)
    yield Change(f"--pp {pp} --dp {dp}", {"parallelism": settings})


def _sharding(degrees: Parallelism) -> Table:
    """Where there was nothing to share an optimizer with, what is shared follows the framework."""
    return {"zero": FOLLOWS} if degrees.data_ranks == 1 else {}


def _microbatch_change(run: RunSpec, factor: float) -> Iterator[Change]:
    micro = _times(run.training.micro_batch_size, factor)
    if micro is not None:
        yield Change(f"--mbs {micro}", {"training": {"micro_batch_size": micro}})


def _recompute_changes(run: RunSpec) -> Iterator[Change]:
    """One kind of recomputation less, and one more."""
    place = RECOMPUTES.index(run.training.recompute)
    for kind in (*RECOMPUTES[max(0, place - 1) : place], *RECOMPUTES[place + 1 : place + 2]):
        settings: Table = {"recompute": kind, "recompute_modules": [], "recompute_layers": FOLLOWS}
        yield Change(f"--recompute {kind}", {"training": settings})


def _overlap_change(degrees: Parallelism) -> Iterator[Change]:
    """Hide every axis that has something to hide; a tensor-parallel exchange needs sequence parallelism for it."""
    sizes = {axis: degrees.data_ranks if axis == "dp" else getattr(degrees, axis) for axis in OVERLAPS}
    axes = [axis for axis in OVERLAPS if sizes[axis] > 1 and (axis != "tp" or degrees.sp)]
    if set(axes) - set(degrees.overlap):
        yield Change(f"--overlap {','.join(axes)}", {"parallelism": {"overlap": axes}})


def _schedule_changes(degrees: Parallelism) -> Iterator[Change]:
    if degrees.pp > 1:
        chunks: Table = {"vpp": 2 * degrees.vpp, "schedule": FOLLOWS, "layers_per_stage": FOLLOWS}
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
