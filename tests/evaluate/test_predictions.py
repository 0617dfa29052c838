"""The table of held-out predictions that ships with charllm; `make predictions` writes it again."""

from functools import cache
from pathlib import Path

import pytest

from charllm.evaluate.fit import FitRow
from charllm.evaluate.held_out import closed_s, is_untuned, load_folds, load_rows
from charllm.evaluate.predictions import Prediction, load_predictions, write_predictions


@cache
def rows() -> list[FitRow]:
    return load_rows()


def test_every_row_that_is_scored_is_in_the_table() -> None:
    known = load_predictions()
    assert [row.id for row in rows()] == [row.id for row in known]
    assert [is_untuned(row) for row in rows()] == [row.host == "untuned" for row in known]
    assert all(row.predicted_s > 0 and row.source_left_out_s > 0 for row in known)


def test_the_table_holds_what_this_version_predicts() -> None:
    folds, known = load_folds(), {row.id: row for row in load_predictions()}
    # Rows on few GPUs with few microbatches are predicted in milliseconds.
    quick = [row for row in rows() if row.run.cluster.gpus <= 8 and row.run.microbatches <= 4]
    for row in quick[:: max(1, len(quick) // 6)]:
        assert closed_s(folds["family"][row.family], row) == pytest.approx(known[row.id].predicted_s, rel=1e-4)
        assert closed_s(folds["source"][row.source], row) == pytest.approx(known[row.id].source_left_out_s, rel=1e-4)


def test_a_written_table_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "predictions.csv"
    monkeypatch.setattr("charllm.evaluate.predictions.FILE", file)
    written = [Prediction("A-1", "A", "dense", "h200", "llama3-8b", "tuned", 1.25, 1.5, 1.0)]
    write_predictions(written)
    load_predictions.cache_clear()
    assert list(load_predictions()) == written
    load_predictions.cache_clear()
