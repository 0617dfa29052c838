"""What constants mean, whatever they are fitted to."""

import ast
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from charllm.cost import calibration
from charllm.cost.calibration import CALIBRATION, Calibration

NAMES = [field.name for field in fields(Calibration)]


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_is_a_positive_number(name: str) -> None:
    value = getattr(CALIBRATION, name)
    assert isinstance(value, float | int)
    assert 0 < value < float("inf")


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_fraction")])
def test_shares_are_no_more_than_the_whole(name: str) -> None:
    assert getattr(CALIBRATION, name) <= 1


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_s")])
def test_host_and_latency_constants_are_short(name: str) -> None:
    assert getattr(CALIBRATION, name) < 0.01


def test_the_roof_is_never_above_what_arithmetic_and_memory_allow() -> None:
    # (a^p + m^p)^(1/p) is at least the larger of both for p > 0, and at most their sum for p >= 1.
    assert CALIBRATION.roof_power >= 1


def test_idle_multiprocessors_cost_no_more_than_all_their_time() -> None:
    assert CALIBRATION.fill_power <= 1


def test_what_is_cut_to_hide_has_more_than_one_piece() -> None:
    assert CALIBRATION.overlap_chunks > 1


def test_every_constant_says_what_it_is() -> None:
    (node,) = [
        item
        for item in ast.parse(Path(calibration.__file__).read_text()).body
        if isinstance(item, ast.ClassDef) and item.name == "Calibration"
    ]
    body = node.body[1:]
    for declared, described in zip(body[::2], body[1::2], strict=True):
        assert isinstance(declared, ast.AnnAssign)
        assert isinstance(described, ast.Expr)
        assert isinstance(described.value, ast.Constant)
        assert len(str(described.value.value)) > 20


def test_constants_stay_as_they_are() -> None:
    with pytest.raises(FrozenInstanceError):
        CALIBRATION.nic_hop_s = 0.0  # type: ignore[misc]
