"""Rows of collectives on disk: appended, cut short, resumed, read from other tools."""

from pathlib import Path
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.measure.bench.nccl_table import (
    HEADER_FILE,
    ROWS_FILE,
    CollectiveRow,
    RowWriter,
    bandwidths,
    is_table,
    open_table,
    read_header,
    read_rows,
)

ROW = CollectiveRow(
    "tp", "together", "all_reduce", 1024, 2, 2, 4, 2, seconds_s=1e-5, p10_s=9e-6, p90_s=2e-5, repeats=10
)
HEADER: dict[str, Any] = {"layout": {"tp": 2}, "ranks": 4, "backend": "gloo", "node_of_rank": ["a", "a", "b", "b"]}


def write(folder: Path, *rows: CollectiveRow) -> None:
    writer = RowWriter(folder)
    for row in rows:
        writer.write(row)
    writer.close()


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [ROW, ROW._replace(message_bytes=2048, slowest_group_ranks="0 1", launched="graph", backend="nccl")]
    failed = ROW._replace(message_bytes=4096, seconds_s=None, p10_s=None, p90_s=None, repeats=0, error="too slow")
    write(tmp_path, *rows, failed)
    assert read_rows(tmp_path) == [*rows, failed] == read_rows(tmp_path / ROWS_FILE)


def test_a_row_cut_short_is_left_out_and_writing_goes_on_behind_the_whole_ones(tmp_path: Path) -> None:
    write(tmp_path, ROW)
    with (tmp_path / ROWS_FILE).open("a") as file:
        file.write("tp,together,all_red")
    assert read_rows(tmp_path) == [ROW]
    more = ROW._replace(message_bytes=2048)
    write(tmp_path, more)
    assert read_rows(tmp_path) == [ROW, more]


def test_of_two_rows_of_one_case_the_last_counts(tmp_path: Path) -> None:
    again = ROW._replace(seconds_s=2e-5)
    write(tmp_path, ROW, again, ROW._replace(ranks=4))
    assert read_rows(tmp_path) == [again, ROW._replace(ranks=4)]


def test_a_table_is_begun_once_and_resumed_only_by_the_same_run(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "table"
    assert open_table(folder, HEADER) == []
    assert read_header(folder)["layout"] == {"tp": 2}
    assert open_table(folder, HEADER) == []
    write(folder, ROW)
    assert open_table(folder, HEADER) == [ROW]
    assert open_table(folder, {**HEADER, "node_of_rank": ["b", "b", "a", "a"]}) == [ROW]
    for name, other in (("layout", {"tp": 4}), ("ranks", 8), ("backend", "nccl"), ("node_of_rank", ["a"] * 4)):
        with pytest.raises(SpecError, match=f"--out: .*{name}.*expected a run as the one before"):
            open_table(folder, {**HEADER, name: other})


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SpecError, match=r"--out: .*expected an empty folder"):
        open_table(tmp_path, HEADER)
    with pytest.raises(SpecError, match="--out"):
        open_table(tmp_path / "file" / "below", HEADER)
    (tmp_path / HEADER_FILE).write_text('{"format": "other"}')
    with pytest.raises(SpecError, match="charllm-nccl"):
        read_header(tmp_path)


def test_a_table_of_another_tool_needs_three_columns_beside_the_ranks(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("collective,message_bytes,ranks,seconds_s\nall_gather,1024,8,1e-5\n")
    assert is_table(path)
    (row,) = read_rows(path)
    assert (row.ranks_per_node, row.active_ranks_per_node, row.groups, row.mode) == (8, 8, 1, "")
    other = tmp_path / "ops.csv"
    other.write_text("kind,dtype\ngemm,bf16\n")
    assert not is_table(other)
    assert not is_table(tmp_path)
    assert not is_table(tmp_path / "none")


@pytest.mark.parametrize(
    ("cells", "field"),
    [("gather,1024,8,1e-5", "collective"), ("send,x,8,1e-5", "message_bytes"), ("send,1024,,1", "ranks"),
     ("send,1024,8,nan", "seconds_s"), ("send,1024,8,-1", "seconds_s"), ("send,1.5,8,1", "message_bytes")],
)  # fmt: skip
def test_a_wrong_cell_is_named_with_its_line(tmp_path: Path, cells: str, field: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"collective,message_bytes,ranks,seconds_s\n{cells}\n")
    with pytest.raises(SpecError, match=f"line 2: {field}"):
        read_rows(path)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("broadcast", 1.0),
     ("send", 1.0)],
)  # fmt: skip
def test_bandwidths_are_those_of_nccl_tests(collective: str, factor: float) -> None:
    assert bandwidths(collective, 8_000_000, 8, 0.001) == pytest.approx((8e9, 8e9 * factor))
