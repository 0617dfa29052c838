"""How Megatron-LM flags train: batch, precision, recomputation, optimizer."""

import re
from typing import Any

from charllm.errors import unknown_name
from charllm.spec.readers.megatron.derived import RECOMPUTES
from charllm.spec.readers.megatron.family import Family
from charllm.spec.readers.megatron.flags import Flags, count_of, count_or, known_text_of, number_of, text_of
from charllm.spec.readers.reading import Setting
from charllm.spec.readers.values import MAX_TEXT, read_choice
from charllm.spec.training import RECOMPUTE_MODULES

Table = dict[str, Any]

OPTIMIZERS = {
    "adam": "adam", "sgd": "sgd", "adamw": "adam", "fusedadam": "adam", "fusedadamw": "adam", "hybridadam": "adam",
}  # fmt: skip
FORMATS = {"fp32": "fp32", "float32": "fp32", "bf16": "16bit", "bfloat16": "16bit", "fp16": "16bit", "float16": "16bit"}
MOMENT_FORMATS = {**FORMATS, "fp8": "8bit", "uint8": "8bit"}
STATES = {
    "first_moment_precision": ("--exp-avg-dtype", MOMENT_FORMATS),
    "second_moment_precision": ("--exp-avg-sq-dtype", MOMENT_FORMATS),
    "main_weight_precision": ("--main-params-dtype", FORMATS),
    "main_gradient_precision": ("--main-grads-dtype", FORMATS),
}
"""Field of the training: flag that states its format, and what its words mean."""
REDUCED = dict.fromkeys(("bf16", "bfloat16", "fp16", "float16"), "bf16")
FP8_FLAGS = ("--fp8-format", "--fp8-hybrid", "--fp8-e4m3")
OLD_RECOMPUTES = ("--checkpoint-activations", "--deepspeed-activation-checkpointing", "--activations-checkpoint-method")


def read_training(flags: Flags, family: Family, sparse: bool) -> tuple[Table, list[Setting]]:
    """Return the fields of the training, and settings of it that are not modelled."""
    optimizer, unmodelled = _optimizer(flags)
    table: Table = {
        "seq_length": count_of(flags, "--seq-length"),
        "micro_batch_size": count_of(flags, "--micro-batch-size"),
        "global_batch_size": count_of(flags, "--global-batch-size"),
        "precision": _precision(flags),
        "reduce_precision": _reduce_precision(flags),
        "optimizer": optimizer,
        "clip_gradients": False if number_of(flags, "--clip-grad") == 0 else None,
        "wide_layers": _wide_layers(flags),
        "narrow_weights": True if "--fp8-param-gather" in flags else None,
        "narrow_activation_input": True if "--activation-func-fp8-input-store" in flags else None,
        **{field: _format(flags, flag, words) for field, (flag, words) in STATES.items()},
        **_offload(flags),
        **_recompute(flags),
    }
    if sparse:
        table["grouped_gemm"] = "--moe-grouped-gemm" in flags and not family.deepspeed
        table["capacity_factor"] = _capacity(flags, family)
    return {field: value for field, value in table.items() if value is not None}, unmodelled


def _optimizer(flags: Flags) -> tuple[str, list[Setting]]:
    name = (known_text_of(flags, "--optimizer") or "adam").lower()
    if name in OPTIMIZERS:
        return OPTIMIZERS[name], []
    return "adam", [flags.setting("--optimizer", "another optimizer")]


def _format(flags: Flags, flag: str, words: dict[str, str]) -> str | None:
    stated = known_text_of(flags, flag)
    return None if stated is None else read_choice(flag, stated, words)


def _offload(flags: Flags) -> Table:
    """Return the shares of the optimizer and of the layers' activations that the host holds."""
    found: Table = {}
    if flags.any("--optimizer-cpu-offload", "--optimizer-offload-fraction", "--cpu-optimizer", "--cpu-torch-adam"):
        stated = number_of(flags, "--optimizer-offload-fraction")
        found["optimizer_offload_fraction"] = 1.0 if stated is None else stated
    layers = count_of(flags, "--cpu-offloading-num-layers")
    if layers:
        each = max(count_or(flags, "--num-layers", 1) // count_or(flags, "--pipeline-model-parallel-size", 1), 1)
        found["activation_offload_fraction"] = min(1.0, layers / each)
    return found


def _capacity(flags: Flags, family: Family) -> float | None:
    stated = number_of(flags, "--moe-expert-capacity-factor")
    if "--disable-moe-token-dropping" in flags:
        return None
    return 1.0 if stated is None and family.deepspeed else stated


def _precision(flags: Flags) -> str:
    if "--fp4-format" in flags:
        return "nvfp4"
    if flags.any(*FP8_FLAGS):
        return "mxfp8" if text_of(flags, "--fp8-recipe") == "mxfp8" else "fp8"
    return next((name for name in ("bf16", "fp16") if f"--{name}" in flags), "fp32")


def _wide_layers(flags: Flags) -> int | None:
    if "--first-last-layers-bf16" not in flags or not flags.any(*FP8_FLAGS, "--fp4-format"):
        return None
    return count_or(flags, "--num-layers-at-start-in-bf16", 1) + count_or(flags, "--num-layers-at-end-in-bf16", 1)


def _reduce_precision(flags: Flags) -> str:
    """Return the format of the gradient reduction, which bf16 training does in fp32 unless told otherwise."""
    stated = known_text_of(flags, "--megatron-fsdp-grad-comm-dtype")
    if stated is not None:
        return read_choice("--megatron-fsdp-grad-comm-dtype", stated, {**REDUCED, "fp32": "fp32", "float32": "fp32"})
    if "--bf16" in flags:
        return "bf16" if "--grad-reduce-in-bf16" in flags else "fp32"
    fp32 = flags.any("--accumulate-allreduce-grads-in-fp32", "--fp32-allreduce")
    return "bf16" if "--fp16" in flags and not fp32 else "fp32"


def _recompute(flags: Flags) -> Table:
    if "--recompute-activations" in flags:
        return {"recompute": "selective", **_modules(flags)}
    granularity = known_text_of(flags, "--recompute-granularity")
    if granularity is not None and granularity.lower() != "none":
        kind = read_choice("--recompute-granularity", granularity, RECOMPUTES)
        return {"recompute": kind, **(_modules(flags) if kind == "selective" else _recomputed_layers(flags))}
    if flags.any(*OLD_RECOMPUTES):
        return {"recompute": "full", **_recomputed_layers(flags)}
    if "--moe-layer-recompute" in flags:
        return {"recompute": "selective", "recompute_modules": ["moe"]}
    return {"recompute": "none"}


def _recomputed_layers(flags: Flags) -> Table:
    """Return how many layers are recomputed; the uniform method groups layers but recomputes all of them."""
    method = text_of(flags, "--recompute-method") or text_of(flags, "--activations-checkpoint-method")
    return {"recompute_layers": count_of(flags, "--recompute-num-layers") if method == "block" else None}


def _modules(flags: Flags) -> Table:
    modules = [word for word in flags.values.get("--recompute-modules", []) if re.fullmatch(r"[a-z_]+", word)]
    for module in modules:
        if module not in RECOMPUTE_MODULES:
            raise unknown_name("--recompute-modules", module[:MAX_TEXT], RECOMPUTE_MODULES)
    return {"recompute_modules": modules} if modules else {}
