"""Power, temperature and clocks of a simulated run as text: swings, then tables by slot of a node and by stage."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from charllm.report.tables import format_percent, render_table, shown_ends, wrap
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec
from charllm.units import MEGA, format_si

COLUMNS = ["GPUs", "W", "peak W", "C", "peak C", "MHz", "power-throttled", "thermal-throttled", "group wait s"]
DROP = ("GPUs", "thermal-throttled")


def render_power(run: RunSpec, result: RunResult) -> list[str]:
    """Return the sections of a report on power, temperature and clocks."""
    gpus = result.gpus
    parts = render_swings(run, result)
    if run.cluster.node.gpus > 1:
        parts.append(render_groups("GPUs by slot (mean over nodes)", "slot", gpus, _slot_names(run)))
    if run.cluster.mixed or run.conditions.braked_nodes or isinstance(run.cluster.cooling.inlet_c, tuple):
        parts.append(render_groups("GPUs by node", "node", gpus, _node_names(run)))
    if run.parallelism.pp > 1:
        names = {stage: str(stage) for stage in range(run.parallelism.pp)}
        parts.append(render_groups("GPUs by stage", "stage", gpus, names))
    return parts


def render_swings(run: RunSpec, result: RunResult) -> list[str]:
    """Return what a power supply and a cooling engineer ask for: ramps of the cluster, differences inside a node."""
    metrics, found = result.metrics, []
    ramp, swing = metrics["cluster_power_ramp_w_per_s"], metrics["cluster_power_swing_w"]
    if ramp is not None and swing is not None:
        found.append(
            f"Cluster power: peak {format_si(metrics['cluster_power_peak_w'], 'W')}, maximum ramp "
            f"{format_si(ramp, 'W/s')}, 0.1-3 Hz oscillation {format_si(swing, 'W')} peak to peak"
        )
    if run.cluster.node.gpus > 1:
        preheat_k = max(node["preheat_k"] for node in result.nodes)
        assumed = f", of which {preheat_k:.1f} K is assumed preheating by upstream GPUs" if preheat_k > 0 else ""
        found.append(f"GPUs of a node differ by up to {metrics['temperature_spread_node_k']:.1f} K{assumed}")
    return ["\n".join(line for text in found for line in wrap(text))] if found else []


def render_groups(title: str, column: str, gpus: Sequence[dict[str, Any]], names: dict[int, str]) -> str:
    """Return the means of GPUs that share a slot or a stage."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for gpu in gpus:
        groups[gpu[column]].append(gpu)
    shown, left_out = shown_ends(sorted(groups), f"{column}s")
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
    return render_table(f"{title}{left_out}", [column, *COLUMNS], cells, drop=DROP, where="--csv")


def _node_names(run: RunSpec) -> dict[int, str]:
    """Name the nodes by number and what sets them apart."""
    cluster = run.cluster
    kinds = {number: other.node.name for other in cluster.mixed for number in other.nodes}
    names = {}
    for node in range(cluster.nodes):
        marks = [kinds.get(node, cluster.node.name)] if cluster.mixed else []
        marks += [f"inlet {cluster.cooling.inlet_of(node):g} C"] if isinstance(cluster.cooling.inlet_c, tuple) else []
        marks += ["braked"] if node in run.conditions.braked_nodes else []
        names[node] = f"{node} ({', '.join(marks)})" if marks else str(node)
    return names


def _slot_names(run: RunSpec) -> dict[int, str]:
    node = run.cluster.node
    return {
        slot: f"{slot} behind {node.upstream_slots(slot)[0]}" if node.upstream_slots(slot) else str(slot)
        for slot in range(node.gpus)
    }
