"""The tables of a result: the content of each; by column, as results keep them, and by row."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.errors import SpecError
from charllm.spec.shape import Cell, Number, check_shape
from charllm.units import split_suffix

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
    "phases": "Seconds of each phase: marked ones of a measured job in a step (median), those of a generation or an RL "
    "step with tokens, energy, power, temperature and clock.",
    "energy": "Energy of all GPUs in a measured job: whole recording, job, steady window, steps, phases.",
    "losses": "The losses that a measured job has marked or logged, in seconds since the first reading.",
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


BAND = ("low", "mean", "high")
"""Of the GPUs at a time."""


def _columns(whole: str = "", numbers: str = "", texts: str = "", known: str = "") -> dict[str, Any]:
    """Declare columns by what their cells hold; `known`: numbers that are never missing."""
    kinds = {int: whole, float: known, Number: numbers, str: texts}
    return {name: list[kind] for kind, names in kinds.items() for name in names.split()}  # type: ignore[valid-type]


_CHANGES = _columns(
    numbers="step_time_s gain_fraction memory_need_bytes tokens_per_j_fraction temperature_peak_k low_fraction "
    "high_fraction",
    texts="change",
)
SHAPES: dict[str, dict[str, Any]] = {
    "description": _columns(texts="part text"),
    "memory": _columns(
        "stage rank",
        known="weights_bytes gradients_bytes optimizer_bytes activations_bytes scratch_bytes reserve_bytes "
        "communication_bytes context_bytes allocated_bytes reserved_bytes total_bytes need_bytes",
        texts="in_flight",
    ),
    "traffic": _columns("ranks", "sent_bytes messages message_bytes_median", "axis algorithms hops nic_shared_with"),
    "parameters": _columns(known="each copies total active", texts="name"),
    "breakdown": _columns("stage", texts="label", known="seconds"),
    "links": _columns(
        "ranks",
        "flows_per_nic",
        "axis group collective algorithm link",
        known="message_bytes sent_bytes calls seconds achieved_bytes_per_s large_message_bytes_per_s peak_bytes_per_s",
    ),
    "explanations": _columns(texts="text"),
    "best_changes": _CHANGES,
    "changes": {**_CHANGES, "fits": list[bool], "needs": list[str | None]},
    "warm_up": _columns(
        known="t_s",
        numbers=" ".join(f"{name}_{end}" for name in ("temperature_c", "power_w", "clock_hz") for end in BAND),
    ),
    "preheating": _columns(known="factor", numbers="temperature_peak_c temperature_spread_node_k step_time_s"),
    "reasons": _columns(texts="table reason"),
    "predicted": _columns(texts="metric", known="value"),
    "steps": _columns(known="start_s end_s"),
    "phases": _columns(texts="phase", known="seconds"),
    "energy": _columns(texts="part", known="seconds unread_fraction", numbers="energy_j"),
    "losses": _columns(known="t_s", texts="name", numbers="loss"),
    "timeline": _columns("stage rank", "chunk microbatch", "activity", "start_s end_s"),
    "cluster": _columns(known="t_s gpu_power_w"),
    "power_changes": _columns(known="t_s", numbers="ramp_w_per_s swing_w"),
    "sensor": _columns("rank", known="t_s", numbers="power_w"),
    "figures": _columns(texts="figure value standing source meaning part"),
}
"""Table: columns that pages read, and what they hold; others hold numbers where their name ends in a unit."""
SAMPLES = {"monotonic_s": _columns("gpu", known="monotonic_s"), "t_s": _columns("rank", known="t_s")}
"""Signals of measured and of simulated runs, by the column of their times; readings are numbers."""


def check_columns(name: str, columns: Any, file: object, field: str = "") -> Columns:
    """Return the columns of a stored table, or refuse it by the first column that is not as declared."""
    check_shape(columns, dict[str, list[Cell]], file, field)
    expected = {column: list[Number] for column in columns if split_suffix(column)} | SHAPES.get(name, {})
    if name.startswith("signals"):
        times = SAMPLES["monotonic_s" if "monotonic_s" in columns else "t_s"]
        expected = dict.fromkeys([*columns, *times], list[Number]) | times
    for column, shape in expected.items():
        if column in columns or name.startswith("signals"):
            place = f"{field}.{column}" if field else f"column {column}"
            check_shape(columns.get(column), shape, file, place)
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        column = min(lengths, key=lambda name: lengths[name])
        place = f"{field}.{column}" if field else f"column {column}"
        raise SpecError(f"{file}, {place}", f"{lengths[column]} rows", f"{max(lengths.values())}, as in other columns")
    return dict(columns)


def absent_column(name: str, columns: Columns) -> str | None:
    """Return a column that pages read and that a table of another version lacks; None where it has all."""
    return next((column for column in SHAPES.get(name, {}) if column not in columns), None)


def rows_of(columns: Columns) -> list[Row]:
    """Return the rows of a table."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows, each with a value for every name, as columns."""
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
