"""Rows of runs: what they hold, and that a file of them outlives a kill."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from charllm.reproduce.looks import key_of, look, read_rows, run_rows

SMALL: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 2}}


def plainly(items: Iterator[Any], _total: int, _title: str) -> Iterator[Any]:
    yield from items


def test_equal_requests_have_equal_keys() -> None:
    assert key_of(SMALL) == key_of({**SMALL, "parallelism": {"pp": 2, "tp": 2}})
    assert key_of(SMALL) != key_of({**SMALL, "parallelism": {"tp": 4}})


def test_a_row_tells_slots_and_links() -> None:
    row = look(SMALL)
    assert row["rear_c"] > row["front_c"]
    assert "package_gap_k" not in row
    assert 0 < row["small_message_loss.tp"] < 1
    assert row["clock_loss"] == pytest.approx(
        sum(row[f"clock_loss_fraction.{c}"] for c in ("power", "thermal", "brake"))
    )


def test_dies_of_a_package_differ() -> None:
    row = look({"model": "llama3-8b", "cluster": "mi250x32", "parallelism": {"tp": 8}})
    assert row["package_gap_k"] > 0


def test_a_wrong_run_is_a_row_with_the_reason() -> None:
    assert "tp" in look({**SMALL, "parallelism": {"tp": 3}})["refused"]


def test_rows_are_kept_and_a_line_that_was_cut_short_is_simulated_again(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    other = {**SMALL, "parallelism": {"tp": 4}}
    rows = run_rows([SMALL, other, SMALL], file, 1, plainly, "")
    assert set(rows) == {key_of(SMALL), key_of(other)}
    whole = file.read_text()
    assert len(whole.splitlines()) == 3
    file.write_text(whole[:-20])
    assert set(read_rows(file)) == {key_of(SMALL)}
    asked: list[int] = []

    def count(items: Iterator[Any], total: int, _title: str) -> Iterator[Any]:
        asked.append(total)
        yield from items

    assert run_rows([SMALL, other], file, 1, count, "") == rows
    assert asked == [1]


def test_rows_of_another_catalog_are_not_used(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    run_rows([SMALL], file, 1, plainly, "")
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([json.dumps({**json.loads(head), "catalog": "another"}), *lines]))
    assert read_rows(file) == {}
    assert read_rows(tmp_path / "none.jsonl") == {}


def test_worker_processes_give_the_same_rows(tmp_path: Path) -> None:
    requests = [{**SMALL, "parallelism": {"tp": tp}} for tp in (1, 2)]
    alone = run_rows(requests, tmp_path / "alone.jsonl", 1, plainly, "")
    assert run_rows(requests, tmp_path / "spread.jsonl", 2, plainly, "") == alone
