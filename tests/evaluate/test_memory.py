import csv
from functools import cache
from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.evaluate.corrections import source_of
from charllm.evaluate.h200.memory import loop_scores, training_scores
from charllm.evaluate.memory import (
    MEANINGS,
    MemoryRow,
    MemoryScore,
    fit_reserve,
    held_out,
    read_rows,
    resolve_rows,
    summarise,
    tuned_rows,
)
from charllm.evaluate.scores import Skipped


@cache
def resolved() -> tuple[list[MemoryRow], list[Skipped]]:
    return resolve_rows(read_rows())


@cache
def predicted_held_out() -> list[MemoryScore]:
    return held_out(tuned_rows())


def median(scores: list[MemoryScore]) -> float:
    return float(summarise(scores)["median_abs_error_fraction"])


@pytest.mark.parametrize(
    ("meaning", "least", "bound"), [("allocated", 50, 0.01), ("reserved", 14, 0.045), ("device", 80, 0.04)]
)
def test_each_meaning_of_memory_is_predicted_held_out(meaning: str, least: int, bound: float) -> None:
    scores = [score for score in predicted_held_out() if score.measure == meaning]
    assert len(scores) >= least
    assert median(scores) <= bound


# torchao's four runs were 2 % off only while their shared expert was left out: 6 GiB of activations of 150.
@pytest.mark.parametrize(
    ("source", "bound"), [("SMAX", 0.01), ("AT", 0.01), ("TT", 0.035), ("TAO", 0.045), ("BLOOM", 0.03)]
)
def test_each_large_source_is_predicted_held_out(source: str, bound: float) -> None:
    assert median([score for score in predicted_held_out() if source_of(score.id) == source]) <= bound


def test_torchaos_llama_4_has_routed_and_shared_experts_in_both_of_its_layers() -> None:
    # Source: torchtitan's flavor 17bx16e, which pytorch/ao pull request 3004 prints with two layers.
    models = [row.run.model for row in resolved()[0] if source_of(row.id) == "TAO"]
    assert {(model.layers, model.experts, model.shared_ffn) for model in models} == {(2, 16, 8192)}
    assert not any(model.dense_layers or model.sparse_layers for model in models)


def test_no_row_of_atorchs_sharded_runs_is_three_per_cent_off() -> None:
    errors = [abs(score.error_fraction) for score in predicted_held_out() if source_of(score.id) == "AT"]
    assert max(errors) <= 0.03


def test_h200_loops_allocate_what_is_predicted() -> None:
    scores = loop_scores()
    dense = [score for score in scores if score.id.startswith("DENSE")]
    assert median(dense) <= 0.002
    assert max(abs(score.error_fraction) for score in dense) <= 0.07
    assert median([score for score in scores if score.id.startswith("SPARSE")]) <= 0.08


def test_h200_training_runs_show_the_predicted_device_memory() -> None:
    assert median(training_scores()) <= 0.03


def test_each_source_is_scored_in_the_meaning_it_prints() -> None:
    measures = {source_of(row.id): row.measure for row in resolved()[0]}
    assert set(measures.values()) == set(MEANINGS)
    assert (measures["SMAX"], measures["CARD"], measures["TT"], measures["BLOOM"]) == (
        "allocated",
        "allocated",
        "reserved",
        "device",
    )


def test_only_device_memory_rests_on_a_fitted_constant() -> None:
    fitted = [row for row in resolved()[0] if row.is_fitted]
    assert {row.measure for row in fitted} == {"device"}
    assert fit_reserve(fitted) == pytest.approx(0.2, abs=0.03)
    assert fit_reserve([]) is None


def test_a_constant_held_out_is_not_fitted_on_its_own_source() -> None:
    bloom = [row for row in resolved()[0] if source_of(row.id) == "BLOOM"]
    others = [row for row in resolved()[0] if source_of(row.id) == "FP"]
    alone = held_out(bloom)
    beside = held_out([*bloom, *others])[: len(bloom)]
    assert [score.predicted_bytes for score in alone] == [row.score().predicted_bytes for row in bloom]
    expected = fit_reserve([row for row in others if row.is_fitted])
    assert [score.predicted_bytes for score in beside] == [row.score(expected).predicted_bytes for row in bloom]


def test_rows_that_cannot_be_read_say_why() -> None:
    _, skipped = resolved()
    assert all(row.reason for row in skipped)
    assert len(skipped) <= 20


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(SpecError, match="columns id, model"):
        read_rows(str(file))


def test_no_rows_have_no_statistics() -> None:
    assert summarise([])["median_abs_error_fraction"] is None


def test_a_row_without_its_last_cells_is_read_and_memory_of_nought_is_skipped_with_a_reason(tmp_path: Path) -> None:
    row = next(row for row in read_rows() if row["id"] == "SMAX-002")
    columns = list(row)
    table = tmp_path / "rows.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerow([row[column] for column in columns[: columns.index("memory_gb") + 1]])
        writer.writerow([{**row, "memory_gb": "0"}[column] for column in columns])
    found, skipped = resolve_rows(read_rows(str(table)))
    assert [one.id for one in found] == ["SMAX-002"]
    assert "memory_gb: got '0'; expected a number above 0" in skipped[0].reason
