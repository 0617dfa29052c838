"""Points, their baselines and their scores."""

import pytest

from charllm.evaluate.points import Point, score_points, size_groups, with_baselines


def point(name: str, predicted: float, measured: float, **more: object) -> Point:
    return Point("part", "split", "step time", name, predicted, measured, **more)  # type: ignore[arg-type]


def test_errors_are_fractions_and_those_of_temperatures_kelvin() -> None:
    points = [point("a", 1.1, 1.0), Point("part", "split", "temperature", "b", 63.0, 60.0)]
    seconds, degrees = score_points(points)
    assert seconds.rows == 1
    assert seconds.median == pytest.approx(0.1)
    assert seconds.mean == pytest.approx(0.1)
    assert degrees.median == pytest.approx(3.0)


def test_a_table_says_the_median_rate_of_the_others() -> None:
    points = [point("a", 1.0, 1.0, work=10.0), point("b", 1.0, 2.0, work=20.0), point("c", 1.0, 1.0, work=40.0)]
    # Rates 10, 10, 40: the others of `a` have a median of 25.
    assert with_baselines(points)[0].baseline == pytest.approx(10 / 25)
    assert with_baselines(points[:1])[0].baseline is None


def test_figures_without_work_are_looked_up_within_their_class() -> None:
    watts = [point(name, 1.0, read, groups={"class": kind}) for name, read, kind in
             [("a", 600.0, "dense"), ("b", 700.0, "dense"), ("c", 300.0, "sparse")]]  # fmt: skip
    found = with_baselines(watts)
    assert [each.baseline for each in found] == [700.0, 600.0, None]


def test_groups_with_few_rows_have_no_line_of_their_own() -> None:
    points = [point(name, 1.0, 1.0, groups={"class": kind}) for name, kind in [("a", "x"), ("b", "x"), ("c", "y")]]
    lines = score_points(points, least_rows=2)
    assert {(line.by, line.group): line.rows for line in lines} == {("all", "all"): 3, ("class", "x"): 2}


def test_sizes_are_told_in_words() -> None:
    assert size_groups(8, 1e9) == {"GPUs": "up to 8", "parameters": "up to 3B"}
    assert size_groups(9, 70e9) == {"GPUs": "8 to 64", "parameters": "15 to 80B"}
    assert size_groups(4096, 405e9) == {"GPUs": "over 512", "parameters": "over 80B"}
