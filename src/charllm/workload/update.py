"""What ends a step on one rank, in kernels that the host would launch in the same time."""

from charllm.workload.step import Step
from charllm.workload.sync import trained_tensors

UPDATE_CALLS, CLIP_CALLS = 0.33, 0.32
"""Measured: host time of each trained tensor for fused AdamW and clearing (10 us), and for clipping (10 us), over that
of launching a kernel (31 us), in eager PyTorch beside H200 boards (benchmarks/device/h200/host_steps.csv)."""


def update_launches(step: Step, stage: int) -> float:
    """Count what updating and clipping a rank's weights costs the host, in launches of a kernel."""
    training = step.run.training
    if training.optimizer == "none":
        return 0.0
    return trained_tensors(step, stage) * (UPDATE_CALLS + (CLIP_CALLS if training.clip_gradients else 0.0))
