"""A recording as parquet tables, for people who look at it with other tools."""

from pathlib import Path
from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.errors import CharllmError
from charllm.measure.quantities import BEATS
from charllm.measure.recording import Recording, Series
from charllm.result.store import sql_text

FAST_TABLE = "signals"


def write_signals(recording: Recording, folder: Path) -> list[Path]:
    """Write a table for each beat (`signals`: the fast one); without duckdb nothing is written."""
    try:
        import duckdb
    except ImportError:
        return []
    tables = {beat: _columns(recording, beat) for beat in BEATS}
    paths = {
        beat: folder / (f"{FAST_TABLE}.parquet" if beat == "fast" else f"{FAST_TABLE}_{beat}.parquet")
        for beat, columns in tables.items()
        if len(columns["gpu"])
    }
    try:
        with duckdb.connect() as connection:
            for beat, path in paths.items():
                _write(connection, tables[beat], BEATS[beat], path)
    except duckdb.Error as error:
        raise CharllmError(f"parquet tables could not be written ({str(error).splitlines()[0]})") from None
    return list(paths.values())


def _write(connection: Any, columns: dict[str, Any], quantities: tuple[str, ...], path: Path) -> None:
    """Write one table, whole or not at all; what was not read is NaN in memory and NULL in the table."""
    selected = ", ".join(f'if(isnan("{name}"), NULL, "{name}") AS "{name}"' for name in quantities)
    draft = path.with_name(f".{path.name}.draft")
    connection.register("data", columns)
    rows = f"SELECT gpu, monotonic_s, wall_s, {selected} FROM data"
    try:
        connection.execute(f"COPY ({rows}) TO {sql_text(draft)} (FORMAT parquet, COMPRESSION zstd)")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    connection.unregister("data")


def _columns(recording: Recording, beat: str) -> dict[str, Any]:
    """Lay the GPUs' series of one beat under each other."""
    series = {gpu: beats[beat] for gpu, beats in recording.series.items()}
    joined: dict[str, Any] = {
        "gpu": _join([np.full(len(one.times_s), gpu) for gpu, one in series.items()]),
        "monotonic_s": _join([one.times_s for one in series.values()]),
        "wall_s": _join([one.wall_s for one in series.values()]),
    }
    return {**joined, **{name: _join([_column(one, name) for one in series.values()]) for name in BEATS[beat]}}


def _column(series: Series, quantity: str) -> Floats:
    """Return the readings of a quantity; of one that was read on another beat, none."""
    return series.columns.get(quantity, np.full(len(series.times_s), np.nan))


def _join(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.array([])
