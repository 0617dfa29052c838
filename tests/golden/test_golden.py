"""Whole results of a few runs stay as they are until someone changes them on purpose (``make golden``)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.record import ANSWERS, RUNS, golden_result

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_run_gives_its_golden_result(name: str) -> None:
    recorded = json.loads((HERE / f"{name}.json").read_text())
    assert_same(json.loads(json.dumps(golden_result(name))), recorded, name)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_plan_gives_its_golden_answer(name: str) -> None:
    recorded = json.loads((HERE / f"{name}.json").read_text())
    assert_same(json.loads(json.dumps(ANSWERS[name]())), recorded, name)


def assert_same(found: Any, expected: Any, where: str) -> None:
    """Compare nested values, numbers to six digits: a governor may carry the last bit of an exponential further."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key, value in expected.items():
            assert_same(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, value in enumerate(expected):
            assert_same(found[index], value, f"{where}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-6), where
    else:
        assert found == expected, where
