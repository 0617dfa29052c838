"""What a run shows of its GPUs and nodes: one table that telemetry, marks and counters of a real job can fill."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.spec.run import RunSpec

GPU_QUANTITIES = {
    "power_w": "board power",
    "temperature_c": "temperature",
    "clock_hz": "clock",
    "power_limit_w": "power limit",
    "power_fraction": "share of time limited by power",
    "thermal_fraction": "share of time limited by temperature",
    "brake_fraction": "share of time under a power brake",
    "sm_active_fraction": "multiprocessor activity",
    "utilization_fraction": "share of time a kernel was resident",
}
NODE_QUANTITIES = {
    "inlet_c": "inlet temperature",
    "nic_sent_bytes_per_s": "bytes sent by the network adapters",
    "nic_rate_bytes_per_s": "rate the network adapters have agreed on",
    "nic_retries_per_s": "packets the network adapters had to send again",
    "nic_wait_fraction": "share of time the adapters could not send",
    "host_load_fraction": "load of the host's processors",
}
"""Quantity: what it is, in the words of a report."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A run as it was seen: readings by quantity, [GPU, window] and [node, window]; NaN where one was not read."""

    node: Ints
    """[GPU] its node."""
    slot: Ints
    """[GPU] its slot in the node."""
    rank: Ints
    """[GPU] the rank that ran on it."""
    stage: Ints | None
    """[GPU] the pipeline stage it worked on; None where the layout is not known."""
    gpus: Mapping[str, Floats]
    nodes: Mapping[str, Floats]
    node_names: tuple[str, ...]
    step_time_s: float | None = None
    run: RunSpec | None = None
    """The run it was meant to be, where its spec is known."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Quantity: why it was not read."""

    def mean(self, quantity: str) -> Floats | None:
        """Return the mean of a quantity of each GPU over its windows; None where no GPU shows it."""
        return _mean(self.gpus.get(quantity))

    def node_mean(self, quantity: str) -> Floats | None:
        """Return the mean of a quantity of each node over its windows; None where no node shows it."""
        return _mean(self.nodes.get(quantity))

    def error(self, quantity: str) -> Floats:
        """Return the standard error of each GPU's mean, from how its windows differ."""
        return _error(self.gpus[quantity])

    def name(self, gpu: int) -> str:
        """Name a GPU as an operator would look for it."""
        if len(self.node_names) == 1:
            return f"GPU {self.slot[gpu]}"
        return f"GPU {self.slot[gpu]} of {self.node_name(int(self.node[gpu]))}"

    def node_name(self, node: int) -> str:
        """Name a node: by its number, unless it has a name."""
        name = self.node_names[node]
        return f"node {name}"


def _mean(values: Floats | None) -> Floats | None:
    if values is None or not np.isfinite(values).any():
        return None
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.asarray(np.where(known.any(axis=1), total / np.maximum(1, known.sum(axis=1)), np.nan))


def _error(values: Floats) -> Floats:
    known = np.isfinite(values)
    count = np.maximum(1, known.sum(axis=1))
    mean = np.where(known, values, 0.0).sum(axis=1) / count
    spread = np.where(known, (values - mean[:, None]) ** 2, 0.0).sum(axis=1) / np.maximum(1, count - 1)
    return np.asarray(np.sqrt(spread / count))
