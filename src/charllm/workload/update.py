"""What ends a step on one rank: host time to launch the update, and the update of states that lie with the host.

Equation: launches = trained tensors x (update + clipping calls + pieces x calls of each); offloaded states take
(gradients + weights) / (share x PCIe bandwidth, at most a GPU's share of host memory) + the longer of (gradients + 2 x
states) of all GPUs of a node / host memory bandwidth and weights / (cores x rate of a core).
Source: beside each constant and function.
Ignores: hooks and learning-rate schedules, which cost the host time, too.
"""

from charllm.workload.step import Step
from charllm.workload.sync import gradient_bytes, optimizer_bytes, stored_bytes, trained_tensors, updated_elements

UPDATE_CALLS, CLIP_CALLS = 0.33, 0.32
"""Measured: host time of each trained tensor for fused AdamW and clearing (10 us), and for clipping (10 us), over that
of launching a kernel (31 us), in eager PyTorch beside H200 boards (evaluate/h200/readings/host_steps.csv)."""

PIECE_CALLS = 0.1
"""Chosen: host time to copy one piece of a tensor, over that of launching a kernel of a module; of two nanotron runs on
512 GPUs one asks for 0.06, one for 0.4."""


PINNED_FRACTION, PAGED_FRACTION = 0.8, 0.4
"""Assumed: share of PCIe bandwidth that copies of page-locked memory reach, and of other memory, which the driver
copies once more."""
CORE_ELEMENTS_PER_S = 81e6
"""Published: 10 billion weights in 2.57 s on the 48 cores of a DGX-2 (ZeRO-Offload, Ren et al. 2021, table 4)."""


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
    memory = node.host_memory_bytes_per_s
    copied = (PINNED_FRACTION if run.training.pinned_offload else PAGED_FRACTION) * node.pcie_bandwidth_bytes_per_s
    moved_s = elements * (gradient_bytes(step) + stored_bytes(step)) / min(copied, memory / node.gpus)
    touched_s = elements * node.gpus * (gradient_bytes(step) + 2 * states) / memory
    computed_s = elements * node.gpus / (node.host_cores * CORE_ELEMENTS_PER_S) if node.host_cores else 0.0
    return moved_s + max(touched_s, computed_s)
