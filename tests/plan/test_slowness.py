"""How slow a GPU is of its own, and how its seconds fall with its power limit."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan import slowness
from charllm.plan.cap_shift import present_caps_w
from charllm.plan.slowness import Reference, alike, find_references, own_slowness, slowest
from charllm.simulate.predict import predict
from charllm.spec.run import RunSpec

SLOPE = 0.4


def run_with(**conditions: Any) -> RunSpec:
    request = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 4}}
    return resolve_run({**request, "training": {"global_batch_size": 16}, "conditions": conditions})


@pytest.mark.parametrize(
    # The other limit is nine tenths; where that cannot be set, as much higher; where neither can, none is told.
    ("limit_w", "other_w"),
    [(700.0, 630.0), (223.0, 200.7), (210.0, 210 / 0.9), (200.0, 200 / 0.9)],
)
def test_the_exponent_is_read_off_the_run_at_another_limit(
    limit_w: float, other_w: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def simulate(run: RunSpec, *, ignore_memory: bool) -> SimpleNamespace:
        assert ignore_memory
        seen.append(float(present_caps_w(run)[0]))
        return SimpleNamespace(step=SimpleNamespace(run=run))

    def by_limit(found: SimpleNamespace, _reference: Reference) -> Any:
        return np.array([1.0, 1.1] * 4) * present_caps_w(found.step.run) ** -SLOPE

    monkeypatch.setattr(slowness, "predict", simulate)
    monkeypatch.setattr(slowness, "own_slowness", by_limit)
    run = run_with(power_cap_w=limit_w)
    before: Any = SimpleNamespace(
        step=SimpleNamespace(run=run), timed=SimpleNamespace(costs=SimpleNamespace(clock_hz=1e9))
    )
    plain, waiting = find_references(before)
    assert seen == pytest.approx([limit_w, other_w])
    assert (plain.clock_hz, plain.exponent) == (1e9, 0.0)
    assert waiting.exponent == pytest.approx(SLOPE)
    # Of each stage the mean of its two GPUs.
    assert plain.role == pytest.approx([1.05 * limit_w**-SLOPE] * 4)
    assert waiting.role is plain.role or waiting.role == pytest.approx(plain.role)


def test_gpus_that_are_alike_have_nothing_that_tells_them_apart() -> None:
    run = alike(run_with(silicon_spread_fraction=0.1, weak_gpus=[3], capped_gpus=[1], capped_power_w=500.0))
    assert not run.power_caps_w
    assert run.conditions.silicon_spread_fraction == 0 == len(run.conditions.weak_gpus)
    assert (run.cluster.node.upstream, run.cluster.node.preheat_k_per_w) == ((), 0.0)
    assert run.cluster.node.rear_sink_fraction == 1.0
    mixed_inlets = {"base": "h200x32", "cooling": {"inlet_c": [20.0, 24.0, 28.0, 32.0]}}
    request = {"model": "llama3-8b", "cluster": mixed_inlets, "parallelism": {"tp": 8, "pp": 4}}
    assert alike(resolve_run(request)).cluster.cooling.inlet_c == 26.0


def test_a_gpu_with_waits_would_be_slower_without_them_by_the_limit_that_its_passes_lose() -> None:
    found = predict(run_with(power_cap_w=400.0, weak_gpus=[0], weak_power_fraction=1.5))
    clock_hz = found.timed.costs.clock_hz if found.timed else 0.0
    plain = Reference(clock_hz, 0.0, np.ones(4))
    own = own_slowness(found, plain)
    busy_s, priced_s = slowness._busy_and_priced_s(found, clock_hz)
    assert own == pytest.approx(busy_s / np.repeat(priced_s, 2))
    # A weak GPU is slower than its neighbour, with which it shares a stage.
    assert own[0] > 1.05 * own[1]
    # d = busy share, c' = c + (c - w) (1 - d) / d, seconds as c^-b.
    duty, waits_w = busy_s / busy_s.max(), slowness._waiting_w(found.step.run)
    higher_w = 400 + (400 - waits_w) * (1 - duty) / duty
    assert 80 < waits_w < 200
    steep = own_slowness(found, plain._replace(exponent=0.5, role=np.array([1.0, 1.0, 2.0, 1.0])))
    assert steep == pytest.approx(own * (higher_w / 400) ** 0.5 / np.repeat([1, 1, 2, 1], 2))
    # Twice the reference clock prices passes at up to half the seconds.
    assert np.all(own_slowness(found, plain._replace(clock_hz=2 * clock_hz)) > 1.3 * own)
    assert slowest([own, steep]) == pytest.approx(np.maximum(own, steep))
