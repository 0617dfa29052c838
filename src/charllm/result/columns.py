"""The tables of a result: the content of each; by column, as results keep them, and by row."""

from collections.abc import Mapping, Sequence
from typing import Any

Columns = Mapping[str, Sequence[Any]]
"""A table by column; pandas, polars and matplotlib take it as it is."""
Row = dict[str, Any]
TABLES: dict[str, str] = {
    "description": "The job, its parallelism, the conditions of its GPUs and defaults that were taken, in words.",
    "ops": "Every op of one stage and phase: kind, group, how often, FLOPs, bytes read, written and sent.",
    "memory": "Memory of each pipeline stage by kind.",
    "traffic": "What the ranks send in a step by axis: bytes by link, messages, algorithms, hops, shared NICs.",
    "parameters": "Weights of the model by kind: of each copy, in all, and those that one token meets.",
    "breakdown": "The step time of each stage by label.",
    "links": "Every collective and send: message size, calls, seconds, achieved and peak bandwidth.",
    "explanations": "Sentences that explain figures which would surprise an expert.",
    "best_changes": "The single changes that gain most, each simulated.",
    "changes": "Every single change that was tried, each simulated (`--report`).",
    "warm_up": "Lowest, mean and highest temperature, power and clock from a cold start on (`--report`).",
    "preheating": "The run with other preheating of rear GPUs, which is assumed (`--report`).",
    "reasons": "Why one of the tables of `--report` is empty.",
    "predicted": "What was predicted of an emulated rank before it ran.",
    "steps": "The steps that a measured job has marked, in seconds since the first reading.",
    "phases": "Seconds of each marked phase of a measured job in a step, median over steps.",
    "timeline": "Every pass, wait and update of each stage: start and end in a step.",
    "signals": "Power, temperature and clock of each GPU over a step, every 25 ms; bits for the causes of throttling.",
    "cluster": "Power of all GPUs together over a step.",
    "power_changes": "How the power of all GPUs changes: within the next second, and between 0.1 and 3 Hz.",
    "sensor": "What the sensor of the GPU with the highest power shows over a step.",
    "figures": "Every figure of the catalog that the run rests on: value, standing, source and meaning.",
}
"""Table: its content. A run has those that apply to it."""
BESIDE = ("timeline", "signals", "cluster", "power_changes", "sensor", "figures")
"""Larger tables, which are stored as parquet files beside ``result.json``; all others lie in it."""


def rows_of(columns: Columns) -> list[Row]:
    """Return the rows of a table."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows, each with a value for every name, as columns."""
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
