"""The training runs that are measured on a real GPU."""

from typing import Any

from charllm.spec.request import merge

STEADY_S, SHORT_S = 25.0, 20.0
ONE_GPU = {"cluster": "h200x1", "framework": "pytorch-eager"}
GPT = {
    **ONE_GPU,
    "model": {"base": "gpt3-1.3b", "dropout_fraction": 0.0},
    "training": {"seq_length": 2048, "global_batch_size": 8},
}
LLAMA = {
    **ONE_GPU,
    "model": {"base": "llama3-8b", "layers": 8, "vocab": 32000},
    "training": {"seq_length": 4096, "global_batch_size": 8},
}
MOE = {
    **ONE_GPU,
    "model": {"base": "mixtral-8x7b", "layers": 4},
    "training": {"seq_length": 4096, "global_batch_size": 8},
}
LORA = {
    **ONE_GPU,
    "model": {"base": "llama3-8b", "layers": 16, "vocab": 32000},
    "training": {"seq_length": 4096, "global_batch_size": 8, "lora_rank": 16},
}


def configured(base: dict[str, Any], mbs: int, recompute: str = "none") -> dict[str, Any]:
    """Return a run with its microbatch and recomputation."""
    merged: dict[str, Any] = merge(base, {"training": {"micro_batch_size": mbs, "recompute": recompute}})
    return merged


TRAINING: dict[str, tuple[dict[str, Any], float]] = {
    "gpt-mbs1": (configured(GPT, 1), STEADY_S),
    "gpt-mbs4": (configured(GPT, 4), STEADY_S),
    "gpt-mbs8": (configured(GPT, 8), STEADY_S),
    "gpt-mbs8-full": (configured(GPT, 8, "full"), STEADY_S),
    "llama-mbs1": (configured(LLAMA, 1), STEADY_S),
    "llama-mbs4": (configured(LLAMA, 4), STEADY_S),
    "moe-mbs2": (configured(MOE, 2), STEADY_S),
    "lora-mbs2": (configured(LORA, 2), STEADY_S),
    "gpt-mbs2": (configured(GPT, 2), SHORT_S),
    "gpt-mbs4-selective": (configured(GPT, 4, "selective"), SHORT_S),
    "gpt-mbs4-full": (configured(GPT, 4, "full"), SHORT_S),
    "llama-mbs2": (configured(LLAMA, 2), SHORT_S),
    "llama-mbs8": (configured(LLAMA, 8), SHORT_S),
    "llama-mbs4-full": (configured(LLAMA, 4, "full"), SHORT_S),
    "llama-mbs4-selective": (configured(LLAMA, 4, "selective"), SHORT_S),
    "moe-mbs1": (configured(MOE, 1), SHORT_S),
    "moe-mbs4": (configured(MOE, 4), SHORT_S),
    "lora-mbs1": (configured(LORA, 1), SHORT_S),
    "lora-mbs4": (configured(LORA, 4), SHORT_S),
    "lora-mbs4-full": (configured(LORA, 4, "full"), SHORT_S),
}
LATER: dict[str, dict[str, Any]] = {
    "gpt-350m-mbs2": configured(merge(GPT, {"model": {"base": "gpt3-350m", "vocab": 50304}}), 2),
    "gpt-350m-mbs8-full": configured(merge(GPT, {"model": {"base": "gpt3-350m", "vocab": 50304}}), 8, "full"),
    "gpt-2.7b-mbs2": configured(merge(GPT, {"model": {"base": "gpt3-2.7b", "vocab": 50304}}), 2),
    "gpt-2.7b-mbs4-full": configured(merge(GPT, {"model": {"base": "gpt3-2.7b", "vocab": 50304}}), 4, "full"),
    "llama-mbs1-full": configured(LLAMA, 1, "full"),
    "llama-mbs8-selective": configured(LLAMA, 8, "selective"),
    "llama-vocab128k-mbs2": configured(merge(LLAMA, {"model": {"vocab": 128256}}), 2),
    "lora-all-mbs4": configured(merge(LORA, {"training": {"lora_targets": ["qkv", "proj", "fc1", "fc2"]}}), 4),
    "lora-mbs2-full": configured(LORA, 2, "full"),
    "moe-mbs2-full": configured(MOE, 2, "full"),
    "mpt-1b-mbs4": configured(merge(ONE_GPU, {"model": "mpt-1b", "training": GPT["training"]}), 4),
}
"""Runs read after what recomputation, losses, adapters and launches take had been modelled."""
