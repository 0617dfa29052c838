"""The metrics of a run: every name a result may carry, its unit and its meaning."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from charllm.gpu.limits import CAUSES as CAUSES

AXES = ("tp", "pp", "dp", "ep", "cp")
LINKS = ("nvlink", "pcie", "nic")

METRICS: dict[str, str] = {
    "step_time_s": "Time of one step.",
    "tokens_per_s": "Tokens of a step over its time.",
    "tokens_per_s_per_gpu": "The same for one GPU.",
    "mfu": "Model FLOPs (causal attention halved, no recomputation) over the dense peak of the run's precision.",
    "parameters": "Weights of the model, multi-token-prediction layers included.",
    "active_parameters": "Weights that one token meets.",
    "model_flop": "Matrix arithmetic of a step without recomputation, all GPUs.",
    "executed_flop": "Matrix arithmetic of a step as executed, all GPUs.",
    "microbatches": "Microbatches a replica works through in a step.",
    "fits": "Whether every rank fits in its GPU's memory.",
    "memory_allocated_bytes": "Most that the framework's allocator has handed out at once, on any rank.",
    "memory_reserved_bytes": "Most that the allocator holds from the driver, on any rank: used, cached or wasted.",
    "memory_peak_bytes": "Device memory of the worst rank: reserved, context and communication buffers.",
    "memory_breakdown_bytes": "The same by kind.",
    "memory_rank": "The worst rank.",
    "power_mean_w": "Board power, mean over a step and over GPUs.",
    "power_peak_w": "Largest 1 ms mean of any GPU.",
    "power_peak_sensor_w": "Largest 25 ms box of any GPU, as its sensor shows.",
    "energy_per_step_j": "Energy of all GPUs in a step.",
    "tokens_per_j": "Tokens of a step over that energy.",
    "node_power_mean_w": "GPUs, CPUs, NICs and fans of a node.",
    "cluster_power_peak_w": "Largest power of all nodes together.",
    "cluster_power_ramp_w_per_s": "Fastest change of it from one second to the next.",
    "cluster_power_swing_w": "Its swing between 0.1 and 3 Hz, peak to peak.",
    "temperature_mean_c": "Mean over a step and over GPUs.",
    "temperature_peak_c": "Highest of any GPU.",
    "temperature_spread_node_k": "Hottest minus coolest GPU of a node, worst node.",
    "temperature_swing_k": "Highest minus lowest within a step, worst GPU.",
    "margin_to_slowdown_k": "Slowdown threshold minus the peak.",
    "clock_mean_hz": "Mean over a step and over GPUs.",
    "clock_std_fraction": "Its standard deviation over its mean.",
    "throttled_time_fraction": "Share of time each cause holds the clock below the requested one.",
    "clock_loss_fraction": "Mean lost clock over the requested one, by cause.",
    "breakdown_s": "Where each instant of a step goes, mean over GPUs; adds up to step_time_s.",
    "critical_path": "Stages and nodes whose passes the step waits for, with seconds, largest first.",
    "hidden_communication_s": "Communication under compute, by axis.",
    "link_bytes": "Sent per step, all GPUs, counted once at the sender.",
    "axis_bytes": "The same by axis.",
    "link_utilization_fraction": "Mean use of each kind of link.",
    "message_bytes_median": "Median message of each axis.",
    "messages": "Messages of each axis in a step, all GPUs.",
}
"""Name: meaning. Keyed metrics (by axis, link, cause, kind) hold a table."""


class Metrics(dict[str, Any]):
    """Metrics by name, read as ``metrics["step_time_s"]`` or ``metrics.step_time_s``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            near = get_close_matches(name, self, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise AttributeError(f"no metric is named {name!r}{hint}", name=name, obj=self) from None

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self]


def fill_metrics(known: dict[str, Any]) -> Metrics:
    """Return every metric in order, None where it is not known."""
    unknown = set(known) - set(METRICS)
    if unknown:
        raise KeyError(f"not metrics: {sorted(unknown)}")
    return Metrics((name, known.get(name)) for name in METRICS)


def missing(metrics: dict[str, Any]) -> list[str]:
    """List the metrics that are not known."""
    return [name for name, value in metrics.items() if value is None]
