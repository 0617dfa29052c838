"""Small runs that the laws of the loop are tried on, each predicted once."""

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import Simulation, predict
from charllm.simulate.steady import Machine, SimulatedStep
from charllm.spec.request import merge
from charllm.spec.run import RunSpec

GPT3: dict[str, Any] = {
    "model": "gpt3-175b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 8, "pp": 4},
    "training": {"global_batch_size": 32},
}
REPLICAS: dict[str, Any] = {
    "model": "llama3-70b",
    "cluster": {"base": "charllm-ppt-h100", "fabric": "ib-8x400g"},
    "parallelism": {"tp": 4, "pp": 4, "dp": 4},
    "training": {"global_batch_size": 32},
}


class Done(NamedTuple):
    """A prediction with its parts known to be there."""

    whole: Simulation
    metrics: dict[str, Any]
    gpus: list[dict[str, Any]]
    machine: Machine
    simulated_step: SimulatedStep


def done(run: RunSpec) -> Done:
    """Predict a run, whether it fits or not."""
    found = predict(run, ignore_memory=True)
    assert found.machine is not None
    assert found.simulated_step is not None
    return Done(found, found.result.metrics, found.result.gpus, found.machine, found.simulated_step)


@lru_cache(maxsize=64)
def _known(request: str) -> Done:
    return done(resolve_run(json.loads(request)))


def ran(changes: dict[str, Any] | None = None, base: dict[str, Any] | None = None) -> Done:
    """Predict a request with changes, once."""
    return _known(json.dumps(merge(base or GPT3, changes or {}), sort_keys=True))


def cooled(**cooling: Any) -> dict[str, Any]:
    """Return the change that cools the nodes otherwise."""
    return {"cluster": {"cooling": cooling}}


def under(**conditions: Any) -> dict[str, Any]:
    """Return the change that subjects the run to something."""
    return {"conditions": conditions}


def with_gpu(run: RunSpec, **values: Any) -> RunSpec:
    """Return a run on GPUs that differ in something."""
    node = run.cluster.node
    return replace(run, cluster=replace(run.cluster, node=replace(node, gpu=replace(node.gpu, **values))))
