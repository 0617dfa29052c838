"""A run as a torchtitan job config in TOML, which torchtitan reads up to its release 0.2.2."""

from itertools import islice
from typing import Any

from charllm.errors import SpecError
from charllm.spec.model import Model, fill_model
from charllm.spec.readers.torchtitan.flavors import FLAVORS, find_flavor
from charllm.spec.run import RunSpec
from charllm.spec.writers.toml import write_toml

SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
PRECISIONS = {"bf16": "bfloat16", "fp32": "float32"}
CONVERTERS = {"fp8": ["quantize.linear.float8"], "mxfp8": ["quantize.linear.mx"]}
WITH_DEEPEP = ("deepseek_v3",)
"""Models that release 0.2.2 builds with DeepEP's layers (models/*/model/model.py)."""
SIZES = (
    "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "experts", "topk", "expert_ffn", "attention",
)  # fmt: skip
"""What tells one flavor from another."""


def write_torchtitan(run: RunSpec, steps: int) -> str:
    """Return the job config that describes a run."""
    name, flavor = flavor_of(run.model)
    return write_toml(
        {
            "model": {"name": name, "flavor": flavor, **_converters(run)},
            "training": {**_training(run), "steps": steps},
            "parallelism": _parallelism(run, name),
            "activation_checkpoint": _checkpointing(run),
            "compile": {"enable": True},
            "metrics": {"log_freq": 1},
        }
    )


def flavor_of(model: Model) -> tuple[str, str]:
    """Return the name and flavor under which torchtitan knows a model; it builds no others."""
    for name, flavors in FLAVORS.items():
        for flavor in (*flavors, "debugmodel"):
            table = fill_model(dict(find_flavor(name, flavor) or {}))
            if all(table.get(size, getattr(model, size)) == getattr(model, size) for size in SIZES):
                return name, flavor
    known = ", ".join(f"{name} {flavor}" for name, flavors in FLAVORS.items() for flavor in flavors)
    raise SpecError("model", model.name, f"a model that torchtitan has: {known}")


def _converters(run: RunSpec) -> dict[str, Any]:
    found = CONVERTERS.get(run.training.precision)
    return {"converters": found} if found else {}


def _training(run: RunSpec) -> dict[str, Any]:
    training, degrees = run.training, run.parallelism
    local = training.micro_batch_size
    if degrees.pp > 1:
        local = training.global_batch_size // degrees.dp
    table: dict[str, Any] = {
        "seq_len": training.seq_length,
        "local_batch_size": local,
        "global_batch_size": training.global_batch_size,
        "max_norm": 1.0 if training.clip_gradients else 0.0,
    }
    if training.precision in PRECISIONS:
        table["mixed_precision_param"] = PRECISIONS[training.precision]
    if run.framework.weight_precision == "16bit":
        table["dtype"] = "bfloat16"
    return table


def _parallelism(run: RunSpec, name: str) -> dict[str, Any]:
    degrees = run.parallelism
    sharded = (degrees.shard_size // degrees.cp if degrees.shard_size else degrees.dp) if degrees.zero else 1
    table: dict[str, Any] = {
        "data_parallel_replicate_degree": degrees.dp // sharded,
        "data_parallel_shard_degree": sharded,
        "tensor_parallel_degree": degrees.tp,
        "pipeline_parallel_degree": degrees.pp,
        "context_parallel_degree": degrees.cp,
        "expert_parallel_degree": degrees.ep,
        "enable_async_tensor_parallel": "tp" in degrees.effective_overlap,
        "fsdp_reshard_after_forward": "never" if degrees.zero == 2 else "always",
    }
    if run.model.experts and degrees.ep > 1:
        table["expert_tensor_parallel_degree"] = degrees.etp
        if run.framework.dispatcher == "deepep" and name in WITH_DEEPEP:
            table["expert_parallel_comm_backend"] = "deepep"
    if degrees.pp > 1:
        table["pipeline_parallel_schedule"] = SCHEDULES.get(degrees.schedule, degrees.schedule)
        table["pipeline_parallel_microbatch_size"] = run.training.micro_batch_size
        table["module_fqns_per_model_part"] = _modules(degrees.layers_per_stage)
    return table


def _modules(layers: tuple[int, ...]) -> list[list[str]]:
    """Return the modules of each stage; without their names torchtitan spreads layers its own way."""
    names = iter(f"layers.{layer}" for layer in range(sum(layers)))
    stages = [list(islice(names, count)) for count in layers]
    return [["tok_embeddings", *stages[0]], *stages[1:-1], [*stages[-1], "norm", "output"]]


def _checkpointing(run: RunSpec) -> dict[str, Any]:
    training = run.training
    if training.recompute == "selective":
        return {"mode": "selective", "selective_ac_option": "op"}
    if training.recompute == "full" and training.recompute_layers:
        every = max(run.parallelism.layers_per_stage) // training.recompute_layers
        return {"mode": "selective", "selective_ac_option": str(every)} if every > 1 else {"mode": "full"}
    return {"mode": training.recompute}
