"""Differences between runs: which runs are pairs, what their noise is, and how well effects are predicted."""

from functools import cache
from math import log
from typing import Any

import pytest

from charllm.evaluate.differences import (
    CLEAR,
    Pair,
    Reading,
    Score,
    effect,
    list_pairs,
    noise_levels,
    read_all,
    score_differences,
)
from charllm.result.differences import CHANGES, FREED, changed_settings, kind_of_change

BASE = {"training.micro_batch_size": 1, "parallelism.tp": 1, "parallelism.dp": 8, "conditions.clock_cap_hz": 1e9,
        "model.layers": 4}  # fmt: skip


def reading(name: str, board: str = "one", said: float = 1.0, read: float = 1.0, **changed: Any) -> Reading:
    settings = {**BASE, **{key.replace("__", "."): value for key, value in changed.items()}}
    return Reading("training", board, name, settings, 1e12, {"step time": (said, read)})


def named(other: dict[str, Any]) -> str | None:
    return kind_of_change(changed_settings(BASE, other))


@pytest.mark.parametrize("name", CHANGES)
def test_each_kind_of_change_is_found_by_its_settings(name: str) -> None:
    change = CHANGES[name]
    other = {**BASE, **dict.fromkeys((*change.settings[:1], *change.along), "another")}
    assert named(BASE) == ""
    assert named(other) == name
    assert named({**other, "model.hidden": 7}) is None


def test_a_clock_limit_against_none_is_a_change_of_its_own() -> None:
    assert named({**BASE, "conditions.clock_cap_hz": None}) == FREED
    assert named({**BASE, "conditions.clock_cap_hz": 2e9}) == "clock limit"


def test_only_runs_of_one_board_are_pairs() -> None:
    apart = [reading("a"), reading("b", board="other", training__micro_batch_size=2)]
    assert list_pairs(apart) == []
    (pair,) = list_pairs([apart[0], apart[1]._replace(board="one", quantities={"step time": (0.9, 0.8)})])
    assert (pair.change, pair.first, pair.second) == ("microbatch", "a", "b")
    assert pair.predicted == pytest.approx(log(0.9))
    assert pair.error == pytest.approx(log(0.9 / 0.8))


def test_effects_of_temperatures_are_kelvin() -> None:
    assert effect("peak temperature", 60.0, 66.0) == 6.0
    assert effect("clock", 2.0, 1.0) == -log(2)


def test_a_rule_knows_clock_limits_and_flop_alone() -> None:
    slower = reading("b", conditions__clock_cap_hz=0.5e9)._replace(flop=2e12)
    (pair,) = list_pairs([reading("a"), slower])
    assert pair.first == "b"
    assert pair.simpler == pytest.approx(log(1e12 / 2e12) + log(0.5))


def test_noise_is_how_far_one_effect_differs_on_two_boards() -> None:
    readings = [
        reading(f"{size}", board, read=1.0 if size == 1 else doubled_s, training__micro_batch_size=size)
        for board, doubled_s in (("one", 2.0), ("two", 2.1)) for size in range(1, 6)
    ]  # fmt: skip
    pairs = [pair for pair in list_pairs(readings) if "1" in (pair.first, pair.second)]
    # Four effects, read twice: fewer than LEAST_REPEATS, so all data together tell it, which are the same.
    assert noise_levels(pairs)["training", "step time"] == pytest.approx(1.4826 * log(2.1 / 2.0))


def test_a_wrong_sign_counts_only_where_the_effect_is_clear() -> None:
    readings = [reading("a"), reading("a", read=1.01), reading("b", said=0.9, read=1.5, training__micro_batch_size=2),
                reading("c", said=0.8, read=1.001, training__micro_batch_size=4)]  # fmt: skip
    scores = {score.change: score for score in score_differences(list_pairs(readings))}
    assert scores["microbatch"].noise == pytest.approx(1.4826 * log(1.01))
    assert (scores["microbatch"].clear, scores["microbatch"].signs_right) == (3, 1)


@cache
def measured() -> tuple[Pair, ...]:
    return tuple(list_pairs(read_all()))


@cache
def scores() -> dict[tuple[str, str, str], Score]:
    return {(score.data, score.change, score.quantity): score for score in score_differences(measured())}


@pytest.mark.parametrize(
    ("data", "quantity", "signs", "error"),
    [
        ("training", "clock", 0.95, 0.02),
        ("training", "step time", 0.95, 0.023),
        ("training", "mean power", 0.90, 0.01),
        ("training", "peak power", 0.85, 0.03),
        ("training", "energy", 0.95, 0.018),
        ("published", "step time", 0.95, 0.02),
    ],
)
def test_clear_effects_have_the_right_sign_and_size(data: str, quantity: str, signs: float, error: float) -> None:
    score = scores()[data, "all", quantity]
    assert score.clear >= 10
    assert score.signs_right >= signs * score.clear
    assert score.median_error <= error


@pytest.mark.parametrize(("quantity", "error"), [("step time", 0.01), ("mean power", 0.02)])
def test_locked_clocks_move_time_and_power_as_measured(quantity: str, error: float) -> None:
    score = scores()["clock-locked", "clock limit", quantity]
    assert score.signs_right >= 0.95 * score.clear >= 50
    assert score.median_error <= error


def test_published_effects_are_predicted_better_than_a_rule_says() -> None:
    score = scores()["published", "all", "step time"]
    assert score.median_error < 0.3 * score.simpler_error


def test_effects_within_the_noise_are_most_often_no_larger_than_it_predicted() -> None:
    noise = noise_levels(measured())
    small = [pair for pair in measured() if pair.data == "published" and pair.change
             and abs(pair.measured) <= noise[pair.data, pair.quantity]]  # fmt: skip
    within = [abs(pair.predicted) <= CLEAR * noise[pair.data, pair.quantity] for pair in small]
    assert sum(within) >= 0.9 * len(within) >= 10
