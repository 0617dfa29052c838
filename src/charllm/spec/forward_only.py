"""Runs of forward passes alone: what of training means nothing to them."""

from charllm.errors import SpecError
from charllm.spec.parallelism import Parallelism
from charllm.spec.training import Training

NEUTRAL = {
    "optimizer": "none", "recompute": "none", "optimizer_offload_fraction": 0.0, "activation_offload_fraction": 0.0,
}  # fmt: skip
"""Setting of training: its value where nothing goes backward."""


def check_forward_only(training: Training, degrees: Parallelism) -> None:
    """Refuse, by name, settings of gradients and updates in a run without them."""
    if degrees.trains:
        return
    for name, neutral in NEUTRAL.items():
        if (value := getattr(training, name)) != neutral:
            raise SpecError(f"training.{name}", value, f"{neutral} in a forward-only run")
    if degrees.zero in (1, 2):
        raise SpecError("parallelism.zero", degrees.zero, "0, or 3 (sharded weights), in a forward-only run")
