"""What the words in a NeMo file stand for."""

ACTIVATIONS = {
    "gelu": "gelu",
    "openai-gelu": "gelu",
    "approx-gelu": "gelu",
    "quick-gelu": "gelu",
    "geglu": "geglu",
    "fast-geglu": "geglu",
    "swiglu": "swiglu",
    "fast-swiglu": "swiglu",
    "relu": "relu",
    "silu": "silu",
    "squared-relu": "squared-relu",
    "squared_relu": "squared-relu",
}
GATED = {"silu": "swiglu", "gelu": "geglu", "swiglu": "swiglu", "geglu": "geglu"}
NORMS = {
    "layernorm": "layernorm",
    "layernorm1p": "layernorm",
    "low_precision_layernorm": "layernorm",
    "rmsnorm": "rmsnorm",
}
POSITIONS = {
    "learned_absolute": "learned",
    "rope": "rope",
    "mrope": "rope",
    "yarn": "rope",
    "alibi": "alibi",
    "none": "none",
}
PRECISIONS = {
    "bf16": "bf16",
    "bf16-mixed": "bf16",
    "bf16-true": "bf16",
    "bf16_mixed": "bf16",
    "16": "fp16",
    "16-mixed": "fp16",
    "16-true": "fp16",
    "fp16_mixed": "fp16",
    "32": "fp32",
    "32-true": "fp32",
    "bf16_with_fp8_mixed": "fp8",
    "bf16_with_fp8_delayed_scaling_mixed": "fp8",
    "bf16_with_fp8_current_scaling_mixed": "fp8",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
FP8 = {"true": True, "hybrid": True, "e4m3": True, "false": False, "none": False}
GRADIENTS = {"bf16": "bf16", "fp16": "bf16", "16": "bf16", "fp32": "fp32", "32": "fp32"}
OPTIMIZERS = {
    "adam": ("adam", 0),
    "adamw": ("adam", 0),
    "fused_adam": ("adam", 0),
    "megatron_fused_adam": ("adam", 0),
    "distributed_fused_adam": ("adam", 1),
    "mcore_distributed_optim": ("adam", 1),
    "sgd": ("sgd", 0),
}
"""Name in the file: update rule and ZeRO stage."""
FSDP = {"full": 3, "hybrid": 3, "grad": 2}
LORA_TARGETS = {
    "attention_qkv": ("qkv",),
    "attention_dense": ("proj",),
    "mlp_fc1": ("fc1",),
    "mlp_fc2": ("fc2",),
    "attention": ("qkv", "proj"),
    "mlp": ("fc1", "fc2"),
    "all": ("qkv", "proj", "fc1", "fc2"),
    "linear_qkv": ("qkv",),
    "linear_proj": ("proj",),
    "linear_fc1": ("fc1",),
    "linear_fc2": ("fc2",),
}
