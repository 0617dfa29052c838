"""SQL over a store: every run is there, under the same words as everywhere, and nothing else can be reached."""

import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.cli import main
from charllm.database import TABLES, list_columns, query_store
from charllm.errors import SpecError
from charllm.result.store import write_tables
from charllm.sweep.run import run_study
from charllm.sweep.study import unfold

STUDY = {
    "request": {"cluster": "h200x8", "model": "llama3-8b"},
    "groups": [
        {
            "axes": {
                "origin": {"wide": {"parallelism": {"tp": 8}}, "odd": {"parallelism": {"tp": 3}}},
                "mbs": {"field": "training.micro_batch_size", "values": [1, 2]},
            }
        }
    ],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of four cases, two of which are wrong, and a run of its own in a folder with a quote in its name."""
    place = tmp_path_factory.mktemp("store")
    run_study(unfold("s", STUDY), out=place / "studies" / "s", signals=True)
    charllm.simulate(model="llama3-8b", cluster="h200x8", tp=2, power_cap=500).save(place / "it's mine")
    return place


def ask(store: Path, sql: str) -> list[tuple[Any, ...]]:
    return query_store(store, sql).rows


def test_every_run_and_case_is_a_row_with_settings_and_metrics(store: Path) -> None:
    asked = "SELECT run, study, axis_origin, tp, micro_batch_size, exit_code, step_time_s > 0 FROM runs ORDER BY run"
    assert ask(store, asked) == [
        ("it's mine", None, None, 2, 1, 0, True),
        ("studies/s/runs/0000", "studies/s", "wide", 8, 1, 0, True),
        ("studies/s/runs/0001", "studies/s", "wide", 8, 2, 0, True),
        ("studies/s/runs/0002", "studies/s", "odd", 3, 1, 2, None),
        ("studies/s/runs/0003", "studies/s", "odd", 3, 2, 2, None),
    ]
    assert ask(store, "SELECT power_cap_w, gpu, nodes FROM runs WHERE study IS NULL") == [(500.0, "h200", 1)]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_rows_of_every_run(store: Path, name: str) -> None:
    ((runs,),) = ask(store, f"SELECT count(DISTINCT run) FROM {name}")
    assert runs == (5 if name == "runs" else 3)


def test_keyed_metrics_are_structs_and_tables_join(store: Path) -> None:
    sums = """
        SELECT abs(breakdown_s.tp_exposed - tp_s) < 1e-9, gpus FROM runs
        JOIN (SELECT run, avg(seconds) AS tp_s FROM breakdown WHERE label = 'tp_exposed' GROUP BY run) USING (run)
        JOIN (SELECT run, count(*) AS gpus FROM gpus GROUP BY run) USING (run)
    """
    assert ask(store, sums) == [(True, 8)] * 3


def test_one_run_or_one_study_is_a_store_too(store: Path) -> None:
    assert ask(store / "it's mine", "SELECT run, tp FROM runs") == [("it's mine", 2)]
    assert ask(store / "studies" / "s", "SELECT count(*) FROM runs") == [(4,)]


def test_signals_of_measured_runs_have_the_names_of_simulated_ones(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "it's mine", tmp_path / "simulated")
    shutil.copytree(store / "it's mine", tmp_path / "measured")
    columns: dict[str, list[Any]] = {
        "gpu": [0, 0],
        "monotonic_s": [7.0, 7.5],
        "power_instant_w": [None, None],
        "power_average_w": [1.0, 2.0],
    }
    write_tables({tmp_path / "measured" / "signals.parquet": columns})
    found = ask(tmp_path, "SELECT rank, t_s, power_w FROM signals WHERE run = 'measured' ORDER BY t_s")
    assert found == [(0, 0.0, 1.0), (0, 0.5, 2.0)]
    assert ask(tmp_path, "SELECT count(*) > 2 FROM signals WHERE run = 'simulated'") == [(True,)]


HOSTILE: dict[str, Callable[[Path], str]] = {
    "copy": lambda store: f"COPY runs TO '{store}/stolen.csv'",
    "copy over": lambda store: f"COPY (SELECT 1) TO '{store}/studies/s/runs/0000/signals.parquet'",
    "attach": lambda store: f"ATTACH '{store}/new.db'",
    "read": lambda _store: "SELECT * FROM read_csv('/etc/passwd'), signals",
    "file name": lambda _store: "SELECT * FROM '/etc/passwd'",
    "beside": lambda store: f"SELECT * FROM read_text('{store}/studies/s/study.json'), signals",
    "listing": lambda _store: "SELECT * FROM glob('/etc/*')",
    "install": lambda _store: "INSTALL httpfs",
    "set": lambda _store: "SET enable_external_access = true",
    "two": lambda _store: "SELECT 1; DROP TABLE runs",
    "inside": lambda store: f"SELECT * FROM query('COPY runs TO ''{store}/stolen.csv''')",
    "update": lambda _store: "UPDATE runs SET tp = 1",
    "unknown column": lambda _store: "SELECT step_tim FROM runs",
    "no sql": lambda _store: "what is fastest?",
    "nothing": lambda _store: "",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_store_is_only_read_and_nothing_else_is(store: Path, kind: str) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in store.rglob("*"))
    with pytest.raises(SpecError, match="SQL: got ") as caught:
        query_store(store, HOSTILE[kind](store))
    assert "LINE 1" not in str(caught.value)
    assert sorted((path, path.stat().st_mtime_ns) for path in store.rglob("*")) == before


def test_an_unknown_column_names_those_that_are_near(store: Path) -> None:
    with pytest.raises(SpecError, match=r'"step_tim" not found.*"step_time_s"'):
        query_store(store, "SELECT step_tim FROM runs")


def test_runs_that_cannot_be_read_are_left_out_and_named(store: Path, tmp_path: Path) -> None:
    for name in ("whole", "cut", "damaged"):
        shutil.copytree(store / "it's mine", tmp_path / name)
    (tmp_path / "cut" / "signals.parquet").write_bytes(b"PAR1")
    (tmp_path / "damaged" / "result.json").write_text('{"schema_version": 1, "origin": "simulated"')
    answer = query_store(tmp_path, "SELECT DISTINCT run FROM signals ORDER BY run")
    assert answer.rows == [("damaged",), ("whole",)]
    assert list(answer.skipped) == ["cut/signals.parquet"]
    answer = query_store(tmp_path, "SELECT run FROM runs ORDER BY run")
    assert answer.rows == [("cut",), ("whole",)]
    assert "damaged" in answer.skipped
    assert "not JSON" in answer.skipped["damaged"]


def test_names_of_columns_in_a_strangers_file_are_names_and_nothing_else(store: Path, tmp_path: Path) -> None:
    """A column's name that ends the view's statement and copies to a file is shown as a column."""
    shutil.copytree(store / "it's mine", tmp_path / "run")
    written = tmp_path / "written.csv"
    hostile = f"run\" FROM signals_files; COPY (SELECT 42) TO '{written}'; --"
    write_tables({tmp_path / "run" / "signals.parquet": {hostile: [7], "t_s": [1.0], "run": ["another"]}})
    assert ask(tmp_path, "SELECT count(*) FROM signals") == [(1,)]
    assert ask(tmp_path, "SELECT run, t_s FROM signals") == [("run", 1.0)]
    assert hostile in [row[1] for row in list_columns(tmp_path).rows]
    assert not written.exists()


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        ("SELECT count(*) FROM range(1000000000000)", "within 0.5 s"),
        ("SELECT * FROM range(2000)", "at most 1,000 rows"),
        ("SELECT list(x) FROM (SELECT range AS x FROM range(1000000000))", "of memory|within 0.5 s"),
    ],
)
def test_a_query_has_limits_of_time_rows_and_memory(store: Path, sql: str, limit: str) -> None:
    with pytest.raises(SpecError, match=limit):
        query_store(store / "it's mine", sql, longest_s=0.5, most_rows=1_000)


def test_the_command_limits_the_memory_that_texts_of_a_query_take(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("charllm.cli.query.MORE_BYTES", 2**30)
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert main(["query", str(store / "it's mine"), "SELECT length(repeat('x', 1200000000))"]) == 2
    assert "SQL: got " in capsys.readouterr().err
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SpecError, match=r"STORE: got .*; expected a folder of runs or studies"):
            query_store(place, "SELECT 1")


def test_the_command_prints_tables_lines_of_json_and_csv(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["query", str(store), "SELECT tp, sum(step_time_s) > 1 AS slow FROM runs GROUP BY tp ORDER BY tp"]
    assert main([*asked, "--json"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == '{"tp": 2, "slow": true}'
    assert main([*asked, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["tp,slow", "2,True"]
    assert main(asked) == 0
    assert capsys.readouterr().out.splitlines()[0] == "3 rows"
    assert main(["query", str(store)]) == 0
    assert "step_time_s" in capsys.readouterr().out


def test_frames_have_their_columns_without_rows_too(store: Path) -> None:
    assert list(charllm.query(store, "SELECT run, tp FROM runs WHERE false").columns) == ["run", "tp"]
    assert {row[0] for row in list_columns(store).rows} == set(TABLES)
