"""Phases of a generation or an RL step as text."""

from collections.abc import Sequence

from charllm.report.power import render_power
from charllm.report.run import render_answer, render_memory
from charllm.report.tables import render_facts, render_table
from charllm.result.columns import Columns, rows_of
from charllm.result.metrics import METRICS, Metrics
from charllm.result.result import RunResult
from charllm.units import MEGA, format_percent, format_seconds, format_si

PHASE_WORDS = {
    "cluster_power_peak_w": "peak of the cluster",
    "cluster_power_ramp_w_per_s": "fastest ramp",
    "cluster_power_swing_w": "0.1-3 Hz oscillation",
}
SPLIT_METRICS = ("step_time_s", "tokens_per_s", "energy_per_step_j", "tokens_per_j", "power_mean_w")
SHOWN = ("power_mean_w", "power_peak_sensor_w", "temperature_mean_c", "temperature_peak_c", "clock_mean_hz")
HEADINGS = ["phase", "steps", "time", "share", METRICS["tokens_per_s"].heading, "energy",
            *(METRICS[name].heading for name in SHOWN), "throttled"]  # fmt: skip
DROP = (METRICS["power_peak_sensor_w"].heading, METRICS["temperature_mean_c"].heading, "throttled", "steps")
"""Columns that a narrow terminal has no room for, the least important first."""


def render_phased(result: RunResult, *, full: bool = False) -> str:
    """Return a stored generation or RL step as text; intervals of training are not those of either."""
    return render_generation(result, full=full) if "time_to_first_token_s" in result.metrics else render_rl(result)


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


def render_rl(result: RunResult) -> str:
    """Return an RL step as text: answers, phases, power over time."""
    phases = result.table("phases")
    metrics = result.metrics
    ramp, swing = (metrics.get(f"cluster_power_{name}") for name in ("ramp_w_per_s", "swing_w"))
    parts = [render_answer(result), *([render_phases(phases)] if phases is not None else [])]
    if ramp is not None:
        cells = [(PHASE_WORDS[name], METRICS[name].write(metrics[name])) for name in PHASE_WORDS if metrics.get(name)]
        parts.append(render_facts(cells) if swing is not None else "")
    return "\n\n".join(part for part in parts if part)


def render_splits(splits: Sequence[tuple[str, Metrics]], fastest: str) -> str:
    """Return a row for each split of the GPUs, the fastest first, and the flags that ask for that one."""
    cells = [[name, *(METRICS[metric].cell(found[metric]) for metric in SPLIT_METRICS)] for name, found in splits]
    headings = ["GPUs", *(METRICS[metric].heading for metric in SPLIT_METRICS)]
    table = render_table("Splits of the GPUs between rollouts and training", headings, cells)
    return f"{table}\n\nthe fastest: {fastest}"
