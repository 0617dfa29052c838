"""What happens during a step? A lane for each stage; power, clock and temperature of a chosen GPU below it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.report.figure import Column, Columns, Figure
from charllm.report.page.series import to_floats, to_list
from charllm.report.page.view import RunView, missing
from charllm.report.tables import shown_ends
from charllm.result.answers import pacing_gpus, path_gpus
from charllm.result.metrics import CAUSES, LABEL_WORDS, LIMITS
from charllm.result.result import Columns as Table
from charllm.units import MEGA, format_percent, seconds_format

NAME, KIND, QUESTION = "when", "timeline", "What happens during a step?"
PASSES = {"forward": "forward pass", "backward": "backward pass", "weight": "weight-gradient pass"}
MOST_SPANS, MOST_POINTS, MOST_GPUS = 20_000, 24_000, 16
"""Spans of all lanes, points of all signals, and GPUs that can be chosen: what a page can hold and a screen show."""
READINGS = ("rank", "t_s", "power_w", "clock_hz", "temperature_c", "limits")
STEP_LANE, STEP = "marked steps", "step"


class Span(NamedTuple):
    """A stretch of a lane."""

    lane: str
    part: str
    start_s: float
    end_s: float
    detail: str


def when_figure(run: RunView) -> Figure:
    """Return the step of a simulated run, or the whole of a measured one, over time."""
    spans, left_out = _spans(run)
    signals = run.table("signals")
    if not spans and not signals:
        reason = "no readings over time and no marked steps were recorded"
        simulated = run.result.origin == "simulated"
        return missing(NAME, KIND, QUESTION, run.why_not("step_time_s", "timeline") if simulated else reason)
    end_s = _shown_until_s(run, spans)
    gpus = _choose_gpus(run, signals) if signals else {}
    readings = _readings(signals, end_s) if signals else {}
    series = {name: _series(readings, rank) for rank, name in gpus.items()}
    points = {name: _decimate(rows, max(50, MOST_POINTS // max(1, len(series)))) for name, rows in series.items()}
    tables = {
        "spans": _span_columns(_merge(spans, end_s)),
        "signals": _signal_columns(points),
        "limits": _limit_columns(_limits(series, end_s)),
    }
    options = {
        "lanes": list(dict.fromkeys(span.lane for span in spans)),
        "gpus": list(gpus.values()),
        "gpu": next(iter(gpus.values()), ""),
        "lines": limit_lines(run),
        "labels": {**LABEL_WORDS, **PASSES, STEP: STEP},
        "palette": "part",
    }
    message = _message(run, spans, series, end_s) + left_out
    return Figure(NAME, KIND, QUESTION, message, tables["spans"], options, run.conditions, tables)


def _spans(run: RunView) -> tuple[list[Span], str]:
    """Return what each stage does, or the marked steps of a measured run; and what is left out of a deep pipeline."""
    table = run.table("timeline")
    if not table:
        return [
            Span(STEP_LANE, STEP, start_s, end_s, f"step {at}") for at, (start_s, end_s) in enumerate(run.steps_s)
        ], ""
    stages, left_out = shown_ends(sorted(set(table["stage"])))
    shown = set(stages)
    names = ("stage", "activity", "chunk", "microbatch", "start_s", "end_s")
    chunked = len({chunk for chunk in table["chunk"] if chunk is not None}) > len(set(table["stage"]))
    found = []
    for stage, activity, chunk, microbatch, start_s, end_s in zip(*(table[name] for name in names), strict=True):
        if stage in shown and end_s > start_s:
            inside = f"microbatch {microbatch}" + (f", chunk {chunk}" if chunked else "")
            found.append(Span(f"stage {stage}", activity, start_s, end_s, inside if microbatch is not None else ""))
    return found, left_out


def _shown_until_s(run: RunView, spans: Sequence[Span]) -> float:
    """Return where the time axis ends: with the step that is shown, or with the readings."""
    if run.table("timeline"):
        return max(span.end_s for span in spans)
    signals = run.table("signals")
    return max([*(signals["t_s"] if signals else ()), *(span.end_s for span in spans)], default=0.0)


def _choose_gpus(run: RunView, signals: Table) -> dict[int, str]:
    """Return the GPUs that can be chosen, by rank: the pacing one first, then the hottest, the coolest, one a stage."""
    known = dict.fromkeys(signals["rank"])
    rows = {key: row for key, row in _rows_by_signal(run).items() if key in known}
    pacers = [row["rank"] for row in (*pacing_gpus(run.result), *path_gpus(run.result))[:1]]
    heat = {rank: row["temperature_mean_c"] for rank, row in rows.items() if row.get("temperature_mean_c") is not None}
    wanted = [rank for rank, row in rows.items() if row.get("rank") in pacers]
    wanted += [max(heat, key=heat.__getitem__), min(heat, key=heat.__getitem__)] if heat else []
    firsts: dict[Any, int] = {}
    for rank, row in rows.items():
        firsts.setdefault(row.get("stage"), rank)
    chosen = list(dict.fromkeys([*wanted, *firsts.values(), *known]))[:MOST_GPUS]
    many = len({row["node"] for row in rows.values()}) > 1
    return {rank: _name_gpu(run, rows.get(rank), rank, many=many) for rank in chosen}


def _rows_by_signal(run: RunView) -> dict[int, dict[str, Any]]:
    """Return the row of each GPU under the number that its signals have: its rank, or the order it was recorded in."""
    if run.result.origin == "simulated":
        return {row["rank"]: row for row in run.result.gpus}
    return dict(enumerate(run.result.gpus))


def _name_gpu(run: RunView, row: Mapping[str, Any] | None, number: int, *, many: bool) -> str:
    if row is None:
        return f"GPU {number}"
    where = f"node {run.node_name(row['node'])} slot {row['slot']}" if many else f"slot {row['slot']}"
    return where + ("" if row.get("stage") is None else f", stage {row['stage']}")


def _readings(signals: Table, end_s: float) -> dict[str, Floats]:
    """Return the readings of all GPUs until the end of the time axis; a missing one is NaN."""
    found = {name: to_floats(signals[name]) for name in READINGS if name in signals}
    found |= {name: np.full(len(found["t_s"]), np.nan) for name in READINGS if name not in found}
    inside = found["t_s"] <= end_s * (1 + 1e-9)
    return {name: values[inside] for name, values in found.items()}


def _series(readings: Mapping[str, Floats], rank: int) -> dict[str, Floats]:
    mine = readings["rank"] == rank
    return {name: values[mine] for name, values in readings.items()}


def _decimate(rows: Mapping[str, Floats], most: int) -> dict[str, Floats]:
    """Keep the lowest and highest reading of each signal in every bin, so that no peak is lost."""
    count = len(rows["t_s"])
    if count <= most:
        return dict(rows)
    signals = [rows[name] for name in ("power_w", "clock_hz", "temperature_c") if np.isfinite(rows[name]).any()]
    length = -(-count // max(1, most // (2 * max(1, len(signals)))))
    kept = [np.array([0, count - 1])]
    for values in signals:
        kept += [_extremes(sign * values, length) for sign in (1.0, -1.0)]
    chosen = np.unique(np.concatenate(kept))
    return {name: values[chosen] for name, values in rows.items()}


def _extremes(values: Floats, length: int) -> Ints:
    """Return the place of the lowest value in each bin of some length; of a bin where none is known, its first."""
    bins = -(-len(values) // length)
    padded = np.full(bins * length, np.inf)
    padded[: len(values)] = np.where(np.isfinite(values), values, np.inf)
    return np.asarray(np.arange(bins) * length + np.argmin(padded.reshape(bins, length), axis=1), dtype=np.int64)


def _merge(spans: Sequence[Span], end_s: float) -> list[Span]:
    """Join spans that are too short for any screen: a bin shows the part that has most of its time."""
    if len(spans) <= MOST_SPANS:
        return list(spans)
    lanes = list(dict.fromkeys(span.lane for span in spans))
    bins = MOST_SPANS // len(lanes)
    return [span for lane in lanes for span in _bin([span for span in spans if span.lane == lane], end_s / bins)]


def _bin(spans: Sequence[Span], length_s: float) -> Iterator[Span]:
    """Yield long spans as they are, and runs of short ones as one each."""
    short: list[Span] = []
    for span in spans:
        if short and (span.end_s - short[0].start_s > length_s):
            yield _joined(short)
            short = []
        if span.end_s - span.start_s > length_s:
            yield span
        else:
            short.append(span)
    if short:
        yield _joined(short)


def _joined(spans: Sequence[Span]) -> Span:
    if len(spans) == 1:
        return spans[0]
    spent: dict[str, float] = {}
    for span in spans:
        spent[span.part] = spent.get(span.part, 0.0) + span.end_s - span.start_s
    part = max(spent, key=spent.__getitem__)
    return Span(spans[0].lane, part, spans[0].start_s, spans[-1].end_s, f"mostly; {len(spans)} spans joined")


def _limits(series: Mapping[str, Mapping[str, Floats]], end_s: float) -> list[tuple[str, float, float, str]]:
    """Return from when to when a cause held the clock of each GPU, the first of several causes."""
    return [
        (gpu, start_s, stop_s, cause)
        for gpu, rows in series.items()
        for start_s, stop_s, cause in _intervals(rows["t_s"], rows["limits"], end_s)
    ]


def _intervals(times_s: Floats, bits: Floats, end_s: float) -> Iterator[tuple[float, float, str]]:
    """Join neighbouring readings under the same cause; a reading holds until the next one."""
    known = np.where(np.isfinite(bits), bits, 0).astype(np.int64)
    causes = np.zeros(len(known), dtype=np.int64)
    for place, cause in reversed(list(enumerate(CAUSES, 1))):
        causes[known & LIMITS[cause] > 0] = place
    edges = [0, *(np.flatnonzero(np.diff(causes)) + 1).tolist(), len(causes)]
    for first, after in pairwise(edges):
        if first < len(causes) and causes[first]:
            stop_s = float(times_s[after]) if after < len(times_s) else end_s
            yield float(times_s[first]), stop_s, CAUSES[causes[first] - 1]


def _span_columns(spans: Sequence[Span]) -> Columns:
    return {
        "lane": Column("stage", [span.lane for span in spans]),
        "part": Column("activity", [span.part for span in spans]),
        "start": Column("start", [span.start_s for span in spans], "s", 6),
        "end": Column("end", [span.end_s for span in spans], "s", 6),
        "detail": Column("detail", [span.detail for span in spans]),
    }


def _signal_columns(points: Mapping[str, Mapping[str, Floats]]) -> Columns:
    def joined(name: str, unit: float = 1.0) -> list[float | None]:
        return to_list(np.concatenate([np.zeros(0), *(rows[name] / unit for rows in points.values())]))

    return {
        "gpu": Column("GPU", [gpu for gpu, rows in points.items() for _ in rows["t_s"]]),
        "t": Column("time", joined("t_s"), "s", 6),
        "power": Column("power", joined("power_w"), "W", 4),
        "clock": Column("clock", joined("clock_hz", MEGA), "MHz", 4),
        "temperature": Column("temperature", joined("temperature_c"), "C", 4),
    }


def _limit_columns(limits: Sequence[tuple[str, float, float, str]]) -> Columns:
    return {
        "gpu": Column("GPU", [gpu for gpu, _start, _stop, _cause in limits]),
        "start": Column("start", [start_s for _gpu, start_s, _stop, _cause in limits], "s", 6),
        "end": Column("end", [stop_s for _gpu, _start, stop_s, _cause in limits], "s", 6),
        "cause": Column("cause", [cause for _gpu, _start, _stop, cause in limits]),
    }


def limit_lines(run: RunView) -> dict[str, list[dict[str, Any]]]:
    """Return the limits of the GPU, where the machine is known."""
    if run.cluster is None:
        return {"power": [], "clock": [], "temperature": []}
    gpu = run.cluster.gpu
    asked_w = run.result.spec.get("conditions", {}).get("power_cap_w")
    cap_w = (asked_w or gpu.power_cap_w) / gpu.package_gpus
    return {
        "power": [{"label": f"limit {cap_w:g} W", "value": cap_w}],
        "clock": [{"label": f"maximum {gpu.clock_max_hz / MEGA:.0f} MHz", "value": gpu.clock_max_hz / MEGA}],
        "temperature": [
            {"label": f"slowdown {gpu.slowdown_temperature_c:g} C", "value": gpu.slowdown_temperature_c},
        ],
    }


def _message(run: RunView, spans: Sequence[Span], series: Mapping[str, Mapping[str, Floats]], end_s: float) -> str:
    """Say what is shown, how power moves within it, and what holds the clock."""
    if run.table("timeline"):
        microbatches = len({span.detail for span in spans if span.part == "forward"})
        text = f"One step of {seconds_format(end_s)(end_s)} s as it was simulated, on the first rank of each stage."
        few = [warning for warning in run.result.warnings if warning.startswith("microbatches:")]
        text += f" {few[0].removeprefix('microbatches: ').capitalize()}." if few else f" {microbatches:,} microbatches."
    elif run.steps_s:
        text = f"{len(run.steps_s):,} marked steps within {end_s:.0f} s of readings."
    else:
        text = f"{end_s:.0f} s of readings; no steps were marked."
    if not series:
        return f"{text} Power, clock and temperature over time are not stored with this run."
    name, first = next(iter(series.items()))
    power = first["power_w"][np.isfinite(first["power_w"])]
    if len(power):
        text += f" Power of {name} lies between {power.min():.0f} and {power.max():.0f} W."
    held: dict[str, float] = {}
    for start_s, stop_s, cause in _intervals(first["t_s"], first["limits"], end_s):
        held[cause] = held.get(cause, 0.0) + stop_s - start_s
    if held:
        told = ", ".join(f"{cause} {format_percent(spent_s / end_s, 0)}" for cause, spent_s in held.items())
        text += f" Shaded: throttling ({told} of the time)."
    return text
