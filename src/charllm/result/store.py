"""A run as a folder: ``result.json``, and parquet tables beside it, written whole or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError, MissingExtra, SpecError, Words
from charllm.result.columns import BESIDE, check_columns
from charllm.result.result import Columns, RunResult, from_json, to_stored
from charllm.spec.request import read_text
from charllm.units import GIB, format_bytes

RESULT_FILE = "result.json"
LONE = "backslashreplace"
"""What becomes of half a character, which a damaged JSON file may hold."""
MAX_RESULT_BYTES = int(GIB)
"""A row for each of a million GPUs."""
MOST_CELLS = 50_000_000
"""Of one table: 2 GB as lists; the signals of 16,384 GPUs have 20 million."""
READING = {"memory_limit": "2GiB", "autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}
"""Settings of a connection that reads a file which may come from a stranger."""
CELL_KINDS = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
              "FLOAT", "DOUBLE", "VARCHAR")  # fmt: skip
"""Types of columns that become plain cells."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a place that could be written and no longer can."""
READABLE, PRIVATE = 0o666, 0o600
"""Modes of files: as the umask has it; for what holds a token, or a command with all its words."""


class StoreError(CharllmError):
    """A place that cannot be written any more: a full disk, a quota that is used up."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"cannot write {folder}: {reason}; what was stored before is kept")


def save_run(result: RunResult, folder: Path) -> Path:
    """Write a run as a folder that is there whole or not at all; an existing folder is not overwritten."""
    return save_folder(folder, {RESULT_FILE: to_stored(result)}, large_tables(result))


def large_tables(result: RunResult) -> dict[str, Columns]:
    """Return the tables of a run that are stored beside its result."""
    return {name: table for name in BESIDE if (table := result.table(name)) is not None}


def save_folder(folder: Path, texts: Mapping[str, str], tables: Mapping[str, Columns], *, durable: bool = True) -> Path:
    """Write files beside their final place and move them there in one step.

    They survive the end of this process in any case, a loss of power only where they are `durable`.
    """
    with drafted(folder) as draft:
        write_tables({draft / f"{name}.parquet": columns for name, columns in tables.items()})
        for name, text in texts.items():
            if durable:
                write_text(text, draft / name)
            else:
                (draft / name).write_text(text, encoding="utf-8")
    return folder


def check_place(folder: Path) -> None:
    """Refuse a folder in which a run could not be stored, before the run is computed."""
    _check_new(folder, "--out")
    _duckdb()


def _check_new(folder: Path, flag: str) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError(flag, str(folder), "a folder that does not exist yet, or an empty one")


@contextmanager
def drafted(folder: Path, flag: str = "--out") -> Iterator[Path]:
    """Give a private folder to write into, which becomes `folder` at the end, or leaves nothing where that fails."""
    _check_new(folder, flag)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise explain(folder, error, flag) from None
    try:
        yield draft
        # Drafts are private; a run is as readable as any other file of its owner.
        draft.chmod(0o777 & ~_umask())
        draft.rename(folder)
    except OSError as error:
        raise explain(folder, error, flag) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def explain(folder: Path, error: OSError, flag: str = "--out") -> CharllmError:
    """Return the error for a folder that cannot be written: the request is wrong, or the disk is full."""
    if error.errno in FULL:
        return StoreError(folder, error.strerror or str(error))
    return SpecError(flag, str(folder), f"a folder that can be written ({error.strerror or error})")


def _umask() -> int:
    """Return the mask of permissions, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def write_text(text: str, path: Path, mode: int = READABLE) -> None:
    """Write a file so that after a crash it is there whole or not at all; a device or pipe is written to as it is.

    It has its final mode from the moment at which it is created.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8", errors=LONE
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_tables(tables: Mapping[Path, Columns]) -> None:
    """Write tables of equal-length columns, each to its parquet file."""
    if not tables:
        return
    duckdb = _duckdb()
    # To connect takes longer than to write, hence once for all.
    with duckdb.connect() as connection:
        for path, columns in tables.items():
            # Values go in as nested lists of one row each, so that types are inferred from the data.
            selected = ", ".join(f"unnest(${index + 1}) AS {sql_name(name)}" for index, name in enumerate(columns))
            values = [list(column) for column in columns.values()]
            connection.execute(f"CREATE OR REPLACE TABLE data AS SELECT {selected}", values)
            try:
                connection.execute(f"COPY data TO {sql_text(path)} (FORMAT parquet, COMPRESSION zstd)")
            except duckdb.IOException as error:
                raise StoreError(path.parent, str(error).splitlines()[0]) from None


def read_table(path: Path) -> Columns:
    """Read a table of a stored run, checked."""
    return check_columns(path.stem, read_parquet(path), path)


def read_parquet(path: Path) -> dict[str, list[Any]]:
    """Read a parquet table as columns; how large it is, is known before any row is read."""
    duckdb = _duckdb()
    source = f"read_parquet({sql_text(path)})"
    try:
        with duckdb.connect(config=READING) as connection:
            described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
            kinds = {name: kind for name, kind, *_ in described}
            _check_size(connection, source, kinds, path)
            rows = connection.execute(f"SELECT * FROM {source}").fetchall()
    except duckdb.Error as error:
        raise SpecError(str(path), Words("a damaged file"), f"a parquet table ({_first_line(error)})") from None
    return {name: [row[index] for row in rows] for index, name in enumerate(kinds)}


def _check_size(connection: Any, source: str, kinds: Mapping[str, str], path: Path) -> None:
    """Refuse a table that holds anything but numbers and texts, or more than memory should."""
    for name, kind in kinds.items():
        if kind not in CELL_KINDS:
            raise SpecError(f"{path}, column {name}", Words(f"values of type {kind}"), "numbers, texts or truth values")
    ((row_count,),) = connection.execute(
        f"SELECT sum(num_rows) FROM parquet_file_metadata({sql_text(path)})"
    ).fetchall()
    if (row_count or 0) * len(kinds) > MOST_CELLS:
        found = Words(f"{row_count:,} rows of {len(kinds)} columns")
        raise SpecError(str(path), found, f"a table of at most {MOST_CELLS:,} cells")
    texts = [name for name, kind in kinds.items() if kind == "VARCHAR"]
    if texts:
        lengths = " + ".join(f"coalesce(sum(strlen({sql_name(name)})), 0)" for name in texts)
        ((text_bytes,),) = connection.execute(f"SELECT {lengths} FROM {source}").fetchall()
        if text_bytes > MAX_RESULT_BYTES:
            raise SpecError(
                str(path), Words(f"texts of {format_bytes(text_bytes)}"), f"at most {format_bytes(MAX_RESULT_BYTES)}"
            )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def sql_name(name: str) -> str:
    """Write a name, which a file may hold, as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def sql_text(value: Path | str) -> str:
    """Write a text as a literal of SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("parquet tables need duckdb", "store") from None
    return duckdb


def load_run(path: Path) -> RunResult:
    """Read a run from its folder, or from a result.json alone."""
    file = path / RESULT_FILE if path.is_dir() else path
    return with_tables(load_result(file), file.parent)


def load_result(file: Path) -> RunResult:
    """Read a result.json, without the parquet tables beside it."""
    return from_json(read_text(file, "RUN", MAX_RESULT_BYTES), str(file))


def with_tables(result: RunResult, folder: Path) -> RunResult:
    """Return a result with the parquet tables of a folder, each read when it is asked for."""
    tables = {table.stem: partial(read_table, table) for table in sorted(folder.glob("*.parquet"))}
    return replace(result, tables={**result.tables, **tables})
