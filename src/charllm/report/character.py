"""What a recording shows, as text."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from charllm.report.tables import format_percent, render_table, wrap_all
from charllm.result.result import RunResult
from charllm.units import MEGA

KEY = "characterization"
SHOWN_GPUS = 16
MARKED = {"marks": "as the job marked it", "log": "as its log reports it"}
"""Source of a step period that power did not have to tell: in words."""
UNITS = {"temperature_c": ("C", 1.0), "power_w": ("W", 1.0), "clock_hz": ("MHz", 1 / MEGA)}
WHERE = {"temperature_c": "temperature at equal power", "power_w": "power", "clock_hz": "clock"}


def with_character(result: RunResult, found: Mapping[str, Any]) -> RunResult:
    """Return a result that carries what its recording shows, under provenance."""
    measurement = {**result.provenance.get("measurement", {}), KEY: dict(found)}
    return replace(result, provenance={**result.provenance, "measurement": measurement})


def render_character(found: Mapping[str, Any]) -> str:
    """Lay out power states, temperature groups, rhythm and GPUs apart."""
    parts = []
    if found["power_states"]:
        rows = [
            [state["name"], f"{state['power_w']:.0f}", f"{state['low_w']:.0f} to {state['high_w']:.0f}",
             format_percent(state["share"])]
            for state in found["power_states"]
        ]  # fmt: skip
        parts.append(render_table("Power states", ["state", "W per GPU", "readings, W", "of the time"], rows))
    if len(found["temperature_groups"]) > 1:
        rows = [
            [_gpus(group["gpus"], found), f"{group['temperature_c']:.1f}", group["place"] or ""]
            for group in found["temperature_groups"]
        ]
        parts.append(render_table("Temperature groups, under load", ["GPUs", "C", ""], rows))
    lines = [*_rhythm(found), *_outliers(found), *found["notes"]]
    return "\n\n".join([*parts, "\n".join(wrap_all(lines))])


def _gpus(places: Any, found: Mapping[str, Any]) -> str:
    names = [found["gpus"][place] for place in places]
    more = f" ... ({len(names)} in all)" if len(names) > SHOWN_GPUS else ""
    return " ".join(names[:SHOWN_GPUS]) + more


def _rhythm(found: Mapping[str, Any]) -> list[str]:
    lines = []
    step, dips = found["step_period"], found["dips"]
    if step is not None and step["source"] in MARKED:
        lines.append(f"Step period: {step['period_s']:.4g} s, {MARKED[step['source']]}")
    elif step is not None:
        sure = f"confidence {format_percent(step['confidence'])}, swing {step['swing_w']:.0f} W per GPU"
        lines.append(f"Step period: {step['period_s']:.3g} s, from the periodicity of power ({sure})")
    if dips is not None:
        often = (
            ""
            if dips["period_s"] is None
            else f" every {dips['period_s']:.3g} s, {dips['work_s']:.3g} s of work between"
        )
        word = " regular" if dips["regular"] else ""
        lines.append(
            f"Dips: {dips['number']}{word}, to {dips['power_w']:.0f} W per GPU for {dips['duration_s']:.3g} s{often}"
        )
    return lines


def _outliers(found: Mapping[str, Any]) -> list[str]:
    if not found["outliers"]:
        return ["Outlier GPUs: none"] if len(found["gpus"]) > 3 else []
    lines = []
    for one in found["outliers"]:
        unit, factor = UNITS[one["quantity"]]
        value, others = one["value"] * factor, one["others"] * factor
        lines.append(
            f"GPU {found['gpus'][one['gpu']]} is an outlier in {WHERE[one['quantity']]} ({one['when']}): "
            f"{value:.4g} {unit}, the others {others:.4g} {unit}"
        )
    return lines
