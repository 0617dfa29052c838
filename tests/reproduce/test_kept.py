"""A file of rows outlives a kill, and is used only by the sources that wrote it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.reproduce.looks import key_of
from charllm.reproduce.workers import begin, read_rows, run_rows

SMALL: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 2}}


def plainly(items: Iterator[Any], _total: int, _title: str) -> Iterator[Any]:
    yield from items


def test_rows_are_kept_and_a_line_that_was_cut_short_is_simulated_again(tmp_path: Path) -> None:
    file = begin(tmp_path)
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


def test_rows_of_another_version_catalog_or_source_are_refused(tmp_path: Path) -> None:
    file = begin(tmp_path / "new")
    assert begin(tmp_path / "new") == file
    head = json.loads(file.read_text())
    assert {"charllm", "catalog", "source"} <= set(head)
    file.write_text(json.dumps({**head, "source": "another"}) + "\n")
    with pytest.raises(SpecError, match="begun with this version, catalog and sources"):
        begin(tmp_path / "new")


def test_worker_processes_give_the_same_rows(tmp_path: Path) -> None:
    requests = [{**SMALL, "parallelism": {"tp": tp}} for tp in (1, 2)]
    alone = run_rows(requests, begin(tmp_path / "alone"), 1, plainly, "")
    assert run_rows(requests, begin(tmp_path / "spread"), 2, plainly, "") == alone
