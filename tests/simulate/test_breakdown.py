"""Closed times: every second has a label, and at the clocks that prices hold at nothing changes."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from tests.simulate.runs import GPT3, REPLICAS, cooled, done, ran, under, with_gpu
from tests.simulate.test_energy_and_heat import SLICED

CASES: dict[str, dict[str, Any]] = {
    "as delivered": {},
    "a low cap": under(power_cap_w=300.0),
    "hot": cooled(inlet_c=60.0),
    "one braked node": under(braked_nodes=[3]),
    "some seconds": under(seconds_s=60.0),
}


@pytest.mark.parametrize("base", [GPT3, REPLICAS, SLICED["experts"]], ids=["one replica", "replicas", "experts"])
@pytest.mark.parametrize("case", CASES)
def test_every_second_has_one_label(case: str, base: dict[str, Any]) -> None:
    found = ran(CASES[case], base)
    metrics = found.metrics
    assert sum(metrics["breakdown_s"].values()) == pytest.approx(metrics["step_time_s"], rel=1e-9)
    assert found.whole.timed is not None
    for labels in found.whole.timed.stages:
        assert sum(labels.values()) == pytest.approx(metrics["step_time_s"], rel=1e-9)
        assert min(labels.values()) >= -1e-9


def unheld(run: RunSpec) -> RunSpec:
    """Return a run whose GPUs keep their highest clock, whatever they draw."""
    return with_gpu(run, power_cap_w=2e4)


@pytest.mark.parametrize(
    ("name", "tolerance"), [("dense", 1e-3), ("replicas", 1e-3), ("overlapped", 1e-3), ("experts", 2e-3)]
)
def test_a_step_that_nothing_holds_back_takes_what_it_is_priced_at(name: str, tolerance: float) -> None:
    # What a host holds up is spread evenly over the passes of a kind, hence no closer.
    found = done(unheld(resolve_run(SLICED[name])))
    assert found.metrics["clock_loss_fraction"] == {"power": 0, "thermal": 0, "brake": 0}
    assert found.simulated_step.step_time_s == pytest.approx(found.machine.open_s, rel=tolerance)


def test_one_stage_takes_exactly_what_it_is_priced_at() -> None:
    for framework in ("megatron", "pytorch-eager"):
        request = merge(REPLICAS, {"model": "llama3-8b", "parallelism": {"tp": 1, "pp": 1, "dp": 64}})
        found = done(
            unheld(resolve_run(merge(request, {"framework": framework, "training": {"global_batch_size": 64}})))
        )
        assert found.simulated_step.step_time_s == pytest.approx(found.machine.open_s, rel=1e-7)
