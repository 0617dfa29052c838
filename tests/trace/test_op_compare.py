"""A traced step beside the simulator's: classes, launches and shapes agree where the model is right."""

import json
from pathlib import Path

import pytest

from charllm.api.ops_comparison import compare_ops
from charllm.calibrate.runs import read_runs
from charllm.errors import SpecError

EXAMPLE = Path(__file__).parents[2] / "examples" / "h200-moe"


def test_every_class_takes_what_the_simulator_says_within_ten_per_cent(tmp_path: Path) -> None:
    found = compare_ops(EXAMPLE, table=tmp_path / "ops.csv")
    rows = {row.work: row for row in found.classes}
    assert set(rows) == {"gemm", "memory-bound", "optimizer", "attention", "norm"}
    for row in rows.values():
        assert row.difference_fraction == pytest.approx(0.0, abs=0.1), row
        assert row.launches[1] == pytest.approx(row.launches[0], rel=0.01), row
    (note,) = (note for note in found.notes if "host" in note)
    assert "host_speed_fraction=0.7" in note
    assert sum(rows["gemm"].seconds) > sum(rows["attention"].seconds)
    tables, _ = read_runs([str(tmp_path / "ops.csv")])
    (attention,) = (row for row in tables[0].rows if row.shape.kind == "attention")
    assert attention.shape.dims == (1, 32, 8, 4096, 128)
    assert attention.measured.seconds_s == pytest.approx(0.00028, rel=0.05)


def test_a_trace_is_like_itself_and_a_second_side_is_asked_for(tmp_path: Path) -> None:
    found = compare_ops(EXAMPLE, EXAMPLE)
    assert all(row.difference_fraction == 0.0 for row in found.classes)
    assert json.loads(found.to_json())["sides"][0]["launches"] > 1000
    with pytest.raises(SpecError, match="rank: got 3"):
        compare_ops(EXAMPLE, rank=3)
    with pytest.raises(SpecError, match="table"):
        compare_ops(EXAMPLE, EXAMPLE, table=tmp_path / "ops.csv")
