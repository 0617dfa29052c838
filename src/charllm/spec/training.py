"""How the network is trained: batch, sequence, precision, recomputation, optimizer, adapters."""

from dataclasses import dataclass

from charllm.spec.fields import check_fields, choice, count, flag, number, words

PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32")
RECOMPUTES = ("none", "selective", "full")
OPTIMIZERS = ("adam", "sgd", "none")
REDUCE_PRECISIONS = ("fp32", "bf16", "fp8")
STATE_PRECISIONS = ("fp32", "16bit", "8bit")
MAIN_WEIGHT_PRECISIONS = ("fp32", "16bit", "none")
ROUTINGS = ("forced", "natural")
LORA_TARGETS = ("qkv", "proj", "fc1", "fc2")
RECOMPUTE_MODULES = (
    "core_attn",
    "layernorm",
    "mlp_act",
    "moe_act",
    "mla_up_proj",
    "mlp",
    "moe",
    "shared_experts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One step of training, before it is spread over GPUs."""

    seq_length: int = count("Sequence length in tokens; the model's own unless given.", 1, 16_777_216)
    document_tokens: int = count(
        "Tokens of the documents packed into a sequence, which attend to themselves only; 0: one fills it.",
        0, 16_777_216, 0,
    )  # fmt: skip
    global_batch_size: int = count("Global batch: sequences in a step, all replicas; 128 unless given.", 1, 16_777_216)
    micro_batch_size: int = count("Microbatch: sequences that a replica works on at once.", 1, 65_536, 1)
    precision: str = choice("Format of the matrix multiplications.", PRECISIONS, "bf16")
    recompute: str = choice("Activation recomputation: which activations are computed again.", RECOMPUTES, "none")
    recompute_layers: int | None = count(
        "With full: layers of each stage chunk recomputed; all unless given.", 0, 4096, None
    )
    recompute_modules: tuple[str, ...] = words("With selective: the modules recomputed.", RECOMPUTE_MODULES)
    optimizer: str = choice("Update rule; none skips the update.", OPTIMIZERS, "adam")
    lora_rank: int = count("Rank of LoRA adapters; 0: all weights are trained.", 0, 65_536, 0)
    lora_targets: tuple[str, ...] = words("Linear layers that carry an adapter.", LORA_TARGETS, ("qkv", "proj"))
    lora_dropout_fraction: float = number("Dropout on the input of adapters, 0 when off.", 0.0, 0.9, 0.0)
    reduce_precision: str | None = choice(
        "Format gradients are reduced in, and Megatron's gradient buffers. The framework's unless given.",
        REDUCE_PRECISIONS,
        None,
    )
    narrow_weights: bool | None = flag(
        "In fp8 and fp4: whether weights are stored in that format alone (--fp8-param-gather), without a 16-bit copy. "
        "The framework's unless given.",
        None,
    )
    main_weight_precision: str | None = choice(
        "Format of the optimizer's own copy of the weights (--main-params-dtype); none: it has no copy. The "
        "framework's unless given.",
        MAIN_WEIGHT_PRECISIONS,
        None,
    )
    main_gradient_precision: str = choice(
        "Format the update reads gradients in (--main-grads-dtype): fp32 copies 16-bit gradients first.",
        ("fp32", "16bit"),
        "fp32",
    )
    first_moment_precision: str | None = choice(
        "Format of Adam's first moment (--exp-avg-dtype). The framework's unless given.", STATE_PRECISIONS, None
    )
    second_moment_precision: str | None = choice(
        "Format of Adam's second moment (--exp-avg-sq-dtype). The framework's unless given.", STATE_PRECISIONS, None
    )
    narrow_activation_input: bool = flag(
        "Whether the input of a feed-forward block's non-linearity is kept for backward in 8 bits "
        "(--activation-func-fp8-input-store).",
        False,
    )
    optimizer_offload_fraction: float = number(
        "Share of the optimizer's states that are kept, and updated, in the host's memory.", 0, 1, 0.0
    )
    activation_offload_fraction: float = number(
        "Share of the activations of layers that are moved to the host's memory between forward and backward.",
        0,
        1,
        0.0,
    )
    clip_gradients: bool = flag("Whether gradients are clipped by their norm; the framework's unless given.", True)
    grouped_gemm: bool | None = flag("Experts in one grouped GEMM, or in a loop, unless the framework's.", None)
    wide_layers: int = count("Last layers whose GEMMs stay in 16 bits where others are narrower.", 0, 4096, 0)
    capacity_factor: float | None = number(
        "Tokens an expert takes over its even share; none: dropless.", 0.1, 1000, None
    )
    routing: str = choice(
        "Who chooses experts: the framework, evenly, as benchmarks do; or the router, as it learned to.",
        ROUTINGS,
        "forced",
    )
    routing_skew: float | None = number(
        "Load of the busiest expert rank over the mean, dropless; none: what routing makes of it.", 1.0, 1000.0, None
    )

    def __post_init__(self) -> None:
        check_fields(self)
