"""What one rank sees of a microbatch: its share of tokens, heads and widths, and the formats it works in."""

from dataclasses import dataclass, replace

from charllm.gpu.shape import OPERAND_BYTES
from charllm.spec.framework import Framework
from charllm.spec.generation import CACHE_BYTES, Generation
from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import RunSpec
from charllm.spec.training import Training

REDUCED_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}
"""Bytes of a gradient on its way between ranks."""

PLAIN = Framework(name="plain", reserve_fraction=0.0, bucket_bytes=0.0)
"""No framework in particular, for what does not depend on one."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One rank's share of one microbatch."""

    model: Model
    training: Training
    framework: Framework
    batch: int
    seq: int
    """Tokens of each sequence on this rank."""
    tp: int
    cp: int
    ep: int
    etp: int
    sp: bool
    cp_kind: str
    element_bytes: float
    """Of an activation."""
    stream_bytes: float
    """Of an element of the residual stream between blocks."""
    gathered_bytes: float
    """Of a weight that was sharded and is gathered for use."""
    operand_bytes: float
    """Of a matrix operand."""
    cast: bool
    """Whether operands are cast from activations, so that the cast copy is kept beside them."""

    tokens: int
    """Tokens a rank multiplies."""
    shard_tokens: int
    """Tokens a rank holds outside the matrix multiplications."""
    heads: int
    """Query heads on this rank."""
    kv_heads: int
    """Key-value heads on this rank; a head is copied when there are fewer than ranks."""
    vocab: int
    """Vocabulary entries on this rank, padding included."""
    precision: str
    """Format of the matrix multiplications."""
    reduced_bytes: float
    """Of a gradient on its way between ranks."""
    gradient_bytes: float
    """Of an accumulated gradient."""
    trains: bool = True
    """Whether a backward pass follows."""
    generates: bool = False
    """Whether it is a step of generation: the head works on the last token of each sequence."""
    context: int = 0
    """Tokens of each sequence in the key-value cache before this step; 0: none, attention is among its own."""
    cache_element_bytes: float = 2.0


def cut_run(run: RunSpec) -> Cut:
    """Take one rank's share of a microbatch out of a run."""
    return cut_model(run.model, run.training, run.framework, run.parallelism, run.generation)


def whole_cut(model: Model) -> Cut:
    """Return one token on one rank that holds the whole model, for counting weights."""
    training = Training(seq_length=1, global_batch_size=1)
    return cut_model(model, training, PLAIN, Parallelism())


def cut_model(
    model: Model, training: Training, framework: Framework, degrees: Parallelism, generation: Generation | None = None
) -> Cut:
    """Take one rank's share of a microbatch."""
    precision, tp = training.precision, degrees.tp
    seq = training.seq_length // degrees.cp
    tokens = training.micro_batch_size * seq
    vocab_step = framework.vocab_multiple * tp
    return Cut(
        model=model,
        training=training,
        framework=framework,
        batch=training.micro_batch_size,
        seq=seq,
        tp=tp,
        cp=degrees.cp,
        ep=degrees.ep,
        etp=degrees.etp,
        sp=degrees.sp,
        cp_kind=degrees.cp_kind,
        element_bytes=4.0 if precision == "fp32" else 2.0,
        stream_bytes=4.0 if precision == "fp32" or framework.autocast else 2.0,
        gathered_bytes=4.0 if precision == "fp32" or framework.autocast else 2.0,
        operand_bytes=OPERAND_BYTES[precision],
        cast=precision in ("fp8", "mxfp8", "nvfp4"),
        tokens=tokens,
        shard_tokens=tokens // tp if degrees.sp else tokens,
        heads=model.heads // tp,
        kv_heads=max(1, model.kv_heads // tp),
        vocab=model.vocab // tp if framework.composed else -(-model.vocab // vocab_step) * framework.vocab_multiple,
        precision=precision,
        reduced_bytes=_reduced_bytes(training, framework),
        gradient_bytes=_gradient_bytes(training, framework),
        trains=degrees.trains,
        generates=generation is not None,
        context=generation.context_tokens if generation else 0,
        cache_element_bytes=CACHE_BYTES[generation.cache_precision] if generation else 2.0,
    )


def _reduced_bytes(training: Training, framework: Framework) -> float:
    """With fp16's loss scaling gradients are reduced in 16 bits unless asked otherwise.

    Gradients in fp32 are reduced as they are. Source: Megatron-LM sets accumulate_allreduce_grads_in_fp32 by itself
    with bf16 only.
    """
    default = {"fp16": "bf16", "fp32": "fp32"}.get(training.precision, framework.reduce_precision)
    return REDUCED_BYTES[training.reduce_precision or default]


def _gradient_bytes(training: Training, framework: Framework) -> float:
    """With fp16's loss scaling gradients accumulate in 16 bits, too."""
    if framework.gradient_precision == "reduced":
        return _reduced_bytes(training, framework)
    in_fp32 = framework.gradient_precision == "fp32" and training.precision != "fp16"
    return 4.0 if in_fp32 or training.precision == "fp32" else 2.0


def in_16_bits(cut: Cut) -> Cut:
    """Return the same share with products in bf16: heads, and layers that stay wide."""
    training = replace(cut.training, precision="bf16")
    return replace(cut, training=training, precision="bf16", operand_bytes=2.0, cast=False)
