"""What ends a step: at a clock that does not move, the simulated step is the priced one."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import predict
from charllm.simulate.step_loop import EXCHANGED_S, STRAGGLER_S, UPDATE_HOST_S

CLOCK_HZ = 0.42 * 1.98e9
"""A knot of the H100 and H200, at which no work draws as much as the board may."""
DENSE = {"model": "llama3-8b", "cluster": "h100x8", "training": {"global_batch_size": 32}}
SMALL = {"model": "llama3.2-1b", "cluster": "h200x1", "training": {"global_batch_size": 2}}
ENDS: dict[str, dict[str, Any]] = {
    "interleaved": {**DENSE, "framework": "nemo", "parallelism": {"pp": 4, "vpp": 4, "overlap": ["dp"]}},
    "zero bubble": {**DENSE, "parallelism": {"pp": 4, "schedule": "zero-bubble", "overlap": ["dp"]}},
    "weights apart": {**DENSE, "parallelism": {"tp": 2, "zero": 1}},
    "offloaded": {**DENSE, "training": {"global_batch_size": 32, "optimizer_offload_fraction": 0.5}},
    "host, norm read": {**SMALL, "framework": {"base": "megatron", "launch_s": 5e-4}},
    "host, no norm": {**SMALL, "framework": {"base": "megatron", "launch_s": 5e-4},
                      "training": {"global_batch_size": 2, "clip_gradients": False}},
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_a_step_at_one_clock_ends_as_it_is_priced(name: str) -> None:
    run = resolve_run({**ENDS[name], "conditions": {"clock_cap_hz": CLOCK_HZ}})
    found = predict(run, ignore_memory=True)
    assert found.simulated is not None
    machine, simulated_step = found.simulated.machine, found.simulated.simulated_step
    priced = min(machine.priced[0].times, key=lambda timed: abs(timed.costs.clock_hz - CLOCK_HZ))
    assert simulated_step.step_time_s == pytest.approx(priced.step_time_s, rel=1e-4)
    fraction = machine.ends.straggling_fraction
    for stage, ending in enumerate(priced.endings):
        sums = simulated_step.sums[stage * len(machine.fold.weights)]
        assert sums[EXCHANGED_S] == pytest.approx(ending.gradients_s + ending.weights_s, rel=1e-4, abs=1e-6)
        assert sums[UPDATE_HOST_S] == pytest.approx(ending.host_s, rel=1e-3, abs=1e-5)
        assert sums[STRAGGLER_S] == pytest.approx(fraction / (1 + fraction) * simulated_step.step_time_s, rel=1e-6)


def test_these_ends_have_every_part() -> None:
    endings = [ending for request in ENDS.values() for ending in
               predict(resolve_run(request), ignore_memory=True).machine.priced[0].times[0].endings]  # type: ignore[union-attr]  # fmt: skip
    for part in ("gradients_s", "update_s", "host_s", "weights_s"):
        assert max(getattr(ending, part) for ending in endings) > 1e-3
