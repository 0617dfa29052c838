"""RunResult: one type for simulated, emulated and measured runs."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.errors import MissingExtra, SpecError, Words
from charllm.result import brief
from charllm.result.columns import BESIDE, absent_column, check_columns, rows_of
from charllm.result.columns import Columns as Columns
from charllm.result.metrics import METRICS, Metrics
from charllm.result.shape import SCHEMA_VERSION, check_result
from charllm.spec.request import check_plain
from charllm.spec.shape import check_shape

if TYPE_CHECKING:
    from pandas import DataFrame

FIELDS = ("origin", "schema_version", "spec", "metrics", "gpus", "nodes", "provenance", "warnings")
"""Of a stored result, in order."""
READ_AS = {"power_instant_w": "power_w"}
"""Reading of a sensor: the signal that it is."""


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """A run: its spec, its metrics, a row per GPU and per node, the provenance of its figures, and warnings.

    An unknown metric is None, with a reason in `warnings`. Metrics are read as ``result.metrics.step_time_s``
    or ``result.metrics["step_time_s"]``; `charllm.result.metrics.METRICS` lists every name with its meaning.
    """

    origin: str
    """simulated, emulated or measured."""
    spec: dict[str, Any]
    """The complete spec, defaults included; for a measured run the spec that its job wrote, or at least the command."""
    metrics: Metrics
    gpus: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION
    tables: Mapping[str, Callable[[], Columns]] = field(default_factory=dict, compare=False)
    """Further tables of the run (`result/columns.py`), each computed or read when it is first used (`table`)."""
    _read: dict[str, Columns] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", Metrics(self.metrics))

    @property
    def signals(self) -> Columns | None:
        """Power, temperature and clock of the GPUs over time; None where the run has none (it does not fit).

        Columns: rank, t_s, power_w, temperature_c, clock_hz, limits (bits for the causes of throttling, see
        `charllm.gpu.limits`); a measured run has more columns.
        """
        return self.table("signals")

    @property
    def timeline(self) -> Columns | None:
        """Every pass, wait and update of the step on each pipeline stage; None where the run has none."""
        return self.table("timeline")

    def table(self, name: str) -> Columns | None:
        """Return a table, computed or read once; None where the run has none of this name."""
        if name in self.tables and name not in self._read:
            columns = self.tables[name]()
            self._read[name] = _name_alike(columns) if name == "signals" else columns
        return self._read.get(name)

    def as_table(self) -> dict[str, Any]:
        """Return the result as a plain table, keys in the order of the schema."""
        return {**{name: getattr(self, name) for name in FIELDS}, "metrics": dict(self.metrics)}

    def to_json(self) -> str:
        """Return the result as JSON, as ``charllm simulate --json`` prints it; with its phases, where it has some."""
        return to_json(self)

    def to_frame(self) -> "DataFrame":
        """Return a row per GPU as a pandas DataFrame."""
        return to_frame(self.gpus)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Store the run in a new folder: ``result.json``, and tables over time as parquet; `charllm.load` reads it."""
        # The store reads and writes results, so that it cannot be imported above.
        from charllm.result.store import save_run

        return save_run(self, Path(folder))

    def __repr__(self) -> str:
        return brief.write_text(self)

    def _repr_html_(self) -> str:
        return brief.write_html(self)


def _name_alike(columns: Columns) -> Columns:
    """Give the readings of a measured run the names that a simulated one has."""
    if "monotonic_s" not in columns:
        return columns
    start_s = min(columns["monotonic_s"], default=0.0)
    times = {"rank": columns["gpu"], "t_s": [time_s - start_s for time_s in columns["monotonic_s"]]}
    instant = any(value is not None for value in columns.get("power_instant_w", ()))
    read_as = READ_AS if instant else {"power_average_w": "power_w"}
    rest = {read_as.get(name, name): values for name, values in columns.items() if name not in ("gpu", "monotonic_s")}
    return {**times, **rest}


def to_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> "DataFrame":
    """Return rows as a pandas DataFrame; `columns` are those that it has without any row, too."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_frame needs pandas, which is not installed", "frame") from None
    return pandas.DataFrame.from_records(list(rows), columns=columns)


def to_json(result: RunResult) -> str:
    """Write a result as JSON, with a row for each phase of a generation or of an RL step."""
    phases = result.table("phases")
    return _write_json({**result.as_table(), "phases": rows_of(phases)} if phases else result.as_table())


def _write_json(table: Mapping[str, Any]) -> str:
    """Write a result as JSON; numbers that are not finite are a fault of ours, and refused."""
    return json.dumps(table, indent=2, allow_nan=False)


def to_stored(result: RunResult, *, one_line: bool = False) -> str:
    """Write a result for its folder, as JSON with all tables but the larger ones; one line is a tenth of the work."""
    tables = {name: result.table(name) for name in result.tables if name not in BESIDE}
    if one_line:
        return json.dumps({**result.as_table(), "tables": tables}, allow_nan=False)
    return f'{_write_json(result.as_table())[:-2]},\n  "tables": {json.dumps(tables, allow_nan=False)}\n}}'


def from_json(text: str, source: str) -> RunResult:
    """Read a result back, or say what is wrong with it."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = f"text that is not JSON from line {getattr(error, 'lineno', 1)} on (cut short or damaged)"
        raise SpecError(source, Words(found), "a result.json that charllm wrote") from None
    check_plain(table, source)
    version = table.get("schema_version") if isinstance(table, dict) else None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        raise SpecError(source, f"schema_version {version}", f"{SCHEMA_VERSION}")
    check_result(table, source)
    stored = table.pop("tables", {})
    check_shape(stored, dict[str, dict[str, Any]], source, "tables")
    tables = {name: check_columns(name, columns, source, f"tables.{name}") for name, columns in stored.items()}
    known = {name: table[name] for name in FIELDS}
    # A table of another version is left out whole, and said: no page could be drawn of a part of it. One that the run
    # could not have (a warm-up of what begins cold) has no column at all.
    absent = {name: column for name, columns in tables.items() if columns and (column := absent_column(name, columns))}
    tables = {name: columns for name, columns in tables.items() if name not in absent}
    lacks = [f"table {name}: stored by another version, without {column!r}" for name, column in absent.items()]
    known["warnings"] = [*known["warnings"], *lacks]
    # A metric that another version did not know is not known.
    known["metrics"] = {**dict.fromkeys(METRICS), **known["metrics"]}
    return RunResult(**known, tables={name: partial(dict, columns) for name, columns in tables.items()})


def all_finite(value: Any) -> bool:
    """Tell whether every number in a nested value is finite."""
    if isinstance(value, dict):
        return all(all_finite(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(all_finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)
