"""A run against caps as text: a row for each point, the knees marked, and what they mean."""

from collections.abc import Mapping
from typing import Any

from charllm.report.tables import metric_cells, metric_headings, render_table, wrap_all
from charllm.result.differences import UNMEASURABLE
from charllm.result.metrics import quantity, selected
from charllm.units import format_change, format_percent

SETTERS = {"power": "nvidia-smi -pl {cap}", "clock": "nvidia-smi -lgc 0,{cap}"}
"""Kind of cap: what sets it on GPUs of NVIDIA."""
WORDS = ("time", "energy")


def render_caps(table: Mapping[str, Any]) -> str:
    """Write points and knees of a cap advisor."""
    per_stage = table["per"] == "stage"
    rows = [_stage_row(table, place) if per_stage else _gpu_row(table, place) for place in range(len(table["points"]))]
    title = f"{table['run']}: {table['kind']} caps {'of each stage' if per_stage else 'of every GPU'}"
    text = render_table(title, list(rows[0]), [list(row.values()) for row in rows], drop=DROPPED, where="--csv")
    return "\n".join([text, "", *wrap_all(_sentences(table))])


SHOWN = selected(
    "tokens_per_s", "energy_per_step_j", "tokens_per_j", "power_mean_w", "clock_mean_hz", "temperature_peak_c"
)
DROPPED = metric_headings(reversed(SHOWN))
"""Columns that go first where there is no room."""


def _gpu_row(table: Mapping[str, Any], place: int) -> dict[str, str]:
    point = table["points"][place]
    return {f"cap, {table['unit']}": write_cap(table, point), **_metrics(table, point), "": _marks(table, place)}


def _stage_row(table: Mapping[str, Any], place: int) -> dict[str, str]:
    point = table["points"][place]
    uniform = next(value for name, value in point.items() if name.startswith("uniform_cap_"))
    return {
        f"caps of stages, {table['unit']}": write_cap(table, point),
        **_metrics(table, point),
        f"instead of, {table['unit']}": f"{uniform / table['scale']:.0f}",
        "saves": format_percent(point["saved_fraction"]),
        "": _marks(table, place),
    }


def _stage_caps(table: Mapping[str, Any], caps: list[float]) -> str:
    """Write the cap of each stage; equal neighbours once: 1609, 1732 x 2, 1757."""
    runs: list[list[Any]] = []
    for cap in caps:
        text = f"{cap / table['scale']:.0f}"
        if runs and runs[-1][0] == text:
            runs[-1][1] += 1
        else:
            runs.append([text, 1])
    return ", ".join(text if times == 1 else f"{text} x {times}" for text, times in runs)


def _metrics(table: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, str]:
    time, money = quantity("step_time_s"), quantity("money_per_trillion_tokens")
    return {
        time.heading: time.cell(point["step_time_s"]),
        "time": format_change(point["time_change_fraction"]),
        "energy": format_change(point["energy_change_fraction"]),
        **dict(zip(metric_headings(SHOWN), metric_cells(point, SHOWN), strict=True)),
        f"{table['currency']}/T tokens": money.cell(point["money_per_trillion_tokens"]),
    }


def write_cap(table: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    """Write the cap of a point in the unit of its table, or the caps of its stages."""
    cap = next(value for name, value in point.items() if name.startswith(("cap_", "caps_")))
    return _stage_caps(table, cap) if isinstance(cap, list) else f"{cap / table['scale']:.0f}"


def _marks(table: Mapping[str, Any], place: int) -> str:
    return ", ".join(name for name, at in table["knees"].items() if at == place)


def _sentences(table: Mapping[str, Any]) -> list[str]:
    found = [*(_knee(table, name, place) for name, place in table["knees"].items()), *_unmeasurable(table)]
    found += [f"Prices: {table['prices']}."] if "prices" in table else []
    if table["per"] == "stage":
        first = table["points"][0]
        free = f"{format_percent(first['saved_fraction'])} of the energy"
        longer = format_change(first["time_change_fraction"], 2)
        return [f"Free: the caps of the first row save {free}; the step time changes by {longer}.", *found]
    if table["vendor"] == "nvidia":
        cap = write_cap(table, table["points"][table["knees"]["knee"]])
        found.append(f"Set the knee with: {SETTERS[table['kind']].format(cap=cap)}")
    return found


def _change(point: Mapping[str, Any], word: str) -> str:
    """Write a change with its interval."""
    change = format_change(point[f"{word}_change_fraction"])
    low, high = (point[f"{word}_change_{end}_fraction"] for end in ("low", "high"))
    return f"{change} ({format_change(low)} to {format_change(high)})" if high > low else change


def _unmeasurable(table: Mapping[str, Any]) -> list[str]:
    """Name the points whose time or energy is not measurably another than that of the first one."""
    found = []
    for word in WORDS:
        places = [
            place
            for place, point in enumerate(table["points"])
            if place and point[f"{word}_change_low_fraction"] <= 0 <= point[f"{word}_change_high_fraction"]
        ]
        if places:
            listed = ", ".join(_where(table, place) for place in places)
            found.append(f"{UNMEASURABLE.capitalize()} in {word}: {listed} ({table['basis'][word]}).")
    return found


def _where(table: Mapping[str, Any], place: int) -> str:
    return (
        f"row {place + 1}" if table["per"] == "stage" else f"{write_cap(table, table['points'][place])} {table['unit']}"
    )


def _knee(table: Mapping[str, Any], name: str, place: int) -> str:
    point = table["points"][place]
    changes = [f"{word} {_change(point, word)}" for word in WORDS]
    return f"{name.capitalize()} ({table['definitions'][name]}): {_where(table, place)}, {', '.join(changes)}."
