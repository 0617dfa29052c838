"""The fit finds what made the readings, and says what they cannot tell."""

import sys

import numpy as np
import pytest

from charllm.arrays import Floats
from charllm.calibrate.least_squares import Parameter, fit
from charllm.errors import CharllmError

TIMES = np.linspace(0.1, 3.0, 40)


def test_known_constants_are_found_within_their_errors() -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.02, len(TIMES))
    read = 5.0 * np.exp(-TIMES / 0.8) + 1.5 + noise

    def residuals(values: dict[str, float]) -> Floats:
        said = values["height"] * np.exp(-TIMES / values["time"]) + values["floor"]
        return np.asarray((said - read) / 0.02)

    found = fit(residuals, [Parameter("height", 3.0, 1.0), Parameter("time", 1.5, 1.0), Parameter("floor", 1.0, 1.0)])
    for each, truth in zip(found.found, (5.0, 0.8, 1.5), strict=True):
        assert each.value == pytest.approx(truth, abs=4 * each.error_fraction * truth)
        assert each.identified


def test_what_no_reading_depends_on_is_not_identified_and_stays() -> None:
    found = fit(lambda values: np.array([(values["seen"] - 2.0) / 0.1] * 5),
                [Parameter("seen", 1.0, 0.5), Parameter("unseen", 7.0, 0.5)])  # fmt: skip
    seen, unseen = found.found
    assert seen.identified
    assert seen.value == pytest.approx(2.0, rel=0.01)
    assert not unseen.identified
    assert unseen.value == pytest.approx(7.0)
    assert unseen.kept_fraction == pytest.approx(1.0)


def test_of_two_that_only_their_product_tells_neither_is_identified() -> None:
    found = fit(lambda values: np.array([(values["one"] * values["other"] - 6.0) / 0.01] * 9),
                [Parameter("one", 2.0, 0.1), Parameter("other", 3.0, 0.1)])  # fmt: skip
    assert not any(each.kept_fraction < 0.7 for each in found.found)


def test_bounds_hold() -> None:
    found = fit(lambda values: np.array([values["share"] - 3.0]), [Parameter("share", 0.5, 10.0, 0.01, 1.0)])
    assert found.found[0].value == pytest.approx(1.0)


def test_one_odd_reading_moves_little() -> None:
    read = np.full(20, 2.0)
    read[3] = 40.0
    found = fit(lambda values: (values["level"] - read) / 0.1, [Parameter("level", 1.5, 1.0)])
    assert found.found[0].value == pytest.approx(2.0, rel=0.08)


def test_without_scipy_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(CharllmError, match=r"charllm\[fit\]"):
        fit(lambda values: np.array([values["level"]]), [Parameter("level", 1.5, 1.0)])
