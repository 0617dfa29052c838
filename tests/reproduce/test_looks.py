"""Rows of runs: what they hold."""

from typing import Any

import pytest

from charllm.reproduce.looks import key_of, look

SMALL: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 2}}


def test_equal_requests_have_equal_keys() -> None:
    assert key_of(SMALL) == key_of({**SMALL, "parallelism": {"pp": 2, "tp": 2}})
    assert key_of(SMALL) != key_of({**SMALL, "parallelism": {"tp": 4}})


def test_a_row_tells_slots_and_links() -> None:
    row = look(SMALL)
    assert row["rear_c"] > row["front_c"]
    assert "package_gap_k" not in row
    assert 0 < row["small_message_loss.tp"] < 1
    assert row["clock_loss"] == pytest.approx(
        sum(row[f"clock_loss_fraction.{c}"] for c in ("power", "thermal", "brake"))
    )


def test_dies_of_a_package_differ() -> None:
    row = look({"model": "llama3-8b", "cluster": "charllm-ppt-mi250", "parallelism": {"tp": 8}})
    assert row["package_gap_k"] > 0


def test_a_wrong_run_is_a_row_with_the_reason() -> None:
    assert "tp" in look({**SMALL, "parallelism": {"tp": 3}})["refused"]
