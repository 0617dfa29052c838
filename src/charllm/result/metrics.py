"""The metrics of a run: every name a result may carry, its unit and its meaning."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from charllm.gpu.limits import CAUSES as CAUSES
from charllm.gpu.limits import LIMITS as LIMITS

AXES = ("tp", "pp", "dp", "ep", "cp")
LINKS = ("nvlink", "pcie", "nic")

METRICS: dict[str, str] = {
    "step_time_s": "Time of one step.",
    "tokens_per_s": "Throughput: tokens of a step divided by the step time.",
    "tokens_per_s_per_gpu": "Throughput divided by the number of GPUs.",
    "mfu": "Model FLOPs (causal attention halved, no recomputation) over the dense peak of the run's precision.",
    "parameters": "Weights of the model, multi-token-prediction layers included.",
    "active_parameters": "Weights used for one token.",
    "model_flop": "Matrix arithmetic of a step without recomputation, all GPUs.",
    "executed_flop": "Matrix arithmetic of a step as executed, all GPUs.",
    "microbatches": "Microbatches of each replica in a step.",
    "fits": "Whether every rank fits in its GPU's memory.",
    "memory_allocated_bytes": "Peak memory allocated by the framework's allocator, on any rank.",
    "memory_reserved_bytes": "Peak memory reserved by the allocator, on any rank: allocated, cached or fragmented.",
    "memory_peak_bytes": "Device memory of the worst rank: reserved, context and communication buffers.",
    "memory_breakdown_bytes": "Device memory of the worst rank by kind.",
    "memory_rank": "Rank with the most device memory.",
    "power_mean_w": "Board power, mean over a step and over GPUs.",
    "power_peak_w": "Largest 1 ms mean of any GPU.",
    "power_peak_sensor_w": "Largest 25 ms mean of any GPU, as its sensor shows.",
    "energy_per_step_j": "Energy of all GPUs in a step.",
    "tokens_per_j": "Tokens of a step divided by the energy of all GPUs.",
    "node_power_mean_w": "Mean power of a node: GPUs, CPUs, NICs and fans.",
    "cluster_power_peak_w": "Largest power of all nodes together.",
    "cluster_power_ramp_w_per_s": "Fastest change of cluster power from one second to the next.",
    "cluster_power_swing_w": "Oscillation of cluster power between 0.1 and 3 Hz, peak to peak.",
    "temperature_mean_c": "Temperature, mean over a step and over GPUs.",
    "temperature_peak_c": "Highest temperature of any GPU.",
    "temperature_spread_node_k": "Hottest minus coolest GPU of a node, worst node.",
    "temperature_swing_k": "Highest minus lowest temperature within a step, worst GPU.",
    "margin_to_slowdown_k": "Slowdown temperature minus the peak temperature.",
    "clock_mean_hz": "Clock, mean over a step and over GPUs.",
    "clock_std_fraction": "Standard deviation of the clock divided by its mean.",
    "throttled_time_fraction": "Share of time that GPUs are throttled, by cause.",
    "clock_loss_fraction": "Mean clock below the requested clock, as a fraction of it, by cause.",
    "breakdown_s": "Step time by label, mean over GPUs; adds up to step_time_s.",
    "critical_path": "Stages and nodes whose passes the step waits for, with seconds, largest first.",
    "hidden_communication_s": "Communication overlapped with compute, by axis.",
    "link_bytes": "Bytes sent per step by kind of link, all GPUs, counted once at the sender.",
    "axis_bytes": "Bytes sent per step by axis, all GPUs, counted once at the sender.",
    "link_utilization_fraction": "Mean utilisation of each kind of link.",
    "message_bytes_median": "Median message size of each axis.",
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
