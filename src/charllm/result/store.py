"""A run as a folder: ``result.json``, and parquet tables beside it, written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError, SpecError
from charllm.result.result import Columns, RunResult, from_json, to_json

RESULT_FILE = "result.json"


def save_run(result: RunResult, folder: Path, tables: Mapping[str, Columns]) -> Path:
    """Write a run beside its final place and move it there in one step; an existing folder is not overwritten."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError("--out", str(folder), "a folder that does not exist yet, or an empty one")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise SpecError("--out", str(folder), f"a folder that can be written ({error.strerror or error})") from None
    try:
        for name, columns in tables.items():
            write_parquet(columns, draft / f"{name}.parquet")
        write_text(to_json(result), draft / RESULT_FILE)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    except OSError as error:
        raise SpecError("--out", str(folder), f"a folder that can be written ({error.strerror or error})") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def write_text(text: str, path: Path) -> None:
    """Write a file so that after a crash it is there whole or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def write_parquet(columns: Columns, path: Path) -> None:
    """Write equal-length columns as a parquet table."""
    duckdb = _duckdb()
    names = list(columns)
    with duckdb.connect() as connection:
        # Values go in as nested lists of one row each, so that types are inferred from the data.
        selected = ", ".join(f'unnest(${index + 1}) AS "{name}"' for index, name in enumerate(names))
        relation = connection.execute(
            f"CREATE TABLE data AS SELECT {selected}", [list(columns[name]) for name in names]
        )
        del relation
        connection.execute(f"COPY data TO '{_quoted(path)}' (FORMAT parquet, COMPRESSION zstd)")


def read_parquet(path: Path) -> dict[str, list[Any]]:
    """Read a parquet table as columns."""
    duckdb = _duckdb()
    with duckdb.connect() as connection:
        cursor = connection.execute(f"SELECT * FROM read_parquet('{_quoted(path)}')")
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise CharllmError("parquet tables need duckdb: pip install 'charllm[store]'") from None
    return duckdb


def load_run(path: Path) -> RunResult:
    """Read a run from its folder, or from a result.json alone."""
    file = path / RESULT_FILE if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError("RUN", str(path), f"a run folder or its {RESULT_FILE} ({error})") from None
    return with_tables(from_json(text, str(file)), file.parent)


def with_tables(result: RunResult, folder: Path) -> RunResult:
    """Return a result with the parquet tables of a folder, each read when it is asked for."""
    tables = {table.stem: partial(read_parquet, table) for table in sorted(folder.glob("*.parquet"))}
    return replace(result, tables=tables)
