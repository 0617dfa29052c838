import math

import pytest

from charllm.errors import SpecError
from charllm.plan.objectives import OBJECTIVES, parse_objective


@pytest.mark.parametrize(
    ("name", "metric", "gain"),
    [
        ("throughput", "tokens_per_s", 0.25),
        ("tokens-per-joule", "tokens_per_j", 0.25),
        ("edp", "energy_delay_product_j_s", -0.2),
        ("min:power_mean_w", "power_mean_w", -0.2),
        ("max:mfu", "mfu", 0.25),
    ],
)
def test_ten_to_eight_is_a_quarter_more_or_a_fifth_worse(name: str, metric: str, gain: float) -> None:
    objective = parse_objective(name)
    assert objective.gain_fraction({metric: 10.0}, {metric: 8.0}) == pytest.approx(gain)
    assert objective.gain_fraction({metric: 10.0}, {metric: None}) is None
    assert objective.gain_fraction({metric: 0.0}, {metric: 8.0}) is None


def test_the_best_comes_first_and_what_is_not_known_last() -> None:
    rows = [{"tokens_per_s": value, "cluster_power_peak_w": value} for value in (2.0, None, 3.0, 1.0)]
    highest, lowest = parse_objective("throughput"), parse_objective("peak-power")
    assert [row["tokens_per_s"] for row in sorted(rows, key=highest.key)] == [3.0, 2.0, 1.0, None]
    assert [row["tokens_per_s"] for row in sorted(rows, key=lowest.key)] == [1.0, 2.0, 3.0, None]
    assert highest.key({"tokens_per_s": None}) == math.inf


def test_only_what_heat_moves_needs_the_coupled_simulator() -> None:
    assert {name for name, one in OBJECTIVES.items() if one.needs_coupled} == {"peak-power", "temperature"}


@pytest.mark.parametrize(
    ("text", "whole_run", "expected"),
    [
        ("fastest", True, "throughput"),
        ("least:step_time_s", True, "min:METRIC"),
        ("min:step_tim_s", True, "step_time_s"),
        ("run-cost", False, "tokens=N"),
        ("min:run_time_s", False, "tokens=N"),
    ],
)
def test_a_wrong_objective_is_named(text: str, whole_run: bool, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        parse_objective(text, whole_run=whole_run)


def test_any_metric_may_be_made_low_or_high() -> None:
    lowest, highest = parse_objective("min:step_time_s"), parse_objective("max:mfu")
    assert (lowest.metric, lowest.better, lowest.meaning) == ("step_time_s", "lower", "lowest step_time_s")
    assert (highest.metric, highest.better, highest.meaning) == ("mfu", "higher", "highest mfu")
