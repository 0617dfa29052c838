"""A linear layer, whole or cut over tp ranks, frozen or trained, with or without an adapter."""

from typing import NamedTuple

from charllm.workload.cut import Cut
from charllm.workload.op import Kept, Module, Op, collective, elementwise, gemm

NARROWEST_READS = 3
"""Counted: how often an operand is read to be quantised to four bits."""
COLUMN_READS = 9
"""Derived: reads of an operand that two passes down its columns cost, of at most 32, as a sector of 32 bytes holds 16
elements of a row: Llama 3 8B on 8 H100 trains 10 % faster than in bf16 by rows, 25 % by tensors (torchao, float8)."""


def linear(
    cut: Cut,
    name: str,
    inputs: int,
    outputs: int,
    *,
    split: str = "none",
    bias: bool = False,
    input_kept: tuple[Kept, ...] = (),
    recomputed_by: tuple[str, ...] = (),
    target: str = "",
    parts: tuple[int, ...] = (),
    carried: int = 0,
) -> Module:
    """Describe ``y = x W`` for this rank's tokens.

    split: "column" cuts outputs over tp (the input is gathered when the sequence is shared), "row" cuts inputs
    (the output is reduced), "none" works on this rank's own tokens. `input_kept` is what its weight gradient
    needs from forward, when no other module keeps it already. `target` is its name among adapter targets. `parts` are
    the outputs of the products it is made of, where the framework does not pack them into one. `carried` is the width
    of what tp ranks exchange along with the input of a column, to use beside it.
    """
    trained = cut.training.lora_rank == 0
    tokens = cut.shard_tokens if split == "none" else cut.tokens
    k = inputs // cut.tp if split == "row" else inputs
    n = outputs // cut.tp if split == "column" else outputs
    exchange = _exchange(cut, split, inputs + carried if split == "column" else outputs, trained=trained)
    widths = [n] if cut.framework.packed_projections else _rows(n, parts)
    wgrad = [_gemm(cut, f"{name} wgrad", wide, k, tokens, "wgrad", cut.gradient_bytes) for wide in widths]
    wgrad += _bias_gradients(cut, name, tokens, widths) if bias else []
    forward = (
        *exchange.before_forward,
        *quantise(cut, f"{name} cast", tokens * k),
        *(_gemm(cut, name, tokens, wide, k) for wide in widths),
        *exchange.after_forward,
    )
    backward = (
        *exchange.before_backward,
        *quantise(cut, f"{name} grad cast", tokens * n, "backward"),
        *(_gemm(cut, f"{name} dgrad", tokens, k, wide, "dgrad") for wide in widths),
        *(add_gradients(f"{name} grad add", tokens * k * cut.element_bytes),) * (len(widths) - 1),
        *exchange.after_dgrad,
        *(wgrad if trained else ()),
    )
    elements, gathered = float(k * n + (n if bias else 0)), tokens * k if split == "column" and cut.sp else 0
    input_kept = _as_gathered(cut, input_kept) if gathered else input_kept
    module = Module(
        name,
        forward,
        backward,
        kept=input_kept if trained else (),
        weights=elements if trained else 0.0,
        frozen_weights=0.0 if trained else elements,
        tensors=(*((wide, k) for wide in _rows(n, parts)), *(((n, 1),) if bias else ())),
        partial_weights=_partial(cut, split, elements, n if bias else 0) if trained else 0.0,
        recomputed_by=recomputed_by,
        forward_scratch_bytes=(gathered + tokens * n) * cut.element_bytes,
        backward_scratch_bytes=(gathered + tokens * (n + k)) * cut.element_bytes,
    )
    return _adapt(cut, module, tokens, k, n, split, input_kept) if target in _targets(cut) else module


def _bias_gradients(cut: Cut, name: str, tokens: int, widths: list[int]) -> list[Op]:
    """Describe the sums over tokens that gradients of biases are, where no product has them in its epilogue."""
    if not cut.framework.plain_modules:
        return []
    size = cut.element_bytes
    return [
        elementwise(f"{name} bias grad", "bias gradient", tokens * wide * size, wide * size, "backward", (tokens, wide))
        for wide in widths
    ]


def _rows(n: int, parts: tuple[int, ...]) -> list[int]:
    """Return the outputs of each weight."""
    return [part * n // sum(parts) for part in parts] if parts else [n]


def _partial(cut: Cut, split: str, elements: float, bias: int) -> float:
    """Count the weights that every tp rank holds while it has only some of the tokens: uncut ones, a row's bias."""
    if not cut.sp or split == "column":
        return 0.0
    return elements if split == "none" else float(bias)


def _as_gathered(cut: Cut, input_kept: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """Return what is kept of an input that tp ranks gather: its shard, or all of it where the framework saves that."""
    if not cut.framework.keeps_gathered:
        return input_kept
    return tuple(tensor._replace(size_bytes=tensor.size_bytes * cut.tp) for tensor in input_kept)


class _Exchange(NamedTuple):
    """What tp ranks exchange around a linear layer."""

    before_forward: tuple[Op, ...] = ()
    after_forward: tuple[Op, ...] = ()
    before_backward: tuple[Op, ...] = ()
    after_dgrad: tuple[Op, ...] = ()


def _exchange(cut: Cut, split: str, width: int, *, trained: bool) -> _Exchange:
    """Describe Megatron's exchanges (Korthikanti 2022): the stream is whole, or each rank holds some of its tokens.

    Where the framework gathers again, a column's input is gathered for the weight gradient, too.
    """
    if split == "none" or cut.tp == 1:
        return _Exchange()
    message_bytes = cut.tokens * width * cut.element_bytes
    # An operand that is cast anyway can be cast before it travels.
    gathered_bytes = cut.operand_bytes if cut.cast and cut.framework.narrow_gather else cut.element_bytes
    gather = collective("all_gather", "tp", cut.tokens * width * gathered_bytes, cut.tp) if cut.sp else ()
    reduce = collective("reduce_scatter" if cut.sp else "all_reduce", "tp", message_bytes, cut.tp)
    if split == "row":
        return _Exchange(after_forward=reduce, before_backward=gather)
    again = trained and cut.framework.gathers_again
    return _Exchange(before_forward=gather, before_backward=gather if again else (), after_dgrad=reduce)


def quantise(cut: Cut, name: str, elements: int, direction: str = "forward", *, expert: bool = False) -> tuple[Op, ...]:
    """Describe quantising an operand: read, written row-wise for one product and column-wise for the other.

    Four bits take three passes: largest values before and after the Hadamard transform, rows, transformed columns.
    Scales for each row take two more, down the columns of memory that is stored by rows.
    Source: Transformer Engine, NVFP4Quantizer (hadamard_transform_amax, quantize, hadamard_transform_cast_fusion);
    torchao, float8 rowwise recipe.
    """
    if not cut.cast:
        return ()
    reads = NARROWEST_READS if cut.precision == "nvfp4" else 1
    if cut.precision == "fp8" and cut.framework.fp8_scaling == "row":
        reads += COLUMN_READS
    moved = (reads * elements * cut.element_bytes, 2 * elements * cut.operand_bytes)
    return (elementwise(name, "cast", *moved, direction, expert=expert),)


def _targets(cut: Cut) -> tuple[str, ...]:
    return cut.training.lora_targets if cut.training.lora_rank else ()


def _gemm(
    cut: Cut, name: str, m: int, n: int, k: int, direction: str = "forward", output_bytes: float | None = None
) -> Op:
    written = cut.element_bytes if output_bytes is None else output_bytes
    return gemm(name, m, n, k, cut.operand_bytes, written, cut.precision, direction)


def _adapt(cut: Cut, base: Module, tokens: int, k: int, n: int, split: str, input_kept: tuple[Kept, ...]) -> Module:
    """Add a trained low-rank path ``dropout(x) A B alpha / rank`` beside frozen weights.

    Its output is scaled by a kernel of its own and added on, as its input's gradient is.
    Source: NeMo's ParallelLinearAdapter and the PEFT library's lora.Linear, which multiply and add apart.
    Ignores: that some frameworks cut A over tp too; here A or B is whole on each rank.
    """
    rank, size = cut.training.lora_rank, cut.element_bytes
    dropped = cut.training.lora_dropout_fraction > 0
    masked = (tokens * k * size, tokens * k * (size + 1))
    drop = (elementwise(f"{base.name} lora dropout", "dropout", *masked),) if dropped else ()
    undrop = (elementwise(f"{base.name} lora dropout", "dropout", *masked[::-1], "backward"),) if dropped else ()
    scale, unscale = (
        elementwise(f"{base.name} lora scale", "elementwise", tokens * n * size, tokens * n * size, way)
        for way in ("forward", "backward")
    )
    reduced = collective("all_reduce", "tp", tokens * rank * size, cut.tp) if split == "row" else ()
    down = gemm(f"{base.name} lora down", tokens, rank, k, size, size, "bf16")
    up = gemm(f"{base.name} lora up", tokens, n, rank, size, size, "bf16")
    gradients = (
        gemm(f"{base.name} lora up dgrad", tokens, rank, n, size, size, "bf16", "dgrad"),
        gemm(f"{base.name} lora up wgrad", n, rank, tokens, size, 4.0, "bf16", "wgrad"),
        gemm(f"{base.name} lora down dgrad", tokens, k, rank, size, size, "bf16", "dgrad"),
        gemm(f"{base.name} lora down wgrad", rank, k, tokens, size, 4.0, "bf16", "wgrad"),
    )
    # What is dropped is kept in place of the input, with its mask.
    inputs = (Kept(f"{base.name} lora input", masked[1]),) if dropped else input_kept
    kept = (*inputs, Kept(f"{base.name} lora middle", tokens * rank * size))
    # All kernels of an adapter are described: none beside them are left to `undescribed_fraction`.
    added, joined = (
        elementwise(f"{base.name} lora {what}", "elementwise", 2 * elements * size, elements * size, way)
        for what, elements, way in (("add", tokens * n, "forward"), ("grad add", tokens * k, "backward"))
    )
    return base._replace(
        forward=(*base.forward, *drop, down, *reduced, up, scale, added),
        backward=(*base.backward, unscale, *gradients, *undrop, joined),
        kept=kept,
        weights=float(rank * (k + n)),
    )


def add_gradients(name: str, size_bytes: float, *, expert: bool = False) -> Op:
    """Add gradients of one input that two products have."""
    return elementwise(name, "add", 2 * size_bytes, size_bytes, "backward", expert=expert)
