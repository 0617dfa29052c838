"""Fitting constants to published rows, and what a fold may know."""

import numpy as np
import pytest

from charllm.evaluate.fit import CONSTANTS, Fitter, default_values, moves
from charllm.evaluate.held_out import load_rows
from charllm.spec.grades import is_untuned


def test_a_constant_without_rows_keeps_its_prior() -> None:
    alone = "library.h100"
    tuned = [row for row in load_rows() if row.run.scored_as == "dense" and not is_untuned(row.run)]
    rows = [row for row in tuned if not moves(alone, row.run)][::60]
    rows += [row for row in tuned if row.source == "LLMF" and moves(alone, row.run)][:2]
    moved = {row.source for row in rows if moves(alone, row.run)}
    assert moved == {"LLMF"}
    fitter = Fitter(rows, workers=1)
    values = {**default_values(), alone: 0.6}
    folds = fitter.folds(values, {"source": lambda row: row.source})["source"]
    fitter.pool.shutdown()
    assert folds["LLMF"][alone] == pytest.approx(default_values()[alone])
    assert all(np.isfinite(list(fold.values())).all() for fold in folds.values())
    assert set(folds["LLMF"]) == {constant.name for constant in CONSTANTS}
