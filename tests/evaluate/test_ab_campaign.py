"""The A/B campaign: its pairs, its order of play, and how effects are read; no GPU is needed."""

from math import log
from pathlib import Path
from typing import Any

import pytest

from benchmarks.device.ab_campaign import (
    METRICS,
    Windows,
    play_pair,
    predict_pairs,
    read_predicted,
    read_windows,
    score,
)
from benchmarks.device.ab_pairs import PAIRS, Rank
from charllm.catalog.resolve import resolve_run
from charllm.result.differences import changed_settings, kind_of_change


def test_thirty_pairs_differ_in_one_kind_of_setting() -> None:
    assert len(PAIRS) >= 30
    assert {pair.change for pair in PAIRS.values()} == {"microbatch", "recomputation", "overlap", "strategy", "power"}
    for name, pair in PAIRS.items():
        sides = [side.request if isinstance(side, Rank) else side for side in (pair.first, pair.second)]
        if pair.change != "power":
            first, second = (resolve_run(side).as_table() for side in sides if isinstance(side, dict))
            assert kind_of_change(changed_settings(first, second)) == pair.change, name


def test_every_kind_of_side_is_predicted() -> None:
    chosen = {name: PAIRS[name] for name in ("gpt-none-mbs1-mbs2", "llama3-8b-dp32-overlap", "duty-100-50")}
    rows = predict_pairs(chosen)
    assert {row["pair"] for row in rows} == {*chosen}
    effects = {(row["pair"], row["metric"]): float(row["effect"]) for row in rows}
    assert effects["gpt-none-mbs1-mbs2", "step_time_s"] < 0
    assert effects["duty-100-50", "power_mean_w"] < -0.1
    assert ("duty-100-50", "step_time_s") not in effects


def test_a_pair_that_was_not_predicted_is_not_played(tmp_path: Path) -> None:
    path = tmp_path / "predicted.csv"
    path.write_text("pair,change,metric,effect\n")
    with pytest.raises(SystemExit, match="predict and commit first"):
        read_predicted(path, PAIRS)


def test_sides_take_turns_and_their_effect_is_that_of_neighbours(tmp_path: Path) -> None:
    played: list[str] = []
    name = "gpt-none-mbs1-mbs2"

    def prepare(side: Any, _timeline: Path) -> Any:
        label = "A" if side is PAIRS[name].first else "B"
        return lambda _seconds_s: played.append(label)

    play_pair(name, PAIRS[name], tmp_path, tmp_path, prepare, Windows(0.0, 0.0))
    assert "".join(played) == "AB" + "AB" * 3
    windows = read_windows(tmp_path)
    drift = {turn: 1 + 0.1 * turn for turn in range(3)}
    rows = score(
        windows,
        lambda line: dict.fromkeys(METRICS, drift[line["turn"]] * (2.0 if line["side"] == "B" else 1.0)),
        {(name, metric): 0.5 for metric in METRICS},
    )
    assert [row["read"] for row in rows] == [pytest.approx(log(2))] * len(METRICS)
    assert rows[0]["standard_error"] == pytest.approx(0.0)
    assert rows[0]["predicted"] == 0.5
