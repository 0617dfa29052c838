"""Power, temperature and clocks of a simulated run as text: a summary, then tables by slot of a node and by stage."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from charllm.report.tables import format_percent, render_table, shown_ends
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec
from charllm.units import MEGA, format_si

COLUMNS = ["GPUs", "W", "peak W", "C", "peak C", "MHz", "power-throttled", "thermal-throttled", "wait s"]


def render_power(run: RunSpec, result: RunResult) -> list[str]:
    """Return the sections of a report on power, temperature and clocks."""
    gpus = result.gpus
    parts = [render_watts(result), render_clocks(run, result)]
    if run.cluster.node.gpus > 1:
        parts.append(render_groups("GPUs by slot (mean over nodes)", "slot", gpus, _slot_names(run)))
    if run.parallelism.pp > 1:
        names = {stage: str(stage) for stage in range(run.parallelism.pp)}
        parts.append(render_groups("GPUs by stage", "stage", gpus, names))
    return parts


def render_watts(result: RunResult) -> str:
    """Return one line with the power and energy of a run."""
    metrics = result.metrics
    swing = metrics["cluster_power_swing_w"]
    ramp = metrics["cluster_power_ramp_w_per_s"]
    hall = (
        ""
        if swing is None or ramp is None
        else f"; cluster peak {format_si(metrics['cluster_power_peak_w'], 'W')}, "
        f"maximum ramp {format_si(ramp, 'W/s')}; 0.1-3 Hz oscillation {format_si(swing, 'W')} peak to peak"
    )
    return (
        f"Power {metrics['power_mean_w']:.0f} W per GPU (peak {metrics['power_peak_sensor_w']:.0f} W, 25 ms average), "
        f"{format_si(metrics['node_power_mean_w'], 'W')} per node; "
        f"{format_si(metrics['energy_per_step_j'], 'J')} per step, "
        f"{metrics['tokens_per_j']:.3g} tokens per joule{hall}"
    )


def render_clocks(run: RunSpec, result: RunResult) -> str:
    """Return one line with the mean clock, the causes of throttling and the temperatures."""
    metrics = result.metrics
    throttled = [
        f"{cause}-throttled {100 * metrics['throttled_time_fraction'][cause]:.0f} % of the time "
        f"(mean clock {100 * loss:.0f} % below maximum)"
        for cause, loss in metrics["clock_loss_fraction"].items()
        if loss > 0
    ]
    spread_k, preheat_k = metrics["temperature_spread_node_k"], max(node["preheat_k"] for node in result.nodes)
    spread = f"; GPUs of a node differ by up to {spread_k:.1f} K" if run.cluster.node.gpus > 1 else ""
    spread += f", of which {preheat_k:.1f} K is assumed preheating by upstream GPUs" if preheat_k > 0 else ""
    return (
        f"Clock {metrics['clock_mean_hz'] / MEGA:.0f} of {run.cluster.gpu.clock_max_hz / MEGA:.0f} MHz; "
        f"{'; '.join(throttled) or 'not throttled'}. Temperature {metrics['temperature_mean_c']:.1f} C (mean), "
        f"{metrics['temperature_peak_c']:.1f} C (peak), {metrics['margin_to_slowdown_k']:.1f} K below slowdown{spread}"
    )


def render_groups(title: str, column: str, gpus: Sequence[dict[str, Any]], names: dict[int, str]) -> str:
    """Return the means of GPUs that share a slot or a stage."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for gpu in gpus:
        groups[gpu[column]].append(gpu)
    shown, left_out = shown_ends(sorted(groups))
    cells = []
    for key in shown:
        rows = groups[key]

        def mean(name: str, rows: list[dict[str, Any]] = rows) -> float:
            return fmean(row[name] for row in rows)

        cells.append(
            [
                names[key],
                str(len(rows)),
                f"{mean('power_mean_w'):.0f}",
                f"{max(row['power_peak_sensor_w'] for row in rows):.0f}",
                f"{mean('temperature_mean_c'):.1f}",
                f"{max(row['temperature_peak_c'] for row in rows):.1f}",
                f"{mean('clock_mean_hz') / MEGA:.0f}",
                format_percent(mean("throttled_power_fraction")),
                format_percent(mean("throttled_thermal_fraction")),
                f"{mean('wait_for_group_s'):.3f}",
            ]
        )
    return render_table(f"{title}{left_out}", [column, *COLUMNS], cells)


def _slot_names(run: RunSpec) -> dict[int, str]:
    node = run.cluster.node
    return {
        slot: f"{slot} behind {node.upstream_slots(slot)[0]}" if node.upstream_slots(slot) else str(slot)
        for slot in range(node.gpus)
    }
