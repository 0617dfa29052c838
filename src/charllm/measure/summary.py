"""A measured run as a result: recordings and marks in, metrics out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from charllm import __version__
from charllm.gpu.sensor import HOPPER, Floats
from charllm.measure.marks import Mark, Step, find_phases, find_steps
from charllm.measure.parts import Place
from charllm.measure.recording import Recording
from charllm.measure.steady import Interval, interval, noise_floor_fraction, settled_from
from charllm.measure.window import CAUSES, Window, counted, highest, look
from charllm.result.metrics import fill_metrics, missing
from charllm.result.result import RunResult

REASONS = {
    "power_peak_w": "the sensor shows 25 ms boxes; 1 ms means cannot be seen",
    "mfu": "the model behind the command is not known",
    "breakdown_s": "needs a profiler trace",
}
"""Metrics a measurement without more knowledge cannot give, and why."""


FEWEST_READINGS = 3
"""Of temperature, to tell whether it has settled."""


class Measured(NamedTuple):
    """What was recorded of one run of a command."""

    recording: Recording
    marks: dict[str, list[Mark]]
    start_s: float
    end_s: float
    places: Mapping[int, Place] = {}
    """Node and rank of each GPU; none for the GPUs of this machine alone."""
    nodes: tuple[str, ...] = ("",)

    def place(self, gpu: int) -> Place:
        """Return where a GPU is."""
        return self.places.get(gpu, Place(0, gpu))

    def by_node(self) -> list[list[int]]:
        """Return the GPUs that were read on each node."""
        sampled = self.recording.sampled
        return [[gpu for gpu in sampled if self.place(gpu).node == node] for node in range(len(self.nodes))]


def summarise(measured: Measured, origin: str, spec: dict[str, Any], details: Mapping[str, Any]) -> RunResult:
    """Turn a recorded run into a result; metrics describe its settled part."""
    steps = _steps(measured.marks)
    warnings: list[str] = []
    start_s, end_s = _settled(measured, steps, warnings)
    inside = [step for step in steps if step.start_s >= start_s and step.end_s <= end_s] or steps
    if inside:
        start_s, end_s = inside[0].start_s, inside[-1].end_s
    windows = {gpu: look(measured.recording, gpu, start_s, end_s) for gpu in measured.recording.sampled}
    times = _time_metrics(inside, len(windows))
    known = _gpu_metrics(measured, windows, start_s, end_s, inside)
    metrics = fill_metrics({**times, **known, **_tokens_per_j(times, known)})
    warnings += [f"{name}: {REASONS.get(name, 'not measured in this run')}" for name in missing(metrics)]
    warnings += _reading_warnings(measured)
    intervals = _intervals(measured, inside)
    if any(None in found.bounds for found in intervals.values()):
        warnings.append("intervals: 95 % intervals need scipy, which is not installed: pip install 'charllm[fit]'")
    return RunResult(
        origin=origin,
        spec=spec,
        metrics=metrics,
        gpus=_gpu_rows(measured, windows, start_s, end_s),
        nodes=_node_rows(measured, windows),
        provenance={
            "charllm": __version__,
            "telemetry": {"source": measured.recording.facts.name, **measured.recording.facts.details},
            "measurement": {
                "window_s": end_s - start_s,
                "steps": len(inside),
                "intervals": {name: found.bounds for name, found in intervals.items()},
                "noise_floor_fraction": _noise_floor(inside),
                "sensor_coverage_fraction": HOPPER.coverage_fraction,
                "phases_s": _phases(measured.marks),
                **details,
            },
        },
        warnings=warnings,
    )


def _steps(marks: dict[str, list[Mark]]) -> list[Step]:
    """Return the steps of the process that marked most of them (rank 0 of a job whose ranks all mark)."""
    return max((find_steps(found) for found in marks.values()), key=len, default=[])


def _settled(measured: Measured, steps: list[Step], warnings: list[str]) -> tuple[float, float]:
    """Return the part of a run in which temperature has settled, judged on the GPU that takes longest."""
    start_s, end_s = (steps[0].start_s, steps[-1].end_s) if steps else (measured.start_s, measured.end_s)
    starts = []
    for gpu in measured.recording.sampled:
        times, temperature = measured.recording.known(gpu, "temperature_c")
        inside = (times >= start_s) & (times <= end_s)
        if np.count_nonzero(inside) >= FEWEST_READINGS:
            starts.append(settled_from(times[inside], temperature[inside]))
    if not starts:
        return start_s, end_s
    found = [start for start in starts if start is not None]
    if len(found) < len(starts):
        warnings.append("temperature had not settled by the end of the run; metrics describe its second half")
        return (start_s + end_s) / 2, end_s
    return max([start_s, *found]), end_s


def _time_metrics(steps: list[Step], gpus: int) -> dict[str, Any]:
    if not steps:
        return {}
    step_time_s = (steps[-1].end_s - steps[0].start_s) / len(steps)
    tokens = [step.tokens for step in steps if step.tokens is not None]
    if len(tokens) < len(steps):
        return {"step_time_s": step_time_s}
    rate = sum(tokens) / (steps[-1].end_s - steps[0].start_s)
    return {"step_time_s": step_time_s, "tokens_per_s": rate, "tokens_per_s_per_gpu": rate / max(1, gpus)}


def _gpu_metrics(
    measured: Measured, windows: dict[int, Window], start_s: float, end_s: float, steps: list[Step]
) -> dict[str, Any]:
    if not windows:
        return {}
    seen = list(windows.values())
    recording = measured.recording
    powers = [window.power_mean_w for window in seen]
    count = max(1, len(steps))
    energy = None if None in powers else sum(power * (end_s - start_s) for power in powers if power is not None) / count
    return {
        "power_mean_w": _mean(powers),
        "power_peak_sensor_w": _largest(window.power_peak_sensor_w for window in seen),
        "energy_per_step_j": energy,
        "temperature_mean_c": _mean([window.temperature_mean_c for window in seen]),
        "temperature_peak_c": _largest(window.temperature_peak_c for window in seen),
        "temperature_spread_node_k": _largest(
            _spread([windows[gpu].temperature_mean_c for gpu in gpus]) for gpus in measured.by_node()
        ),
        "temperature_swing_k": _largest(_swing(recording, gpu, steps) for gpu in windows),
        "margin_to_slowdown_k": _smallest(recording, start_s, end_s),
        "clock_mean_hz": _mean([window.clock_mean_hz for window in seen]),
        "clock_std_fraction": _mean([window.clock_std_fraction for window in seen]),
        "throttled_time_fraction": _mean_by_cause([window.limited_fraction for window in seen]),
        "memory_peak_bytes": _largest(highest(recording, gpu, "memory_used_bytes", start_s, end_s) for gpu in windows),
        "link_bytes": _link_bytes(recording, windows, start_s, end_s, count),
    }


def _tokens_per_j(times: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return the tokens of a step over its energy, both of the same steps."""
    rate, energy_j = times.get("tokens_per_s"), known.get("energy_per_step_j")
    return {"tokens_per_j": rate * times["step_time_s"] / energy_j} if rate and energy_j else {}


def _gpu_rows(measured: Measured, windows: dict[int, Window], start_s: float, end_s: float) -> list[dict[str, Any]]:
    return [
        {
            "rank": measured.place(gpu).rank,
            "node": measured.place(gpu).node,
            "slot": identity.number,
            "stage": None,
            "uuid": identity.uuid,
            "memory_peak_bytes": highest(measured.recording, gpu, "memory_used_bytes", start_s, end_s),
            "power_mean_w": windows[gpu].power_mean_w,
            "power_peak_sensor_w": windows[gpu].power_peak_sensor_w,
            "temperature_mean_c": windows[gpu].temperature_mean_c,
            "temperature_peak_c": windows[gpu].temperature_peak_c,
            "clock_mean_hz": windows[gpu].clock_mean_hz,
            "throttled_time_fraction": windows[gpu].limited_fraction,
        }
        for gpu, identity in enumerate(measured.recording.facts.gpus)
        if gpu in windows
    ]


def _node_rows(measured: Measured, windows: dict[int, Window]) -> list[dict[str, Any]]:
    """Describe every node of a run on several; of this machine alone nothing is known beside its GPUs."""
    rows: list[dict[str, Any]] = []
    for node, (name, gpus) in enumerate(zip(measured.nodes, measured.by_node(), strict=True)):
        seen = [windows[gpu] for gpu in gpus]
        powers, degrees = [one.power_mean_w for one in seen], [one.temperature_mean_c for one in seen]
        known = {
            "name": name,
            "gpus": len(gpus),
            "gpu_power_mean_w": None if None in powers or not powers else sum(power or 0.0 for power in powers),
            "temperature_mean_c": _mean(degrees),
            "temperature_spread_k": _spread(degrees),
        }
        rows.append({"node": node, **(known if name else {})})
    return rows


def _name_gpu(measured: Measured, gpu: int) -> str:
    """Name a GPU for people: by its number, behind its node where there are several."""
    name = measured.nodes[measured.place(gpu).node]
    return f"node {name} GPU {measured.recording.facts.gpus[gpu].number}" if name else f"GPU {gpu}"


def _intervals(measured: Measured, steps: list[Step]) -> dict[str, Interval]:
    """Return 95 % intervals over blocks of steps, each long enough for the counter to be fine."""
    blocks = _blocks(steps)
    if len(blocks) < 2:
        return {}
    found = {"step_time_s": interval(np.array([(end - start) / count for start, end, count in blocks]))}
    gpus = measured.recording.sampled
    power = [[look(measured.recording, gpu, start, end).power_mean_w for gpu in gpus] for start, end, _ in blocks]
    means = [float(np.mean([value for value in block if value is not None])) for block in power if any(block)]
    if len(means) >= 2:
        found["power_mean_w"] = interval(np.array(means))
    return found


def _blocks(steps: list[Step], shortest_s: float = 2.0) -> list[tuple[float, float, int]]:
    """Join consecutive steps into blocks of at least `shortest_s`: (start, end, steps)."""
    blocks: list[tuple[float, float, int]] = []
    first: float | None = None
    count = 0
    for step in steps:
        first = step.start_s if first is None else first
        count += 1
        if step.end_s - first >= shortest_s:
            blocks.append((first, step.end_s, count))
            first, count = None, 0
    return blocks


def _noise_floor(steps: list[Step]) -> float | None:
    durations: Floats = np.array([step.end_s - step.start_s for step in steps])
    return None if len(durations) < 4 else noise_floor_fraction(durations)


def _phases(marks: dict[str, list[Mark]]) -> dict[str, float]:
    """Return the mean length of every named phase, host time."""
    found: dict[str, list[float]] = {}
    for of_process in marks.values():
        for name, spans in find_phases(of_process).items():
            found.setdefault(name, []).extend(end - start for start, end in spans)
    return {name: float(np.mean(lengths)) for name, lengths in found.items()}


def _reading_warnings(measured: Measured) -> list[str]:
    """Name what could not be read, by GPU and reason; and GPUs whose rank is not known."""
    found = []
    for node, name in enumerate(measured.nodes):
        seats = [measured.place(gpu) for gpu in measured.recording.sampled if measured.place(gpu).node == node]
        if any(seat.rank is None for seat in seats):
            found.append(
                f"rank: which of its ranks works on which of its {len(seats)} GPUs is not known of node {name}"
            )
    for gpu, beats in measured.recording.series.items():
        for series in beats.values():
            for quantity, reasons in series.missing.items():
                if set(reasons) - {"not_supported", "not_recorded"}:
                    told = ", ".join(f"{count} times {reason}" for reason, count in reasons.items())
                    found.append(f"{_name_gpu(measured, gpu)}: {quantity} was not read ({told})")
    return found


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _largest(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _spread(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) - min(known) if known else None


def _swing(recording: Recording, gpu: int, steps: list[Step]) -> float | None:
    """Return the largest difference of temperature within one step."""
    times, temperature = recording.known(gpu, "temperature_c")
    edges = np.searchsorted(times, [(step.start_s, step.end_s) for step in steps]).reshape(-1, 2)
    return _largest(float(np.ptp(temperature[start:end])) for start, end in edges if start < end)


def _smallest(recording: Recording, start_s: float, end_s: float) -> float | None:
    found = []
    for gpu in recording.series:
        times, margin = recording.known(gpu, "margin_k")
        found += list(margin[(times >= start_s) & (times <= end_s)])
    return float(min(found)) if found else None


def _mean_by_cause(values: list[dict[str, float] | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {cause: float(np.mean([value[cause] for value in known])) for cause in CAUSES} if known else None


def _link_bytes(
    recording: Recording, windows: dict[int, Window], start_s: float, end_s: float, steps: int
) -> dict[str, float | None] | None:
    sent = {"nvlink": "link_sent_bytes", "pcie": "pcie_sent_bytes"}
    totals: dict[str, float | None] = {}
    for link, quantity in sent.items():
        counts = [counted(recording, gpu, quantity, start_s, end_s) for gpu in windows]
        totals[link] = None if None in counts else sum(count or 0.0 for count in counts) / steps
    return None if all(value is None for value in totals.values()) else {**totals, "nic": None}
