"""Decided placements as text: each decision against the run as it is, what the solver said, and phases."""

from collections.abc import Mapping
from typing import Any

from charllm.report.tables import metric_cells, metric_headings, render_table, wrap
from charllm.result.metrics import selected
from charllm.units import KILO, format_change

SHOWN = selected(
    "temperature_spread_node_k", "temperature_swing_k", "margin_to_slowdown_k", "clock_std_fraction",
    "cluster_power_ramp_w_per_s",
)  # fmt: skip
POWERS = selected("cluster_power_ramp_w_per_s", "cluster_power_swing_w")
COLUMNS = ("placement", *metric_headings(["tokens_per_s"]), "gain", *metric_headings(SHOWN), "promised", "gap", "bound")
NO_BOUND = "no bound"


def render_placement(found: Mapping[str, Any]) -> str:
    """Return a decided placement (its plain table) as text."""
    rows = found["rows"]
    parts = [render_table("Placements, each simulated in full", COLUMNS, [_cells(row) for row in rows], where="--csv")]
    notes = [f"{row['name']}: {row['note']}" for row in rows if row["note"]]
    parts += ["\n".join(line for note in notes for line in wrap(note, indent="  "))] if notes else []
    parts.append("\n".join(wrap(_verdict(found))))
    if found["dephasing"]:
        parts += _phases(found["dephasing"])
    return "\n\n".join(parts)


def _cells(row: Mapping[str, Any]) -> list[str]:
    default = row["name"] == "default"
    return [
        row["name"],
        *metric_cells(row, ["tokens_per_s"]),
        "" if default else _percent(row["gain_fraction"]),
        *metric_cells(row, SHOWN),
        "" if default else _percent(row["promised_fraction"]),
        "" if default else _percent(row["gap_fraction"]),
        "" if default else _percent(row["bound_fraction"]),
    ]


def _percent(value: float | None) -> str:
    return NO_BOUND if value is None else format_change(value, 2)


def _kilo(value: float | None) -> str:
    return "-" if value is None else f"{value / KILO:.2f}"


def _verdict(found: Mapping[str, Any]) -> str:
    row = next(row for row in found["rows"] if row["name"] == found["best"])
    if row["name"] == "default":
        return "Best: the unchanged run. No simulated placement is faster."
    best = f"Best: {row['name']}, {_percent(row['gain_fraction'])} tokens/s"
    if row["layers_per_stage"] == found["rows"][0]["layers_per_stage"]:
        return best
    return f"{best}; --layers-per-stage {','.join(map(str, row['layers_per_stage']))}"


def _phases(found: Mapping[str, Any]) -> list[str]:
    parts = []
    if found["replicas"]:
        rows = [
            [f"{one['stagger_s']:g}", f"{one['step_time_s']:.3f}", f"{-100 * one['cost_fraction']:+.2f} %",
             _kilo(one["ramp_w_per_s"]), _kilo(one["swing_w"]), _kilo(one["peak_w"])]
            for one in found["replicas"]
        ]  # fmt: skip
        columns = ("stagger s", "step s", "tokens/s", *metric_headings(POWERS), "peak kW")
        parts.append(render_table("Staggered replicas of this job", columns, rows))
        slack = (
            f"Replicas wait up to {found['free_slack_s']:.3f} s for the slowest one: a stagger of this length is free."
        )
        parts.append("\n".join(wrap(slack)))
    if found["jobs"]:
        rows = [
            [str(one["jobs"]), *(_kilo(one[name]) for name in
             ("together_ramp_w_per_s", "spread_ramp_w_per_s", "together_swing_w", "spread_swing_w"))]
            for one in found["jobs"]
        ]  # fmt: skip
        headings = ("jobs", "ramp in phase", "ramp spread", "0.1-3 Hz in phase", "0.1-3 Hz spread")
        title = "Independent jobs like this one, in phase and evenly spread over a step, kW/s and kW"
        parts.append(render_table(title, headings, rows))
    return parts
