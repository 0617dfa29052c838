"""Simulated runs as doctor sees them."""

import json
from functools import cache
from typing import Any

from charllm.analysis.doctor.diagnose import Finding, diagnose
from charllm.analysis.doctor.expectation import expect
from charllm.analysis.doctor.observation import Observation
from charllm.analysis.doctor.simulated import observe_simulation
from charllm.api.keywords import build_request
from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import Simulation, predict

PIPELINE = {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "tp": 8, "pp": 4, "gbs": 16}
REPLICAS = {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "tp": 2, "gbs": 64}
ONE_NODE = {"model": "llama3-8b", "cluster": "h200x8", "tp": 2, "gbs": 32}
SPREAD = {"silicon_spread_fraction": 0.015}


def simulated(base: dict[str, Any], **conditions: Any) -> Simulation:
    """Simulate a layout under conditions."""
    words = {f"conditions.{name}": value for name, value in {**SPREAD, **conditions}.items()}
    return _simulated(json.dumps({**base, **words}))


@cache
def _simulated(words: str) -> Simulation:
    return predict(resolve_run(build_request(None, json.loads(words))), ignore_memory=True)


def seen(base: dict[str, Any], *, knows_run: bool = True, **conditions: Any) -> Observation:
    """Return what sensors show of it."""
    return observe_simulation(simulated(base, **conditions), seed=1, knows_run=knows_run)


def found(base: dict[str, Any], *, knows_run: bool = True, **conditions: Any) -> list[Finding]:
    """Return what doctor finds in it."""
    observed = seen(base, knows_run=knows_run, **conditions)
    return diagnose(observed, expect(observed))
