"""A DeepSpeed configuration (JSON): batch, precision, ZeRO, offloading."""

from collections.abc import Mapping
from typing import Any

from charllm.spec.readers.reading import NOT_UNDERSTOOD, Reading, Setting, names_size
from charllm.spec.readers.values import read_count, read_number, read_table, shown

Table = dict[str, Any]

SIGNS = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
OPTIMIZERS = {"adam": "adam", "adamw": "adam", "fusedadam": "adam", "torch_adam": "adam", "sgd": "sgd"}
_NO_EFFECT = """
steps_per_print wall_clock_breakdown dump_state tensorboard wandb csv_monitor comms_logger memory_breakdown
scheduler prescale_gradients gradient_predivide_factor communication_data_type flops_profiler checkpoint
data_types zero_allow_untested_optimizer zero_force_ds_cpu_optimizer sparse_gradients amp autotuning elasticity
load_universal_checkpoint aio nebula data_efficiency dataloader_drop_last disable_allgather
pipeline use_data_before_expert_parallelism zero_allow_comm_data_type_fp32 seq_parallel_communication_data_type
"""
NO_EFFECT = frozenset(_NO_EFFECT.split())
_ZERO_NO_EFFECT = """
contiguous_gradients reduce_scatter allgather_partitions allgather_bucket_size round_robin_gradients
sub_group_size stage3_max_live_parameters stage3_max_reuse_distance stage3_prefetch_bucket_size
stage3_param_persistence_threshold stage3_gather_16bit_weights_on_model_save ignore_unused_parameters
elastic_checkpoint load_from_fp32_weights legacy_stage1 use_multi_rank_bucket_allreduce
stage3_gather_fp16_weights_on_model_save memory_efficient_linear cpu_offload_use_pin_memory find_unused_parameters
stage3_model_persistence_threshold param_persistence_threshold model_persistence_threshold max_live_parameters
max_reuse_distance prefetch_bucket_size gather_16bit_weights_on_model_save pipeline_loading_checkpoint
"""
ZERO_NO_EFFECT = frozenset(_ZERO_NO_EFFECT.split())
UNMODELLED = {
    "sparse_attention": "sparse attention",
    "compression_training": "compression",
    "curriculum_learning": "",
    "hybrid_engine": "reinforcement learning",
    "tensor_parallel": "tensor parallelism of DeepSpeed",
    "progressive_layer_drop": "layers that are dropped",
    "eigenvalue": "compression",
    "quantize_training": "compression",
}
ZERO_UNMODELLED = {
    "offload_optimizer": "an optimizer on a disk",
    "offload_param": "weights on the CPU",
    "cpu_offload_params": "weights on the CPU",
    "zero_quantized_weights": "weights gathered in 8 bits",
    "zero_quantized_gradients": "gradients reduced in 4 bits",
    "zero_quantized_nontrainable_weights": "weights gathered in 8 bits",
    "mics_shard_size": "sharding over part of the ranks (MiCS)",
}


def is_deepspeed(table: Mapping[str, Any]) -> bool:
    """Say whether a JSON object is a DeepSpeed configuration."""
    return any(sign in table for sign in SIGNS)


def read_deepspeed(table: Mapping[str, Any], path: str) -> Reading:
    """Return the request of a DeepSpeed configuration alone; the model has to be given beside it."""
    parallelism, overlap = zero_of(table)
    training = {**batch_of(table), **_precision(table), **_optimizer(table), **offload_of(table)}
    strange, unmodelled, small = sort_out(table)
    if overlap is not None:
        parallelism["overlap"] = ["dp"] if overlap else []
    accumulation = _count(table, "gradient_accumulation_steps")
    missing = {"model": f"--model NAME: {path} is a DeepSpeed configuration, which has no model", **_left_open(table)}
    for field in missing:
        parallelism.pop(field.removeprefix("parallelism."), None)
    return Reading(
        {"framework": "deepspeed", "parallelism": parallelism, "training": training},
        tuple(strange),
        tuple(unmodelled),
        missing,
        tuple(small),
        microbatches=None if "global_batch_size" in training else accumulation or 1,
    )


def _left_open(table: Mapping[str, Any]) -> dict[str, str]:
    """Ask for what `auto` leaves to the arguments of the program that loads the configuration."""
    why = "(auto: the trainer's arguments say)"
    asked = {}
    known = {key for key in SIGNS[1:] if table.get(key) not in (None, "auto")}
    if "auto" in (table.get(key) for key in SIGNS[1:]) and len(known) < 2:
        if "train_micro_batch_size_per_gpu" not in known:
            asked["training.micro_batch_size"] = f"--mbs N {why}"
        if "train_batch_size" not in known:
            asked["training.global_batch_size"] = f"--gbs N {why}"
    formats = [read_table(key, table.get(key)).get("enabled", False) for key in ("bf16", "bfloat16", "fp16")]
    if "auto" in formats and True not in formats:
        asked["training.precision"] = f"--precision WORD {why}"
    if read_table("zero_optimization", table.get("zero_optimization")).get("stage") == "auto":
        asked["parallelism.zero"] = f"--zero N {why}"
    return asked


def batch_of(table: Mapping[str, Any]) -> Table:
    """Return the batch sizes that are stated."""
    found = {
        "micro_batch_size": _count(table, "train_micro_batch_size_per_gpu"),
        "global_batch_size": _count(table, "train_batch_size"),
    }
    return {field: value for field, value in found.items() if value is not None}


def _count(table: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number; `auto` leaves it to the trainer's arguments."""
    value = table.get(key)
    return None if value in (None, "auto") else read_count(key, value, 1)


def _precision(table: Mapping[str, Any]) -> Table:
    for key, precision in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        enabled = read_table(key, table.get(key)).get("enabled", False)
        if enabled is True:
            return {"precision": precision}
        if enabled == "auto":
            return {}
    return {"precision": "fp32"} if "fp16" in table or "bf16" in table else {}


def _optimizer(table: Mapping[str, Any]) -> Table:
    clip = table.get("gradient_clipping")
    found: Table = {"clip_gradients": clip not in (0, 0.0)} if clip not in (None, "auto") else {}
    kind = read_table("optimizer", table.get("optimizer")).get("type")
    if isinstance(kind, str) and kind.lower() in OPTIMIZERS:
        found["optimizer"] = OPTIMIZERS[kind.lower()]
    return found


def zero_of(table: Mapping[str, Any]) -> tuple[Table, bool | None]:
    """Return what ZeRO shards, and whether its communication overlaps (None: the default)."""
    zero = read_table("zero_optimization", table.get("zero_optimization"))
    stage = zero.get("stage", 0)
    found: Table = {"zero": 0 if stage == "auto" else read_count("zero_optimization.stage", stage, 0, 3)}
    hpz = zero.get("zero_hpz_partition_size")
    if isinstance(hpz, int) and hpz > 1 and found["zero"] == 3:
        found["regather_size"] = read_count("zero_optimization.zero_hpz_partition_size", hpz, 1)
    overlap = zero.get("overlap_comm")
    return found, overlap if isinstance(overlap, bool) else (True if found["zero"] == 3 else None)


def offload_of(table: Mapping[str, Any]) -> Table:
    """Return the shares of the optimizer and of kept activations that the host holds."""
    zero = read_table("zero_optimization", table.get("zero_optimization"))
    optimizer = zero.get("offload_optimizer")
    found: Table = {}
    if zero.get("cpu_offload") is True:
        found["optimizer_offload_fraction"] = 1.0
    if isinstance(optimizer, Mapping) and optimizer.get("device") == "cpu":
        found["optimizer_offload_fraction"] = read_number("offload_optimizer.ratio", optimizer.get("ratio", 1.0))
        found["pinned_offload"] = optimizer.get("pin_memory") is True
    if read_table("activation_checkpointing", table.get("activation_checkpointing")).get("cpu_checkpointing") is True:
        found["activation_offload_fraction"] = 1.0
    return found


def precision_of(table: Mapping[str, Any]) -> str | None:
    """Return the format of the matrix multiplications, where it is stated."""
    return _precision(table).get("precision")


def sort_out(table: Mapping[str, Any]) -> tuple[list[Setting], list[Setting], list[Setting]]:
    """Return the keys that are not understood, those that are not modelled, and those of small effect."""
    strange: list[Setting] = []
    unmodelled: list[Setting] = []
    small: list[Setting] = []
    for key, value in table.items():
        if key in _USED or key in NO_EFFECT or _is_off(value):
            continue
        if key == "optimizer":
            kind = read_table(key, value).get("type")
            if not (isinstance(kind, str) and kind.lower() in OPTIMIZERS):
                unmodelled.append(Setting(key, f"optimizer {shown(kind)}", None, "another optimizer"))
        elif key == "activation_checkpointing":
            _sort_activations(read_table(key, value), small)
        elif key == "curriculum_learning":
            small.append(Setting(key, key, None, "short sequences at the start of training"))
        elif key in UNMODELLED:
            unmodelled.append(Setting(key, key, None, UNMODELLED[key]))
        else:
            _sort_unknown(key, value, strange, unmodelled)
    _sort_zero(read_table("zero_optimization", table.get("zero_optimization")), strange, unmodelled)
    return strange, unmodelled, small


_USED = (*SIGNS, "fp16", "bf16", "bfloat16", "gradient_clipping")


def _is_off(value: Any) -> bool:
    return value is False or value is None or (isinstance(value, Mapping) and value.get("enabled") is False)


def _sort_activations(table: Mapping[str, Any], small: list[Setting]) -> None:
    key = "partition_activations"
    if table.get(key) is True:
        small.append(Setting(key, f"activation_checkpointing.{key}", None, "kept activations spread over tensor ranks"))


def _sort_zero(table: Mapping[str, Any], strange: list[Setting], unmodelled: list[Setting]) -> None:
    used = ("stage", "cpu_offload", "overlap_comm", "reduce_bucket_size", "zero_hpz_partition_size")
    for key, value in table.items():
        if key in used or key in ZERO_NO_EFFECT or _is_off(value):
            continue
        if key in ZERO_UNMODELLED:
            device = value.get("device") if isinstance(value, Mapping) else value
            if key == "offload_optimizer" and device == "cpu":
                continue
            if device not in ("none", None, False, 0, -1):
                unmodelled.append(Setting(key, f"zero_optimization.{key}: {shown(device)}", None, ZERO_UNMODELLED[key]))
        else:
            _sort_unknown(f"zero_optimization.{key}", value, strange, unmodelled)


def _sort_unknown(name: str, value: Any, strange: list[Setting], unmodelled: list[Setting]) -> None:
    named = names_size(name)
    text = f"{name}: {shown(value)}"[:200]
    (unmodelled if named else strange).append(Setting(name, text, None, NOT_UNDERSTOOD if named else ""))
