"""From what files say to what a recording holds: one series for each GPU and quantity, in SI, in order of time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.errors import SpecError
from charllm.measure.convert.foreign import POWER, Foreign, GpuFacts, GpuKey, Meaning, Track
from charllm.measure.quantities import COUNTERS
from charllm.measure.telemetry.nvml import fold_reasons
from charllm.measure.telemetry.source import GpuIdentity
from charllm.units import whole_number

PLAUSIBLE = {"w": (0.0, 3e3), "c": (-40.0, 150.0), "hz": (0.0, 2e10), "fraction": (0.0, 1.05), "bytes": (0.0, 1e18)}
"""Of one GPU; what lies outside is an error of the source, or another unit."""
INSTANT_BOARDS = re.compile(
    r"\b(A100|A800|A30|V100S?|P100|P40|P4|T4|K80|K40|M40|M60|TITAN|GTX|RTX [2]0\d\d|Quadro|Tesla)\b", re.IGNORECASE
)
"""Boards whose plain power is no mean over a second: those before Ampere, and GA100 (NVIDIA's help of nvidia-smi)."""
COUNTER_AGREES = 0.5
"""How far the power that a counter of energy tells may be from the readings of power."""
BACKWARDS_S = 0.5
"""Clocks are set back by less than this in ordinary life (NTP); readings of then are put in order."""


class Settled(NamedTuple):
    """One quantity of one GPU."""

    times_s: Floats
    values: Floats
    reasons: dict[int, str]

    def between(self, from_s: float, to_s: float) -> "Settled":
        """Return the readings between two times."""
        first, end = (int(place) for place in np.searchsorted(self.times_s, [from_s, to_s]))
        reasons = {place - first: reason for place, reason in self.reasons.items() if first <= place < end}
        return Settled(self.times_s[first:end], self.values[first:end], reasons)


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """One node: its GPUs by number, and what was read of each."""

    name: str
    gpus: tuple[GpuIdentity, ...]
    series: tuple[dict[str, Settled], ...]


def settle(foreign: Foreign, gpu_name: str = "", wanted: Sequence[str] = ()) -> tuple[list[NodeReadings], list[str]]:
    """Settle every GPU; returns the nodes, and what a user should know."""
    told: list[str] = []
    facts = {key: foreign.gpus.get(key, GpuFacts()) for key in foreign.tracks}
    kept = {key: known for key, known in facts.items() if not wanted or _is_wanted(key, known, wanted)}
    if not kept:
        have = ", ".join(dict.fromkeys(_describe(key, known) for key, known in facts.items()))
        raise SpecError("--gpus", ",".join(wanted), f"GPUs of the files: {have}")
    _check_types(kept)
    nodes: dict[str, list[tuple[GpuIdentity, dict[str, Settled]]]] = {}
    for key, known in kept.items():
        name = known.name or gpu_name
        series = _settle_gpu(foreign.tracks[key], name, _describe(key, known), told)
        if series:
            identity = GpuIdentity("", name, _number(key, known, len(nodes.get(key.node, []))), known.pci)
            nodes.setdefault(key.node, []).append((identity._replace(uuid=_uuid(key, known, identity)), series))
    found = []
    for node in sorted(nodes):
        of_node = sorted(nodes[node], key=lambda pair: (pair[0].number, pair[0].uuid))
        found.append(NodeReadings(node, tuple(gpu for gpu, _ in of_node), tuple(series for _, series in of_node)))
    return found, list(dict.fromkeys(told))


def _is_wanted(key: GpuKey, known: GpuFacts, wanted: Sequence[str]) -> bool:
    """Tell whether a GPU was asked for: by number, UUID, node/number, or the model's name."""
    names = {key.gpu, known.uuid, str(known.number), f"{key.node}/{known.number}"}
    return any(word in names or (not word.isdecimal() and word.lower() in known.name.lower()) for word in wanted)


def _describe(key: GpuKey, known: GpuFacts) -> str:
    number = key.gpu if known.number is None else str(known.number)
    return f"{key.node}/{number}" if key.node else number


def _check_types(kept: Mapping[GpuKey, GpuFacts]) -> None:
    types: dict[str, list[str]] = {}
    for key, known in kept.items():
        if known.name:
            types.setdefault(known.name, []).append(_describe(key, known))
    if len(types) > 1:
        mixed = "; ".join(f"{name}: GPU {', '.join(gpus[:8])}" for name, gpus in types.items())
        raise SpecError(
            "PATH", f"GPUs of several types: {mixed}", "GPUs of one type: choose them with --gpus NAME|0,1,..."
        )


def _number(key: GpuKey, known: GpuFacts, place: int) -> int:
    if known.number is not None:
        return known.number
    number = whole_number(key.gpu)
    return place if number is None else number


def _uuid(key: GpuKey, known: GpuFacts, identity: GpuIdentity) -> str:
    return known.uuid or (f"{key.node}/gpu{identity.number}" if key.node else f"gpu{identity.number}")


def _settle_gpu(tracks: Mapping[Meaning, Track], name: str, gpu: str, told: list[str]) -> dict[str, Settled]:
    """Choose, order, check and complete what was read of one GPU."""
    chosen: dict[str, tuple[int, Meaning]] = {}
    for meaning in tracks:
        if meaning.how != "reason":
            quantity = _quantity(meaning, name)
            if quantity not in chosen or _worth(tracks[meaning], meaning) < chosen[quantity][0]:
                chosen[quantity] = (_worth(tracks[meaning], meaning), meaning)
    series = {}
    for quantity, (_, meaning) in chosen.items():
        ordered = _ordered(tracks[meaning], gpu, quantity)
        if meaning.how == "rate":
            ordered = _added_up(ordered)
            told.append(f"{quantity}: the source has bytes per second; integrated over time")
        elif meaning.how == "reasons":
            ordered = _folded(ordered)
        series[quantity] = ordered
    flags = {meaning: track for meaning, track in tracks.items() if meaning.how == "reason"}
    if flags and "limits" not in series:
        series["limits"] = _combined(flags, gpu)
    if POWER in {meaning.quantity for _, meaning in chosen.values()}:
        _tell_averaging(series, name, told)
    series = {quantity: _plausible(one, quantity, gpu, told) for quantity, one in series.items()}
    series = {quantity: one for quantity, one in series.items() if len(one.times_s)}
    shown = series.get("temperature_c")
    if "hotspot_c" in series and (shown is None or not np.isfinite(shown.values).any()):
        # As amdsmi is read: a board without an edge sensor shows its hotspot.
        series["temperature_c"] = series["hotspot_c"]
    return _without_wrong_counters(series, told)


def _quantity(meaning: Meaning, name: str) -> str:
    if meaning.quantity != POWER:
        return meaning.quantity
    return "power_instant_w" if INSTANT_BOARDS.search(name) else "power_average_w"


def _worth(track: Track, meaning: Meaning) -> int:
    """Return the rank of a series, lower is better; one without any number comes last."""
    return meaning.rank if len(track.reasons) < len(track.times) else 100 + meaning.rank


def _tell_averaging(series: Mapping[str, Settled], name: str, told: list[str]) -> None:
    if "power_average_w" not in series or "power_instant_w" in series:
        return
    if name:
        told.append(f"power: this source shows the mean over the last second on {name}; shorter peaks are not seen")
    else:
        told.append("power: the GPU's type is not named, and with it over how long readings are means; taken as 1 s, "
                    "so that peaks are not known (--gpu NAME)")  # fmt: skip


def _ordered(track: Track, gpu: str, quantity: str) -> Settled:
    """Put readings in order of time; refuse times that run backwards, and spread those that share a second."""
    times, values = np.frombuffer(track.times, np.float64).copy(), np.frombuffer(track.values, np.float64).copy()
    reasons = track.reasons
    steps = np.diff(times)
    if len(steps) and steps.min() < -BACKWARDS_S:
        at = int(np.argmin(steps))
        raise SpecError(
            "time", f"{times[at + 1]:.3f} after {times[at]:.3f} in {quantity} of GPU {gpu}",
            "times that grow from reading to reading",
        )  # fmt: skip
    if len(steps) and steps.min() < 0:
        order = np.argsort(times, kind="stable")
        places = {int(old): new for new, old in enumerate(order)}
        times, values = times[order], values[order]
        reasons = {places[old]: reason for old, reason in reasons.items()}
    return _spread(Settled(times, values, reasons))


def _spread(series: Settled) -> Settled:
    """Keep one of equal readings at one time; spread readings that share a whole second over it."""
    times = series.times_s
    unique, first, counts = np.unique(times, return_index=True, return_counts=True)
    if len(unique) == len(times):
        return series
    if len(unique) > 2 and np.median(counts) >= 2 and (unique % 1 == 0).all():
        gap_s = float(np.median(np.diff(unique)))
        inside = np.arange(len(times)) - np.repeat(first, counts)
        return series._replace(times_s=times + gap_s * inside / np.repeat(counts, counts))
    kept = {int(place): new for new, place in enumerate(first)}
    reasons = {kept[place]: reason for place, reason in series.reasons.items() if place in kept}
    return Settled(unique, series.values[first], reasons)


def _added_up(series: Settled) -> Settled:
    """Turn a rate, the mean since the reading before, into a counter."""
    known = np.isfinite(series.values)
    times = series.times_s[known]
    return Settled(times, np.cumsum(series.values[known] * np.diff(times, prepend=times[:1])), {})


def _folded(series: Settled) -> Settled:
    values = series.values.copy()
    known = np.isfinite(values)
    values[known] = [fold_reasons(int(value)) for value in values[known]]
    return series._replace(values=values)


def _combined(flags: Mapping[Meaning, Track], gpu: str) -> Settled:
    """Add up the columns of single reasons; a moment at which one is not known is not known."""
    parts = {int(meaning.factor): _ordered(track, gpu, "limits") for meaning, track in flags.items()}
    parts = {bit: one for bit, one in parts.items() if np.isfinite(one.values).any()}
    if not parts:
        return Settled(np.empty(0), np.empty(0), {})
    times = next(iter(parts.values())).times_s
    parts = {bit: one for bit, one in parts.items() if len(one.times_s) == len(times)}
    total = np.zeros(len(times))
    for bit, one in parts.items():
        total += bit * np.where(np.isfinite(one.values), one.values > 0, np.nan)
    return _folded(Settled(times, total, {int(place): "error" for place in np.flatnonzero(~np.isfinite(total))}))


def _plausible(series: Settled, quantity: str, gpu: str, told: list[str]) -> Settled:
    """Take readings that no GPU can have as errors; refuse a series that is mostly such: its unit is another."""
    low, high = PLAUSIBLE.get(quantity.rpartition("_")[2], (-np.inf, np.inf))
    if quantity in COUNTERS:
        low, high = 0.0, np.inf
    values = series.values
    wrong = np.isfinite(values) & ((values < low) | (values > high))
    if not wrong.any():
        return series
    if wrong.sum() > 0.5 * np.isfinite(values).sum():
        worst = float(values[wrong][0])
        raise SpecError(quantity, f"{worst:g} of GPU {gpu}", f"from {low:g} to {high:g}: is the unit wrong?")
    told.append(f"GPU {gpu}: {int(wrong.sum())} readings of {quantity} outside {low:g} to {high:g} are taken as errors")
    reasons = {**series.reasons, **{int(place): "error" for place in np.flatnonzero(wrong)}}
    return Settled(series.times_s, np.where(wrong, np.nan, values), reasons)


def _without_wrong_counters(series: dict[str, Settled], told: list[str]) -> dict[str, Settled]:
    """Leave out counters that do not count what they should: another driver may count in another unit."""
    kept = dict(series)
    for quantity in ("power_limited_s", "thermally_limited_s", "board_limited_s"):
        if quantity in kept and _grown(kept[quantity])[0] > 1.05 * _grown(kept[quantity])[1]:
            told.append(f"{quantity}: grows faster than time, so its unit must be wrong; left out")
            del kept[quantity]
    power = kept.get("power_instant_w") or kept.get("power_average_w")
    counts = kept["energy_j"].values if "energy_j" in kept else np.empty(0)
    backwards = int((np.diff(counts[np.isfinite(counts)]) < 0).sum())
    if backwards:
        times = f"{backwards} time{'s' * (backwards > 1)}"
        if power is None:
            told.append(f"energy_j: the counter runs backwards {times}; what was used around that is not known")
        else:
            told.append(f"energy_j: the counter runs backwards {times}; left out, energy is that of power")
            del kept["energy_j"]
    if "energy_j" in kept and power is not None:
        grown_j, spent_s = _grown(kept["energy_j"])
        mean_w = float(np.nanmean(power.values)) if np.isfinite(power.values).any() else np.nan
        if spent_s > 10 and mean_w > 0 and abs(grown_j / spent_s / mean_w - 1) > COUNTER_AGREES:
            told.append(f"energy_j: counts {grown_j / spent_s:.3g} W where power reads {mean_w:.3g} W; left out")
            del kept["energy_j"]
    return kept


def _grown(series: Settled) -> tuple[float, float]:
    """Return how much a counter grew, and in which time."""
    known = np.isfinite(series.values)
    times, values = series.times_s[known], series.values[known]
    if len(times) < 2:
        return 0.0, 0.0
    return float(np.maximum(np.diff(values), 0.0).sum()), float(times[-1] - times[0])


AVERAGING = {"power_instant_w": "instant", "power_average_w": "mean over 1 s"}


def describe_readings(nodes: Sequence[NodeReadings]) -> dict[str, object]:
    """Say how dense and how fresh the readings are: the time between them, and between changes of power."""
    periods, refreshes, kinds = [], [], set()
    for node in nodes:
        for series in node.series:
            for quantity, kind in AVERAGING.items():
                if quantity in series and len(series[quantity].times_s) > 1:
                    kinds.add(kind)
                    periods.append(float(np.median(np.diff(series[quantity].times_s))))
                    changes = np.flatnonzero(np.diff(series[quantity].values) != 0)
                    if len(changes) > 1:
                        refreshes.append(float(np.median(np.diff(series[quantity].times_s[changes]))))
    return {
        "power": " and ".join(sorted(kinds)) or None,
        "period_s": float(np.median(periods)) if periods else None,
        "refresh_s": float(np.median(refreshes)) if refreshes else None,
    }
