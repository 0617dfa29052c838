"""What one change to a run does: single changes, each simulated; the best of them as advice."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from charllm.catalog.change import (
    LEFT_OPEN,
    Change,
    changed_run,
    microbatch_change,
    nic_change,
    pipeline_change,
    preheat_settings,
    recompute_change,
    tensor_change,
    warmer_settings,
)
from charllm.errors import SpecError
from charllm.gpu.physics import power_cap_w
from charllm.result.differences import changed_settings, difference
from charllm.result.memory_verdict import MemoryVerdict, least_margin_fraction
from charllm.simulate.fast import solve_whole
from charllm.simulate.predict import Described, describe_step, predict
from charllm.simulate.work import LONGEST_S
from charllm.spec.parallelism import Parallelism
from charllm.spec.programs import check_program, program_faults, program_of
from charllm.spec.request import Table
from charllm.spec.run import RunSpec
from charllm.spec.training import RECOMPUTES
from charllm.spec.validity import hideable
from charllm.units import GIB, MEGA, format_probability

LONGEST_HINT_S = 2.0
"""Estimated seconds beyond which a change is not simulated."""
LEAST_GAIN_FRACTION = 1e-3
"""Gains below this are not worth a line."""
WARMER_K = 10.0
PREHEAT_FACTORS = (0.0, 2.0)


class Effect(NamedTuple):
    """What a change does, as the changed run itself reports it."""

    change: str
    """The flags that make it, or what it is."""
    step_time_s: float
    gain_fraction: float
    """Tokens a second over those of the run as it is, less one."""
    memory_need_bytes: float
    fits: bool = True
    """Whether it fits in memory without a warning."""
    needs: str = ""
    """Memory that it needs of what its GPU has; empty where it fits."""
    tokens_per_j_fraction: float | None = None
    """Tokens a joule over those of the run as it is, less one."""
    temperature_peak_k: float | None = None
    """Hottest GPU against that of the run as it is."""
    of_conditions: bool = False
    """Whether it changes what the GPUs are subjected to and not how the job is run."""
    low_fraction: float | None = None
    high_fraction: float | None = None
    """Between these nine in ten gains of such changes were measured; None where no error of them is known."""


class Tried(NamedTuple):
    """A change, and whether it is one of conditions."""

    change: Change
    of_conditions: bool = False
    described: Described | None = None
    """The changed step, where it has been built."""


def list_changes(run: RunSpec) -> list[Tried]:
    """List every change that is tried on a run."""
    return [*map(Tried, changes(run)), *(Tried(change, True) for change in condition_changes(run))]


def simulate_changes(run: RunSpec, before: Mapping[str, Any], tried: Iterable[Tried]) -> Iterator[Effect]:
    """Simulate a run with each change; changes that are no run, or take too long to simulate, are left out.

    `before` are the metrics of the run as it is. A change that does not fit is priced all the same, and marked.
    """
    for change, of_conditions, described in tried:
        try:
            changed = _changed(run, change) if described is None else described.step.run
            found = predict(changed, ignore_memory=True, longest_s=LONGEST_HINT_S, described=described)
        except SpecError:
            continue
        after, fits = found.result.metrics, found.memory.fits_within()
        gain = before["step_time_s"] / after["step_time_s"] - 1
        settings = changed_settings(run.as_table(), changed.as_table())
        error = difference("tokens_per_s", 1.0, 1 + gain, settings)
        low, high = (error.low, error.high) if error else (None, None)
        yield Effect(
            change.asked,
            after["step_time_s"],
            gain,
            after["memory_need_bytes"],
            fits,
            "" if fits else _needed(found.memory),
            _over(after, before, "tokens_per_j"),
            _minus(after, before, "temperature_peak_c"),
            of_conditions,
            max(0.0, low) if change.never_slower and low is not None else low,
            high,
        )


def best_changes(run: RunSpec, before: Mapping[str, Any], limit: int = 5) -> list[Effect]:
    """List the valid changes that fit in memory and gain most over the metrics of a run as it is.

    All are screened at the one clock they settle at; the best are simulated, and only what that gives is promised.
    """
    return best_effects(simulate_changes(run, before, screen_changes(run, limit)))


def screen_changes(run: RunSpec, limit: int = 5) -> list[Tried]:
    """Return the changes of a job that fit in memory and are fastest at the one clock they settle at."""
    screened = [found for change in changes(run) if (found := _screen(run, change)) is not None]
    return [tried for _, tried in sorted(screened, key=lambda found: found[0])[:limit]]


def best_effects(effects: Iterable[Effect]) -> list[Effect]:
    """Keep the changes of a job that fit and make it faster, the best first."""
    gains = [one for one in effects if one.fits and not one.of_conditions and one.gain_fraction >= LEAST_GAIN_FRACTION]
    return sorted(gains, key=lambda gain: -gain.gain_fraction)


def _needed(memory: MemoryVerdict) -> str:
    probability = f", probability of fitting: {format_probability(memory.fit_probability)}" if memory.fits else ""
    return f"needs {memory.worst.need_bytes / GIB:.0f} of {memory.worst.gpu_bytes / GIB:.0f} GiB{probability}"


def _over(after: Mapping[str, Any], before: Mapping[str, Any], name: str) -> float | None:
    return after[name] / before[name] - 1 if before.get(name) and after[name] else None


def _minus(after: Mapping[str, Any], before: Mapping[str, Any], name: str) -> float | None:
    return after[name] - before[name] if before.get(name) is not None and after[name] is not None else None


def _changed(run: RunSpec, change: Change) -> RunSpec:
    """Return a changed run; SpecError where it is none, or where the program that trains the present run lacks it."""
    changed = changed_run(run, change)
    program = program_of(run)
    if not program_faults(run, program):
        check_program(changed, program)
    return changed


def _screen(run: RunSpec, change: Change) -> tuple[float, Tried] | None:
    """Return a changed run's step time at one clock, and its step; None where it is no run or may not fit."""
    try:
        described = describe_step(_changed(run, change), LONGEST_S)
        if described.metrics["memory_margin_fraction"] < least_margin_fraction():
            return None
        step_time_s = max(timed.step_time_s for timed in solve_whole(described.step))
    except SpecError:
        return None
    return step_time_s, Tried(change, described=described)


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
    """Hide every axis that has something to hide."""
    able = [axis for axis, is_able in hideable(degrees).items() if is_able]
    # Some programs hide everything but expert exchanges.
    for axes in (able, [axis for axis in able if axis != "ep"]) if "ep" in able else (able,):
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
    node = run.cluster.node
    link = "link_bandwidth_bytes_per_s" if node.link_bandwidth_bytes_per_s else "pcie_bandwidth_bytes_per_s"
    yield nic_change(run, 2.0, "twice")
    faster: Table = {"cluster": {"node": {link: 2 * getattr(node, link)}}}
    yield Change("links inside a node twice as fast", faster, never_slower=True)


def condition_changes(run: RunSpec) -> Iterator[Change]:
    """List changes of what the GPUs are subjected to: a tenth less power or clock, warmer air."""
    asked, gpu, warmer = run.conditions, run.cluster.gpu, warmer_settings(run, WARMER_K)
    power_w = 0.9 * power_cap_w(gpu, asked)
    yield Change(f"--power-cap {power_w:g}", {"conditions": {"power_cap_w": power_w}})
    clock_hz = 0.9 * (asked.clock_cap_hz if asked.clock_cap_hz is not None else gpu.clock_max_hz)
    yield Change(f"--clock-cap {clock_hz / MEGA:.0f}", {"conditions": {"clock_cap_hz": clock_hz}})
    inlet_c = warmer["cluster"]["cooling"]["inlet_c"]
    yield Change(f"inlets {WARMER_K:g} K warmer" if isinstance(inlet_c, list) else f"--inlet {inlet_c:g}", warmer)


class Preheating(NamedTuple):
    """What a run would be with other preheating of rear GPUs by upstream ones, which is assumed."""

    factor: float
    """Times what the catalog assumes."""
    temperature_peak_c: float
    temperature_spread_node_k: float
    step_time_s: float


def vary_preheating(run: RunSpec) -> list[Preheating]:
    """Simulate a run without preheating and with twice as much; nothing where none is assumed or it takes too long."""
    found = []
    for factor in PREHEAT_FACTORS if run.cluster.node.preheat_k_per_w and not run.cluster.mixed else ():
        change = Change("", preheat_settings(run, factor))
        try:
            found_run = predict(changed_run(run, change), ignore_memory=True, longest_s=LONGEST_HINT_S)
        except SpecError:
            continue
        metrics, names = found_run.result.metrics, ("temperature_peak_c", "temperature_spread_node_k", "step_time_s")
        found.append(Preheating(factor, *(metrics[name] for name in names)))
    return found
