import numpy as np
import pytest

from charllm.plan.metrics import Economics
from charllm.plan.objectives import parse_objective
from charllm.plan.scores import score_of
from charllm.units import HOUR_S, KWH_J
from tests.plan.candidates import mine


@pytest.mark.parametrize(
    ("objective", "bound", "exact", "by_time", "fastest_wins"),
    [
        ("throughput", 10.0, True, True, True),
        ("max:mfu", 10.0, True, True, True),
        ("tokens-per-joule", 32 * 5e3, True, False, False),
        ("edp", 32 * 5e3 * 10, True, False, False),
        ("cost", 32 * 2 / HOUR_S * 10 + 32 * 5e3 * 0.0815 / KWH_J, True, True, False),
        ("run-cost", 32 * 2 / HOUR_S * 10 + 32 * 5e3 * 0.0815 / KWH_J, True, True, False),
        ("temperature", 500.0, False, False, False),
        ("min:mfu", 500.0, False, False, False),
    ],
)
def test_what_a_strategy_scores_at_best_follows_from_its_least_time_and_energy(
    objective: str, bound: float, exact: bool, by_time: bool, fastest_wins: bool
) -> None:
    score = score_of(mine().run, parse_objective(objective), Economics())
    assert score.bound(np.array([10.0]), np.array([5e3])).tolist() == pytest.approx([bound])
    assert (score.exact, score.by_time, score.fastest_wins) == (exact, by_time, fastest_wins)


def test_a_strategy_scores_what_its_metrics_say() -> None:
    run, metrics = mine().run, mine().metrics

    def scored(objective: str) -> float:
        return score_of(run, parse_objective(objective), Economics()).of(run, metrics)

    step_s, step_j = metrics["step_time_s"], metrics["energy_per_step_j"]
    assert scored("throughput") == step_s
    assert scored("tokens-per-joule") == step_j
    assert scored("edp") == pytest.approx(step_s * step_j)
    facility_j = metrics["facility_power_mean_w"] * step_s
    assert scored("cost") == pytest.approx(32 * 2 / HOUR_S * step_s + facility_j * 0.0815 / KWH_J)
    assert scored("temperature") == metrics["power_mean_w"]
    assert scored("min:mfu") == pytest.approx(metrics["mfu"])
    assert scored("max:step_time_s") == pytest.approx(-step_s)
