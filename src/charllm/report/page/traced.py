"""Where did seconds and joules go, kernel by kernel? What a trace beside the readings of a measured run tells."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.quantity import metric_column
from charllm.report.page.view import RunView
from charllm.units import MEGA, MILLI, format_percent

CLASSES, KERNELS = "kernel-classes", "kernels"
MOST_PARTS, REST = 7, "rest"
"""Classes with a colour of their own."""
SHOWN_KERNELS = 200


def classes_figure(run: RunView) -> Figure | None:
    """Return the shares of seconds and joules by class of kernel, of the first rank that was traced."""
    if not run.traced:
        return None
    found, question = run.traced[0], "Where do time and energy go, by kernel class?"
    if found["refused"]:
        return Figure(
            CLASSES, "stacked-bars", question, "", missing=f"too few readings beside the trace: {found['refused']}"
        )
    parts = _parts(found["classes"])
    totals = {name: sum(row[name] for row in parts) or 1.0 for name in ("seconds_s", "energy_j")}
    bars = {"seconds_s": "seconds", "energy_j": "joules"}
    cells = [(bars[name], row["name"], 100 * row[name] / totals[name], row) for name in bars for row in parts]
    columns = {
        "bar": Column("of", [bar for bar, *_ in cells]),
        "part": Column("class", [part for _bar, part, *_ in cells]),
        "share": Column("share", [share for *_, share, _row in cells], "%", 3),
        "power": Column("power", [row.get("power_w") for *_, row in cells], "W", 3),
        "low": Column("power, low", [row.get("power_low_w") for *_, row in cells], "W", 3),
        "high": Column("power, high", [row.get("power_high_w") for *_, row in cells], "W", 3),
        "told": Column("same watts as", [", ".join(row.get("told_with", ())) for *_, row in cells]),
    }
    options = bar_options({row["name"]: row["name"] for row in parts}, "share", "%", "series", total=False)
    return Figure(CLASSES, "stacked-bars", question, _message(found), columns, options, _trust(found))


def _parts(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the largest classes, and the others together."""
    shown, rest = list(rows[:MOST_PARTS]), rows[MOST_PARTS:]
    if rest:
        shown.append({"name": REST, **{name: sum(row[name] for row in rest) for name in ("seconds_s", "energy_j")}})
    return shown


def _message(found: Mapping[str, Any]) -> str:
    first = found["classes"][0]
    of, share = "step" if found["step_time_s"] else "trace", first["energy_j"] / found["energy_j"]
    text = (
        f"A {of} takes {found['energy_j']:.4g} J; {first['name']} takes {format_percent(share)} of them at "
        f"{first['power_w']:.0f} W ({first['power_low_w']:.0f} to {first['power_high_w']:.0f})"
    )
    apart = [row for row in found["classes"] if not row["told_with"] and row is not first]
    text += "".join(f", {row['name']} draws {row['power_w']:.0f} W" for row in apart[:2])
    lost = first.get("clock_lost_fraction")
    return text + (f". {first['name']} runs {format_percent(lost)} below the full clock." if lost else ".")


def _trust(found: Mapping[str, Any]) -> str:
    return (
        f"measured; {found['bins']} steps of the energy counter; held-out energy is predicted within "
        f"{format_percent(found['held_out_fraction'])}; classes with the same power cannot be separated by the readings"
    )


def kernels_figure(run: RunView) -> Figure | None:
    """Return the table of kernels: seconds, joules, watts and clock, of the first rank that was traced."""
    if not run.traced or not run.traced[0]["kernels"]:
        return None
    rows = run.traced[0]["kernels"][:SHOWN_KERNELS]

    def column(name: str, unit: float = 1.0) -> list[float | None]:
        return [None if row[name] is None else row[name] / unit for row in rows]

    columns = {
        "kernel": Column("kernel", [row["name"] for row in rows]),
        "class": Column("class", [row["class"] for row in rows]),
        "calls": Column("calls", column("calls"), "", 3),
        "time": Column("time", column("seconds", MILLI), "ms", 4),
        "energy": Column("energy", column("energy_j"), "J", 3),
        "power": Column("power of its class", column("power_w"), "W", 3),
        "clock": Column("clock of its class", column("clock_hz", MEGA), "MHz", 4),
        "lost": metric_column("clock_loss", [{"clock_loss": lost} for lost in column("clock_lost_fraction")], 3),
    }
    largest = rows[0]
    message = (
        f"The largest of {len(run.traced[0]['kernels'])} kernels takes {largest['seconds'] / MILLI:.3g} ms of a step "
        f"in {largest['calls']:.0f} calls. Energy is its time multiplied by the power of its class."
    )
    options = {"search": True, "filters": ["class"]}
    return Figure(KERNELS, "table", "Which kernels take time and energy?", message, columns, options, _trust_of(run))


def _trust_of(run: RunView) -> str:
    return "measured" if run.traced[0]["refused"] else _trust(run.traced[0])
