"""Phases of a generation or an RL step as text."""

from charllm.report.power import render_power
from charllm.report.run import render_answer, render_memory
from charllm.report.tables import render_table
from charllm.result.columns import Columns, rows_of
from charllm.result.metrics import METRICS
from charllm.result.result import RunResult
from charllm.units import MEGA, format_percent, format_seconds, format_si

SHOWN = ("power_mean_w", "power_peak_sensor_w", "temperature_mean_c", "temperature_peak_c", "clock_mean_hz")
HEADINGS = ["phase", "steps", "time", "share", METRICS["tokens_per_s"].heading, "energy",
            *(METRICS[name].heading for name in SHOWN), "throttled"]  # fmt: skip
DROP = (METRICS["power_peak_sensor_w"].heading, METRICS["temperature_mean_c"].heading, "throttled", "steps")
"""Columns that a narrow terminal has no room for, the least important first."""


def render_generation(result: RunResult, *, full: bool = False) -> str:
    """Return a generation as text: answers, its phases, power, memory."""
    parts = [render_answer(result)]
    phases, memory = result.table("phases"), result.table("memory")
    parts += [render_phases(phases)] if phases is not None else []
    parts += render_power(result) if full else []
    parts += [render_memory(result, memory)] if memory is not None else []
    return "\n\n".join(parts)


def render_phases(phases: Columns) -> str:
    """Return a row for each phase."""
    rows = rows_of(phases)
    total_s = sum(row["seconds"] for row in rows)
    cells = [
        [
            row["phase"],
            f"{row['steps']:,}",
            format_seconds(row["seconds"]),
            format_percent(row["seconds"] / total_s, 0),
            f"{row['tokens'] / row['seconds']:,.0f}" if row["tokens"] else "-",
            format_si(row["energy_j"], "J"),
            *(f"{row[name]:.0f}" for name in ("power_mean_w", "power_peak_w")),
            *(f"{row[name]:.1f}" for name in ("temperature_mean_c", "temperature_peak_c")),
            f"{row['clock_mean_hz'] / MEGA:.0f}",
            format_percent(row["throttled_fraction"], 0),
        ]
        for row in rows
    ]
    return render_table("Phases (time, energy of all GPUs; power, temperature and clock of a GPU)", HEADINGS, cells,
                        drop=DROP)  # fmt: skip
