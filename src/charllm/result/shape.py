"""The shape of a stored result, checked when it is read: every page and command may rely on it."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypedDict

from charllm.errors import SpecError
from charllm.result.metric import Metric
from charllm.result.metrics import METRICS
from charllm.spec.run import RunSpec
from charllm.spec.shape import Cell, Number, check_settings, check_shape

SCHEMA_VERSION = 1
PARTS = frozenset(("model", "training", "parallelism", "cluster", "framework", "conditions"))
"""Of a complete spec; a measured run may have none of them, but its command."""
READ = tuple(
    tuple(path.split("."))
    for path in ("model.name", "training.seq_length", "training.global_batch_size", "framework.name", "cluster.name",
                 "cluster.nodes", "cluster.node.gpus", "cluster.node.gpu.name", "cluster.node.gpu.memory_bytes",
                 "cluster.node.gpu.power_cap_w", "cluster.node.gpu.clock_max_hz", "cluster.cooling.inlet_c")
)  # fmt: skip
"""Settings that pages read and that runs of every version have."""
QUANTITIES = ("_fraction", "_w", "_c", "_k", "_hz", "_bytes", "_s")
"""Endings of columns of GPUs and nodes that hold numbers."""
ORIGINS = ("simulated", "emulated", "measured")
Origin = Literal["simulated", "emulated", "measured"]


class PathPart(TypedDict):
    """A stage and node of the critical path."""

    stage: int
    node: int
    seconds: float


class GpuRow(TypedDict, total=False):
    """What pages read of a GPU; further columns hold plain cells."""

    stage: int | None
    uuid: str | None
    memory_need_bytes: Number
    memory_peak_bytes: Number
    power_mean_w: Number
    power_peak_w: Number
    power_peak_sensor_w: Number
    temperature_mean_c: Number
    temperature_peak_c: Number
    memory_temperature_mean_c: Number
    memory_temperature_peak_c: Number
    clock_mean_hz: Number
    wait_for_group_s: Number
    throttled_time_fraction: dict[str, Number] | None


class PlacedGpu(GpuRow):
    """Its place; which rank works on a GPU of a measured node may not be known."""

    rank: int | None
    node: int
    slot: int


class NodeRow(TypedDict):
    """A node."""

    node: int


class Interval(TypedDict):
    """Interval of a predicted metric."""

    low: float
    high: float
    level: float
    basis: str


class Gaps(TypedDict):
    """How much of a command, and of the part of it that metrics describe, was not read."""

    number: int
    unread_s: float
    longest_s: float
    command_s: float
    unread_fraction: float
    described_unread_fraction: float


class Measurement(TypedDict, total=False):
    """What pages read of how a run was measured."""

    window_s: Number
    steps: int | None
    rank: int | None
    intervals: dict[str, list[Number] | None]
    noise_floor_fraction: Number
    sensor_coverage_fraction: Number
    phases_s: dict[str, Number]
    notes: list[str]
    windows_s: dict[str, list[float]]
    idle: dict[str, dict[str, Number]]
    cooldown: dict[str, dict[str, Number]]
    command: list[str]
    environment: dict[str, str]
    repeats: int
    gaps: Gaps


class Provenance(TypedDict, total=False):
    """Versions, sources and what is known of a measurement."""

    charllm: str
    python: str
    catalog: str
    seed: int
    figures: dict[str, list[str]]
    uncertainty: dict[str, Interval] | None
    telemetry: dict[str, Cell]
    measurement: Measurement


class Stored(TypedDict):
    """A result.json, without its tables."""

    origin: Origin
    schema_version: int
    spec: dict[str, Any]
    metrics: dict[str, Any]
    gpus: list[PlacedGpu]
    nodes: list[NodeRow]
    provenance: Provenance
    warnings: list[str]


def check_result(table: Any, file: object) -> None:
    """Refuse what is no stored result, or is damaged, naming the field."""
    check_shape(table, Stored, file)
    check_shape(table, Any, file)
    check_shape(table["metrics"], _metrics(), file, "metrics")
    for metric, ends in (table["provenance"].get("measurement", {}).get("intervals") or {}).items():
        if ends is not None and len(ends) != 2:
            raise SpecError(f"{file}, provenance.measurement.intervals.{metric}", ends, "its low and its high end")
    check_shape(table["gpus"], list[dict[str, Cell | dict[str, Number]]], file, "gpus")
    check_shape(table["nodes"], list[dict[str, Cell]], file, "nodes")
    for rows in ("gpus", "nodes"):
        for name in sorted({name for row in table[rows] for name in row if name.endswith(QUANTITIES)}):
            values = [row[name] for row in table[rows] if name in row]
            check_shape(values, list[Number | dict[str, Number]], file, f"{rows}, {name}")
    if table["origin"] == "simulated" and not PARTS & table["spec"].keys():
        raise SpecError(f"{file}, spec.cluster", None, "what every simulated run has")
    check_spec(table["spec"], file, "spec")


def check_spec(spec: dict[str, Any], file: object, field: str = "spec") -> None:
    """Refuse the spec of a run whose settings are of other types; one that says something else is left as it is."""
    if PARTS & spec.keys():
        for part in sorted(PARTS - spec.keys()):
            raise SpecError(f"{file}, {field}.{part}", None, "a table of settings, as the other parts of a run")
        check_settings(RunSpec, spec, file, field)
        for path in READ:
            inside: Any = spec
            for place, name in enumerate(path):
                if name not in inside:
                    raise SpecError(f"{file}, {field}.{'.'.join(path[: place + 1])}", None, "what every run has")
                inside = inside[name]


def metrics_shape(metrics: Mapping[str, Metric]) -> Any:
    """Return the shape of a table of some metrics; one that another version did not know may be absent."""
    return TypedDict("Metrics", {name: _shape_of(one) for name, one in metrics.items()}, total=False)  # type: ignore[operator]


@cache
def _metrics() -> Any:
    return metrics_shape(METRICS)


def _shape_of(one: Metric) -> Any:
    if one.is_list:
        return list[PathPart] | None
    if one.keys is not None:
        return TypedDict("Table", dict.fromkeys(one.keys, Number), total=False) | None  # type: ignore[operator]
    return bool | None if one.is_flag else Number
