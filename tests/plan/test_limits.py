import re

import pytest

from charllm.errors import SpecError
from charllm.plan.limits import Judged, _nearest, broken, explain_infeasible, keeps, parse_limit, parse_limits
from charllm.result.metric import metric_value
from charllm.result.metrics import PLAN_METRICS
from tests.plan.candidates import candidates


@pytest.mark.parametrize(
    ("text", "metric", "sense", "value"),
    [
        ("memory_peak_gib<130", "memory_peak_bytes", "<", 130 * 2**30),
        (" cluster_power_peak_mw <= 2 ", "cluster_power_peak_w", "<=", 2e6),
        ("clock_loss_fraction.power<0.05", "clock_loss_fraction.power", "<", 0.05),
        ("breakdown_ms.bubble<20", "breakdown_s.bubble", "<", 0.02),
        ("tokens_per_kwh>3.6e6", "tokens_per_j", ">", 1.0),
        ("cluster_power_ramp_kw_per_s<10", "cluster_power_ramp_w_per_s", "<", 1e4),
        ("run_time_days<60", "run_time_s", "<", 60 * 86_400),
        ("rack_power_peak_kw<40", "rack_power_peak_w", "<", 4e4),
        ("money_per_trillion_tokens<1e6", "money_per_trillion_tokens", "<", 1e6),
    ],
)
def test_a_limit_is_read_in_any_unit(text: str, metric: str, sense: str, value: float) -> None:
    found = parse_limit(text)
    assert found[:2] == (metric, sense)
    assert found.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory_peak_gib=130", "METRIC<VALUE"),
        ("memory_pek_gib<130", "did you mean memory_peak_bytes"),
        ("power_peak_w<many", "a number"),
        ("power_peak_w<nan", "a number"),
        ("breakdown_s<1", "breakdown_s.KEY"),
        ("breakdown_s.bubbles<1", "bubble"),
        ("power_peak_w.tp<1", "one number"),
        ("fits>0", "one of"),
    ],
)
def test_a_wrong_limit_is_named(text: str, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        parse_limit(text)


def test_limits_that_no_value_keeps_are_refused() -> None:
    with pytest.raises(SpecError, match="some value keeps"):
        parse_limits(["power_peak_w>900", "power_peak_kw<0.8"])
    assert len(parse_limits(["power_peak_w>=900", "power_peak_kw<=0.9", "step_time_s<1"])) == 3


def test_every_metric_of_a_plan_has_a_value_that_its_own_limit_keeps() -> None:
    metrics = candidates()[0].metrics
    for name, one in PLAN_METRICS.items():
        for key in one.keys or ("",):
            path = f"{name}.{key}" if key else name
            value = metric_value(metrics, path) if one.is_number else None
            if value is not None:
                assert keeps(parse_limit(f"{path}<={value!r}"), metrics), path
                assert not keeps(parse_limit(f"{path}<{value!r}"), metrics), path


def test_an_unknown_metric_breaks_its_limit() -> None:
    limit = parse_limit("temperature_peak_c<80")
    assert keeps(limit, {"temperature_peak_c": None}) is None
    assert broken([limit], {"temperature_peak_c": None}) == [limit]
    assert "not known" in explain_infeasible([limit], [candidates()[0]._replace(metrics={})])


def test_the_limit_that_no_strategy_keeps_is_named_with_the_nearest_value() -> None:
    limits = parse_limits(["memory_peak_gib<40", "step_time_s<1000"])
    text = explain_infeasible(limits, candidates())
    nearest = min(candidates(), key=lambda one: one.metrics["memory_peak_bytes"])
    found = re.match(r"memory_peak_gib<([\d.]+) \(([\d.]+) % above\), met by tp", text)
    assert found
    least_gib = nearest.metrics["memory_peak_bytes"] / 2**30
    assert least_gib < float(found[1]) < 1.001 * least_gib
    assert "which of 5 strategies comes nearest to memory_peak_gib<40" in text
    met = parse_limits([f"memory_peak_gib<{found[1]}"])
    assert not broken(met, nearest.metrics)
    assert f"tp {nearest.run.parallelism.tp} x" in text
    assert "step_time" not in text


def test_two_limits_that_contradict_each_other_are_named() -> None:
    times = sorted(one.metrics["step_time_s"] for one in candidates())
    fastest = min(candidates(), key=lambda one: one.metrics["step_time_s"])
    memory_gib = fastest.metrics["memory_peak_bytes"] / 2**30
    text = explain_infeasible(
        parse_limits([f"step_time_s<={times[0]}", f"memory_peak_gib<{memory_gib}", "mfu>0"]), candidates()
    )
    assert "; or with memory_peak_gib<" in text
    assert "mfu" not in text


@pytest.mark.parametrize(
    ("text", "metric", "value"),
    [
        ("cluster_power_peak_w<1MW", "cluster_power_peak_w", 1e6), ("run_time_s<30d", "run_time_s", 30 * 86_400.0),
        ("run_money<2MUSD", "run_money", 2e6), ("run_money<=500k", "run_money", 5e5),
        ("temperature_peak_c<80C", "temperature_peak_c", 80.0),
        ("memory_peak_gib<130GiB", "memory_peak_bytes", 130 * 2**30),
        ("mfu>40%", "mfu", 0.4), ("run_energy_j<2GWh", "run_energy_j", 7.2e12),
        ("run_time_s<12 hours", "run_time_s", 43_200.0),
    ],
)  # fmt: skip
def test_a_limit_may_have_a_unit(text: str, metric: str, value: float) -> None:
    limit = parse_limit(text)
    assert limit.metric == metric
    assert limit.value == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["cluster_power_peak_w<1GiB", "mfu>40W", "run_money<3days", "tokens_per_s<1MW", "run_time_s<2x"]
)
def test_a_unit_that_does_not_fit_is_refused_with_those_that_do(text: str) -> None:
    with pytest.raises(SpecError, match=r"limit .*: got .*; expected (one of|money|a number)"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("limit", "value", "expected"),
    [
        ("step_time_s<1", 1.2345678, "step_time_s<1.235 (23.5 % above)"),
        ("step_time_ms<1000", 1.2345678, "step_time_ms<1235 (23.5 % above)"),
        ("step_time_s<0.05", 0.061, "step_time_s<0.06101 (22.0 % above)"),
        ("tokens_per_s>200", 123.456, "tokens_per_s>123.4 (38.3 % below)"),
    ],
)
def test_the_nearest_limit_is_written_to_four_digits_and_is_kept(limit: str, value: float, expected: str) -> None:
    found = parse_limit(limit)
    one = candidates()[0]._replace(metrics={found.metric: value})
    assert _nearest(found, [Judged("tp 8", one.metrics)]).startswith(f"{expected}, met by tp 8")
    assert keeps(parse_limit(expected.split(" ")[0]), one.metrics)
