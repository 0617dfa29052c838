"""A run as the YAML of NeMo's megatron_gpt_pretraining.py."""

from typing import Any

from charllm.errors import SpecError
from charllm.spec.framework import groups_experts
from charllm.spec.run import RunSpec
from charllm.spec.writers.stages import uneven_ends, write_layout
from charllm.spec.writers.toml import write_yaml

ACTIVATIONS = {
    "swiglu": "fast-swiglu",
    "geglu": "geglu",
    "gelu": "gelu",
    "squared-relu": "squared-relu",
    "relu": "relu",
}
NORMS = {"rmsnorm": "rmsnorm", "layernorm": "layernorm1p"}
POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none", "alibi": "alibi"}
SHARDINGS = {2: "grad", 3: "full"}
PRECISIONS = {"bf16": "bf16", "fp16": "16", "fp32": "32", "fp8": "bf16", "mxfp8": "bf16"}
LORA_TARGETS = {"qkv": "attention_qkv", "proj": "attention_dense", "fc1": "mlp_fc1", "fc2": "mlp_fc2"}
PACKAGE = "# @package _global_\n"
"""Tells Hydra to lay the file over the whole of NeMo's own, not under the name of its folder."""


def write_nemo(run: RunSpec, steps: int) -> str:
    """Return the file that describes a run."""
    cluster = run.cluster
    trainer = {
        "num_nodes": cluster.nodes,
        "devices": cluster.node.gpus,
        "precision": PRECISIONS.get(run.training.precision, "bf16"),
        "max_steps": steps,
        "log_every_n_steps": 1,
        "gradient_clip_val": 1.0 if run.training.clip_gradients else 0.0,
    }
    model = {**_model(run), **_experts(run), **_parallelism(run), **_training(run), **_software(run)}
    return PACKAGE + write_yaml({"trainer": trainer, "model": model})


def _model(run: RunSpec) -> dict[str, Any]:
    model = run.model
    table: dict[str, Any] = {
        "mcore_gpt": True,
        "transformer_engine": True,
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "activation": ACTIVATIONS.get(model.activation, model.activation),
        "normalization": NORMS[model.norm.partition("-")[0]],
        "position_embedding_type": POSITIONS[model.position],
        "bias": model.bias not in ("none", "qkv"),
        "share_embeddings_and_output_weights": model.tied_embeddings,
        "hidden_dropout": model.dropout_fraction,
        "attention_dropout": model.dropout_fraction,
        "max_position_embeddings": model.seq_length if model.position == "learned" else run.training.seq_length,
        "encoder_seq_length": run.training.seq_length,
        "override_vocab_size": model.vocab,
        "make_vocab_size_divisible_by": run.framework.vocab_multiple,
    }
    if model.attention == "mla":
        table |= {
            "multi_latent_attention": True,
            "q_lora_rank": model.q_lora_rank,
            "kv_lora_rank": model.kv_lora_rank,
            "qk_head_dim": model.head_dim,
            "qk_pos_emb_head_dim": model.rope_head_dim,
            "v_head_dim": model.v_head_dim,
        }
    else:
        table |= {"num_query_groups": model.kv_heads, "kv_channels": model.head_dim, "qk_layernorm": model.qk_norm}
    if model.bias == "qkv":
        table["qkv_bias"] = True
    if model.window:
        table |= {"window_size": [model.window, 0], "window_attn_skip_freq": model.full_attention_every}
    return table | ({"mtp_num_layers": model.mtp_layers} if model.mtp_layers else {})


def _experts(run: RunSpec) -> dict[str, Any]:
    model, training = run.model, run.training
    if not model.experts:
        return {}
    letters = model.sparse_layers or "-" * model.dense_layers + "E"
    last = letters[-1] if not model.sparse_layers else ""
    layers = (letters + last * model.layers if last else letters * model.layers)[: model.layers]
    table: dict[str, Any] = {
        "num_moe_experts": model.experts,
        "moe_router_topk": model.topk,
        "moe_ffn_hidden_size": model.expert_ffn,
        "moe_shared_expert_intermediate_size": model.shared_ffn or None,
        "moe_layer_freq": [int(letter == "E") for letter in layers],
        "moe_grouped_gemm": groups_experts(run.framework, training),
        "moe_token_dispatcher_type": "alltoall",
    }
    if model.expert_groups > 1:
        table |= {"moe_router_num_groups": model.expert_groups, "moe_router_group_topk": model.groups_per_token}
    if training.capacity_factor is not None:
        table["moe_expert_capacity_factor"] = training.capacity_factor
    return table


def _parallelism(run: RunSpec) -> dict[str, Any]:
    degrees = run.parallelism
    table: dict[str, Any] = {
        "tensor_model_parallel_size": degrees.tp,
        "pipeline_model_parallel_size": degrees.pp,
        "virtual_pipeline_model_parallel_size": degrees.vpp if degrees.vpp > 1 else None,
        "context_parallel_size": degrees.cp,
        "sequence_parallel": degrees.sp,
        "ub_tp_comm_overlap": "tp" in degrees.effective_overlap,
        "overlap_p2p_comm": "pp" in degrees.effective_overlap,
    }
    if run.model.experts:
        table |= {"expert_model_parallel_size": degrees.ep, "expert_tensor_parallel_size": degrees.etp}
    table |= _stages(run)
    if degrees.zero in SHARDINGS:
        table["fsdp_grad_reduce_dtype"] = run.training.reduce_precision or run.framework.reduce_precision
        table |= {"fsdp": True, "fsdp_sharding_strategy": "hybrid" if degrees.shard_size else SHARDINGS[degrees.zero]}
    if degrees.cp > 1:
        table["cp_comm_type"] = "p2p" if degrees.cp_kind == "ring" else "a2a"
    return table


def _stages(run: RunSpec) -> dict[str, Any]:
    degrees, split = run.parallelism, run.parallelism.layers_per_stage
    if degrees.pp == 1 or len(set(split)) == 1:
        return {}
    ends = uneven_ends(split, degrees.vpp)
    if ends is not None:
        names = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
        return {name: layers for name, layers in zip(names, ends, strict=True) if layers is not None}
    if run.model.layers % degrees.pp:
        possible = f"stages of equal layers but the first and last, as {run.model.layers} layers on {degrees.pp} stages"
        raise SpecError("parallelism.layers_per_stage", list(split), f"{possible} are refused by NeMo otherwise")
    return {
        "pipeline_model_parallel_layout": write_layout(split, run.model.mtp_layers),
        "virtual_pipeline_model_parallel_size": None,
    }


def _software(run: RunSpec) -> dict[str, Any]:
    """State what NeMo's own file may set otherwise; NeMo turns fused gradients off where they cannot be."""
    framework, degrees = run.framework, run.parallelism
    fusible = degrees.zero == 1 or (degrees.zero == 0 and (degrees.pp > 1 or degrees.dp == 1))
    table = {
        "megatron_amp_O2": framework.weight_precision == "16bit",
        "gradient_accumulation_fusion": framework.fused_gradients and fusible,
        "bias_activation_fusion": framework.fused_activation,
        "cross_entropy_loss_fusion": framework.cross_entropy == "fused",
    }
    if run.model.position == "rope":
        table["apply_rope_fusion"] = framework.fused_rope
    return table | ({"moe_permute_fusion": framework.fused_permute} if run.model.experts else {})


def _training(run: RunSpec) -> dict[str, Any]:
    training, degrees = run.training, run.parallelism
    hides = "dp" in degrees.overlap
    table: dict[str, Any] = {
        "micro_batch_size": training.micro_batch_size,
        "global_batch_size": training.global_batch_size,
        "optim": {
            "name": "distributed_fused_adam" if degrees.zero else "fused_adam",
            "overlap_grad_sync": hides,
            "overlap_param_sync": hides and degrees.zero > 0,
            "grad_sync_dtype": training.reduce_precision or run.framework.reduce_precision,
        },
    }
    if training.precision in ("fp8", "mxfp8"):
        table |= {"fp8": True, "fp8_hybrid": True}
        table |= {"fp8_recipe": "mxfp8"} if training.precision == "mxfp8" else {}
    if training.recompute == "selective":
        table["activations_checkpoint_granularity"] = "selective"
        if training.recompute_modules:
            table["recompute_modules"] = list(training.recompute_modules)
    elif training.recompute == "full":
        partly = training.recompute_layers is not None
        table |= {
            "activations_checkpoint_granularity": "full",
            "activations_checkpoint_method": "block" if partly else "uniform",
            "activations_checkpoint_num_layers": training.recompute_layers if partly else 1,
        }
    if training.lora_rank:
        targets = [LORA_TARGETS[target] for target in training.lora_targets]
        tuning = {
            "adapter_dim": training.lora_rank,
            "adapter_dropout": training.lora_dropout_fraction,
            "target_modules": targets,
        }
        table["peft"] = {"peft_scheme": "lora", "lora_tuning": tuning}
        table["data"] = {"train_ds": {"max_seq_length": training.seq_length}}
    return table
