import pytest
from hypothesis import given
from hypothesis import strategies as some

from charllm.report.page.cases import StudiedCase, group_cases
from charllm.report.page.pareto import pareto, pareto_front
from tests.report.page.made_cases import TOKENS, make_case

METRICS = ("tokens_per_s_per_gpu", "tokens_per_j")


def beats(one: StudiedCase, other: StudiedCase) -> bool:
    pairs = [(one.values[name], other.values[name]) for name in METRICS]
    return all(first >= second for first, second in pairs) and any(first > second for first, second in pairs)


@given(some.lists(some.tuples(some.integers(1, 5), some.integers(1, 5)), min_size=1, max_size=12))
def test_a_case_is_on_the_front_when_no_other_of_its_model_beats_it(points: list[tuple[int, int]]) -> None:
    cases = group_cases(
        [make_case(f"a {at}", 5.0 + slow, at, tokens_per_j=float(per)) for at, (slow, per) in enumerate(points)]
    )
    front = pareto_front(cases, METRICS)
    for case, on_front in zip(cases, front, strict=True):
        beaten = any(beats(other, case) for other in cases)
        assert not (on_front and beaten)
        # Of equal cases one is enough.
        assert (
            on_front
            or beaten
            or sum(case.values[name] == other.values[name] for other in cases for name in METRICS) > 2
        )


def test_models_have_fronts_of_their_own() -> None:
    figure = pareto(group_cases([make_case("a x", 10.0), make_case("b x", 20.0)]), ("tp",))
    assert figure.columns["front"].values == [True, True]
    assert figure.options["colour"] == "group"


def test_any_two_metrics_may_be_chosen_and_each_axis_of_the_study_filters() -> None:
    cases = [make_case(f"a {tp}", 10.0 + tp, tp, tp=tp, **{"conditions.power_cap_w": 300.0 + tp}) for tp in (1, 2, 4)]
    figure = pareto(group_cases(cases), ("strategy", "tp", "conditions.power_cap_w"))
    assert figure.options["filters"] == ["group", "tp", "conditions.power_cap_w"]
    assert (figure.columns["conditions.power_cap_w"].label, figure.columns["conditions.power_cap_w"].unit) == (
        "power cap",
        "W",
    )
    assert {"step_time_s", "power_mean_w", "clock_loss", "breakdown_s.compute"} <= set(figure.options["choices"])
    assert all(name in figure.columns for name in figure.options["choices"])
    assert figure.options["better"]["step_time_s"] == "lower"


def test_a_point_has_its_settings_and_the_command_that_runs_it() -> None:
    figure = pareto(group_cases([make_case("a x", 10.0, command="charllm simulate --tp 4")]), ())
    assert figure.columns["details"].values == [
        {"command": "charllm simulate --tp 4", "model": "a", "parallelism.tp": "4"}
    ]


@pytest.mark.parametrize(("slowest_s", "scale"), [(30.0, "linear"), (1000.0, "log")])
def test_values_far_apart_stand_on_a_log_axis(slowest_s: float, scale: str) -> None:
    figure = pareto(group_cases([make_case("a x", 10.0), make_case("a y", slowest_s)]), ())
    assert figure.options["x_scale"] == scale
    assert figure.columns["tokens_per_s_per_gpu"].values[0] == TOKENS / 10 / 32
