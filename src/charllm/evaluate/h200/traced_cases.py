"""Training runs whose steps were traced on an H200: the requests, and how many of their steps were traced."""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """A training run and how many of its steps are traced."""

    request: dict[str, Any]
    steps: int


def trained(model: dict[str, Any], seq: int, mbs: int, gbs: int, **training: Any) -> dict[str, Any]:
    """Return a run on one GPU."""
    asked = {"seq_length": seq, "micro_batch_size": mbs, "global_batch_size": gbs, **training}
    return {"cluster": "h200x1", "framework": "pytorch-eager", "model": model, "training": asked}


DENSE = {"base": "llama3-8b", "layers": 4, "vocab": 32000}
SPARSE = {"base": "mixtral-8x7b", "layers": 2}
SMALL = {"base": "gpt3-1.3b", "dropout_fraction": 0.0}
CASES: dict[str, Case] = {
    "dense": Case(trained(DENSE, 4096, 2, 4, clip_gradients=True), 12),
    "recompute": Case(trained(DENSE, 4096, 2, 4, recompute="full"), 4),
    "moe-grouped": Case(trained(SPARSE, 4096, 1, 2, grouped_gemm=True), 4),
    "moe-looped": Case(trained(SPARSE, 4096, 1, 2), 4),
    "host-bound": Case(trained(SMALL, 2048, 1, 2), 3),
}
