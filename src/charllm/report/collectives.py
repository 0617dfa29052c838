"""Collectives as measured: a line for each series of sizes, with its latency and its largest bandwidth."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.tables import render_table, wrap_all
from charllm.units import GIGA, MICRO, format_bytes, format_percent

COLUMNS = (
    "group", "mode", "collective", "ranks", "per node", "smallest", "latency us", "largest", "seconds", "p10-p90 %",
    "algorithm GB/s", "bus GB/s", "slowest group",
)  # fmt: skip
DROP = ("p10-p90 %", "seconds", "algorithm GB/s", "slowest group", "per node", "smallest")
SLOW_FRACTION = 0.05
"""A group that is slower than the fastest by more is named."""


def render_collectives(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out latency (smallest size) and bandwidth (largest size) of each collective on each kind of group."""
    series: dict[tuple[str, str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["seconds_s"]:
            series.setdefault((row["group"], row["mode"], row["collective"], row["ranks"]), []).append(row)
    cells = [_line(sorted(found, key=lambda row: row["message_bytes"])) for found in series.values()]
    parts = [render_table("Collectives as measured", COLUMNS, cells, drop=DROP, where="--json")]
    reasons = {row["error"]: row for row in rows if row["error"]}
    parts += wrap_all(
        f"{row['group']} {row['collective']} of {format_bytes(row['message_bytes'])}: {reason}"
        for reason, row in reasons.items()
    )
    return "\n".join(parts)


def _line(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    first, last = rows[0], rows[-1]
    width = 100 * (last["p90_s"] - last["p10_s"]) / last["seconds_s"] if last["p90_s"] else None
    return [
        *(str(last[name]) for name in ("group", "mode", "collective", "ranks", "ranks_per_node")),
        format_bytes(first["message_bytes"]),
        f"{first['seconds_s'] / MICRO:.1f}",
        format_bytes(last["message_bytes"]),
        f"{last['seconds_s']:.3g}",
        "-" if width is None else f"{width:.1f}",
        *(f"{last[name] / GIGA:.4g}" if last[name] else "-" for name in ("algorithm_bytes_per_s", "bus_bytes_per_s")),
        _slowest(last),
    ]


def _slowest(row: Mapping[str, Any]) -> str:
    """Name a group that is clearly slower than another of its kind at the same time."""
    fastest, slowest = row["fastest_group_s"], row["slowest_group_s"]
    if not fastest or not slowest or slowest < (1 + SLOW_FRACTION) * fastest:
        return ""
    return f"ranks {row['slowest_group_ranks']}: {format_percent(slowest / fastest - 1, 0)} slower"
