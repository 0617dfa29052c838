"""The table of held-out predictions that ships with charllm; `make scoreboard` writes it again."""

from functools import cache
from pathlib import Path

import pytest

from charllm.evaluate.fit import FitRow
from charllm.evaluate.held_out import hold_out, load_folds, load_rows
from charllm.evaluate.predictions import Prediction, describe, load_predictions, write_rows
from charllm.evaluate.scoreboard import SPLITS
from charllm.evaluate.scores import describe_errors
from charllm.spec.grades import is_untuned

SAMPLED = 24
TOLERANCE = 2e-3
"""Relative, of a prediction; and of the median error of the sampled rows."""
STALE = "run `make scoreboard`, and look at what it says became worse"


@cache
def rows() -> list[FitRow]:
    return load_rows()


def sample() -> list[Prediction]:
    """Predict rows that take milliseconds each, spread over sources, GPUs and classes, with all constants again."""
    quick = [row for row in rows() if row.run.cluster.gpus <= 64 and row.run.microbatches <= 16]
    chosen = sorted(quick, key=lambda row: (row.run.cluster.gpu.name, row.source, row.id))
    folds = load_folds()
    return [describe(hold_out(row, folds)) for row in chosen[:: max(1, len(chosen) // SAMPLED)]]


def test_every_row_that_is_scored_is_in_the_table() -> None:
    known = load_predictions()
    assert [row.id for row in rows()] == [row.id for row in known]
    assert [is_untuned(row.run) for row in rows()] == [row.host == "untuned" for row in known]
    assert all(getattr(row, column) > 0 for row in known for column in SPLITS.values())


def test_the_table_holds_what_this_version_predicts_and_errors_have_not_grown() -> None:
    known, now = {row.id: row for row in load_predictions()}, sample()
    assert len({row.gpu for row in now}) >= 8
    assert {row.kind for row in now} == {"dense", "moe", "lora"}
    for column in SPLITS.values():
        for row in now:
            assert getattr(row, column) == pytest.approx(getattr(known[row.id], column), rel=TOLERANCE), STALE
    medians = [
        describe_errors([row.predicted_s / row.measured_s - 1 for row in part])["median_abs_error_fraction"]
        for part in (now, [known[row.id] for row in now])
    ]
    assert medians[0] <= medians[1] + TOLERANCE, STALE


def test_a_written_table_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "predictions.csv"
    monkeypatch.setattr("charllm.evaluate.predictions.FILE", file)
    written = [load_predictions()[0]._replace(id="A-1", predicted_s=1.25)]
    write_rows(tmp_path / "predictions.csv", Prediction._fields, written)
    load_predictions.cache_clear()
    assert list(load_predictions()) == written
    load_predictions.cache_clear()
