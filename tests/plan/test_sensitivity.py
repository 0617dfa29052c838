import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan.objectives import OBJECTIVES, parse_objective
from charllm.plan.sensitivity import list_changes, sensitivity
from tests.plan.candidates import candidates, mine

THROUGHPUT = OBJECTIVES["throughput"]


def test_every_change_moves_the_metric_the_way_it_should() -> None:
    best = [mine(), candidates()[1]]
    found = {one.change: one for one in sensitivity(best, THROUGHPUT, budget_s=1e3)}
    usual = [one.metrics["tokens_per_s"] for one in best]
    slower = ("NICs half as fast", "GEMMs and attention 10 % slower", "power limit 20 % lower", "inlet 10 K warmer")
    for name in slower:
        assert all((value or 0.0) < before for value, before in zip(found[name].values, usual, strict=True)), name
    assert all((value or 0.0) > before for value, before in zip(found["NICs twice as fast"].values, usual, strict=True))
    for one in found.values():
        first, second = one.values
        assert first is not None
        assert second is not None
        assert one.winner == (0 if first > second else 1)
        assert one.lead_fraction == first / second - 1


def test_no_change_is_begun_after_the_budget() -> None:
    found = sensitivity([mine(), candidates()[1]], parse_objective("min:clock_loss_fraction.power"), budget_s=-1.0)
    assert len(found) == len(list_changes(mine().run))
    assert all(one.stays is None and "not simulated" in one.reason for one in found)
    assert sensitivity([mine()], THROUGHPUT) == []


def test_the_changes_of_a_machine_are_those_by_hand() -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 8}})
    changes = {change.asked: change.settings for change in list_changes(run)}
    assert changes["power limit 20 % lower"] == {"conditions": {"power_cap_w": pytest.approx(560.0)}}
    assert changes["dies that differ by 5 %"] == {"conditions": {"silicon_spread_fraction": 0.05}}
    rate = changes["GEMMs and attention 10 % slower"]["cluster"]["node"]["gpu"]["kernels"]["rate_fraction"]
    assert rate == pytest.approx(0.9 * run.cluster.gpu.kernels.rate_fraction)
