"""Prices of a run's ops, remembered: the same op occurs in every layer and microbatch."""

from collections.abc import Callable

from charllm.cost.calibration import Calibration
from charllm.cost.kernels import price_kernel
from charllm.network.collectives import collective_seconds
from charllm.spec.run import RunSpec
from charllm.workload.op import Op, is_communication

Price = Callable[[Op], float]


def make_price(run: RunSpec, calibration: Calibration) -> Price:
    """Return a function that prices ops of one run."""
    known: dict[int, tuple[Op, float]] = {}

    def price(op: Op) -> float:
        found = known.get(id(op))
        if found is not None:
            return found[1]
        seconds = collective_seconds(op, run) if is_communication(op) else price_kernel(op, run, calibration)
        known[id(op)] = (op, seconds)
        return seconds

    return price
