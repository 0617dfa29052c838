import copy
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from charllm.analysis.comment import ask_what_if
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.report.page.run import run_page
from charllm.report.page.view import RunView
from charllm.report.run import render_run
from charllm.result.columns import BESIDE, SHAPES
from charllm.result.store import MOST_CELLS, load_run, read_parquet, read_table, save_run, write_tables
from charllm.simulate.predict import predict, simulate

RUN = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 2}})
ANSWERED = ask_what_if(predict(RUN))


def test_a_run_is_a_folder_that_gives_itself_back(tmp_path: Path) -> None:
    result = simulate(RUN)
    folder = save_run(result, tmp_path / "deep" / "run")
    again = load_run(folder)
    assert again == result
    assert load_run(folder / "result.json") == result
    assert set(again.tables) == set(result.tables)
    for name in result.tables:
        assert again.table(name) == result.table(name), name
    ops = again.table("ops")
    assert ops is not None
    executed = sum(flop * times for flop, times in zip(ops["flop"], ops["times"], strict=True)) * 4
    assert executed == pytest.approx(result.metrics["executed_flop"])


def test_tables_over_time_lie_beside_the_result_and_the_others_in_it(tmp_path: Path) -> None:
    result = simulate(RUN)
    folder = save_run(result, tmp_path / "run")
    assert {file.stem for file in folder.glob("*.parquet")} == set(BESIDE)
    assert set(json.loads((folder / "result.json").read_text())["tables"]) == set(result.tables) - set(BESIDE)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save_run(simulate(RUN), folder)
    with pytest.raises(SpecError, match="does not exist yet"):
        save_run(simulate(RUN), folder)


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert load_run(save_run(simulate(RUN), tmp_path / "run")).origin == "simulated"


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="Unable to transform"):
        save_run(replace(simulate(RUN), tables={"signals": lambda: {"a": [object()]}}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="--out"):
        save_run(simulate(RUN), tmp_path / "file" / "run")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="RUN"):
        load_run(tmp_path)


def test_columns_keep_their_values_and_missing_ones(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"name": ["a", "b'c"], "value": [1.5, None], "count": [1, 2]}
    write_tables({tmp_path / "it's.parquet": columns})
    assert read_parquet(tmp_path / "it's.parquet") == columns


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ([1], "tables.memory: got [1]; expected a table"),
        ({"a": 1}, "tables.memory.a: got 1; expected a list"),
        ({"a": [1], "b": [1, 2]}, "tables.memory.a: got '1 rows'; expected 2"),
        ({"a": [[1]]}, r"tables.memory.a[0]: got [1]; expected a number or"),
        ({"stage": [0.5]}, "tables.memory.stage[0]: got 0.5; expected a whole number"),
        ({"total_bytes": [None]}, "tables.memory.total_bytes[0]: got nothing; expected a number"),
    ],
)
def test_a_table_of_another_shape_is_refused(tmp_path: Path, table: Any, told: str) -> None:
    stored = json.loads((save_run(simulate(RUN), tmp_path / "run") / "result.json").read_text())
    stored["tables"]["memory"] = table
    (tmp_path / "result.json").write_text(json.dumps(stored))
    with pytest.raises(SpecError, match=re.escape(f"result.json, {told}")):
        load_run(tmp_path / "result.json")


def test_a_table_of_another_version_is_told_to_lack_a_column(tmp_path: Path) -> None:
    folder = save_run(simulate(RUN), tmp_path / "run")
    stored = json.loads((folder / "result.json").read_text())
    del stored["tables"]["memory"]["total_bytes"]
    (folder / "result.json").write_text(json.dumps(stored))
    text = " ".join(render_run(load_run(folder)).split())
    assert "table memory: stored by another version, without 'total_bytes'" in text


@pytest.mark.parametrize("name", ["description", "memory", "links", "changes", "best_changes"])
def test_a_run_without_one_of_its_columns_is_told_and_drawn(tmp_path: Path, name: str) -> None:
    folder = save_run(ANSWERED, tmp_path / "run")
    whole = json.loads((folder / "result.json").read_text())
    for column in SHAPES[name]:
        stored = copy.deepcopy(whole)
        stored["tables"][name].pop(column, None)
        (folder / "result.json").write_text(json.dumps(stored))
        run = load_run(folder)
        assert f"table {name}: stored by another version, without {column!r}" in run.warnings
        assert "Step time" in render_run(run, full=True)
    stored["tables"][name] = {column: [] for column in whole["tables"][name]}
    (folder / "result.json").write_text(json.dumps(stored))
    assert "Step time" in render_run(load_run(folder), full=True)
    assert run_page(RunView(load_run(folder))).sections


def test_best_changes_of_another_version_are_said_not_to_be_stored() -> None:
    result = simulate(RUN)
    other = replace(result, tables={**result.tables, "best_changes": lambda: {"other": ["--vpp 2"]}})
    text = render_run(other)
    assert re.search(r"Would help +not stored in this run", text)
    assert "Best single changes: stored by another version" in render_run(other, full=True)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("metrics.step_time_s", "fast", "metrics.step_time_s: got 'fast'; expected a number or nothing"),
        ("metrics.breakdown_s.bubble", [], "metrics.breakdown_s.bubble: got []"),
        ("metrics.critical_path", [{"stage": 0}], "metrics.critical_path[0]."),
        ("gpus", [{"rank": 0}], "gpus[0]."),
        ("nodes", {}, "nodes: got {}; expected a list"),
        ("spec.cluster.node.gpu.memory_bytes", "80 GB", "spec.cluster.node.gpu.memory_bytes: got '80 GB'"),
        ("provenance.uncertainty", {"step_time_s": {"low": 1}}, "provenance.uncertainty.step_time_s."),
        ("warnings", [3], "warnings[0]: got 3; expected a text"),
        ("spec.cluster.node.gpu", {}, "spec.cluster.node.gpu.name: got nothing; expected what every run has"),
        ("origin", "dreamt", "origin: got 'dreamt'; expected one of simulated, emulated, measured"),
    ],
)
def test_a_damaged_result_is_refused_by_file_and_field(tmp_path: Path, path: str, value: Any, told: str) -> None:
    table = json.loads((save_run(simulate(RUN), tmp_path / "run") / "result.json").read_text())
    *above, name = path.split(".")
    part = table
    for key in above:
        part = part[key]
    part[name] = value
    (tmp_path / "result.json").write_text(json.dumps(table))
    with pytest.raises(SpecError, match=re.escape(f"{tmp_path / 'result.json'}, {told}")):
        load_run(tmp_path / "result.json")


def test_a_run_of_another_version_may_lack_a_constant(tmp_path: Path) -> None:
    table = json.loads((save_run(simulate(RUN), tmp_path / "run") / "result.json").read_text())
    del (
        table["spec"]["cluster"]["node"]["gpu"]["power"],
        table["spec"]["training"]["optimizer"],
        table["metrics"]["mfu"],
    )
    (tmp_path / "result.json").write_text(json.dumps(table))
    again = load_run(tmp_path / "result.json")
    assert again.metrics.mfu is None
    assert render_run(again, full=True)


@pytest.mark.parametrize(
    ("selected", "told"),
    [
        ("range AS rank, 'x' AS t_s", "column t_s[0]: got 'x'; expected a number"),
        ("1.5 AS t_s", "column t_s: got values of type DECIMAL(2,1); expected numbers, texts or truth values"),
        ("range AS rank", "column t_s: got nothing"),
        ("range AS rank, 'nan'::DOUBLE AS t_s", "t_s[0]: got nan"),
    ],
)
def test_a_damaged_parquet_table_is_refused_by_file_and_column(tmp_path: Path, selected: str, told: str) -> None:
    path = tmp_path / "signals.parquet"
    duckdb.sql(f"COPY (SELECT {selected} FROM range(3)) TO '{path}' (FORMAT parquet)")
    with pytest.raises(SpecError, match=re.escape(f"{path}, {told}")):
        read_table(path)


def test_a_table_of_too_many_rows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.parquet"
    duckdb.sql(f"COPY (SELECT 1::DOUBLE AS t_s FROM range({MOST_CELLS + 1})) TO '{path}' (FORMAT parquet)")
    start_s = time.process_time()
    with pytest.raises(SpecError, match="50,000,001 rows of 1 columns; expected a table of at most 50,000,000 cells"):
        read_parquet(path)
    assert time.process_time() - start_s < 1.0
    path.unlink()
    duckdb.sql(f"COPY (SELECT repeat('x', 1000000) AS text FROM range(2000)) TO '{path}' (FORMAT parquet)")
    with pytest.raises(SpecError, match=r"texts of .* GiB"):
        read_parquet(path)
