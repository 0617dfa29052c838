"""The committed scoreboard: what is predicted now is no worse, and what is written there follows from the tables.

`make scoreboard` renews all of it; LIMITS are renewed by hand, and only to be lowered.
"""

from pathlib import Path

import pytest

from charllm.evaluate.accuracy_chart import FILE as CHART
from charllm.evaluate.accuracy_chart import draw_chart, group_rows
from charllm.evaluate.accuracy_page import PAGE, render_page
from charllm.evaluate.points import Score
from charllm.evaluate.predictions import load_predictions, write_rows
from charllm.evaluate.scoreboard import (
    LEAST_ROWS,
    PARTS,
    compare,
    published_points,
    read_scoreboard,
    score_all,
)

QUICK = ("kernels", "loops", "training", "ranks", "traced steps", "power caps")
"""Parts that take a second or two together."""
LIMITS = {
    ("published", "family left out", "all"): (0.049, 0.133),
    ("published", "family left out", "dense"): (0.043, 0.105),
    ("published", "family left out", "sparse"): (0.067, 0.195),
    ("published", "family left out", "LoRA"): (0.050, 0.11),
    ("published", "source left out", "all"): (0.047, 0.135),
    ("published", "GPU left out", "all"): (0.049, 0.14),
    ("known runs", "constants that ship", "all"): (0.054, 0.165),
    ("loops", "no constant fitted on it", "all"): (0.013, 0.10),
    ("training", "no constant fitted on it", "all"): (0.036, 0.09),
    ("ranks", "no constant fitted on it", "all"): (0.018, 0.065),
}
"""Part, split and group: median and 90th percentile of the error of the step time that a commit may not exceed."""


def quick_scores() -> list[Score]:
    return score_all(load_predictions(), QUICK)


def test_scores_computed_now_are_no_worse_than_the_committed_ones() -> None:
    worse = [change for change in compare(quick_scores(), read_scoreboard()) if change.worse]
    assert not worse, "run `make scoreboard` if this is meant"


def test_the_scoreboard_follows_from_the_committed_predictions() -> None:
    committed = [score for score in read_scoreboard() if score.part.startswith("published")]
    assert committed == score_all(load_predictions(), ())
    assert {score.split for score in committed} == {point.split for point in published_points(load_predictions())}


@pytest.mark.parametrize("key", list(LIMITS), ids=" ".join)
def test_no_committed_score_exceeds_its_limit(key: tuple[str, str, str]) -> None:
    (found,) = [score for score in read_scoreboard()
                if (score.part, score.split, score.group) == key and score.quantity == "step time"]  # fmt: skip
    median, p90 = LIMITS[key]
    assert found.median <= median
    assert found.p90 <= p90


def test_every_part_is_scored_and_says_what_it_was_fitted_on() -> None:
    scores = read_scoreboard()
    assert {score.part for score in scores} == {"published", "published, untuned hosts", *PARTS}
    assert all(score.rows >= LEAST_ROWS for score in scores if score.by != "all")
    assert all(part.about.strip() for part in PARTS.values())


def test_the_model_beats_a_table_of_rates_on_every_class_and_source_of_twenty_rows() -> None:
    for score in read_scoreboard():
        if (score.part, score.split) == ("published", "family left out") and score.rows >= 20:
            assert score.baseline_median is not None
            assert score.median < score.baseline_median, score


def test_a_score_is_worse_beyond_the_tolerance_only() -> None:
    score = Score("part", "split", "step time", "all", "all", 9, 0.05, 0.15, 0.0, None)
    assert compare([score._replace(median=0.051)], [score]) == []
    (change,) = compare([score._replace(median=0.056)], [score])
    assert change.worse
    (change,) = compare([score._replace(p90=0.13)], [score])
    assert not change.worse


def test_a_written_scoreboard_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = read_scoreboard()[:3]
    monkeypatch.setattr("charllm.evaluate.scoreboard.FILE", tmp_path / "scoreboard.csv")
    write_rows(tmp_path / "scoreboard.csv", Score._fields, scores)
    assert read_scoreboard() == scores


def test_the_chart_of_the_documents_has_a_dot_for_every_held_out_row() -> None:
    rows = load_predictions()
    drawn = draw_chart(group_rows(rows))
    assert CHART.read_text(encoding="utf-8") == drawn
    assert drawn.count("h0") == len(rows)
    tuned = [row for row in rows if row.host == "tuned" and row.kind == "lora"]
    assert group_rows(rows)["LoRA"] == [(row.measured_s, row.predicted_s) for row in tuned]


def test_the_accuracy_page_is_written_from_the_scoreboard() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(read_scoreboard())
