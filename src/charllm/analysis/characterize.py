"""What a recording shows of a run, whoever recorded it: power states, temperature groups, rhythm, GPUs apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from charllm.analysis.power_states import PowerState, find_states
from charllm.analysis.rhythm import Curve, Dips, StepPeriod, are_between_work, even, find_dips, find_period
from charllm.analysis.unlike import (
    USUAL_K_PER_W,
    Outlier,
    TemperatureGroup,
    at_equal_power,
    find_outliers,
    group_temperatures,
    strongest,
)
from charllm.arrays import Floats
from charllm.catalog.resolve import single_node
from charllm.errors import SpecError
from charllm.measure.marks import Mark, find_steps, is_logged
from charllm.measure.recording import Recording

LEAST_READINGS = 10
WARM_S = 60.0
"""Temperatures of load are read this long after it began, where it lasts longer."""


@dataclass(frozen=True, slots=True)
class Character:
    """What a recording shows; a list is empty, and a value None, where it shows nothing of the kind."""

    power_states: list[PowerState]
    temperature_groups: list[TemperatureGroup]
    temperature_spread_k: float | None
    """Hottest minus coolest GPU under load."""
    step_period: StepPeriod | None
    dips: Dips | None
    outliers: list[Outlier]
    gpus: list[str]
    """Names of the GPUs by their places in the lists above."""
    notes: list[str]

    def as_table(self) -> dict[str, Any]:
        """Return it as plain tables."""
        return {
            "power_states": [one._asdict() for one in self.power_states],
            "temperature_groups": [one._asdict() for one in self.temperature_groups],
            "temperature_spread_k": self.temperature_spread_k,
            "step_period": None if self.step_period is None else self.step_period._asdict(),
            "dips": None if self.dips is None else self.dips._asdict(),
            "outliers": [one._asdict() for one in self.outliers],
            "gpus": self.gpus,
            "notes": self.notes,
        }


def characterize(
    recording: Recording, marks: Mapping[str, Sequence[Mark]], nodes: Mapping[int, str] | None = None
) -> Character:
    """Describe a recording; `nodes` names the node of each GPU where there are several."""
    gpus = [gpu for gpu in recording.sampled if len(recording.power(gpu)[0]) >= LEAST_READINGS]
    names = _names(recording, nodes or {})
    if not gpus:
        return Character([], [], None, _marked(marks), None, [], names, ["power was read fewer than 10 times"])
    times, powers = zip(*(recording.power(gpu) for gpu in gpus), strict=True)
    states = find_states(powers, _uses(recording, gpus, times))
    curve = even(list(times), list(powers))
    notes: list[str] = []
    dips, period = (None, None) if curve is None else _rhythm(curve, states, notes)
    period = _marked(marks) or period
    groups, spread_k, outliers = _compare(recording, gpus, states, nodes or {})
    if period is None and curve is not None:
        notes.append(f"no step period found: power has no period of {2 * curve.period_s:.2g} s or longer")
    return Character(states, groups, spread_k, period, dips, outliers, names, notes)


def _names(recording: Recording, nodes: Mapping[int, str]) -> list[str]:
    return [
        f"{nodes[place]}/{gpu.number}" if nodes.get(place) else str(gpu.number)
        for place, gpu in enumerate(recording.facts.gpus)
    ]


def _uses(recording: Recording, gpus: Sequence[int], times: Sequence[Floats]) -> list[Floats] | None:
    """Return how much each GPU was used at the times of its power; None where that was not read."""
    found = []
    for gpu, at_s in zip(gpus, times, strict=True):
        read_s, use = recording.known(gpu, "utilization_fraction")
        if len(read_s) < 2:
            return None
        found.append(np.interp(at_s, read_s, use))
    return found


def _marked(marks: Mapping[str, Sequence[Mark]]) -> StepPeriod | None:
    """Return the steps that the job itself marked, or that its log reports."""
    found = {name: find_steps(list(own)) for name, own in marks.items()}
    process = max(found, key=lambda name: len(found[name]), default=None)
    if process is None or len(found[process]) < 2:
        return None
    period_s = float(np.median([step.end_s - step.start_s for step in found[process]]))
    return StepPeriod(period_s, "log" if is_logged(process) else "marks", 1.0, None)


def _rhythm(curve: Curve, states: Sequence[PowerState], notes: list[str]) -> tuple[Dips | None, StepPeriod | None]:
    """Return dips, and the period inside the stretches between them; dips that are the steps are no dips."""
    known = curve.power_w[np.isfinite(curve.power_w)]
    if not states or len(known) < LEAST_READINGS:
        return None, None
    level_w, spread_w = _level_of_work(known, states)
    lowest_w = states[0].power_w
    dips = find_dips(curve, level_w, spread_w, lowest_w)
    loaded = _stretches(curve, lowest_w + 0.3 * (level_w - lowest_w) if level_w > 1.3 * lowest_w else 0.0)
    if not are_between_work(dips):
        return None, find_period(loaded, curve.period_s)
    threshold = level_w - max(6.0 * spread_w, 0.1 * level_w)
    inside = find_period(_stretches(curve, threshold), curve.period_s)
    if inside is None and dips is not None and dips.regular:
        notes.append("the dips may be a checkpoint, an evaluation, or the end of each long step")
    return dips, inside


def _level_of_work(known: Floats, states: Sequence[PowerState]) -> tuple[float, float]:
    """Return the level of the highest state that lasts, and its spread, of the mean of all GPUs."""
    lasting = [state for state in states if state.share >= 0.1] or list(states)
    top = lasting[-1]
    near = known[np.abs(known / top.power_w - 1) < 0.2]
    near = near if len(near) >= LEAST_READINGS else known[known >= np.percentile(known, 75)]
    level = float(np.median(near))
    return level, 1.4826 * float(np.median(np.abs(near - level)))


def _stretches(curve: Curve, above_w: float) -> list[Floats]:
    """Return the parts of a curve in which power stays above a level; a point below it does not end one."""
    above = np.nan_to_num(curve.power_w, nan=-1.0) > above_w
    filled = above | (np.roll(above, 1) & np.roll(above, -1) & np.isfinite(curve.power_w))
    edges = np.flatnonzero(np.diff(np.concatenate([[False], filled, [False]]).astype(int)))
    trim = max(1, int(1.5 / curve.period_s))
    found = [curve.power_w[start + trim : end - trim] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return [one for one in found if len(one) > 8]


def _compare(
    recording: Recording, gpus: Sequence[int], states: Sequence[PowerState], nodes: Mapping[int, str]
) -> tuple[list[TemperatureGroup], float | None, list[Outlier]]:
    """Compare the GPUs under load and at rest."""
    outliers: list[Outlier] = []
    groups: list[TemperatureGroup] = []
    spread_k = None
    for when in ("load", "idle"):
        power, degrees, clocks = _means(recording, gpus, states, when)
        k_per_w = _k_per_w(recording, gpus)
        for node in sorted({nodes.get(gpu, "") for gpu in gpus}):
            of_node = {gpu: one for gpu, one in degrees.items() if nodes.get(gpu, "") == node}
            outliers += find_outliers(at_equal_power(of_node, power, k_per_w), "temperature_c", when)
            if when == "load":
                groups += _placed(group_temperatures(of_node), recording, [g for g in gpus if nodes.get(g, "") == node])
        if when == "load" and degrees:
            spread_k = max(degrees.values()) - min(degrees.values())
        outliers += find_outliers(power, "power_w", when)
        if when == "load":
            outliers += find_outliers(clocks, "clock_hz", when)
    return groups, spread_k, strongest(outliers)


def _means(
    recording: Recording, gpus: Sequence[int], states: Sequence[PowerState], when: str
) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Return mean power, temperature and clock of each GPU in its highest state, or in the idle one."""
    idle = [state for state in states if state.name in ("idle", "waiting")]
    if when == "idle" and not idle:
        return {}, {}, {}
    lasting = [state for state in states if state.share >= 0.1] or list(states)
    top = lasting[-1]
    power: dict[int, float] = {}
    degrees: dict[int, float] = {}
    clocks: dict[int, float] = {}
    for gpu in gpus:
        times, watts = recording.power(gpu)
        inside = watts >= 0.75 * top.power_w if when == "load" else watts <= idle[0].high_w
        if when == "load":
            inside &= watts <= max(1.3 * top.power_w, top.high_w)
        if np.count_nonzero(inside) < LEAST_READINGS:
            continue
        if when == "load":
            first_s = float(times[inside][0])
            warm = inside & (times >= first_s + WARM_S)
            inside = warm if np.count_nonzero(warm) >= LEAST_READINGS else inside
        power[gpu] = float(np.mean(watts[inside]))
        for quantity, found in (("temperature_c", degrees), ("clock_hz", clocks)):
            read_s, values = recording.known(gpu, quantity)
            if len(read_s) > 1:
                found[gpu] = float(np.mean(np.interp(times[inside], read_s, values)))
    return power, degrees, clocks


def _k_per_w(recording: Recording, gpus: Sequence[int]) -> float:
    """Return kelvins for each watt: of the GPUs' own slow changes where power changed by 100 W, or a usual figure."""
    slopes = []
    for gpu in gpus:
        times, watts = recording.power(gpu)
        read_s, degrees = recording.known(gpu, "temperature_c")
        if len(read_s) > LEAST_READINGS and np.ptp(np.percentile(watts, [5, 95])) > 100:
            slope = np.polyfit(watts, np.interp(times, read_s, degrees), 1)[0]
            slopes.append(float(slope))
    found = float(np.median(slopes)) if slopes else USUAL_K_PER_W
    return float(np.clip(found, 0.02, 0.15))


def _placed(groups: list[TemperatureGroup], recording: Recording, gpus: Sequence[int]) -> list[TemperatureGroup]:
    """Say which group sits in front and which behind, where the catalog knows the node of these GPUs."""
    names = {recording.facts.gpus[gpu].name for gpu in gpus}
    try:
        node = single_node(_catalog_name(names.pop()), len(gpus)).node if len(names) == 1 else None
    except SpecError:
        node = None
    if node is None or len(groups) != 2:
        return groups
    rear = {gpu for gpu in gpus if node.upstream_slots(recording.facts.gpus[gpu].number)}
    if not rear or len(rear) == len(gpus):
        return groups
    return [
        group._replace(place="rear" if set(group.gpus) <= rear else "front" if not set(group.gpus) & rear else None)
        for group in groups
    ]


def _catalog_name(name: str) -> str:
    """Return the catalog's word for a GPU as drivers name it: ``NVIDIA H100 80GB HBM3`` is an h100."""
    words = name.lower().replace("nvidia", " ").replace("-", " ").split()
    return words[0] if words else name
