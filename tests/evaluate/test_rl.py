"""Published steps of reinforcement learning against predictions."""

import pytest

from charllm.errors import SpecError
from charllm.evaluate.rl import PHASES, TOTAL, describe_row, predict_rows, read_rows

ROWS = {row["id"]: row for row in read_rows()}


def test_every_row_is_predicted_or_left_out_with_a_reason() -> None:
    asked = [row for row in ROWS.values() if row["id"].startswith(("NRI", "VRL", "MIL"))]
    rows, left_out = predict_rows(asked)
    assert len({row.id for row in rows}) + sum(left_out.values()) == len(asked)
    assert {row.part for row in rows} == {TOTAL, *PHASES}
    assert all(0.2 < row.predicted_s / row.measured_s < 2 for row in rows)


def test_steps_with_known_lengths_err_little_with_nothing_fitted() -> None:
    rows, _left_out = predict_rows(row for row in ROWS.values() if row["total_step_s"])
    for part, most in ((TOTAL, 0.25), ("generation", 0.15), ("training", 0.25), ("log-probabilities", 0.25)):
        sizes = sorted(abs(row.error_fraction) for row in rows if row.part == part)
        assert sizes[len(sizes) // 2] < most


def test_prompts_are_what_printed_rates_have_beyond_responses() -> None:
    # 1562 tokens/s of 16 GPUs in 97.7 s are 1192 tokens for each of 2048 samples, 1060 of them the response.
    _request, settings = describe_row(ROWS["NRL-001"])
    assert settings.prompt_length == 132
    request, settings = describe_row(ROWS["NRL-021"])
    assert (settings.rollout_gpus, settings.policy) == (32, "one-step-off")
    assert request["parallelism"]["layers_per_stage"] == [16] * 4


@pytest.mark.parametrize(("row", "field"), [("NRL-043", "algorithm"), ("VRL-002", "mean_seq"), ("VRL-071", "n_gpus")])
def test_what_is_not_known_is_named(row: str, field: str) -> None:
    with pytest.raises(SpecError, match=field):
        describe_row(ROWS[row])
