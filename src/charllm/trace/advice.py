"""One sentence on what to do about the largest loss of a traced run."""

from collections.abc import Mapping
from typing import Any

from charllm.units import format_percent

LEAST = 0.03
"""A loss below this share of a step is not worth a change (assumed)."""
REMEDIES = {
    "tp": "use a smaller tensor-parallel degree, sequence parallelism, or overlap it with the GEMMs",
    "pp": "use more microbatches, an interleaved schedule, or a better balance of stages",
    "dp": "overlap it with the backward pass, use larger buckets, or accumulate more microbatches",
    "ep": "overlap dispatch with shared experts, balance the routing, or keep expert groups inside a node",
    "cp": "overlap it with attention blocks, or use a smaller context-parallel degree",
    "other": "overlap it with compute; name the process groups, or give the spec, to identify its axis",
}
IDLE_REMEDIES = {
    "host": "the host launches too slowly: use CUDA graphs, torch.compile, fused kernels or a larger microbatch",
    "sync": "the host waits for the device: remove .item(), .cpu() and synchronize() from the step",
    "kernel_gap": "many short kernels: fuse them, or use CUDA graphs",
    "dependency": "the device waits for another stream or rank: look at the collectives before the gaps",
    "unknown": "the trace does not say what launched the kernels: record CPU activities too",
}


def advise(summary: Mapping[str, Any]) -> str:
    """Name the largest loss of a run and what may be done about it."""
    step_s = summary["step_time_s"]
    if not step_s:
        return "Nothing was executed."
    losses = {f"exposed {axis} communication": (seconds, REMEDIES.get(axis, REMEDIES["other"]))
              for axis, seconds in summary["exposed_communication_s"].items()}  # fmt: skip
    losses |= {f"idle ({cause.replace('_', ' ')})": (seconds, IDLE_REMEDIES[cause])
               for cause, seconds in summary["idle_s"].items()}  # fmt: skip
    losses["exposed copies"] = (summary["copy_fraction"] * step_s, "pin host memory and copy on a stream of its own")
    if summary["straggler"]:
        rank, cause = summary["straggler"]["rank"], summary["straggler"]["cause"]
        losses[f"waiting for rank {rank}"] = (summary["straggler"]["caused_wait_s"], f"find why it is late ({cause})")
    name, (seconds, remedy) = max(losses.items(), key=lambda item: item[1][0])
    if name == "idle (host)" and summary["tensor_core_fraction"] is None:
        remedy = "the host spends it outside of operators: in Python, data loading or waiting"
    if seconds < LEAST * step_s:
        return (
            f"The device computes {format_percent(summary['compute_fraction'])} of the step; no single loss is large."
        )
    return f"Largest loss: {name}, {format_percent(seconds / step_s)} of the step; {remedy}."
