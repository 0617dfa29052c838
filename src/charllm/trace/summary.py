"""Everything that a traced run tells, as one plain table: what `charllm trace --json` prints."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.spec.run import RunSpec
from charllm.trace.advice import advise
from charllm.trace.analyses.bandwidth import bandwidth_rows, small_message_share
from charllm.trace.analyses.breakdown import Breakdown, break_down, mean_breakdown
from charllm.trace.analyses.bubble import find_bubbles
from charllm.trace.analyses.critical_path import path_seconds
from charllm.trace.analyses.host import host_cost
from charllm.trace.analyses.idle import find_gaps, idle_seconds
from charllm.trace.analyses.kernels import as_table, class_seconds, in_steps, kernel_rows, unknown_fraction
from charllm.trace.analyses.named_phases import phase_rows
from charllm.trace.analyses.rates import RateRow, gpu_of, rate_rows
from charllm.trace.analyses.stragglers import find_straggler
from charllm.trace.analyses.tensor_cores import tensor_core_seconds
from charllm.trace.analyses.waits import split_waits
from charllm.trace.run import TracedRank, TracedRun
from charllm.workload.model_flop import model_flop_utilization

MOST_UNKNOWN = 0.05
"""Of the work: more unknown kernels are said."""
TOP_KERNELS = 50
"""Kernels that the table of a run lists; `--csv` lists all."""


class RankSummary(NamedTuple):
    """What one rank tells about a mean step."""

    rank: int
    device: str
    steps: int
    breakdown: Breakdown
    idle_s: dict[str, float]
    classes_s: dict[str, float]
    critical_path_s: dict[str, float]
    unknown_fraction: float
    tensor_core_s: float | None
    kernels: float
    launch_s: float | None
    """Host time of one launch."""


def summarize(run: TracedRun, spec: RunSpec | None = None) -> dict[str, Any]:
    """Return the figures of every rank and over ranks; a figure over ranks is the mean of theirs."""
    ranks = [_summarize_rank(run, rank) for rank in run.ranks if rank.windows]
    breakdowns = {one.rank: one.breakdown for one in ranks}
    waits, rows = split_waits(run), bandwidth_rows(run, spec.cluster if spec else None)
    straggler = find_straggler(waits, breakdowns)
    parallelism = spec.parallelism if spec is not None else None
    whole = _mean_summary(ranks)
    found: dict[str, Any] = {
        **(_figures(whole) if whole else _no_figures()),
        "mfu": model_flop_utilization(spec, whole.breakdown.step_time_s) if spec and whole else None,
        "ranks": [{"rank": one.rank, "device": one.device, **_figures(one)} for one in ranks],
        "kernels": [as_table(row) for row in (kernel_rows(run.ranks[0])[:TOP_KERNELS] if run.ranks else [])],
        "phases": [row._asdict() for row in (phase_rows(run.ranks[0]) if run.ranks else [])],
        "rates": [row._asdict() for row in _rates(run, spec)],
        "groups": [
            {"name": group.name, "description": group.description, "ranks": list(group.ranks), **axis._asdict()}
            for group, axis in run.axes.items()
        ],
        "links": [row._asdict() for row in rows],
        "small_message_fraction": small_message_share(rows),
        "waits": [one._asdict() for one in waits.ranks] if waits else None,
        "waits_by_axis": waits.by_axis if waits else None,
        "straggler": straggler._asdict() if straggler else None,
        "bubbles": [one._asdict() for one in find_bubbles(run, parallelism)],
        "warnings": [*run.warnings, *(waits.warnings if waits else []), *_reasons(run, spec, ranks)],
    }
    return {**found, "advice": advise(found)}


def _rates(run: TracedRun, spec: RunSpec | None) -> list[RateRow]:
    """Return the rates of the first rank, beside the model's of the GPU that is described, or else that it names."""
    first = next((rank for rank in run.ranks if rank.windows), None)
    if first is None:
        return []
    return rate_rows(first, spec.cluster.node.gpu if spec is not None else gpu_of(first))


def _summarize_rank(run: TracedRun, rank: TracedRank) -> RankSummary:
    names, gaps, host = rank.trace.device_names, find_gaps(rank), host_cost(rank)
    return RankSummary(
        rank.rank,
        names[0] if names else "CPU" if not rank.trace.has_device_events else "",
        len(rank.windows),
        break_down(rank),
        idle_seconds(gaps),
        class_seconds(rank),
        path_seconds(rank, gaps),
        unknown_fraction(rank),
        tensor_core_seconds(rank, run.classes),
        len(in_steps(rank).row) / max(1, len(rank.windows)),
        host.each_s if host else None,
    )


def _mean_summary(ranks: Sequence[RankSummary]) -> RankSummary | None:
    if not ranks:
        return None
    cores = [one.tensor_core_s for one in ranks if one.tensor_core_s is not None]
    launches = [one.launch_s for one in ranks if one.launch_s is not None]
    return RankSummary(
        -1,
        ranks[0].device,
        min(one.steps for one in ranks),
        mean_breakdown([one.breakdown for one in ranks]),
        _mean_table([one.idle_s for one in ranks]),
        _mean_table([one.classes_s for one in ranks]),
        _mean_table([one.critical_path_s for one in ranks]),
        float(np.mean([one.unknown_fraction for one in ranks])),
        float(np.mean(cores)) if cores else None,
        float(np.mean([one.kernels for one in ranks])),
        float(np.mean(launches)) if launches else None,
    )


def _mean_table(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of tables by key, largest first; a key that one lacks counts as 0 there."""
    names = dict.fromkeys(name for table in tables for name in table)
    means = {name: sum(table.get(name, 0.0) for table in tables) / len(tables) for name in names}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _figures(one: RankSummary) -> dict[str, Any]:
    """Return the figures of a rank, or of their mean; fractions are of the step time."""
    parts, step_s = one.breakdown, one.breakdown.step_time_s or 1.0
    total_s = sum(one.classes_s.values()) or 1.0
    return {
        "steps": one.steps,
        "step_time_s": parts.step_time_s,
        "busy_fraction": parts.busy_s / step_s,
        "compute_fraction": parts.compute_s / step_s,
        "exposed_communication_fraction": sum(parts.exposed_s.values()) / step_s,
        "overlapped_communication_fraction": sum(parts.hidden_s.values()) / step_s,
        "copy_fraction": parts.copy_s / step_s,
        "idle_fraction": parts.idle_s / step_s,
        "launch_bound_fraction": (one.idle_s["host"] + one.idle_s["sync"]) / step_s,
        "tensor_core_fraction": None if one.tensor_core_s is None else one.tensor_core_s / step_s,
        "unknown_fraction": one.unknown_fraction,
        "kernels_per_step": one.kernels,
        "launch_s": one.launch_s,
        "exposed_communication_s": parts.exposed_s,
        "hidden_communication_s": parts.hidden_s,
        "idle_s": one.idle_s,
        "critical_path_s": one.critical_path_s,
        "classes": {
            name: {"seconds": seconds, "joules": None, "share": seconds / total_s}
            for name, seconds in one.classes_s.items()
        },
    }


def _no_figures() -> dict[str, Any]:
    """Return the figures of a run in which nothing was executed."""
    empty = _figures(
        RankSummary(-1, "", 0, mean_breakdown([]), {"host": 0.0, "sync": 0.0}, {}, {}, 0.0, None, 0.0, None)
    )
    return {name: {} if isinstance(value, dict) else None for name, value in empty.items()}


def _reasons(run: TracedRun, spec: RunSpec | None, ranks: Sequence[RankSummary]) -> list[str]:
    """Say why a figure is not known."""
    reasons = []
    if not ranks:
        reasons.append("step_time_s: no rank executed anything that could be read")
    if spec is None:
        reasons.append("mfu: needs the spec of the run (--model, --cluster ..., or --spec)")
    if len(run.ranks) < 2:
        reasons.append("waits: needs the traces of at least two ranks of a group")
    if ranks and all(one.tensor_core_s is None for one in ranks):
        reasons.append("tensor_core_fraction: the traces have no GPU events")
    if ranks and run.ranks[0].trace.has_device_events and not any(rank.trace.shape_of for rank in run.ranks):
        reasons.append("rates: no operands were recorded (torch.profiler: record_shapes=True)")
    unknown = max((one.unknown_fraction for one in ranks), default=0.0)
    if unknown > MOST_UNKNOWN:
        reasons.append(
            f"classes: {unknown:.0%} of the work is of kernels whose names are not known; `--classes FILE` names them"
        )
    reasons.append("joules: a trace has no power readings")
    return reasons
