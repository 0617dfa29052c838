"""Seconds that exchanging one weight takes in a step: of its gradient, of itself, and with every microbatch.

They are those of a very long message, which latency and buckets only add to: seconds of a collective grow less than in
proportion to its length (network/algorithms.py), so that rate x weights is a lower bound.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.network.constants import NETWORK
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TIMELINE
from charllm.timeline.costs import COLUMNS, Costs, StepKernels
from charllm.timeline.step_time import sharded_once, sync_seconds
from charllm.workload.op import Module
from charllm.workload.recompute import Replay
from charllm.workload.step import Block, Chunk, Step, Weights
from charllm.workload.sync import WEIGHT_EXCHANGES, gathers_once, layer_gather, layer_reduce, step_sync

MANY = 1e13
"""Weights of a stage whose exchange is all bandwidth."""


class Rates(NamedTuple):
    """Seconds for each dense and each expert weight of a rank."""

    gradients: tuple[float, float]
    weights: tuple[float, float]
    in_passes: tuple[float, float]
    """Of gathering and reducing with every microbatch."""


def exchange_rates(step: Step, run: RunSpec) -> Rates:
    """Return the rates of a run; `step` gives the formats of its share."""
    found = [_exchanged(replace(step, run=run), weights) for weights in (Weights(dense=MANY), Weights(expert=MANY))]
    gradients, weights, in_passes = zip(*found, strict=True)
    return Rates(gradients, weights, in_passes)


def _exchanged(step: Step, weights: Weights) -> tuple[float, float, float]:
    """Return seconds a weight, of a stage that holds nothing but one large layer."""
    modules = (Module("layer", weights=weights.dense or weights.expert, expert=bool(weights.expert)),)
    block = Block("layer", modules, 1, Replay(0.0, ()), weights, True, 0.0, 0.0, 0.0)
    step = replace(step, chunks=tuple(Chunk(stage, (block,)) for stage in range(step.run.parallelism.pp)))
    gradients = handed_on = 0.0
    for op in (*step_sync(step, 0), *sharded_once(step, 0)):
        seconds = sync_seconds(step.run, op, NETWORK)
        gradients, handed_on = (
            (gradients, handed_on + seconds) if op.kind in WEIGHT_EXCHANGES else (gradients + seconds, handed_on)
        )
    costs = _collective_costs(step.run)
    passed = 0.0
    if not gathers_once(step.run):
        ops = (*layer_gather(step, block), *layer_gather(step, block, "backward"), *layer_reduce(step, block))
        passed = sum(costs.collective_s(op) for op in ops)
    return gradients / MANY, handed_on / MANY, passed / MANY


def _collective_costs(run: RunSpec) -> Costs:
    """Return costs that know collectives alone."""
    nothing = np.zeros(0)
    kernels = StepKernels({}, None, nothing, nothing, nothing, nothing, nothing, ())  # type: ignore[arg-type]
    return Costs(run, kernels, 0.0, np.zeros((0, COLUMNS)), nothing, {}, NETWORK, TIMELINE)
