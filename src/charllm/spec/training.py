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

    seq_length: int = count("Sequence length in tokens (default: the model's).", 1, 16_777_216)
    document_tokens: int = count(
        "Tokens of each document packed into a sequence; attention stays within a document. 0: no packing.",
        0, 16_777_216, 0,
    )  # fmt: skip
    global_batch_size: int = count(
        "Global batch size: sequences per step, over all replicas (default 128).", 1, 16_777_216
    )
    micro_batch_size: int = count("Microbatch size: sequences that a replica processes at once.", 1, 65_536, 1)
    precision: str = choice("Number format of the matrix multiplications.", PRECISIONS, "bf16")
    recompute: str = choice(
        "Activation recomputation: which activations are recomputed in backward.", RECOMPUTES, "none"
    )
    recompute_layers: int | None = count("With full: recomputed layers of each chunk (default: all).", 0, 4096, None)
    recompute_modules: tuple[str, ...] = words("With selective: the recomputed modules.", RECOMPUTE_MODULES)
    optimizer: str = choice("Update rule; none skips the update.", OPTIMIZERS, "adam")
    lora_rank: int = count("Rank of LoRA adapters; 0: all weights are trained.", 0, 65_536, 0)
    lora_targets: tuple[str, ...] = words("Linear layers with an adapter.", LORA_TARGETS, ("qkv", "proj"))
    lora_dropout_fraction: float = number("Dropout on the input of adapters; 0: none.", 0.0, 0.9, 0.0)
    reduce_precision: str | None = choice(
        "Format of gradient reduction and of Megatron's gradient buffers (default: the framework's).",
        REDUCE_PRECISIONS,
        None,
    )
    narrow_weights: bool | None = flag(
        "In fp8 and fp4: whether weights are stored in that format alone (--fp8-param-gather), without a 16-bit copy "
        "(default: the framework's).",
        None,
    )
    main_weight_precision: str | None = choice(
        "Format of the optimizer's own copy of the weights (--main-params-dtype); none: no copy "
        "(default: the framework's).",
        MAIN_WEIGHT_PRECISIONS,
        None,
    )
    main_gradient_precision: str = choice(
        "Format of the gradients that the update reads (--main-grads-dtype); fp32: 16-bit gradients are copied first.",
        ("fp32", "16bit"),
        "fp32",
    )
    first_moment_precision: str | None = choice(
        "Format of Adam's first moment (--exp-avg-dtype; default: the framework's).", STATE_PRECISIONS, None
    )
    second_moment_precision: str | None = choice(
        "Format of Adam's second moment (--exp-avg-sq-dtype; default: the framework's).", STATE_PRECISIONS, None
    )
    narrow_activation_input: bool = flag(
        "Whether the input of a feed-forward block's non-linearity is kept for backward in 8 bits "
        "(--activation-func-fp8-input-store).",
        False,
    )
    optimizer_offload_fraction: float = number(
        "Share of the optimizer states that are kept and updated in host memory.", 0, 1, 0.0
    )
    pinned_offload: bool = flag("Whether memory for copies to the host and back is page-locked.", True)
    activation_offload_fraction: float = number(
        "Share of the layers' activations that are kept in host memory between forward and backward.",
        0,
        1,
        0.0,
    )
    clip_gradients: bool = flag("Whether gradients are clipped by their norm (default: the framework's).", True)
    grouped_gemm: bool | None = flag(
        "Whether experts run in one grouped GEMM or in a loop (default: the framework's).", None
    )
    wide_layers: int = count("Number of last layers whose GEMMs stay in 16 bits while others are narrower.", 0, 4096, 0)
    capacity_factor: float | None = number(
        "Capacity of an expert, as a multiple of its even share of tokens; none: dropless.", 0.1, 1000, None
    )
    routing: str = choice(
        "Routing: forced (even load, as in benchmarks) or natural (the learned router chooses).",
        ROUTINGS,
        "forced",
    )
    routing_skew: float | None = number(
        "Load of the busiest expert rank divided by the mean, dropless; none: it follows from routing.",
        1.0,
        1000.0,
        None,
    )

    def __post_init__(self) -> None:
        check_fields(self)
