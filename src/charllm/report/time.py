"""The time of a step as text: breakdown, stages, critical path, communication, best single changes."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from charllm.report.tables import format_percent, metric_cells, metric_headings, render_table, shown_ends, wrap
from charllm.result.answers import write_gain
from charllm.result.columns import Columns, rows_of
from charllm.result.metrics import AXES, LINKS
from charllm.result.result import RunResult
from charllm.units import format_bytes, seconds_format

BAR_WIDTH, PATH_STAGES = 40, 4
STAGE_COLUMNS: dict[str, tuple[str, ...]] = {
    "compute": ("compute",),
    "recompute": ("recompute",),
    "exposed comm": tuple(f"{axis}_exposed" for axis in AXES),
    "wait": ("bubble", "straggler_wait"),
    "update": ("optimizer",),
    "overhead": ("overhead",),
}
"""Column of the table of stages: the labels it adds up."""


def render_waterfall(breakdown_s: Mapping[str, float]) -> str:
    """Return the labels that a step's seconds are charged to, each bar where the one before it ends."""
    total_s = sum(breakdown_s.values())
    write = seconds_format(total_s)
    cells, before_s = [], 0.0
    for label, seconds in breakdown_s.items():
        if seconds > 0:
            bar = _bar(before_s / total_s, (before_s + seconds) / total_s)
            cells.append([label.replace("_", " "), write(seconds), format_percent(seconds / total_s), bar])
        before_s += seconds
    cells.append(["step", write(total_s), format_percent(1.0), ""])
    return render_table("Breakdown of the step time (mean over GPUs)", ["label", "s", "share", ""], cells)


def _bar(begin: float, end: float) -> str:
    """Draw a stretch of a line; what is too short to see is one mark wide."""
    first = min(BAR_WIDTH - 1, round(BAR_WIDTH * begin))
    last = min(BAR_WIDTH, max(first + 1, round(BAR_WIDTH * end)))
    return (" " * first + "#" * (last - first)).ljust(BAR_WIDTH)


def render_stages(result: RunResult, breakdown: Columns) -> str:
    """Return where each stage's seconds go."""
    step_s, stages = result.metrics["step_time_s"], defaultdict[int, dict[str, float]](dict)
    for row in rows_of(breakdown):
        stages[row["stage"]][row["label"]] = row["seconds"]
    write, shown_stages = seconds_format(step_s), sorted(stages)
    shown, left_out = shown_ends(shown_stages)
    cells = [
        [stage_name(result, stage)]
        + [
            _with_share(write, sum(stages[stage][label] for label in labels), step_s)
            for labels in STAGE_COLUMNS.values()
        ]
        for stage in shown
    ]
    title = f"Breakdown of the step time by pipeline stage (seconds and share){left_out}"
    return render_table(title, ["stage", *STAGE_COLUMNS], cells, drop=("recompute", "update", "overhead"))


def stage_name(result: RunResult, stage: int, mark: str = "") -> str:
    """Name a stage with its first rank."""
    return f"{stage} (rank {min(row['rank'] for row in result.gpus if row['stage'] == stage)}{mark})"


def render_path(result: RunResult) -> list[str]:
    """Say in one line which stages and nodes the step waits for, the longest first."""
    parts = result.metrics["critical_path"]
    if not parts or len(parts) == 1 or result.metrics["step_time_s"] is None:
        return []
    write = seconds_format(result.metrics["step_time_s"])
    shown = ", ".join(
        f"stage {part['stage']} on node {part['node']} {write(part['seconds'])} s" for part in parts[:PATH_STAGES]
    )
    more = f" and {len(parts) - PATH_STAGES} more" if len(parts) > PATH_STAGES else ""
    return ["\n".join(wrap(f"Critical path: {shown}{more}"))]


def _with_share(write: Callable[[float], str], seconds: float, total_s: float) -> str:
    return f"{write(seconds)} {format_percent(seconds / total_s):>7}" if seconds > 0 else "-"


def render_links(result: RunResult, traffic: Columns) -> str:
    """Return for each axis its median message, exposed and hidden seconds, and its share of what links can carry."""
    metrics, by_axis = result.metrics, {row["axis"]: row for row in rows_of(traffic)}
    write = seconds_format(metrics["step_time_s"] or 1.0)
    cells = []
    for axis in AXES:
        row = by_axis.get(axis)
        if row is None or row["message_bytes_median"] is None:
            continue
        exposed_s = _known(metrics, "breakdown_s", f"{axis}_exposed")
        hidden_s = _known(metrics, "hidden_communication_s", axis)
        use = [_use(row, metrics, link) for link in LINKS]
        cells.append(
            [axis, format_bytes(row["message_bytes_median"]), _write(write, exposed_s), _write(write, hidden_s), *use]
        )
    if not cells:
        return "Communication: none, the job has a single GPU"
    columns = ["axis", "message", "exposed s", "hidden s", *(f"% of {link}" for link in LINKS)]
    return render_table(
        "Communication by axis (link columns: share of the capacity of the links)", columns, cells, drop=("message",)
    )


def _use(row: Mapping[str, Any], metrics: Mapping[str, Any], link: str) -> str:
    """Give an axis its part of a link's use."""
    used, all_bytes = _known(metrics, "link_utilization_fraction", link), _known(metrics, "link_bytes", link)
    own_bytes = row[f"{link}_bytes"]
    return format_percent(used * own_bytes / all_bytes) if used is not None and own_bytes and all_bytes else "-"


def _known(metrics: Mapping[str, Any], name: str, key: str) -> float | None:
    """Return an entry of a metric; None where it is not known."""
    return (metrics[name] or {}).get(key)


def _write(write: Callable[[float], str], seconds: float | None) -> str:
    return "-" if seconds is None else write(seconds)


def render_changes(best_changes: Columns) -> str:
    """Return the single changes with the largest gains."""
    gains = rows_of(best_changes)
    if not gains:
        return "Best single changes: no change that was tried is faster and fits in memory"
    cells = [
        [
            gain["change"],
            *metric_cells(gain, ("step_time_s",)),
            write_gain(gain),
            *metric_cells(gain, ("memory_need_bytes",)),
        ]
        for gain in gains
    ]
    time, memory = metric_headings(("step_time_s", "memory_need_bytes"))
    columns = ["change", time, "gain", memory]
    return render_table("Best single changes (predicted; all fit in memory)", columns, cells)
