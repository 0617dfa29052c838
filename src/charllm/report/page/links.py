"""How well are the links used? Achieved bandwidth against message size, one point for each collective and size."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from charllm.report.figure import Column, Figure
from charllm.report.page.view import RunView, missing
from charllm.units import GIB, GIGA, KIB, MIB, MILLI, format_bytes, format_percent, seconds_format

NAME, KIND, QUESTION = "links", "scatter", "How well are the links used?"
LINK_WORDS = {
    "nvlink": "scale-up link of a GPU",
    "pcie": "PCIe of a GPU",
    "nic": "all NICs of a node",
}
TIED = "embedding"
"""Group of the two ranks that share a tied embedding (layout/grid.py)."""
SMALL_FRACTION = 0.5
"""A message that reaches less than this of what large ones reach is small for its link."""
NEGLIGIBLE_FRACTION = 0.01
"""Of the time of the largest collective: small messages that take less are not worth a word."""
CURVE_BYTES = np.geomspace(64 * KIB, 16 * GIB, 40)
LARGEST = 3

Row = Mapping[str, Any]


def links_figure(run: RunView) -> Figure | None:
    """Return every collective of the run beside its link; None where nothing is sent, or nothing is known of it."""
    if run.result.origin != "simulated" or len(run.result.gpus) == 1:
        return None
    table = run.table("links")
    if not table or not table["axis"]:
        return missing(NAME, KIND, QUESTION, run.why_not("message_bytes_median", "links"))
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    rows.sort(key=lambda row: -_total_s(row))
    columns = {
        "name": Column("collective", [_name(row) for row in rows]),
        "axis": Column("axis", [row["axis"] for row in rows]),
        "link": Column("link", [LINK_WORDS[row["link"]] for row in rows]),
        "message": Column("message", [row["message_bytes"] / MIB for row in rows], "MiB", 4),
        "achieved": Column("achieved bandwidth", [row["achieved_bytes_per_s"] / GIGA for row in rows], "GB/s", 4),
        "large": Column("with 1 GiB messages", [row["large_message_bytes_per_s"] / GIGA for row in rows], "GB/s", 4),
        "peak": Column("peak of the link", [row["peak_bytes_per_s"] / GIGA for row in rows], "GB/s", 4),
        "calls": Column("calls a step", [row["calls"] for row in rows], "", 6),
        "each": Column("time of a call", [row["seconds"] / MILLI for row in rows], "ms", 4),
        "total": Column("time in a step", [_total_s(row) for row in rows], "s", 4),
        "ranks": Column("ranks", [row["ranks"] for row in rows]),
        "algorithm": Column("algorithm", [row["algorithm"] for row in rows]),
        "flows": Column("flows that share a NIC", [row["flows_per_nic"] or None for row in rows]),
    }
    options = {"x": "message", "y": "achieved", "x_scale": "log", "y_scale": "log", "colour": "axis", "shape": "link",
               "name": "name", "lines": [*_peaks(rows), *_curves(rows)], "filters": ["axis"]}  # fmt: skip
    return Figure(NAME, KIND, QUESTION, _message(rows), columns, options, run.conditions)


def _total_s(row: Row) -> float:
    return float(row["seconds"] * row["calls"])


def _name(row: Row) -> str:
    if row["group"] == TIED:
        return "pp tied embedding"
    return f"{row['axis']} {row['collective'].replace('_', '-')}"


def _peaks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the peak of each link that is used, as a line."""
    peaks = {row["link"]: row["peak_bytes_per_s"] / GIGA for row in rows}
    return [{"label": f"{LINK_WORDS[link]}: {peak:.3g} GB/s", "y": peak} for link, peak in peaks.items() if peak]


def _curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how bandwidth grows with the message on each path: bytes over a latency and the rate of large messages."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["link"], round(np.log(row["large_message_bytes_per_s"]), 1))
        share = row["sent_bytes"] / row["message_bytes"]
        fixed_s = max(0.0, row["seconds"] - row["sent_bytes"] / row["large_message_bytes_per_s"])
        if key in found or not fixed_s:
            continue
        sent = share * CURVE_BYTES
        rates = sent / (fixed_s + sent / row["large_message_bytes_per_s"]) / GIGA
        found[key] = {
            "label": "",
            "faint": True,
            "points": [[float(x), float(y)] for x, y in zip(CURVE_BYTES / MIB, rates, strict=True)],
        }
    return list(found.values())


def _message(rows: list[dict[str, Any]]) -> str:
    """Say what takes most time, how much of its link it reaches, and whether small messages or sharing cost it."""
    write = seconds_format(max(_total_s(row) for row in rows))
    told = []
    # Stages of other sizes call the same collective; the slowest of them stands for it.
    slowest = {(_name(row), row["link"]): row for row in reversed(rows)}
    for row in sorted(slowest.values(), key=_total_s, reverse=True)[:LARGEST]:
        share = row["achieved_bytes_per_s"] / row["peak_bytes_per_s"]
        shared = f", shared by {row['flows_per_nic']} senders" if row["flows_per_nic"] > 1 else ""
        told.append(
            f"{_name(row)} ({format_bytes(row['message_bytes'])} a message, {write(_total_s(row))} s a step) reaches "
            f"{row['achieved_bytes_per_s'] / GIGA:.3g} GB/s, {format_percent(share)} of the peak{shared}"
        )
    small = [row for row in rows if row["achieved_bytes_per_s"] < SMALL_FRACTION * row["large_message_bytes_per_s"]]
    text = f"Each point is a collective as one rank calls it, exposed or hidden. {'; '.join(told)}."
    if not small:
        return f"{text} No message is too small for its link: all reach more than half of what large messages reach."
    least_s = NEGLIGIBLE_FRACTION * max(_total_s(row) for row in rows)
    costly = [row for row in small if _total_s(row) >= least_s]
    if not costly:
        return f"{text} The messages that are too small for their link take next to no time."
    worst = ", ".join(
        f"{_name(row)} of {format_bytes(row['message_bytes'])} ({write(_total_s(row))} s a step)"
        for row in costly[:LARGEST]
    )
    return f"{text} Small for their link, below half of what 1 GiB messages reach: {worst}."
