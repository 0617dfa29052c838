"""What tuning programs above Megatron-Core add to its flags: `megatron sft` of ms-swift, and MindSpeed-LLM's LoRA.

Defaults of ms-swift: modelscope/ms-swift, swift/megatron/arguments/megatron_args.py.
"""

from typing import Any

from charllm.spec.readers.megatron.flags import Flags, count_of, count_or, number_of, text_of
from charllm.spec.readers.reading import PREFERENCES, Setting
from charllm.spec.readers.values import MAX_TEXT, read_choice
from charllm.spec.training import LORA_TARGETS as FULL

Table = dict[str, Any]

SWIFT = "megatron"
TASKS = ("sft", "pt", "rlhf")
DEFAULTS = {
    "--micro-batch-size": ["1"], "--global-batch-size": ["16"], "--recompute-granularity": ["selective"],
    "--use-distributed-optimizer": [], "--cross-entropy-loss-fusion": [], "--moe-grouped-gemm": [],
    "--use-mcore-models": [], "--moe-token-dispatcher-type": ["alltoall"],
}  # fmt: skip
NO_EFFECT = ("--merge-lora", "--num-train-epochs", "--output-dir", "--split-dataset-ratio", "--load-from-cache-file",
             "--dataset-num-proc", "--system", "--safe-serialization", "--save-safetensors")  # fmt: skip
OWN = ("--model", "--model-type", "--model-id-or-path", "--mcore-model", "--mcore-adapter", "--max-length",
       "--tuner-type",
       "--train-type", "--torch-dtype", "--target-modules", "--lora-rank", "--lora-r", "--lora-alpha", "--lora-dropout",
       "--lora-target-modules", "--padding-free", "--packing",
       "--task-type", *NO_EFFECT)  # fmt: skip
"""Flags that are read here alone."""
TARGETS = {
    "linear_qkv": ("qkv",), "linear_proj": ("proj",), "linear_fc1": ("fc1",), "linear_fc2": ("fc2",),
    "all-linear": FULL,
    "all-router": (), "query_key_value": ("qkv",), "dense": ("proj",), "dense_h_to_4h": ("fc1",),
    "dense_4h_to_h": ("fc2",), "q_proj": ("qkv",), "k_proj": ("qkv",), "v_proj": ("qkv",), "o_proj": ("proj",),
    "gate_proj": ("fc1",), "up_proj": ("fc1",), "down_proj": ("fc2",), "linear_q_proj": ("qkv",),
    "linear_kv_down_proj": ("qkv",), "linear_kv_up_proj": ("qkv",),
}  # fmt: skip


def is_swift(words: list[str]) -> bool:
    """Tell a command of ms-swift that starts Megatron."""
    return len(words) > 1 and words[0].rpartition("/")[2] == SWIFT and words[1] in TASKS


def fill_swift(flags: Flags) -> None:
    """Put in what ms-swift sets where its command does not: among it the format and sharding of the model."""
    for flag, words in DEFAULTS.items():
        flags.values.setdefault(flag, list(words))
    dtype = (text_of(flags, "--torch-dtype") or "bfloat16").rpartition(".")[2]
    word = read_choice("--torch_dtype", dtype, {"bfloat16": "--bf16", "float16": "--fp16", "float32": ""})
    if word and not flags.any("--bf16", "--fp16"):
        flags.values[word] = []
    if flags.values["--recompute-granularity"] == ["none"]:
        del flags.values["--recompute-granularity"]
    if "--max-length" in flags and "--seq-length" not in flags:
        flags.values["--seq-length"] = flags.values["--max-length"]


def named_model(flags: Flags) -> str:
    """Return the repository that a command tunes; nothing where it names a checkpoint alone."""
    return next(
        (words[0][:MAX_TEXT] for flag in ("--model", "--model-id-or-path") if (words := flags.values.get(flag))), ""
    )


def read_adapters(flags: Flags, task: str) -> tuple[Table, list[Setting]]:
    """Return the adapters that a command trains, and what of its tuning is not modelled."""
    unmodelled = [Setting(task, f"megatron {task}", None, PREFERENCES)] if task == "rlhf" else []
    if task and (text_of(flags, "--task-type") or "causal_lm") != "causal_lm":
        unmodelled.append(flags.setting("--task-type", "a head of another task"))
    kind = text_of(flags, "--tuner-type") or text_of(flags, "--train-type")
    mind = "--lora-r" in flags
    if not mind and (not task or kind in (None, "full")):
        return {}, unmodelled
    if kind not in (None, "lora", "full"):
        unmodelled.append(flags.setting("--tuner-type", "this way of tuning"))
    names = flags.values.get("--lora-target-modules") or flags.values.get("--target-modules") or ["all-linear"]
    found = {part for name in names for part in read_choice("--target-modules", name, TARGETS)}
    rank = count_of(flags, "--lora-r", low=1) if mind else count_or(flags, "--lora-rank", 8)
    return {
        "lora_rank": rank,
        "lora_targets": [part for part in FULL if part in found] or list(FULL),
        "lora_dropout_fraction": number_of(flags, "--lora-dropout") or 0.0,
    }, unmodelled
