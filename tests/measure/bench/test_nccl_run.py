"""Collectives on real gloo ranks: numbers, groups, rows, budgets, killed and resumed commands."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from charllm.cli import main
from charllm.errors import CharllmError, SpecError
from charllm.measure.bench import nccl, nccl_collectives
from charllm.measure.bench.nccl_collectives import LAUNCHES, check_collective, even_bytes
from charllm.measure.bench.nccl_run import largest_message, median_interval, prepare, run_cases
from charllm.measure.bench.nccl_suite import COLLECTIVES, build_suite, groups_of
from charllm.measure.bench.nccl_table import CollectiveRow, RowWriter, read_header, read_rows
from charllm.spec.parallelism import Parallelism
from tests.measure.replays import quiet_environment
from tests.measure.trainer.ranks import RankFailed, run_ranks

LAYOUT = Parallelism(tp=2, dp=2)
SETTINGS = {"device": "cpu", "backend": "gloo", "case_s": 0.05}
BENCH = [sys.executable, "-m", "charllm", "bench", "nccl", "--device", "cpu"]


def measure_here(sizes: tuple[int, ...], case_s: float, seconds_s: float, slow: bool) -> list[Any]:
    """Measure on this rank; on a slow machine every call of a collective takes 40 ms."""
    rank = torch.distributed.get_rank()
    groups = groups_of(LAYOUT)
    bench = prepare(groups, ["a", "a", "b", "b"], sizes, {**SETTINGS, "case_s": case_s})
    if slow:
        usual = LAUNCHES["all_reduce"]

        def slowed(*words: Any) -> Any:
            def run() -> None:
                time.sleep(0.04)
                usual(*words)()

            return run

        LAUNCHES["all_reduce"] = slowed
    cases = build_suite(groups, ["all_reduce", "send"], sizes)
    done = {cases[0]}
    rows = [row and row._asdict() for row in run_cases(bench, cases, done, seconds_s)]
    return [rank, len(cases), rows]


def test_every_rank_sees_the_same_rows_and_what_was_done_is_not_measured_again() -> None:
    told = run_ranks(4, measure_here, (1024, 2048), 0.1, 600.0, False)
    assert [rank for rank, _cases, _rows in told] == [0, 1, 2, 3]
    (_rank, cases, rows), others = told[0], told[1:]
    assert cases == 2 * 2 * 2 * 2 == len(rows)
    assert rows[0] is None
    for row, *same in zip(rows[1:], *(rows_of[1:] for _r, _c, rows_of in others), strict=True):
        found = CollectiveRow(**row)
        assert all(other["seconds_s"] == found.seconds_s for other in same)
        assert found.p10_s <= found.seconds_s <= found.p90_s  # type: ignore[operator]
        assert found.repeats >= 5
        assert found.calls >= 1
        assert found.launched == "eager"
        assert found.fastest_group_s <= found.slowest_group_s  # type: ignore[operator]
        assert found.algorithm_bytes_per_s == pytest.approx(found.message_bytes / found.seconds_s)  # type: ignore[operator]
        assert found.start_monotonic_s < found.end_monotonic_s  # type: ignore[operator]


def test_rows_say_how_many_ranks_of_a_node_are_busy() -> None:
    rows = [CollectiveRow(**row) for row in run_ranks(4, measure_here, (1024,), 0.02, 600.0, False)[0][2] if row]
    places = {
        (row.group, row.mode): (row.ranks, row.ranks_per_node, row.active_ranks_per_node, row.groups) for row in rows
    }
    assert places == {
        ("tp", "together"): (2, 2, 2, 2),
        ("tp", "alone"): (2, 2, 2, 1),
        ("dp", "together"): (2, 1, 2, 2),
        ("dp", "alone"): (2, 1, 1, 1),
    }
    assert {row.slowest_group_ranks for row in rows if row.mode == "alone"} == {"0 1", "0 2"}


def test_what_takes_too_long_is_left_out_and_said() -> None:
    # 16 calls of a quarter more than 40 ms are just too many; a busy machine does not make a send so slow.
    rows = run_ranks(4, measure_here, (1024, 1280), 0.07, 600.0, True)[0][2]
    left_out = [row for row in rows if row and row["error"]]
    assert {row["collective"] for row in left_out} == {"all_reduce"}
    assert all(row["message_bytes"] == 1280 and "--case-seconds" in row["error"] for row in left_out)
    assert all(row["seconds_s"] is None for row in left_out)


def test_cases_beyond_the_budget_are_not_measured() -> None:
    rows = run_ranks(4, measure_here, (1024, 2048, 4096), 0.05, 1e-9, False)[0][2]
    assert all(row is None for row in rows)


def check_here(spoiled: str) -> list[str]:
    """Return the collectives whose numbers are found wrong, one of them broken on this rank."""
    members = nccl_run_members()
    wrong = []
    for name in COLLECTIVES:
        if name == spoiled:
            usual = LAUNCHES[name]

            def launch(*words: Any, usual: Any = usual) -> Any:
                def run() -> None:
                    usual(*words)()
                    for buffer in words[1]:
                        buffer[3] += 1

                return run

            LAUNCHES[name] = launch
        try:
            check_collective(name, members["tp"], "cpu")
        except CharllmError:
            wrong.append(name)
    return wrong


def nccl_run_members() -> Any:
    from charllm.measure.bench.nccl_run import join_groups

    return join_groups({"tp": np.array([[0, 1, 2]])}, "gloo", torch.distributed.get_rank())


@pytest.mark.parametrize("spoiled", ["", "all_reduce", "all_to_all"])
def test_numbers_of_every_collective_are_checked(spoiled: str) -> None:
    assert run_ranks(3, check_here, spoiled) == [[spoiled] if spoiled else []] * 3


def fit_memory_here() -> int:
    return largest_message([1024, 1 << 20, 1 << 30], "cpu", 2, lambda: 64.0 * (1 << 20))


def test_messages_that_do_not_fit_are_left_out() -> None:
    assert run_ranks(2, fit_memory_here) == [1 << 20] * 2


def test_sizes_are_whole_elements_for_every_rank() -> None:
    assert [even_bytes(size, 3) for size in (1, 7, 1024)] == [6, 6, 1020]


def agree_here() -> str:
    def decide() -> str:
        raise SpecError("--out", "x", "another")

    try:
        return nccl.agreed(decide)
    except SpecError as error:
        return str(error)


def test_what_stops_the_first_rank_stops_all() -> None:
    assert run_ranks(2, agree_here) == ["--out: got 'x'; expected another"] * 2


def test_the_interval_of_a_median_narrows_with_repeats() -> None:
    values = np.random.default_rng(0).normal(1.0, 0.05, 400)
    assert median_interval(values) < median_interval(values[:20])
    covered = [
        abs(np.median(sample) - 1.0) <= median_interval(sample) * 1.2
        for sample in np.random.default_rng(1).normal(1.0, 0.05, (300, 40))
    ]
    assert np.mean(covered) > 0.9


def test_torch_names_of_collectives_are_there() -> None:
    assert callable(nccl_collectives.gather)
    assert callable(nccl_collectives.scatter)


def take_part(out: str, die_after: int, *words: str) -> int:
    """Be one rank of the command; the first one may die after some rows, as if it were killed."""
    usual, written = RowWriter.write, []

    def write(self: RowWriter, row: CollectiveRow) -> None:
        usual(self, row)
        written.append(row)
        if len(written) == die_after:
            os._exit(9)

    RowWriter.write = write  # type: ignore[method-assign]
    return main(["bench", "nccl", "--device", "cpu", "--case-seconds", "0.02", "--out", out, *words])


def test_a_killed_command_loses_nothing_and_is_resumed(tmp_path: Path) -> None:
    out = tmp_path / "table"
    words = ("--sizes", "1KiB:4KiB", "--collectives", "all_reduce,send")
    with pytest.raises(RankFailed):
        run_ranks(2, take_part, str(out), 4, *words, connect=False)
    before = read_rows(out)
    assert len(before) == 4
    assert run_ranks(2, take_part, str(out), 0, *words, connect=False) == [0, 0]
    rows = read_rows(out)
    measured = [row for row in before if row.seconds_s is not None]
    assert [row for row in rows if row in measured] == measured
    assert [row.case[2:] for row in rows] == [
        (name, size) for name in ("all_reduce", "send") for size in (1024, 2048, 4096)
    ]
    assert read_header(out)["environment"]["WORLD_SIZE"] == "2"


def test_another_layout_does_not_write_into_a_table(tmp_path: Path) -> None:
    words = ("--sizes", "1KiB", "--collectives", "send")
    assert run_ranks(2, take_part, str(tmp_path), 0, *words, connect=False) == [0, 0]
    assert run_ranks(2, take_part, str(tmp_path), 0, *words, "--dp", "2", connect=False) == [2, 2]
    assert run_ranks(2, take_part, str(tmp_path), 0, *words, "--ranks", "3", connect=False) == [2, 2]


def test_torchrun_starts_the_ranks_of_a_plain_command(tmp_path: Path) -> None:
    out = tmp_path / "table"
    words = ["--ranks", "2", "--sizes", "1KiB:2KiB", "--collectives", "all_gather", "--cluster", "h200x8"]
    command = [*BENCH, *words, "--case-seconds", "0.02", "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet_environment())
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert (table["backend"], table["library"], table["precision"]) == ("gloo", "gloo", "bf16")
    assert table["layout"] == {"tp": 2, "cp": 1, "dp": 1, "pp": 1, "ep": 1, "etp": 1, "order": "tp-cp-ep-dp-pp"}
    assert [row["message_bytes"] for row in table["rows"]] == [1024, 2048]
    assert "2 cases measured now, 2 in" in done.stderr
    assert table["cluster"] == "h200x8"


def test_two_commands_do_not_write_one_table(tmp_path: Path) -> None:
    writer = RowWriter(tmp_path)
    with pytest.raises(SpecError, match="no other command is writing"):
        RowWriter(tmp_path)
    writer.close()
    RowWriter(tmp_path).close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "1"], "--ranks: got 1; expected 2 to 64"),
        (["--ranks", "4", "--tp", "3"], "layout: got '3 ranks'; expected a layout of 4 ranks"),
        (["--ranks", "2", "--groups", "pp"], "--groups: got 'pp'"),
        (["--sizes", "5:1"], "--sizes"),
        (["--collectives", "gather"], "--collectives: unknown"),
        (["--seconds", "0"], "--seconds: got 0.0; expected a number from 0.001"),
        (["--cluster", "h900"], "cluster"),
    ],
)
def test_a_wrong_request_ends_before_any_rank_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bench", "nccl", "--device", "cpu", "--out", str(tmp_path / "x"), *words]) == 2
    shown = capsys.readouterr().err
    assert said.split(": unknown")[0] in shown
    assert not (tmp_path / "x").exists()
