"""Power, temperature and clocks of a run as text: swings, then GPUs by slot, node and stage, or each of them."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from charllm.report.tables import format_percent, metric_cells, metric_headings, render_table, shown_ends, wrap
from charllm.result.machine import cluster_of
from charllm.result.metrics import quantity, selected
from charllm.result.result import RunResult
from charllm.spec.cooling import Cooling
from charllm.spec.hardware import Cluster
from charllm.units import MEGA, format_bytes, format_si

MEANS, PEAKS = (
    selected("power_mean_w", "temperature_mean_c", "clock_mean_hz"),
    selected("power_peak_sensor_w", "temperature_peak_c"),
)
"""Metrics of a GPU of which a group shows the mean, and the largest."""
SHOWN = selected("power_mean_w", "power_peak_sensor_w", "temperature_mean_c", "temperature_peak_c", "clock_mean_hz")
COLUMNS = ["GPUs", *metric_headings(SHOWN), "power-throttled", "thermal-throttled", "group wait s"]
DROP = ("GPUs", "thermal-throttled")
GPU_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    **{name: (name, str) for name in ("rank", "node", "slot", "stage")},
    **{
        quantity(name).heading: (name, quantity(name).cell)
        for name in (*SHOWN, "memory_temperature_peak_c", "memory_peak_bytes")
    },
}
NODE_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "node": ("node", str),
    quantity("power_mean_w").heading: ("power_mean_w", quantity("power_mean_w").cell),
    "GPU W": ("gpu_power_mean_w", lambda watts: f"{watts:.0f}"),
    "CPU W": ("cpu_power_mean_w", lambda watts: f"{watts:.0f}"),
    "DRAM W": ("memory_power_mean_w", lambda watts: f"{watts:.0f}"),
    "CPU load": ("cpu_load_fraction", format_percent),
    "CPU MHz": ("cpu_clock_mean_hz", lambda hertz: f"{hertz / MEGA:.0f}"),
    "memory": ("memory_used_peak_bytes", format_bytes),
    "NIC sent/s": ("nic_sent_bytes_per_s", lambda rate: f"{format_bytes(rate)}"),
    "NIC received/s": ("nic_received_bytes_per_s", lambda rate: f"{format_bytes(rate)}"),
    "NIC use": ("nic_utilization_fraction", format_percent),
    "inlet C": ("inlet_mean_c", lambda degrees: f"{degrees:.1f}"),
    "rack": ("rack", str),
    "flow": ("flow_fraction", lambda fraction: f"{fraction:.2f}"),
    "fan W": ("fan_power_w", lambda watts: f"{watts:.0f}"),
    "fan rpm": ("fan_mean_hz", lambda hertz: f"{60 * hertz:.0f}"),
}
"""Heading: the column of a row, and how its values are written."""


def render_power(result: RunResult) -> list[str]:
    """Return the sections on power, temperature and clocks: GPUs in groups where each group's waits are known."""
    if any("wait_for_group_s" not in row for row in result.gpus):
        return []
    gpus, cluster, conditions = result.gpus, cluster_of(result), result.spec.get("conditions", {})
    parts = render_swings(result)
    if len({gpu["slot"] for gpu in gpus}) > 1:
        parts.append(render_groups("GPUs by slot (mean over nodes)", "slot", gpus, _slot_names(cluster)))
    braked = conditions.get("braked_nodes", ())
    if cluster is not None and (cluster.mixed or braked or not cluster.cooling.same_for_all):
        parts.append(render_groups("GPUs by node", "node", gpus, _node_names(cluster, braked)))
    if len({gpu["stage"] for gpu in gpus}) > 1:
        parts.append(render_groups("GPUs by stage", "stage", gpus, {}))
    return parts


def render_swings(result: RunResult) -> list[str]:
    """Return what a power supply and a cooling engineer ask for: ramps of the cluster, differences inside a node."""
    metrics, found = result.metrics, []
    peak, ramp, swing = (metrics[f"cluster_power_{name}"] for name in ("peak_w", "ramp_w_per_s", "swing_w"))
    if None not in (peak, ramp, swing):
        found.append(
            f"Cluster power: peak {format_si(peak, 'W')}, maximum ramp "
            f"{format_si(ramp, 'W/s')}, 0.1-3 Hz oscillation {format_si(swing, 'W')} peak to peak"
        )
    if len({gpu["slot"] for gpu in result.gpus}) > 1 and metrics["temperature_spread_node_k"] is not None:
        preheat_k = max((node.get("preheat_k") or 0.0 for node in result.nodes), default=0.0)
        assumed = f", of which {preheat_k:.1f} K is assumed preheating by upstream GPUs" if preheat_k > 0 else ""
        found.append(f"GPUs of a node differ by up to {metrics['temperature_spread_node_k']:.1f} K{assumed}")
    return ["\n".join(line for text in found for line in wrap(text))] if found else []


def render_groups(title: str, column: str, gpus: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> str:
    """Return the means of GPUs that share a slot, a node or a stage; one without a name is called by its number."""
    groups: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for gpu in gpus:
        groups[gpu[column]].append(gpu)
    shown, left_out = shown_ends(sorted(groups), f"{column}s")
    cells = []
    for key in shown:
        rows = groups[key]

        def mean(name: str, rows: Sequence[Mapping[str, Any]] = rows) -> float:
            return fmean(row[name] for row in rows)

        found = {name: mean(name) for name in MEANS} | {name: max(row[name] for row in rows) for name in PEAKS}
        cells.append(
            [
                names.get(key, str(key)),
                str(len(rows)),
                *metric_cells(found, SHOWN),
                format_percent(mean("throttled_power_fraction")),
                format_percent(mean("throttled_thermal_fraction")),
                f"{mean('wait_for_group_s'):.3f}",
            ]
        )
    return render_table(f"{title}{left_out}", [column, *COLUMNS], cells, drop=DROP, where="--csv")


def render_gpus(result: RunResult) -> str:
    """Return a row for each GPU."""
    return _render_rows("GPUs", result.gpus, GPU_COLUMNS)


def air_differs(result: RunResult) -> bool:
    """Whether nodes of a simulated run have air of their own: racks differ, or fans follow GPUs."""
    cluster = cluster_of(result)
    return cluster is not None and not (cluster.cooling.same_for_all and cluster.cooling.fans == "fixed")


def render_nodes(result: RunResult) -> str:
    """Return a row for each node, with what was read of its host."""
    return _render_rows("Nodes", result.nodes, NODE_COLUMNS)


def _render_rows(
    title: str, rows: Sequence[Mapping[str, Any]], known: Mapping[str, tuple[str, Callable[[Any], str]]]
) -> str:
    """Return a table of GPUs or nodes with the columns that any of them has."""
    columns = {
        heading: column for heading, column in known.items() if any(row.get(column[0]) is not None for row in rows)
    }
    shown, _ = shown_ends(rows)
    left_out = f" ({len(rows) - len(shown)} between not shown)" if len(shown) < len(rows) else ""
    cells = [["-" if row.get(name) is None else write(row[name]) for name, write in columns.values()] for row in shown]
    return render_table(f"{title}{left_out}", list(columns), cells)


def _node_names(cluster: Cluster, braked: Sequence[int]) -> dict[int, str]:
    """Name the nodes by number and what sets them apart."""
    kinds = {number: other.node.name for other in cluster.mixed for number in other.nodes}
    names = {}
    for node in range(cluster.nodes):
        marks = [kinds.get(node, cluster.node.name)] if cluster.mixed else []
        marks += _air_marks(cluster.cooling, node)
        marks += ["braked"] if node in braked else []
        names[node] = f"{node} ({', '.join(marks)})" if marks else str(node)
    return names


def _air_marks(cooling: Cooling, node: int) -> list[str]:
    """Say in which rack a node stands and what air enters it, where racks differ."""
    marks = [f"rack {node // cooling.rack_nodes}"] if cooling.rack_nodes > 1 and not cooling.same_for_all else []
    marks += [f"inlet {cooling.inlet_of(node):g} C"] if isinstance(cooling.inlet_c, tuple) else []
    return [*marks, *([f"flow {cooling.flow_of(node):g}"] if isinstance(cooling.flow_fraction, tuple) else [])]


def _slot_names(cluster: Cluster | None) -> dict[int, str]:
    if cluster is None:
        return {}
    ahead = {slot: cluster.node.upstream_slots(slot) for slot in range(cluster.node.gpus)}
    return {slot: f"{slot} behind {slots[0]}" for slot, slots in ahead.items() if slots}
