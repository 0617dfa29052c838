from dataclasses import replace

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan.candidate import Candidate
from charllm.plan.objectives import OBJECTIVES, Objective, parse_objective
from charllm.plan.probability import OWN_FRACTION, probability_best, time_errors
from tests.plan.candidates import candidates, mine, request

THROUGHPUT = OBJECTIVES["throughput"]


def faster(candidate: Candidate, factor: float) -> Candidate:
    """Return another strategy with the same shares of a shorter step."""
    metrics = dict(candidate.metrics)
    metrics["step_time_s"] /= factor
    metrics["tokens_per_s"] *= factor
    metrics["breakdown_s"] = {label: each_s / factor for label, each_s in metrics["breakdown_s"].items()}
    return candidate._replace(metrics=metrics, run=candidates()[1].run)


@pytest.mark.parametrize("objective", OBJECTIVES.values())
def test_probabilities_add_up_and_repeat(objective: Objective) -> None:
    found = probability_best(candidates(), objective)
    assert found is not None
    assert sum(found) == pytest.approx(1.0)
    assert found == probability_best(candidates(), objective, seed=0)


def test_a_larger_lead_is_surer_and_no_lead_is_even() -> None:
    leads = [probability_best([mine(), faster(mine(), factor)], THROUGHPUT) for factor in (1.0, 1.03, 1.1, 2.0)]
    second = [found[1] for found in leads if found]
    assert second == sorted(second)
    assert second[0] == pytest.approx(0.5, abs=0.03)
    assert second[-1] > 0.99


def test_errors_of_what_strategies_share_cancel() -> None:
    errors = time_errors([mine(), faster(mine(), 1.1), mine()])
    assert np.allclose(errors[:, 0], errors[:, 2])
    apart, alone = (np.median(np.abs(each)) for each in (errors[:, 0] - errors[:, 1], errors[:, 0]))
    assert apart < 2 * alone
    # Twice the variance of the own error, with tails of three degrees of freedom, whose median is 0.765.
    assert apart == pytest.approx(0.765 * OWN_FRACTION * np.sqrt(2), rel=0.1)


def test_a_lead_by_a_larger_microbatch_is_less_sure() -> None:
    lead = faster(mine(), 1.1)
    larger = replace(lead.run, training=replace(lead.run.training, micro_batch_size=8))
    sure, less = (probability_best([mine(), one], THROUGHPUT) for one in (lead, lead._replace(run=larger)))
    assert sure is not None
    assert less is not None
    assert sure[1] > 0.9 > less[1] > 0.5


def test_the_same_strategy_under_two_caps_is_told_apart_more_surely() -> None:
    slower = faster(mine(), 1.02)
    other = probability_best([mine(), slower], THROUGHPUT)
    same = probability_best([mine(), slower._replace(run=mine().run)], THROUGHPUT)
    assert other is not None
    assert same is not None
    assert same[1] > other[1] > 0.5


def test_a_metric_whose_error_is_not_known_has_no_probability() -> None:
    assert probability_best(candidates(), parse_objective("min:cluster_power_ramp_w_per_s")) is None
    assert probability_best([], THROUGHPUT) is None


@pytest.mark.parametrize(("cluster", "fraction"), [("charllm-ppt-h200", 0.034), ("charllm-ppt-h100", 0.0537)])
def test_clocks_under_caps_are_less_sure_on_boards_that_were_not_read(cluster: str, fraction: float) -> None:
    one = mine()._replace(run=replace(mine().run, cluster=resolve_run({**request(8, 4), "cluster": cluster}).cluster))
    capped = one._replace(run=replace(one.run, conditions=replace(one.run.conditions, power_cap_w=500.0)))
    errors = time_errors([one, capped])
    # Of a difference of two; half of Student's distribution of three degrees of freedom lies within 0.765.
    apart = np.median(np.abs(errors[:, 0] - errors[:, 1]))
    assert apart == pytest.approx(0.765 * fraction * np.sqrt(2), rel=0.06)
