"""Constants of a network come back from tables made with them; every command takes the file that is written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from charllm.calibrate.network import fit_network
from charllm.catalog.resolve import resolve_cluster
from charllm.cli import main
from charllm.errors import SpecError
from charllm.evaluate.collectives import gather
from charllm.measure.bench.nccl_suite import COLLECTIVES
from charllm.measure.bench.nccl_table import CollectiveRow, RowWriter
from charllm.network.constants import NETWORK, NetworkConstants, with_measured

CLUSTER = resolve_cluster("charllm-ppt-h200")
SIZES = [1 << power for power in range(10, 31, 2)]
TRUTH = {
    "latency_s": 5.3e-6, "hop_s": 0.9e-6, "link_fraction": 0.7, "own_block_fraction": 0.8, "switch_fraction": 0.6,
    "nic_fraction": 0.75, "nic_hop_s": 15e-6, "tree_fraction": 0.8,
}  # fmt: skip
INSIDE = ((2, 2), (4, 4), (8, 8))
BETWEEN = ((4, 1), (16, 8), (32, 8))


def table(truth: dict[str, float], places: tuple[tuple[int, int], ...], noise: float = 0.0) -> list[CollectiveRow]:
    """Make rows with known constants: ranks of a group and how many of them share a node."""
    rows = [
        CollectiveRow(f"g{ranks}", "together", kind, size, ranks, per_node, 8, 8 // per_node, seconds_s=1.0)
        for ranks, per_node in places
        for kind in COLLECTIVES
        for size in SIZES
    ]
    constants, off = with_measured(NETWORK, truth), np.random.default_rng(3).normal(0.0, noise, len(rows))
    return [
        row._replace(seconds_s=each.predict(constants)[1] * float(np.exp(error)))
        for row, each, error in zip(rows, gather(rows, CLUSTER), off, strict=True)
    ]


def values(rows: list[CollectiveRow]) -> dict[str, float]:
    return fit_network(gather(rows, CLUSTER), CLUSTER).fit.values()


def test_known_constants_come_back() -> None:
    assert values(table(TRUTH, (*INSIDE, *BETWEEN))) == pytest.approx(TRUTH, rel=0.02)


def test_noise_of_five_percent_leaves_constants_within_their_errors() -> None:
    fit = fit_network(gather(table(TRUTH, (*INSIDE, *BETWEEN), 0.05), CLUSTER), CLUSTER).fit
    for each in fit.found:
        assert abs(np.log(each.value / TRUTH[each.name])) < 4 * each.error_fraction + 0.01, each
    assert 0.7 < fit.misfit < 1.3


def test_a_slow_network_far_from_the_usual_one_is_found() -> None:
    slow = {**TRUTH, "latency_s": 2e-4, "hop_s": 3e-5, "link_fraction": 0.004, "switch_fraction": 0.003}
    del slow["nic_fraction"], slow["nic_hop_s"], slow["tree_fraction"]
    found = values(table(slow, INSIDE))
    assert found["latency_s"] == pytest.approx(2e-4, rel=0.2)
    assert found["link_fraction"] == pytest.approx(0.004, rel=0.2)


def test_one_node_says_nothing_of_nics_and_two_ranks_nothing_of_own_blocks() -> None:
    inside = fit_network(gather(table(TRUTH, INSIDE), CLUSTER), CLUSTER)
    assert {"nic_fraction", "nic_hop_s", "tree_fraction"}.isdisjoint(inside.fit.values())
    assert inside.identified("fabric") == []
    rows = [row for row in table(TRUTH, ((2, 2),)) if row.collective == "all_gather"]
    pairs = fit_network(gather(rows, CLUSTER), CLUSTER)
    assert "node.own_block_fraction" not in [each.name for each in pairs.identified("node")]


def test_a_handful_of_rows_is_refused() -> None:
    with pytest.raises(SpecError, match=r"got '3 collectives.*at least 8: `charllm bench nccl`"):
        fit_network(gather(table(TRUTH, INSIDE)[:3], CLUSTER), CLUSTER)


def write(folder: Path, rows: list[CollectiveRow]) -> str:
    folder.mkdir()
    writer = RowWriter(folder)
    for row in rows:
        writer.write(row)
    writer.close()
    return str(folder)


def output(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_file_written_predicts_the_table_as_well_as_the_report_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = write(tmp_path / "run", table(TRUTH, (*INSIDE, *BETWEEN), 0.05))
    report = output(capsys, "calibrate", run, "--cluster", "charllm-ppt-h200", "-o", "mine.toml")
    stated = report["in_sample"]["overall"]["median_abs_error_fraction"]
    assert report["before"]["overall"]["median_abs_error_fraction"] > 2 * stated
    assert report["held_out"]["overall"]["median_abs_error_fraction"] < 1.3 * stated
    after = output(capsys, "validate", "nccl", run, "--cluster", "mine.toml")
    assert after["overall"]["median_abs_error_fraction"] == pytest.approx(stated, rel=0.1)
    assert len(after["predictions"]) == len(COLLECTIVES) * 6 * len(SIZES)
    flags = ["--model", "llama3-8b", "--tp", "8", "--gbs", "32"]
    usual = output(capsys, "simulate", "--cluster", "charllm-ppt-h200", *flags)
    mine = output(capsys, "simulate", "--cluster", "mine.toml", *flags)
    assert mine["spec"]["cluster"]["node"]["link_fraction"] == pytest.approx(0.7, rel=0.05)
    assert mine["metrics"]["step_time_s"] > usual["metrics"]["step_time_s"]


def test_the_report_names_each_constant_and_what_is_not_identified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    run = write(tmp_path / "run", table(TRUTH, INSIDE, 0.02))
    out = tmp_path / "mine.toml"
    assert main(["calibrate", run, "--cluster", "charllm-ppt-h200", "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "node.link_fraction" in shown
    assert "share of the link's datasheet bandwidth" in " ".join(shown.split())
    assert "fabric.nic_fraction" in shown.partition("Not identified")[2]
    written = out.read_text()
    assert "# fabric.nic_hop_s: not identified" in written
    assert '[node]\nbase = "hgx-h200"' in written
    assert main(["validate", "nccl", run, "--cluster", str(out)]) == 0
    assert "all_reduce, inside a node" in capsys.readouterr().out


def test_a_calibrated_file_is_refined_by_another_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside, between = write(tmp_path / "in", table(TRUTH, INSIDE)), write(tmp_path / "out", table(TRUTH, BETWEEN))
    first, second = str(tmp_path / "first.toml"), str(tmp_path / "second.toml")
    output(capsys, "calibrate", inside, "--cluster", "charllm-ppt-h200", "-o", first)
    output(capsys, "calibrate", between, "--cluster", first, "-o", second)
    found = resolve_cluster(second)
    assert found.node.switch_fraction == pytest.approx(TRUTH["switch_fraction"], rel=0.02)
    assert found.fabric.nic_fraction == pytest.approx(TRUTH["nic_fraction"], rel=0.05)


def test_a_cluster_with_tables_inside_tables_needs_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, deep = write(tmp_path / "run", table(TRUTH, INSIDE)), tmp_path / "deep.toml"
    deep.write_text(
        'base = "charllm-ppt-h200"\n[node]\nbase = "hgx-h200"\n[node.gpu]\nbase = "h200"\npower_cap_w = 600\n'
    )
    assert main(["calibrate", run, "--cluster", str(deep), "-o", str(tmp_path / "x.toml")]) == 2
    assert "node has no tables inside it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["calibrate", "{run}", "-o", "x.toml"], "--cluster: got nothing; expected the cluster that was measured"),
        (["calibrate", "{run}", "{ops}", "-o", "x.toml"], "tables of collectives alone"),
        (["validate", "nccl", "{ops}", "--cluster", "h200x8"], "FILE: got"),
        (["validate", "nccl", "{run}"], "--cluster"),
        (["validate", "nccl", "{run}", "--cluster", "h900"], "h900"),
    ],
)
def test_wrong_requests_are_explained(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = write(tmp_path / "run", table(TRUTH, INSIDE))
    (tmp_path / "ops.csv").write_text("kind,dtype\n")
    assert main([word.format(run=run, ops=tmp_path / "ops.csv") for word in words]) == 2
    assert said in capsys.readouterr().err


def test_constants_are_those_of_the_network() -> None:
    assert set(TRUTH) <= set(NetworkConstants.__dataclass_fields__)
