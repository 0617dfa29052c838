"""A stored run as text, from its result alone: simulated, emulated and measured runs look the same."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from charllm.report.tables import format_percent, render_facts, render_table, shown_ends, wrap
from charllm.report.time import render_waterfall
from charllm.result.answers import answer_lines, describe_spec
from charllm.result.metrics import METRICS, numbers_of
from charllm.result.result import RunResult
from charllm.units import MEGA, format_bytes

GPU_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "rank": ("rank", str),
    "node": ("node", str),
    "slot": ("slot", str),
    "stage": ("stage", str),
    "W": ("power_mean_w", lambda watts: f"{watts:.0f}"),
    "peak W": ("power_peak_sensor_w", lambda watts: f"{watts:.0f}"),
    "C": ("temperature_mean_c", lambda degrees: f"{degrees:.1f}"),
    "peak C": ("temperature_peak_c", lambda degrees: f"{degrees:.1f}"),
    "MHz": ("clock_mean_hz", lambda hertz: f"{hertz / MEGA:.0f}"),
    "memory": ("memory_peak_bytes", format_bytes),
}


NODE_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "node": ("node", str),
    "W": ("power_mean_w", lambda watts: f"{watts:.0f}"),
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
    "fan rpm": ("fan_mean_hz", lambda hertz: f"{60 * hertz:.0f}"),
}


def render_stored(result: RunResult, predicted: Mapping[str, float] | None = None) -> str:
    """Return what was asked, the metrics that are known, the breakdown of the step time, and a row per GPU."""
    parts = [render_headlines(result)]
    if predicted:
        parts.append(render_predicted(predicted, result))
    if result.metrics.get("breakdown_s"):
        parts.append(render_waterfall(result.metrics["breakdown_s"]))
    if result.gpus:
        parts.append(_render_rows("GPUs", result.gpus, GPU_COLUMNS))
    if result.origin == "measured" and any(len(node) > 1 for node in result.nodes):
        parts.append(_render_rows("Nodes", result.nodes, NODE_COLUMNS))
    return "\n\n".join(parts)


def render_headlines(result: RunResult) -> str:
    """Return what was asked, and the metrics that are known, in a few lines."""
    lines = answer_lines(result)
    asked = "\n".join(wrap(f"{result.origin} run: {describe_spec(result.spec)}"))
    return f"{asked}\n{render_facts(lines) if lines else 'no metric is known'}"


def telling(warnings: Sequence[str]) -> list[str]:
    """Return the warnings that say more than that a metric is not known."""
    return [warning for warning in warnings if warning.split(":")[0] not in METRICS]


def gpu_rows(result: RunResult) -> list[dict[str, Any]]:
    """Return the rows of GPUs in one level of columns."""
    rows = []
    for gpu in result.gpus:
        row: dict[str, Any] = {}
        for name, value in gpu.items():
            row |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
        rows.append(row)
    return rows


def render_predicted(predicted: Mapping[str, float], result: RunResult) -> str:
    """Return what was predicted beside what was read."""
    known = numbers_of(result.metrics)
    cells = [
        [name, f"{value:.6g}", "-" if known.get(name) is None else f"{known[name]:.6g}"]
        for name, value in predicted.items()
    ]
    return render_table(f"Predicted and {result.origin}", ["metric", "predicted", result.origin], cells)


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
