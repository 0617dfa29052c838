"""What ends a step on one rank: clipping, update and clearing of gradients, counted in launched kernels."""

from charllm.workload.step import Step
from charllm.workload.sync import trained_tensors

TENSORS_PER_LAUNCH = 30
"""Published: tensors that one multi-tensor kernel of PyTorch's fused AdamW takes at most (four lists of addresses)."""


def update_launches(step: Step, stage: int) -> float:
    """Count the kernels that update a rank's weights."""
    if step.run.training.optimizer == "none":
        return 0.0
    return trained_tensors(step, stage) / TENSORS_PER_LAUNCH
