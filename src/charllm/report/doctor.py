"""What doctor found, as text: the verdict, each finding with its evidence and remedies, what could not be judged."""

from collections.abc import Mapping
from typing import Any

from charllm.report.tables import format_percent, render_table, wrap
from charllm.units import GIGA, MEGA

FORMATS = {
    "_hz": (MEGA, "{:.0f} MHz"),
    "_w": (1.0, "{:.0f} W"),
    "_c": (1.0, "{:.1f} C"),
    "bytes_per_s": (GIGA, "{:.3g} GB/s"),
    "_per_s": (1.0, "{:.3g} /s"),
}
EVIDENCE = ("what", "quantity", "value", "peers", "z")
WORDS = {
    "power_w": "power",
    "temperature_c": "temperature",
    "clock_hz": "clock",
    "power_limit_w": "power limit",
    "power_fraction": "limited by power",
    "thermal_fraction": "limited by temperature",
    "brake_fraction": "under a power brake",
    "sm_active_fraction": "multiprocessor activity",
    "utilization_fraction": "kernel resident",
    "nic_wait_fraction": "port cannot send",
    "nic_rate_bytes_per_s": "port rate",
    "nic_retries_per_s": "packets sent again",
    "host_load_fraction": "host load",
}


def render_examination(found: Mapping[str, Any]) -> str:
    """Return an examination (its plain table) as text."""
    parts = ["\n".join(wrap(_sentence(found["verdict"])))]
    if found["findings"]:
        parts.append(
            render_table("Findings", ("what", "cause", "behind", "cost", "computed from", "z"), _findings(found))
        )
        parts.append(render_table("Evidence", EVIDENCE, _evidence(found)))
        parts.append(render_table("What to do", ("what", "action", "throughput", "saves"), _remedies(found)))
    if found["unusual"]:
        rows = [_evidence_row(row["name"], row) for row in found["unusual"]]
        parts.append(render_table("Unusual, without effect on the step time", EVIDENCE, rows))
    if found["not_judged"]:
        lines = ["Not judged", *(line for text in found["not_judged"] for line in wrap(text, indent="  "))]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _findings(found: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            one["name"],
            one["cause"],
            format_percent(one["effect_fraction"]),
            "{} ({} to {})".format(*map(format_percent, (one["cost_fraction"], *one["cost_interval"]))),
            "simulation" if one["cost_basis"] == "simulated" else "waits",
            f"{one['z']:.1f}",
        ]
        for one in found["findings"]
    ]


def _evidence(found: Mapping[str, Any]) -> list[list[str]]:
    rows = [(one["name"], row) for one in found["findings"] for row in one["evidence"] if row["value"] or row["peers"]]
    return [_evidence_row(name, row) for name, row in rows]


def _evidence_row(name: str, row: Mapping[str, Any]) -> list[str]:
    quantity = row["quantity"]
    value, peers = (_figure(quantity, row[key]) for key in ("value", "peers"))
    return [name, _words(quantity), value, peers, f"{row['z']:+.1f}"]


def _remedies(found: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            one["name"],
            remedy["action"],
            _signed(remedy["gain_fraction"]),
            "" if remedy["saves_w"] is None else f"{remedy['saves_w']:.0f} W per GPU",
        ]
        for one in found["findings"]
        for remedy in one["remedies"]
    ]


def _signed(fraction: float) -> str:
    return ("-" if fraction < 0 else "+") + format_percent(abs(fraction))


def _words(quantity: str) -> str:
    """Return a quantity in words; that of another node is followed by its name."""
    name, _, where = quantity.partition(" ")
    return f"{WORDS.get(name, name)} {where}".strip()


def _figure(quantity: str, value: float) -> str:
    for ending, (unit, written) in FORMATS.items():
        if quantity.endswith(ending):
            return written.format(value / unit)
    return format_percent(value)
