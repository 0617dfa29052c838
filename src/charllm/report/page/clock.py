"""How much clock is lost, for how long, and why? By slot of a node, and by stage."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.view import RunView, missing
from charllm.report.tables import shown_ends
from charllm.result.answers import answer_clock
from charllm.result.metrics import CAUSES, METRICS
from charllm.units import format_percent

CAUSE_WORDS = {"power": "power limit", "thermal": "temperature", "brake": "power brake"}
ALIKE_FRACTION = 5e-4
"""Shares that differ by less are not told apart."""
LOST, HELD = "clock_loss_{}_fraction", "throttled_{}_fraction"
"""Columns of a GPU's row, by cause."""


def clock_figure(run: RunView) -> Figure | None:
    """Return the share of the clock that each cause takes, on average over a step; telemetry does not tell it."""
    if run.result.origin != "simulated" and run.result.metrics.get("clock_loss_fraction") is None:
        return None
    question = "How much clock is lost, and why?"
    return _figure(run, "clock", question, LOST, "clock_loss_fraction")


def throttled_figure(run: RunView) -> Figure | None:
    """Return the share of time in which each cause holds the clock; where none does, the lost clock has said so."""
    shares = run.result.metrics.get("throttled_time_fraction") or {}
    if run.result.metrics.get("clock_loss_fraction") and not any(shares.values()):
        return None
    question = "How long are GPUs throttled, and why?"
    return _figure(run, "throttled", question, HELD, "throttled_time_fraction")


def _figure(run: RunView, name: str, question: str, pattern: str, metric: str) -> Figure:
    rows = [row for row in run.gpu_rows() if row.get(pattern.format(CAUSES[0])) is not None]
    if not rows:
        return missing(name, "stacked-bars", question, run.why_not(metric))
    groups, label = _groups(run, rows), METRICS[metric].label
    cells = [
        (bar, cause, 100 * fmean(row.get(pattern.format(cause)) or 0.0 for row in own))
        for bar, own in groups.items()
        for cause in CAUSES
    ]
    columns = {
        "group": Column("GPUs of a", [bar.partition(" ")[0] for bar, _cause, _share in cells]),
        "bar": Column("slot (mean over nodes) or stage", [bar for bar, _cause, _share in cells]),
        "cause": Column("cause", [cause for _bar, cause, _share in cells]),
        "share": Column(label, [share for _bar, _cause, share in cells], "%", 3),
    }
    options = bar_options(
        {cause: CAUSE_WORDS[cause] for cause in CAUSES}, "share", "%", "cause", part="cause", group="group"
    )
    if not any(share > 0 for _bar, _cause, share in cells):
        return missing(
            name, "stacked-bars", question, "no GPU was throttled: every clock stayed at the requested value"
        )
    return Figure(
        name, "stacked-bars", question, _message(run, groups, pattern, label), columns, options, run.conditions
    )


def _groups(run: RunView, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the GPUs that share a bar: a slot of all nodes, then a stage."""
    node = run.cluster.node if run.cluster is not None else None
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["slot"]):
        ahead = node.upstream_slots(row["slot"]) if node is not None and row["slot"] < node.gpus else ()
        bar = f"slot {row['slot']}" + (f" behind {ahead[0]}" if ahead else "")
        found.setdefault(bar, []).append(row)
    found = {bar: found[bar] for bar in shown_ends(list(found))[0]}
    stages = sorted({row["stage"] for row in rows if row.get("stage") is not None})
    if len(stages) > 1:
        for stage in shown_ends(stages)[0]:
            found[f"stage {stage}"] = [row for row in rows if row["stage"] == stage]
    return found


def _message(run: RunView, groups: Mapping[str, Sequence[Mapping[str, Any]]], pattern: str, label: str) -> str:
    """Say the mean clock, and which slot loses most."""
    sums = {
        bar: fmean(sum(row.get(pattern.format(cause)) or 0.0 for cause in CAUSES) for row in rows)
        for bar, rows in groups.items()
    }
    most, least = max(sums, key=sums.__getitem__), min(sums, key=sums.__getitem__)
    head = f"Mean clock {answer_clock(run.result)}."
    if sums[most] - sums[least] < ALIKE_FRACTION:
        return head
    ends = [f"{format_percent(sums[bar])} ({bar})" for bar in (most, least)]
    return f"{head} Largest {label}: {ends[0]}; smallest: {ends[1]}."
