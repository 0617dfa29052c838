"""How well are the links used? What each axis of each case achieves against the size of its messages."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase, in_common, title
from charllm.report.page.quantity import metric_column, write_number
from charllm.result.metrics import AXES
from charllm.units import GIGA, MIB, format_bytes, format_si


class AxisUse(NamedTuple):
    """The communication of one axis of a case."""

    case: StudiedCase
    axis: str
    message_bytes: float
    bytes_per_s: float
    """Sent by one GPU for each second that this axis communicates, hidden or exposed."""
    seconds: float


def axis_uses(cases: Sequence[StudiedCase]) -> list[AxisUse]:
    """List every axis of every case that communicates for a time that is known."""
    found = []
    for case in cases:
        for axis in AXES:
            values = [
                case.values.get(name)
                for name in (
                    f"message_bytes_median.{axis}",
                    f"axis_bytes.{axis}",
                    f"breakdown_s.{axis}_exposed",
                    f"hidden_communication_s.{axis}",
                )
            ]
            message, sent, exposed, hidden = values
            seconds = (exposed or 0.0) + (hidden or 0.0)
            if message and sent and seconds > 0 and case.gpus:
                found.append(AxisUse(case, axis, message, sent / case.gpus / seconds, seconds))
    return found


def case_links(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return achieved bandwidth against message size, a point for each axis of each case."""
    question = "How well are the links used?"
    uses = axis_uses(cases)
    if not uses:
        return Figure("links", "scatter", question, "", missing="No case has data on its communication.")
    rows = [use.case.values for use in uses]
    columns = {
        "name": Column("case and axis", [f"{use.case.name}, {use.axis}" for use in uses]),
        "group": Column("model", [use.case.group for use in uses]),
        "axis": Column("axis", [use.axis for use in uses]),
        "message": Column("median message", [use.message_bytes / MIB for use in uses], "MiB"),
        "rate": Column("sent per GPU while communicating", [use.bytes_per_s / GIGA for use in uses], "GB/s"),
        "seconds": Column("communication in a step", [use.seconds for use in uses], "s"),
        "nvlink": metric_column("link_utilization_fraction.nvlink", rows),
        "nic": metric_column("link_utilization_fraction.nic", rows),
    }
    options: dict[str, Any] = {
        "x": "message",
        "y": "rate",
        "x_scale": "log",
        "y_scale": "log",
        "colour": "axis",
        "shape": "group",
        "name": "name",
        "filters": ["group", "axis"],
        "lines": _peaks(cases),
    }
    return Figure("links", "scatter", question, _message(uses), columns, options, conditions)


def _peaks(cases: Sequence[StudiedCase]) -> list[dict[str, Any]]:
    """Return what one GPU could send at most: over its own links, and as its share of the node's NICs."""
    link, nic = in_common(cases, "link_bytes_per_s"), in_common(cases, "nic_bytes_per_s")
    nics, gpus = in_common(cases, "nics_per_node"), in_common(cases, "gpus_per_node")
    lines = []
    if link:
        lines.append({"label": f"peak of a GPU's own links, {write_number(link / GIGA)} GB/s", "y": link / GIGA})
    if nic and nics and gpus:
        share = nic * nics / gpus / GIGA
        lines.append({"label": f"a GPU's share of its node's NICs, {write_number(share)} GB/s", "y": share})
    return lines


def _message(uses: Sequence[AxisUse]) -> str:
    low = min(uses, key=lambda use: use.bytes_per_s)
    high = max(uses, key=lambda use: use.bytes_per_s)
    costly = max(uses, key=lambda use: use.seconds)
    return (
        f"Best used: {_told(high)}. Worst used: {_told(low)}. Most time: {_told(costly)}, "
        f"{write_number(costly.seconds)} s a step. Bandwidth is what a GPU sends over the time that this axis "
        "communicates, hidden or exposed; waiting for slower links counts."
    )


def _told(use: AxisUse) -> str:
    return (
        f"{use.axis} of {title(use.case)} ({format_si(use.bytes_per_s, 'B/s')} with messages of "
        f"{format_bytes(use.message_bytes)})"
    )
