"""The software that runs the step: what it fuses, keeps and rounds, and what it costs."""

from dataclasses import dataclass

from charllm.spec.fields import check_fields, choice, count, flag, number, text, words
from charllm.spec.grades import NOT_STATED, TUNINGS
from charllm.spec.parallelism import OVERLAPS
from charllm.spec.training import RECOMPUTES, Training

SELECTIVE_POLICIES = ("modules", "alternate_matmuls")
DISPATCHERS = ("alltoall", "deepep", "hybridep")
CROSS_ENTROPIES = ("fused", "vocab-parallel", "fp32", "compiled")
GRAPHS = ("none", "partial", "full")
LEAST_RECOMPUTE = "least that fits"
"""Default recomputation that depends on the memory of a published run; in a request it means none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A software profile: choices a framework makes, and at most eight physical constants."""

    name: str = text("Name of the profile.")
    profile: str = text("The catalog profile that it is, or is based on.", "")
    tuning: str = choice(
        "Whether the run is tuned, as vendors publish runs, or usual: as users run it, with library defaults. Where it "
        "is not stated it counts as tuned, and intervals hold for both.",
        TUNINGS,
        NOT_STATED,
    )
    # Choices.
    attention: str = choice("Whether attention is one fused kernel (flash) or several.", ("flash", "unfused"), "flash")
    attention_kernel: str = choice(
        "Fused attention kernel: the GPU's best, FlashAttention-2, or FlashAttention-1 in Triton.",
        ("best", "flash2", "flash1"),
        "best",
    )
    cross_entropy: str = choice("How the loss treats logits (workload/vocabulary.py).", CROSS_ENTROPIES, "fused")
    square_loss: bool = flag("Whether a model without vocabulary ends in the mean square of its output.", False)
    fused_activation: bool = flag("Whether bias, activation and gate are one kernel.", True)
    norm: str = choice(
        "Whether a norm is one kernel or a chain of fp32 kernels whose results are kept.", ("fused", "chain"), "fused"
    )
    packed_qkv: bool = flag(
        "Whether values stay views of one qkv tensor, which is then kept beside rotated copies.", False
    )
    autocast: bool = flag(
        "Whether only matrix multiplications run in 16 bits (torch.autocast): the residual stream and gathered weights "
        "stay in fp32.",
        False,
    )
    returns_outputs: bool = flag(
        "Whether the model returns its logits and every layer's keys and values, which are then kept through backward "
        "(Hugging Face models, unless use_cache is off).",
        False,
    )
    tf32: bool = flag("Whether GEMMs in fp32 run on matrix units as TF32.", True)
    fused_gradients: bool = flag("Whether weight gradients are added in place; a placeholder per shape remains.", True)
    default_sp: bool = flag("Whether sequence parallelism is on by default (tp > 1).", True)
    default_zero: int = count("Default ZeRO stage if dp > 1.", 0, 3, 1)
    default_etp: bool = flag("Whether the default of etp is tp (otherwise 1).", True)
    selective: str = choice("Policy of --recompute selective.", SELECTIVE_POLICIES, "modules")
    full_recompute: str = choice(
        "Recomputed part of a layer: all of it, up to the last tensor that autograd saves, or what gradients need.",
        ("all", "saved", "needed"),
        "all",
    )
    grouped_gemm: bool = flag("Whether experts run in one grouped GEMM.", True)
    grouped_launch: bool = flag("Whether a grouped GEMM is one launch, not one per expert.", False)
    expert_kernels: str = choice(
        "How experts run: grouped, in tiles of 128 rows with kernels around them as in training; fused, as engines do "
        "(one kernel chooses experts, one sorts rows, one quantises all rows, tiles are as low as an expert's rows); "
        "or fused with Triton's product where 8-bit operands have a scale for each block and units do not apply it.",
        ("grouped", "fused", "triton"),
        "grouped",
    )
    in_switch_reduction: bool = flag("Whether collectives use the switch's reduction where it exists.", True)
    weight_precision: str = choice("Storage format of the weights.", ("fp32", "16bit"), "16bit")
    cast_weights: str = choice(
        "With fp8 and fp4: weights are cast for each use, cached beside the 16-bit weights, or stored in this format.",
        ("each-use", "cached", "stored"),
        "cached",
    )
    fp8_scaling: str = choice(
        "Scales of 8-bit operands: one for each tensor (or block), or one for each row, whose columns are cast apart, "
        "across rows (torchao's rowwise recipe).",
        ("tensor", "row"),
        "tensor",
    )
    master_weights: bool = flag("Whether the optimizer keeps fp32 copies of 16-bit weights.", True)
    gradient_precision: str = choice(
        "Format of gradient accumulation; reduced: that of gradient reduction.",
        ("fp32", "16bit", "reduced"),
        "fp32",
    )
    gradient_copies: bool = flag("Whether 16-bit gradients stay beside fp32 accumulators.", False)
    moment_precision: str = choice("Format of the optimizer's moments.", ("fp32", "16bit"), "fp32")
    reduce_precision: str = choice("Format of gradient reduction.", ("fp32", "bf16"), "fp32")
    persistent_gradients: bool = flag("Whether gradient buffers stay allocated between steps.", True)
    unit_gather: bool = flag(
        "Whether ZeRO stage 2 gathers weights layer by layer in forward and keeps them until backward.", False
    )
    reduces_once: bool = flag(
        "Whether ZeRO stage 2 in a pipeline gathers weights unit by unit, and reduces gradients, once a step "
        "(torch.distributed.pipelining with fully_shard), not after each microbatch.",
        False,
    )
    tied_unit: bool = flag(
        "Whether FSDP shards a tied embedding in one unit with the last norm, gathered from forward to backward.", False
    )
    whole_gradients: bool = flag("Whether ZeRO stage 1 sums gradients on all replicas, not on their owner.", False)
    weight_exchange: str = choice(
        "How ZeRO ranks distribute updated weights: an all-gather, or a broadcast from each before the next step.",
        ("all-gather", "broadcast"),
        "all-gather",
    )
    copied_pieces: bool = flag(
        "Whether ZeRO stage 1 copies each tensor out of the pieces that replicas have updated, a call for each piece.",
        False,
    )
    buckets: str = choice(
        "Whether gradients are reduced in buckets always, or only to overlap.", ("always", "overlap"), "overlap"
    )
    growing_buckets: bool = flag("Whether a bucket is at least a million elements for each replica.", False)
    copied_buckets: bool = flag("Whether gradients are copied into two buckets to be reduced.", False)
    dispatcher: str = choice(
        "Dispatcher of tokens to experts: NCCL's all-to-all with a copy for each expert of a token, or DeepEP or "
        "HybridEP with one copy for each rank and node that holds some of them.",
        DISPATCHERS,
        "alltoall",
    )
    forced_routing: str = choice(
        "Kind of forced balance: experts drawn at random for each token, or assigned in turn.",
        ("random", "in-turn"),
        "random",
    )
    weighs_in_experts: bool = flag(
        "Whether experts weigh their outputs by the router's probabilities, which are sent to them apart from tokens "
        "unless DeepEP or HybridEP carry them, with counts of tokens gathered from all ranks before.",
        False,
    )
    sparse_sync: bool = flag(
        "Whether the host synchronises in every sparse layer to read the token counts of experts.", True
    )
    packed_projections: bool = flag("Whether q, k and v, and gate and up, are one GEMM each.", True)
    fused_permute: bool = flag("Whether sorting tokens by expert and back is one kernel each.", True)
    fused_router: bool = flag("Whether a router's scores and top-k are one kernel.", False)
    fused_rope: bool = flag("Whether one kernel rotates queries and keys (rotary embedding).", True)
    plain_modules: bool = flag(
        "Whether it launches what plain modules do (`charllm train`): angles of rotary embeddings in every layer, rows "
        "of experts by index, gradients of biases apart, updates in chunks of 21 million elements.",
        False,
    )
    fused_latent_rope: bool = flag("Whether one kernel rotates queries and keys of latent attention.", False)
    fused_experts: bool = flag(
        "Whether experts' activation and casts are part of their GEMMs, which write 8 bits at once.", False
    )
    graphs: str = choice(
        "Which kernel launches are captured in CUDA graphs, which cost the host nothing: none, those outside the "
        "experts (partial; routing included), or a whole step (full).",
        GRAPHS,
        "none",
    )
    scattered_sends: bool = flag(
        "Whether tp ranks that hold the same tokens each send a part of them to the next stage, which gathers them.",
        False,
    )
    blocking_launches: bool = flag(
        "Whether the host waits for each kernel before it launches the next (CUDA_LAUNCH_BLOCKING=1).", False
    )
    composed: bool = flag(
        "Whether a step's time was added up from layers profiled alone: cold launches, none ahead of a pass, no other "
        "work of the host, a vocabulary cut without padding.",
        False,
    )
    default_recompute: str = choice(
        "Default activation recomputation; `least that fits` is applied to published runs only.",
        (LEAST_RECOMPUTE, *RECOMPUTES),
        LEAST_RECOMPUTE,
    )
    drops_tokens: bool = flag(
        "Whether capacity_factor is 1 by default (tokens beyond an expert's even share are dropped).",
        False,
    )
    default_interleaving: bool = flag(
        "Whether pipeline stages are interleaved by default (vpp: up to 8 equal chunks).", False
    )
    counts_head: bool = flag(
        "Whether stages are cut so that their products are alike, the head's counted, unless layers are given "
        "(nanotron).",
        False,
    )
    clip_gradients: bool = flag("Whether gradients are clipped by default.", True)
    packs_documents: bool = flag("Whether its recipes for fine-tuning pack short documents into a sequence.", False)
    narrow_gather: bool = flag("Whether tp ranks gather operands after casting them to 8 or 4 bits.", False)
    keeps_gathered: bool = flag("Whether tensors gathered by tp ranks before a GEMM are kept for backward.", False)
    gathers_again: bool = flag(
        "Whether tp ranks gather the inputs of column-parallel GEMMs once more in backward, for weight gradients.", True
    )
    ring_exchange: str = choice(
        "How cp ranks of kind ring get keys and values: sent from rank to rank, or all-gathered before attention.",
        ("sends", "all-gather"),
        "sends",
    )
    every_message: bool = flag(
        "Whether messages are described call by call. Otherwise those of a few kilobytes are left out (token counts of "
        "experts, gradients of weights that tp ranks copy, the loss) and neighbouring ones are merged (reductions of a "
        "cut vocabulary's loss; queries, keys, values and outputs that cp ranks exchange).",
        False,
    )
    async_tp_backward: bool = flag(
        "Whether backward overlaps exchanges of column-parallel GEMMs with other GEMMs.", True
    )
    default_overlap: tuple[str, ...] = words("Axes whose communication is overlapped by default.", OVERLAPS)
    default_sparse_overlap: tuple[str, ...] = words(
        "Axes overlapped by default for models with experts, if different.", OVERLAPS
    )
    vocab_multiple: int = count("The vocabulary is padded to a multiple of this times tp.", 1, 65_536, 1)
    direct_all_reduce: bool = flag(
        "Whether short all-reduces inside a scale-up domain read the buffers of all ranks at once (one-shot, two-shot) "
        "and do not go through NCCL.",
        False,
    )
    sorts_vocabulary: bool = flag(
        "Whether drawing from the most likely tokens (top-k, top-p) sorts the vocabulary of each sequence.", False
    )
    shared_cache_reads: bool = flag(
        "Whether query heads that share keys and values read the cache once, not each on its own.", True
    )
    prefill_tokens: int = count("Tokens of prompts that an engine reads in one pass.", 1, 16_777_216, 8192)
    # Constants.
    step_host_s: float = number("Host time of a generation step outside kernels: scheduling, output.", 0, 1, 0.0)
    live_parameters: int = count(
        "Gathered weights that ZeRO stage 3 keeps for later use (DeepSpeed's stage3_max_live_parameters).",
        0, 10**13, 0,
    )  # fmt: skip
    reserve_fraction: float = number(
        "Memory that the caching allocator holds beyond its peak use, relative to that peak.", 0, 1
    )
    kernel_bytes: float = number("Memory of kernels loaded at start, beside the driver's context.", 0, 1e11, 0.0)
    bucket_bytes: float = number("Size of a gradient bucket.", 0, 1e11)
    launch_s: float = number("Host time to launch one kernel.", 0, 1e-2, 10e-6)
    library_fraction: float = number("Rate of GEMMs of its libraries relative to the GPU's best.", 0.3, 1, 1.0)
    undescribed_fraction: float = number(
        "Memory traffic of small kernels that are not described, relative to those that are.", 0, 10, 0.0
    )

    def __post_init__(self) -> None:
        check_fields(self)


def groups_experts(framework: Framework, training: Training) -> bool:
    """Tell whether experts run in one grouped GEMM: as the run asks for, else as the framework does."""
    return framework.grouped_gemm if training.grouped_gemm is None else training.grouped_gemm
