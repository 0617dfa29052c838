"""What ends a step on one rank: host time to launch the update, and the update of states that lie with the host.

Equation: launches = trained tensors x (update + clipping calls + pieces x calls of each); offloaded states take
(gradients + weights) / PCIe bandwidth + (gradients + 2 x states) of all GPUs of a node / host memory bandwidth.
Source: beside each constant and function.
Ignores: hooks and learning-rate schedules, which cost the host time, too.
"""

from charllm.workload.step import Step
from charllm.workload.sync import gradient_bytes, optimizer_bytes, stored_bytes, trained_tensors, updated_elements

UPDATE_CALLS, CLIP_CALLS = 0.33, 0.32
"""Measured: host time of each trained tensor for fused AdamW and clearing (10 us), and for clipping (10 us), over that
of launching a kernel (31 us), in eager PyTorch beside H200 boards (evaluate/h200/readings/host_steps.csv)."""

PIECE_CALLS = 0.1
"""Assumed: host time to copy one piece of a tensor, over that of launching a kernel of a module."""


def update_launches(step: Step, stage: int) -> float:
    """Count what updating and clipping a rank's weights costs the host, in launches of a kernel."""
    training = step.run.training
    if training.optimizer == "none":
        return 0.0
    calls = UPDATE_CALLS + (CLIP_CALLS if training.clip_gradients else 0.0)
    if step.run.framework.copied_pieces and step.run.parallelism.zero == 1:
        calls += PIECE_CALLS * step.run.parallelism.shard_ranks
    return trained_tensors(step, stage) * calls


def host_update_s(step: Step, stage: int) -> float:
    """Return the time to update offloaded states: gradients to the host, the update there, weights back.

    All GPUs of a node share the memory of its host. Source of the default bandwidth: ZeRO-Offload (Ren et al. 2021,
    table 4): 10 billion weights in 2.57 s on two processors, at 28 bytes each.
    Ignores: overlap of the three, and with the last backward passes.
    """
    run = step.run
    elements = updated_elements(step, stage) * run.training.optimizer_offload_fraction
    if not elements or run.training.optimizer == "none":
        return 0.0
    node, states = run.cluster.node, optimizer_bytes(step)
    moved_s = elements * (gradient_bytes(step) + stored_bytes(step)) / node.pcie_bandwidth_bytes_per_s
    touched = elements * node.gpus * (gradient_bytes(step) + 2 * states)
    return moved_s + touched / node.host_memory_bytes_per_s
