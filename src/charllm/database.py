"""SQL over stored runs: a folder of runs and studies as tables of an in-memory DuckDB that can read nothing else.

    runs                            a row for each run or case: settings, outcome and metrics
    gpus, nodes                     a row for each GPU, each node
    ops, memory, links, breakdown   the tables of a step, by pipeline stage
    signals, timeline, cluster      over time, where they were stored (`--signals`)

Every table has the column `run`, the folder of the run below the store. Only the tables that a query names are read.
A stored folder may come from a stranger: before one of its files is opened, the connection can reach the listed files
alone, loads no extension and cannot be reconfigured; names from files are quoted. A run that cannot be read is left out
and named. Queries have limits of time, memory and rows.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

from charllm.errors import CharllmError, MissingExtra, SpecError, Words
from charllm.result.columns import rows_of
from charllm.result.files import CASE_FILE, STUDY_FILE
from charllm.result.metrics import METRICS
from charllm.result.result import RunResult
from charllm.result.store import RESULT_FILE, load_result, sql_name, sql_text
from charllm.spec.request import Table
from charllm.sweep.axes import find_setting, list_settings
from charllm.sweep.folder import RUNS, read_case
from charllm.sweep.outcome import as_cell

STEP_TABLES = ("ops", "memory", "links", "breakdown")
TIME_TABLES = ("signals", "timeline", "cluster")
TABLES = ("runs", "gpus", "nodes", *STEP_TABLES, *TIME_TABLES)
SETTINGS = ("parallelism", "training", "conditions")
"""Parts of a spec whose fields are columns of `runs`, by their last name."""
NAMED = (
    "model",
    "cluster",
    "framework",
    "cluster.node.gpu",
    "cluster.nodes",
    "cluster.fabric",
    "cluster.cooling.inlet_c",
)
"""Other settings, of tables their name."""
FIXED = ("run", "study", "case", "exit_code", "message", "origin")
READ_AS = {
    "rank": {"rank": "rank", "gpu": "gpu"},
    "t_s": {"t_s": "t_s", "monotonic_s": "monotonic_s - min(monotonic_s) OVER (PARTITION BY filename)"},
    "power_w": {source: source for source in ("power_w", "power_instant_w", "power_average_w")},
}
"""Column of a table over time: the columns of simulated and of measured runs that it is read from."""
DEEPEST = 4
FIELD = "SQL"
LONGEST_S = 60.0
MOST_ROWS = 1_000_000
MEMORY_LIMIT = "2GiB"
LOCKED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "''",
    "memory_limit": f"'{MEMORY_LIMIT}'",
    "enable_external_access": "false",
    "lock_configuration": "true",
}
"""Settings of the connection, made once the readable files are listed; the last two cannot be undone."""


class Answer(NamedTuple):
    """The result of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    skipped: dict[str, str] = {}  # noqa: RUF012
    """Runs, and files of runs, that could not be read: why."""

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class StoredRun(NamedTuple):
    """The folder of a run, or of a case of a study."""

    name: str
    """Its folder below the store."""
    folder: Path
    study: str | None = None


Progress = Callable[[Iterator[StoredRun], int, str], Iterator[StoredRun]]
"""Yields what it is given; it is told how many there will be, and of what."""


def query_store(
    store: Path,
    sql: str,
    progress: Progress = lambda runs, _total, _title: runs,
    *,
    longest_s: float = LONGEST_S,
    most_rows: int = MOST_ROWS,
) -> Answer:
    """Answer one SELECT over the runs and studies in a folder; nothing is written, and no other file is read."""
    duckdb = _duckdb()
    with duckdb.connect() as connection:
        try:
            _check(duckdb, connection, sql)
            named = [name for name in TABLES if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
            skipped = _fill(duckdb, connection, store, named, progress)
            with _limited(connection, longest_s):
                cursor = connection.execute(sql)
                rows = cursor.fetchmany(most_rows + 1)
        except duckdb.InterruptException:
            raise SpecError(FIELD, sql, f"a query that is answered within {longest_s:g} s") from None
        except (duckdb.OutOfMemoryException, MemoryError):
            raise SpecError(FIELD, sql, f"a query that needs less than {MEMORY_LIMIT} of memory") from None
        except duckdb.Error as error:
            raise SpecError(FIELD, sql, f"a query of {', '.join(TABLES)} ({_explain(error)})") from None
        if len(rows) > most_rows:
            raise SpecError(FIELD, sql, f"a query with at most {most_rows:,} rows; add a LIMIT")
        return Answer(tuple(column[0] for column in cursor.description), rows, skipped)


@contextmanager
def _limited(connection: Any, longest_s: float) -> Iterator[None]:
    """Interrupt a query that takes too long."""
    timer = Timer(longest_s, connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def list_columns(store: Path) -> Answer:
    """Return the tables of a store with their columns and types."""
    duckdb = _duckdb()
    with duckdb.connect() as connection:
        skipped = _fill(duckdb, connection, store, TABLES, lambda runs, _total, _title: runs)
        asked = 'SELECT table_name AS "table", column_name AS "column", data_type AS type FROM duckdb_columns()'
        order = "WHERE list_contains($1, table_name) ORDER BY list_position($1, table_name), column_index"
        cursor = connection.execute(f"{asked} {order}", [list(TABLES)])
        return Answer(tuple(column[0] for column in cursor.description), cursor.fetchall(), skipped)


def _check(duckdb: Any, connection: Any, sql: str) -> None:
    kinds = [statement.type for statement in connection.extract_statements(sql)]
    if kinds != [duckdb.StatementType.SELECT]:
        raise SpecError(FIELD, sql, "one SELECT (the store is read-only)")


def _fill(duckdb: Any, connection: Any, store: Path, names: Iterable[str], progress: Progress) -> dict[str, str]:
    """Create the tables on a connection that reaches the store's parquet files alone; returns what was left out."""
    runs = list(find_runs(store))
    if not runs:
        raise SpecError("STORE", str(store), "a folder of runs or studies, or of a single run or study")
    files = {
        name: {str(file): run.name for run in runs if (file := run.folder / f"{name}.parquet").is_file()}
        for name in names
        if name in TIME_TABLES
    }
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        written = {name: str(Path(place) / f"{name}.json") for name in names if name not in TIME_TABLES}
        connection.execute(
            "SET allowed_paths = $1", [[*written.values(), *(file for one in files.values() for file in one)]]
        )
        for setting, value in LOCKED.items():
            connection.execute(f"SET {setting} = {value}")
        for name in names:
            try:
                if name in TIME_TABLES:
                    _create_view(duckdb, connection, name, files[name], skipped)
                else:
                    rows = _rows(name, progress(iter(runs), len(runs), f"reading {name}"), skipped)
                    _create_table(connection, name, rows, Path(written[name]))
            except duckdb.Error as error:
                raise CharllmError(f"{store}: the table {name} cannot be read ({_explain(error)})") from None
    return skipped


def find_runs(store: Path) -> Iterator[StoredRun]:
    """Yield the runs and cases below a folder, in order of their names."""
    if not store.is_dir():
        raise SpecError("STORE", str(store), "a folder of runs or studies (no such folder)")
    yield from _find(store, store, DEEPEST)


def _find(folder: Path, store: Path, depth: int) -> Iterator[StoredRun]:
    if (folder / RESULT_FILE).is_file():
        yield StoredRun(_name(folder, store), folder)
    elif (folder / STUDY_FILE).is_file():
        cases = sorted(case for case in (folder / RUNS).iterdir() if not case.name.startswith("."))
        study = _name(folder, store)
        yield from (StoredRun(_name(case, store), case, study) for case in cases if (case / CASE_FILE).is_file())
    elif depth:
        below = sorted(Path(entry) for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
        for each in below:
            yield from _find(each, store, depth - 1)


def _name(folder: Path, store: Path) -> str:
    return folder.absolute().name if folder == store else folder.relative_to(store).as_posix()


def _rows(table: str, runs: Iterable[StoredRun], skipped: dict[str, str]) -> Iterator[Table]:
    """Yield the rows of a table, run by run; a run that cannot be read is left out, and why is noted."""
    for run in runs:
        try:
            rows = _run_rows(table, run)
        except CharllmError as error:
            skipped[run.name] = str(error)
        else:
            yield from rows


def _run_rows(table: str, run: StoredRun) -> list[Table]:
    file = run.folder / RESULT_FILE
    result = load_result(file) if file.is_file() else None
    if table == "runs":
        return [_describe(run, result)]
    if result is None:
        return []
    rows = _step_rows(result, table) if table in STEP_TABLES else getattr(result, table)
    return [{"run": run.name, **row} for row in rows]


def _step_rows(result: RunResult, table: str) -> list[Table]:
    columns = result.table(table)
    return [] if columns is None else rows_of(columns)


def _describe(run: StoredRun, result: RunResult | None) -> Table:
    """Return a run as a row: its outcome, what was swept, every setting, every metric; a metric by key is a struct."""
    case = read_case(run.folder)
    row: Table = {"run": run.name, "study": run.study, "case": None, "exit_code": 0, "message": None}
    row["origin"] = None if result is None else result.origin
    swept: Table = {}
    if case is not None:
        row |= {"case": case.case, "exit_code": case.exit_code, "message": case.message}
        swept = {name: value for name, value in case.summary.items() if not _is_metric(name)}
    for name, value in {**swept, **_settings({} if result is None else result.spec)}.items():
        short = name.rpartition(".")[2]
        column = f"axis_{short}" if short in FIXED or short in METRICS else short
        row[column] = row.get(column) if value is None else as_cell(value)
    known = {} if result is None else result.metrics
    return row | {name: known.get(name) for name, one in METRICS.items() if not one.is_list}


def _settings(spec: Table) -> Table:
    """Return the settings of a run by dotted name."""
    named = {part: find_setting(spec, part) for part in NAMED if find_setting(spec, part) is not None}
    return named | {name: value for part in SETTINGS for name, value in list_settings(spec.get(part, {})).items()}


def _is_metric(name: str) -> bool:
    return name.partition(".")[0] in METRICS


def _create_table(connection: Any, name: str, rows: Iterable[Table], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    if not path.stat().st_size:
        connection.execute(f"CREATE TABLE {name} (run VARCHAR)")
        return
    options = "format = 'newline_delimited', sample_size = -1, map_inference_threshold = -1, maximum_object_size = $2"
    created = f"CREATE TABLE {name} AS SELECT * FROM read_json($1, {options})"
    connection.execute(created, [str(path), path.stat().st_size + 1])


def _create_view(duckdb: Any, connection: Any, name: str, files: dict[str, str], skipped: dict[str, str]) -> None:
    """Show the parquet files of all runs as one table; `files` names the run of each."""
    readable = {}
    for file, run in files.items():
        try:
            connection.execute(f"DESCRIBE SELECT * FROM read_parquet({sql_text(file)})")
            readable[file] = run
        except duckdb.Error as error:
            skipped[f"{run}/{name}.parquet"] = _explain(error)
    if not readable:
        connection.execute(f"CREATE TABLE {name} (run VARCHAR)")
        return
    connection.execute(f"CREATE TABLE {name}_files (filename VARCHAR, run VARCHAR)")
    connection.executemany(f"INSERT INTO {name}_files VALUES (?, ?)", list(readable.items()))
    source = f"read_parquet([{', '.join(map(sql_text, readable))}], union_by_name = true, filename = true)"
    columns = [row[0] for row in connection.execute(f"DESCRIBE SELECT * EXCLUDE (filename) FROM {source}").fetchall()]
    selected = ", ".join(f"{value} AS {sql_name(column)}" for column, value in _alike(columns).items())
    connection.execute(
        f"CREATE VIEW {name} AS SELECT {name}_files.run, {selected} FROM {source} JOIN {name}_files USING (filename)"
    )


def _alike(columns: list[str]) -> dict[str, str]:
    """Return the columns of a table, those of measured runs under the names that simulated ones have."""
    values = {column: sql_name(column) for column in columns if column not in ("gpu", "monotonic_s", "run")}
    for column, sources in READ_AS.items():
        found = [value for source, value in sources.items() if source in columns]
        if found:
            values[column] = f"coalesce({', '.join(found)})"
    return values


def _explain(error: Exception) -> str:
    """Return what DuckDB says, without its picture of the line."""
    said = str(error).partition("\n\nLINE ")[0]
    return Words(" ".join(said.split()))


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("queries need duckdb", "store") from None
    return duckdb
