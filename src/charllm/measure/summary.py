"""A measured run as a result: recordings and marks in, metrics out."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from charllm import __version__
from charllm.arrays import Floats
from charllm.gpu.limits import CAUSES
from charllm.gpu.sensor import HOPPER
from charllm.measure.energy import tabulate_energy
from charllm.measure.host.window import NO_PLATFORM_POWER, HostWindow
from charllm.measure.marks import Mark, Step, find_phases
from charllm.measure.measured import Measured, choose_window
from charllm.measure.recording import Recording
from charllm.measure.steady import Interval, interval, noise_floor_fraction
from charllm.measure.unread import describe_gaps, explain_gaps, warn_of_gaps, with_gaps
from charllm.measure.window import Window, counted, highest, look
from charllm.result.metrics import fill_metrics, missing
from charllm.result.result import RunResult

REASONS = {
    "power_peak_w": "the sensor shows 25 ms boxes; 1 ms means cannot be seen",
    "mfu": "the model behind the command is not known",
    "breakdown_s": "needs a profiler trace",
    "tokens_per_s_per_gpu": "how many GPUs the job had, or the tokens of its steps, is not known",
    "node_power_mean_w": NO_PLATFORM_POWER,
}
"""Metrics a measurement without more knowledge cannot give, and why."""
OF_STEPS = dict.fromkeys(("step_time_s", "energy_per_step_j", "link_bytes"), "no steps were marked or logged")
"""Metrics of a step, where no step is known."""
NOT_SETTLED = "temperature had not settled by the end of the run; metrics describe its second half"


def summarise(measured: Measured, origin: str, spec: dict[str, Any], details: Mapping[str, Any]) -> RunResult:
    """Turn a recorded run into a result; metrics describe its settled part."""
    chosen = choose_window(measured)
    start_s, end_s, inside = chosen.start_s, chosen.end_s, chosen.steps
    warnings = [] if chosen.settled else [NOT_SETTLED]
    windows = {gpu: look(measured.recording, gpu, start_s, end_s) for gpu in measured.recording.sampled}
    times = _time_metrics(inside, _job_gpus(details, len(windows)))
    known = _gpu_metrics(measured, windows, start_s, end_s, inside)
    hosts = measured.look_hosts(start_s, end_s)
    known |= _host_metrics(hosts, known.get("link_bytes"), len(inside))
    metrics = fill_metrics({**times, **known, **_tokens_per_j(times, known)})
    gaps = describe_gaps(measured, windows, start_s, end_s)
    reasons = {**REASONS, **({} if inside else OF_STEPS), **_reasons_of(measured.recording), **explain_gaps(gaps)}
    warnings += [f"{name}: {reasons.get(name, 'not measured in this run')}" for name in missing(metrics)]
    warnings += warn_of_gaps(gaps)
    warnings += [*_source_warnings(measured.recording), *_reading_warnings(measured), *_host_warnings(measured)]
    intervals = _intervals(measured, inside)
    if any(None in found.bounds for found in intervals.values()):
        warnings.append("intervals: 95 % intervals need scipy, which is not installed: pip install 'charllm[fit]'")
    return RunResult(
        origin=origin,
        spec=spec,
        metrics=metrics,
        gpus=_gpu_rows(measured, windows, start_s, end_s),
        nodes=_node_rows(measured, windows, hosts),
        provenance={
            "charllm": __version__,
            "telemetry": {"source": measured.recording.facts.name, **measured.recording.facts.details},
            "measurement": {
                "window_s": end_s - start_s,
                "steps": len(inside),
                "intervals": with_gaps({name: one.bounds for name, one in intervals.items()}, metrics, windows, hosts),
                "gaps": gaps,
                "noise_floor_fraction": _noise_floor(inside),
                "sensor_coverage_fraction": _coverage(measured.recording),
                "phases_s": _phases(measured.marks),
                **({"profile": chosen.profiled.as_table()} if chosen.profiled.recorded else {}),
                **details,
            },
        },
        warnings=warnings,
        tables={name: partial(dict, columns) for name, columns in tabulate_energy(measured, chosen).items()},
    )


def _job_gpus(details: Mapping[str, Any], read: int) -> int | None:
    """Return the GPUs of the job: those that its log states, else those that were read; None where neither is known."""
    converted = details.get("converted")
    stated = converted.get("log_gpus") if isinstance(converted, Mapping) else None
    return stated if isinstance(stated, int) and stated > 0 else read or None


def _time_metrics(steps: list[Step], gpus: int | None) -> dict[str, Any]:
    spent_s = steps[-1].end_s - steps[0].start_s if steps else 0.0
    if spent_s <= 0:
        return {}
    step_time_s = spent_s / len(steps)
    tokens = [step.tokens for step in steps if step.tokens is not None]
    if len(tokens) < len(steps):
        return {"step_time_s": step_time_s}
    rate = sum(tokens) / spent_s
    return {"step_time_s": step_time_s, "tokens_per_s": rate, "tokens_per_s_per_gpu": rate / gpus if gpus else None}


def _gpu_metrics(
    measured: Measured, windows: dict[int, Window], start_s: float, end_s: float, steps: list[Step]
) -> dict[str, Any]:
    if not windows:
        return {}
    seen = list(windows.values())
    recording = measured.recording
    powers = [window.power_mean_w for window in seen]
    known_w = [power for power in powers if power is not None]
    energy = sum(known_w) * (end_s - start_s) / len(steps) if steps and len(known_w) == len(powers) else None
    return {
        "power_mean_w": _mean(powers),
        "power_peak_sensor_w": _largest(window.power_peak_sensor_w for window in seen),
        "energy_per_step_j": energy,
        "temperature_mean_c": _mean([window.temperature_mean_c for window in seen]),
        "temperature_peak_c": _largest(window.temperature_peak_c for window in seen),
        "temperature_spread_node_k": _largest(
            _spread([windows[gpu].temperature_mean_c for gpu in gpus]) for gpus in measured.by_node()
        ),
        "memory_temperature_peak_c": _largest(
            highest(recording, gpu, "memory_temperature_c", start_s, end_s) for gpu in windows
        ),
        "temperature_swing_k": _largest(_swing(recording, gpu, steps) for gpu in windows),
        "margin_to_slowdown_k": _smallest(recording, start_s, end_s),
        "clock_mean_hz": _mean([window.clock_mean_hz for window in seen]),
        "clock_std_fraction": _mean([window.clock_std_fraction for window in seen]),
        "throttled_time_fraction": _mean_by_cause([window.limited_fraction for window in seen]),
        "memory_peak_bytes": _largest(highest(recording, gpu, "memory_used_bytes", start_s, end_s) for gpu in windows),
        "link_bytes": _link_bytes(recording, windows, start_s, end_s, len(steps)) if steps else None,
    }


def _host_metrics(hosts: Sequence[HostWindow | None], links: dict[str, Any] | None, steps: int) -> dict[str, Any]:
    """Return the metrics that host readings of all nodes give: their power, and what went over their NICs."""
    seen = [host for host in hosts if host is not None]
    if not seen or len(seen) < len(hosts):
        return {}
    sent, powers = [host.nic_sent_bytes for host in seen], [host.system_power_mean_w for host in seen]
    used = [host.nic_utilization_fraction for host in seen]
    nic = None if None in sent or not steps else sum(value or 0.0 for value in sent) / steps
    found: dict[str, Any] = {"node_power_mean_w": None if None in powers else _mean(powers)}
    if links or nic is not None:
        found["link_bytes"] = {"nvlink": None, "pcie": None, **(links or {}), "nic": nic}
    if None not in used:
        found["link_utilization_fraction"] = {"nvlink": None, "pcie": None, "nic": _mean(used)}
    return found


def _reasons_of(recording: Recording) -> dict[str, str]:
    """Return why these GPUs cannot give some metrics."""
    read = [recording.fast(gpu).columns for gpu in recording.sampled]
    shown = [columns["power_instant_w"] for columns in read if "power_instant_w" in columns]
    if not shown or any(np.isfinite(values).any() for values in shown):
        return {}
    return {
        "power_peak_sensor_w": "these GPUs show averaged power only",
        "power_peak_w": "these GPUs show averaged power",
    }


def _coverage(recording: Recording) -> float | None:
    """Return the share of time that power readings have seen: known of NVIDIA's sensors alone."""
    amd = "amdsmi" in (recording.facts.name, recording.facts.details.get("replayed"))
    return None if amd else HOPPER.coverage_fraction


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
            "memory_temperature_peak_c": highest(measured.recording, gpu, "memory_temperature_c", start_s, end_s),
            "clock_mean_hz": windows[gpu].clock_mean_hz,
            "throttled_time_fraction": windows[gpu].limited_fraction,
            **_beyond(measured.recording, gpu, start_s, end_s),
        }
        for gpu, identity in enumerate(measured.recording.facts.gpus)
        if gpu in windows
    ]


def _node_rows(
    measured: Measured, windows: dict[int, Window], hosts: Sequence[HostWindow | None]
) -> list[dict[str, Any]]:
    """Describe every node: its GPUs together, and the host around them."""
    rows: list[dict[str, Any]] = []
    for node, (name, gpus, host) in enumerate(zip(measured.nodes, measured.by_node(), hosts, strict=True)):
        seen = [windows[gpu] for gpu in gpus]
        powers, degrees = [one.power_mean_w for one in seen], [one.temperature_mean_c for one in seen]
        known = {
            **({"name": name, "gpus": len(gpus)} if name else {}),
            "gpu_power_mean_w": None if None in powers or not powers else sum(power or 0.0 for power in powers),
            "temperature_mean_c": _mean(degrees),
            "temperature_spread_k": _spread(degrees),
            **(host.row if host else {}),
        }
        rows.append({"node": node, **{key: value for key, value in known.items() if value is not None}})
    return rows


def _name_gpu(measured: Measured, gpu: int) -> str:
    """Name a GPU for people: by its number, behind its node where there are several."""
    name = measured.nodes[measured.place(gpu).node]
    return f"node {name} GPU {measured.recording.facts.gpus[gpu].number}" if name else f"GPU {gpu}"


def _beyond(recording: Recording, gpu: int, start_s: float, end_s: float) -> dict[str, Any]:
    """Return what only some vendors tell of a GPU: its hottest place, and the package whose power it shares."""
    found = {
        "hotspot_peak_c": highest(recording, gpu, "hotspot_c", start_s, end_s),
        "package": recording.facts.gpus[gpu].package or None,
    }
    return {name: value for name, value in found.items() if value is not None}


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
    return noise_floor_fraction(durations)


def _phases(marks: dict[str, list[Mark]]) -> dict[str, float]:
    """Return the mean length of every named phase, host time."""
    found: dict[str, list[float]] = {}
    for of_process in marks.values():
        for name, spans in find_phases(of_process).items():
            found.setdefault(name, []).extend(end - start for start, end in spans)
    return {name: float(np.mean(lengths)) for name, lengths in found.items()}


def _source_warnings(recording: Recording) -> list[str]:
    """Repeat what a source found when it was opened that changes the meaning of its readings."""
    details = recording.facts.details
    return [f"telemetry: {details[name]}" for name in ("shared_power", "energy_counter") if name in details]


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


def _host_warnings(measured: Measured) -> list[str]:
    """Name what a machine has but did not let us read, by reason."""
    told = []
    for name, host in zip(measured.nodes, measured.hosts, strict=False):
        found: dict[str, list[str]] = {}
        for column, reason in (host.reasons if host else {}).items():
            found.setdefault(reason, []).append(column)
        told += [
            f"{f'node {name} ' if name else ''}host: {', '.join(columns)} could not be read ({reason})"
            for reason, columns in found.items()
            if reason != "not_supported"
        ]
    return told


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
