"""How does power vary over a step? Power, clock and temperature: one step, a cold start, the whole cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.report.figure import Column, Figure
from charllm.report.page.series import Band, Bins, band_columns, cut_bins, decimate, to_column, to_floats
from charllm.report.page.view import RunView, missing
from charllm.report.page.when import limit_lines
from charllm.result.columns import Columns
from charllm.units import KILO, MEGA, format_si

KIND = "bands"
SIGNALS = {
    "power": ("power_w", "W", 1.0),
    "clock": ("clock_hz", "MHz", MEGA),
    "temperature": ("temperature_c", "C", 1.0),
}
"""Panel: column of the signals, unit it is shown in, and that unit in SI."""
STEP = ("power", "How does power vary over a step?")
WARM_UP = ("warm-up", "How do the GPUs warm up from a cold start?")
CLUSTER = ("cluster-power", "How does the power of the whole cluster vary?")
WARM_K = 1.0
"""A GPU so close to its last temperature counts as warm."""
LEAST_READINGS = 10
"""Of a measured run: a step with fewer readings is shown together with its neighbours."""


def power_figure(run: RunView) -> Figure:
    """Return power, clock and temperature of all GPUs over one step."""
    name, question = STEP
    signals = run.table("signals")
    if not signals or not len(signals["t_s"]):
        return missing(name, KIND, question, run.why_not("power_mean_w", "signals"))
    times_s, inside, told = _window(run, to_floats(signals["t_s"]))
    bins = cut_bins(times_s)
    bands = {
        panel: decimate(bins, to_floats(signals[column])[inside])
        for panel, (column, _unit, _si) in SIGNALS.items()
        if column in signals
    }
    bands = {panel: band for panel, band in bands.items() if np.isfinite(band.mean).any()}
    if not bands:
        return missing(name, KIND, question, run.why_not("power_mean_w", "signals"))
    columns: dict[str, Column] = {"t": to_column("time", bins.middle_s, "s")}
    for panel, band in bands.items():
        columns |= band_columns(panel, band, *SIGNALS[panel][1:])
    reader = _read_sensor(run, signals, inside, bins) if "power" in bands else None
    if reader is not None:
        columns["power_shown"] = reader[1]
    options = {"x": "t", "panels": _panels(run, bands, shown=reader is not None)}
    message = _message(run, signals, bands, told, reader)
    return Figure(name, KIND, question, message, columns, options, run.conditions)


def _window(run: RunView, times_s: Floats) -> tuple[Floats, Any, str]:
    """Return the times to show, which readings these are, and what they are: a step, or all that was recorded."""
    everything = np.isfinite(times_s)
    if run.result.origin == "simulated":
        step_s = run.result.metrics["step_time_s"]
        length_s = float(times_s[everything].max())
        steps = length_s / step_s if step_s else 1.0
        told = f"{steps:.0f} steps in a row" if steps >= 1.5 else "one step"
        return times_s[everything], everything, told
    if run.steps_s:
        middle, count = len(run.steps_s) // 2, len(run.steps_s)
        spans = {
            f"step {middle + 1} of {count} that were marked": run.steps_s[middle],
            f"the last {count - 1} of {count} marked steps": (run.steps_s[min(1, count - 1)][0], run.steps_s[-1][1]),
        }
        for told, (start_s, end_s) in spans.items():
            inside = everything & (times_s >= start_s) & (times_s <= end_s)
            if len(np.unique(times_s[inside])) >= LEAST_READINGS:
                return times_s[inside] - start_s, inside, told
    return times_s[everything], everything, "all that was recorded"


def _panels(run: RunView, bands: Mapping[str, Band], *, shown: bool) -> list[dict[str, Any]]:
    lines = limit_lines(run)
    panels = []
    for panel in bands:
        ends = {end: f"{panel}_{end}" for end in ("low", "mean", "high")}
        dots = {"dots": "power_shown"} if shown and panel == "power" else {}
        panels.append({"label": f"{panel} of a GPU", "unit": SIGNALS[panel][1], **ends, **dots,
                       "lines": lines[panel], "from_zero": panel == "power"})  # fmt: skip
    return panels


def _read_sensor(run: RunView, signals: Columns, inside: Any, bins: Bins) -> tuple[int, Column] | None:
    """Return the simulated GPU with the highest power and what its sensor shows, at the times of its readings."""
    sensor = run.table("sensor")
    if not sensor:
        return None
    rank = int(sensor["rank"][0])
    read = (np.asarray(signals["rank"])[inside] == rank) & np.isin(to_floats(signals["t_s"])[inside], sensor["t_s"])
    shown = np.where(read, to_floats(signals["power_w"])[inside], np.nan)
    return rank, to_column("Reading of one sensor", decimate(bins, shown).high, "W")


def _message(
    run: RunView,
    signals: Mapping[str, Sequence[Any]],
    bands: Mapping[str, Band],
    told: str,
    reader: tuple[int, Column] | None,
) -> str:
    count, all_of_them = len(set(signals["rank"])), len(run.result.gpus)
    few = f" ({count} of {all_of_them} GPUs are kept)" if 0 < count < all_of_them else ""
    text = f"Lowest, mean and highest of the GPUs over {told}{few}."
    if "power" in bands:
        low, mean, high = (_ends(bands["power"])[name] for name in ("low", "mean", "high"))
        boxes = " (averages over 25 ms)" if run.result.origin == "simulated" else ""
        text += f" Power lies between {low:.0f} and {high:.0f} W, on average {mean:.0f} W{boxes}."
    if reader is not None:
        most_w = max((value for value in reader[1].values if value is not None), default=0.0)
        text += f" Dots: what the sensor of rank {reader[0]} shows every 0.1 s, at most {most_w:.0f} W."
    for panel in ("clock", "temperature"):
        if panel in bands:
            unit, si = SIGNALS[panel][1:]
            ends = _ends(bands[panel])
            text += f" {panel.capitalize()}: {ends['low'] / si:.0f} to {ends['high'] / si:.0f} {unit}."
    return text


def _ends(band: Band) -> dict[str, float]:
    return {"low": float(np.nanmin(band.low)), "mean": float(np.nanmean(band.mean)),
            "high": float(np.nanmax(band.high))}  # fmt: skip


def warm_up_figure(run: RunView) -> Figure | None:
    """Return power, clock and temperature of the GPUs, each a mean over a step, from a cold start on."""
    if run.result.origin != "simulated":
        return None
    name, question = WARM_UP
    table = run.table("warm_up")
    if not table:
        return missing(name, KIND, question, run.why_not_simulated("warm_up"))
    columns: dict[str, Column] = {"t": Column("time since the start", table["t_s"], "s", 4)}
    panels = []
    for panel, (column, unit, si) in SIGNALS.items():
        band = Band(*(to_floats(table[f"{column}_{end}"]) for end in Band._fields))
        columns |= band_columns(panel, band, unit, si)
        panels.append({"label": f"{panel} of a GPU, mean over a step", "unit": unit,
                       **{end: f"{panel}_{end}" for end in Band._fields}, "lines": [], "from_zero": False})  # fmt: skip
    return Figure(name, KIND, question, _warm_up_message(table), columns, {"x": "t", "panels": panels}, run.conditions)


def _warm_up_message(table: Mapping[str, Sequence[float | None]]) -> str:
    """Say how far it warms up, how soon, and what that does to clock and power."""
    mean_c, clock_hz, power_w = (to_floats(table[f"{name}_mean"]) for name in ("temperature_c", "clock_hz", "power_w"))
    warm_s = float(to_floats(table["t_s"])[np.argmax(mean_c[-1] - mean_c < WARM_K)])
    first = int(np.argmax(np.isfinite(clock_hz)))
    return (
        f"Idle GPUs at {mean_c[0]:.1f} C on average warm up to {mean_c[-1]:.1f} C and are within {WARM_K:g} K of that "
        f"after {warm_s:.0f} s. Meanwhile the mean clock of a step goes from {clock_hz[first] / MEGA:.0f} to "
        f"{clock_hz[-1] / MEGA:.0f} MHz, its mean power from {power_w[first]:.0f} to {power_w[-1]:.0f} W."
    )


def cluster_figure(run: RunView) -> Figure:
    """Return the power of all GPUs together: as it is, its change within a second, and its swing at 0.1 to 3 Hz."""
    name, question = CLUSTER
    table = run.table("cluster")
    if not table or len(table["t_s"]) < 2:
        return missing(name, KIND, question, run.why_not("cluster_power_peak_w", "cluster"))
    times_s, power_w = to_floats(table["t_s"]), to_floats(table["gpu_power_w"])
    bins = cut_bins(times_s)
    columns: dict[str, Column] = {"t": to_column("time", bins.middle_s, "s")}
    panels: list[dict[str, Any]] = []
    changes = run.table("power_changes") or {}
    parts = {
        "power": ("power of all GPUs", power_w, "kW", True),
        "ramp": ("change within one second", to_floats(changes.get("ramp_w_per_s", ())), "kW/s", False),
        "swing": ("oscillation between 0.1 and 3 Hz", to_floats(changes.get("swing_w", ())), "kW", False),
    }
    for part, (label, values, unit, from_zero) in parts.items():
        if len(values) != len(power_w) or not np.isfinite(values).any():
            continue
        columns |= band_columns(part, decimate(bins, values), unit, KILO)
        panels.append({"label": label, "unit": unit, **{end: f"{part}_{end}" for end in Band._fields}, "lines": [],
                       "from_zero": from_zero})  # fmt: skip
    return Figure(name, KIND, question, _cluster_message(run, power_w), columns, {"x": "t", "panels": panels},
                  run.conditions)  # fmt: skip


def _cluster_message(run: RunView, power_w: Floats) -> str:
    metrics = run.result.metrics
    text = (
        f"All GPUs together draw {format_si(float(power_w.mean()), 'W')} on average, between "
        f"{format_si(float(power_w.min()), 'W')} and {format_si(float(power_w.max()), 'W')} (averages over 25 ms)."
    )
    ramp, swing = metrics.get("cluster_power_ramp_w_per_s"), metrics.get("cluster_power_swing_w")
    peak_w = metrics.get("cluster_power_peak_w")
    if ramp is None or swing is None or peak_w is None:
        return f"{text} The step is too short for a ramp from one second to the next."
    return (
        f"{text} With CPUs, NICs and fans the cluster peaks at {format_si(peak_w, 'W')}; its "
        f"fastest ramp is {format_si(ramp, 'W/s')}, and its oscillation between 0.1 and 3 Hz has the energy of a sine "
        f"of {format_si(swing, 'W')} peak to peak."
    )
