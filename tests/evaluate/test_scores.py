from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.evaluate.scores import TimeScore, baseline_errors, describe_by, describe_errors, order_pairs


def score(measured_s: float, predicted_s: float, **changes: Any) -> TimeScore:
    given = {"id": "X-1", "source": "X", "gpu": "h100", "precision": "bf16", "kind": "dense", "family": "X a h100"}
    return TimeScore(**{**given, "measured_s": measured_s, "predicted_s": predicted_s, "flop_per_gpu": 1.0, **changes})


def test_an_error_is_prediction_over_measurement() -> None:
    assert score(2.0, 3.0).error_fraction == pytest.approx(0.5)
    assert score(2.0, 1.0).error_fraction == pytest.approx(-0.5)


def test_statistics_of_a_known_case() -> None:
    described = describe_errors([-0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.9, 1.0])
    assert described["scored"] == 10
    assert described["median_abs_error_fraction"] == pytest.approx(0.55)
    assert described["p90_abs_error_fraction"] == pytest.approx(1.0)
    assert described["mean_error_fraction"] == pytest.approx(0.17)


def test_one_error_is_all_of_its_statistics() -> None:
    described = describe_errors([-0.25])
    assert (described["median_abs_error_fraction"], described["p90_abs_error_fraction"]) == (0.25, 0.25)
    assert described["mean_error_fraction"] == -0.25


def test_no_errors_have_no_statistics() -> None:
    described = describe_errors([])
    assert described.pop("scored") == 0
    assert set(described.values()) == {None}


@given(st.lists(st.floats(-1, 10), min_size=1, max_size=40))
def test_nine_in_ten_errors_are_no_larger_than_the_ninetieth_percentile(errors: list[float]) -> None:
    described = describe_errors(errors)
    below = sum(abs(error) <= described["p90_abs_error_fraction"] for error in errors)
    assert below >= 0.9 * len(errors)
    assert described["median_abs_error_fraction"] <= described["p90_abs_error_fraction"]


def test_groups_are_described_apart() -> None:
    scores = [score(1, 1.1), score(1, 1.3), score(1, 0.5, kind="moe")]
    described = describe_by(scores, lambda one: one.kind)
    assert list(described) == ["dense", "moe"]
    assert described["dense"]["scored"] == 2
    assert described["moe"]["median_abs_error_fraction"] == pytest.approx(0.5)


def test_pairs_of_one_family_are_ordered_or_not() -> None:
    # Of three pairs one is turned round: 1 before 2, 1 before 3, but 3 before 2.
    assert order_pairs([score(1, 10), score(2, 30), score(3, 20)]) == (2 / 3, 3)


def test_pairs_across_families_are_not_compared() -> None:
    assert order_pairs([score(1, 10), score(2, 5, family="Y")]) == (None, 0)


def test_pairs_too_near_to_tell_are_not_asked() -> None:
    assert order_pairs([score(1.0, 1), score(1.05, 2)]) == (None, 0)
    assert order_pairs([score(1.0, 1), score(1.2, 2)]) == (1.0, 1)


def test_an_equal_prediction_orders_nothing() -> None:
    assert order_pairs([score(1, 5), score(2, 5)]) == order_pairs([score(2, 5), score(1, 5)]) == (0.0, 1)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_change_the_order_of_pairs(times: list[tuple[float, float]], random: Any) -> None:
    scores = [score(*both) for both in times]
    before = order_pairs(scores)
    random.shuffle(scores)
    assert order_pairs(scores) == before


def test_a_perfect_prediction_orders_every_pair() -> None:
    assert order_pairs([score(second, second) for second in (1.0, 2.0, 4.0, 8.0)]) == (1.0, 6)


def test_the_baseline_knows_other_families_only() -> None:
    # 10 FLOP: family A runs at 10/s, B at 5/s; each is predicted by the other.
    scores = [score(1, 1, family="A", flop_per_gpu=10.0), score(2, 2, family="B", flop_per_gpu=10.0)]
    assert baseline_errors(scores) == pytest.approx([1.0, -0.5])


def test_the_baseline_takes_the_median_of_its_gpu_and_precision() -> None:
    others = [score(1, 1, family=name, flop_per_gpu=rate) for name, rate in (("B", 1.0), ("C", 2.0), ("D", 40.0))]
    elsewhere = score(1, 1, family="E", gpu="a100", flop_per_gpu=1000.0)
    narrow = score(1, 1, family="F", precision="fp8", flop_per_gpu=1000.0)
    asked = score(1, 1, family="A", flop_per_gpu=4.0)
    assert baseline_errors([asked, *others, elsewhere, narrow])[0] == pytest.approx(4.0 / 2.0 - 1)


def test_the_baseline_falls_back_to_its_gpu_and_then_to_nothing() -> None:
    wide, narrow = score(1, 1, family="A", flop_per_gpu=2.0), score(1, 1, family="B", precision="fp8", flop_per_gpu=8.0)
    assert baseline_errors([wide, narrow]) == pytest.approx([2 / 8 - 1, 8 / 2 - 1])
    assert baseline_errors([wide, score(1, 1, family="A")]) == []


@given(st.floats(0.1, 100))
def test_a_familys_own_times_do_not_help_its_baseline(measured_s: float) -> None:
    fixed = [score(1, 1, family="B", flop_per_gpu=3.0), score(2, 1, family="A", flop_per_gpu=6.0)]
    found = baseline_errors([*fixed, score(measured_s, 1, family="A", flop_per_gpu=1.0)])
    assert found[1] == pytest.approx(6.0 / 3.0 / 2 - 1)
