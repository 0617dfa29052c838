"""Watts, degrees and hertz of a simulated run as text: in three lines, by slot of a node, by stage."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from charllm.report.tables import format_percent, render_table, shown_ends
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec
from charllm.units import MEGA, format_si

COLUMNS = ["GPUs", "W", "highest W", "C", "highest C", "MHz", "held back by power", "by heat", "waits s"]


def render_power(run: RunSpec, result: RunResult) -> list[str]:
    """Return the parts of a report that tell of power, heat and clocks."""
    gpus = result.gpus
    parts = [render_watts(result), render_clocks(run, result)]
    if run.cluster.node.gpus > 1:
        parts.append(render_groups("GPUs by slot of their node, mean over nodes", "slot", gpus, _slot_names(run)))
    if run.parallelism.pp > 1:
        names = {stage: str(stage) for stage in range(run.parallelism.pp)}
        parts.append(render_groups("GPUs by stage", "stage", gpus, names))
    return parts


def render_watts(result: RunResult) -> str:
    """Say in one line what a run draws."""
    metrics = result.metrics
    swing = metrics["cluster_power_swing_w"]
    ramp = metrics["cluster_power_ramp_w_per_s"]
    hall = (
        ""
        if swing is None or ramp is None
        else f"; all nodes peak at {format_si(metrics['cluster_power_peak_w'], 'W')}, "
        f"move by {format_si(ramp, 'W')} in a second, swing by {format_si(swing, 'W')} at 0.1 to 3 Hz"
    )
    return (
        f"Power {metrics['power_mean_w']:.0f} W a GPU (highest {metrics['power_peak_sensor_w']:.0f} W over 25 ms), "
        f"{format_si(metrics['node_power_mean_w'], 'W')} a node; "
        f"{format_si(metrics['energy_per_step_j'], 'J')} a step, "
        f"{metrics['tokens_per_j']:.3g} tokens a joule{hall}"
    )


def render_clocks(run: RunSpec, result: RunResult) -> str:
    """Say in one line how fast the clocks run, what holds them, and how hot GPUs are."""
    metrics = result.metrics
    lost = [
        f"{cause} {format_percent(metrics['throttled_time_fraction'][cause])} of the time ({format_percent(loss)} lost)"
        for cause, loss in metrics["clock_loss_fraction"].items()
        if loss > 0
    ]
    spread = f", GPUs of a node {metrics['temperature_spread_node_k']:.1f} K apart" if run.cluster.node.gpus > 1 else ""
    preheat_k = max(node["preheat_k"] for node in result.nodes)
    spread += f" ({preheat_k:.1f} K of a rear one are preheat, which is assumed)" if preheat_k > 0 else ""
    return (
        f"Clock {metrics['clock_mean_hz'] / MEGA:.0f} of {run.cluster.gpu.clock_max_hz / MEGA:.0f} MHz, held back by "
        f"{', '.join(lost) or 'nothing'}; {metrics['temperature_mean_c']:.1f} C, hottest "
        f"{metrics['temperature_peak_c']:.1f} C, {metrics['margin_to_slowdown_k']:.1f} K below slowdown{spread}"
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
