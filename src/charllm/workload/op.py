"""The vocabulary of a step: ops, what they keep for the backward pass, and the modules they form."""

from collections.abc import Callable
from typing import NamedTuple

MATRIX_KINDS = ("gemm", "grouped_gemm", "attention")
COLLECTIVES: dict[str, Callable[[int], float]] = {
    "all_gather": lambda degree: (degree - 1) / degree,
    "reduce_scatter": lambda degree: (degree - 1) / degree,
    "all_reduce": lambda degree: 2 * (degree - 1) / degree,
    "broadcast": lambda degree: (degree - 1) / degree,
    "all_to_all": lambda degree: (degree - 1) / degree,
    "ring_exchange": lambda degree: degree - 1,
    "send": lambda _degree: 1.0,
}
"""Bytes each rank sends over the bytes of its message. The message is the larger of a rank's two buffers (the
gathered output, the unreduced input, the whole send buffer), as in nccl-tests; in a ring exchange it is the block
that travels round."""


def bus_fraction(kind: str, degree: int) -> float:
    """Return the bus bandwidth of a collective over its algorithm bandwidth, as nccl-tests defines both."""
    return 1.0 if kind == "broadcast" else COLLECTIVES[kind](degree)


class Op(NamedTuple):
    """One kernel, or one collective, of one rank for one microbatch."""

    name: str
    """What people call it; nothing reads it but reports."""
    kind: str
    """A key of workload/launches.py:LAUNCHES, or of COLLECTIVES."""
    flop: float = 0.0
    """Multiplications and additions in matrix units; elementwise arithmetic is not counted, as torch counts."""
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    message_bytes: float = 0.0
    sent_bytes: float = 0.0
    group: str = ""
    shape: tuple[int, ...] = ()
    """gemm: batch, m, n, k. attention: batch, heads, kv_heads, queries, keys, query_head_dim, value_head_dim. Kernels
    that only move memory: rows, width."""
    precision: str = "bf16"
    direction: str = "forward"
    """forward, backward, dgrad (gradient of an input), wgrad (gradient of a weight) or step (once a step)."""
    expert: bool = False
    """Whether it works on the tokens of experts."""


class Kept(NamedTuple):
    """A tensor kept from forward to backward."""

    name: str
    size_bytes: float
    dropped_by: tuple[str, ...] = ()
    """Recompute modules that throw it away."""
    returned: bool = False
    """Whether the model hands it back to its caller, so that no recomputation frees it."""


class Module(NamedTuple):
    """A named part of a layer: its forward and backward ops, what it keeps, and its weights on this rank."""

    name: str
    forward: tuple[Op, ...] = ()
    backward: tuple[Op, ...] = ()
    kept: tuple[Kept, ...] = ()
    weights: float = 0.0
    """Trained weight elements on this rank."""
    frozen_weights: float = 0.0
    partial_weights: float = 0.0
    """Of the trained ones, those of which each tp rank has a copy and only its part of the gradient."""
    tensors: tuple[tuple[int, int], ...] = ()
    """Rows and width of each of its dense weights."""
    expert: bool = False
    """Whether the weights are an expert's: reduced over edp, not over data."""
    recomputed_by: tuple[str, ...] = ()
    """Recompute modules that run its forward ops again."""
    forward_scratch_bytes: float = 0.0
    backward_scratch_bytes: float = 0.0
    """Memory beyond what is kept while it runs."""
    hole_bytes: float = 0.0
    """Freed before its backward pass in a block too small for anything that pass allocates."""


def gemm(
    name: str, m: int, n: int, k: int, operand_bytes: float, output_bytes: float, precision: str,
    direction: str = "forward",
) -> Op:  # fmt: skip
    """Describe ``[m, k] x [k, n]``: 2mnk flop, both operands read once, the output written once."""
    return Op(
        name,
        "gemm",
        2.0 * m * n * k,
        (m * k + k * n) * operand_bytes,
        m * n * output_bytes,
        shape=(1, m, n, k),
        precision=precision,
        direction=direction,
    )


def elementwise(
    name: str, kind: str, read_bytes: float, written_bytes: float, direction: str = "forward",
    shape: tuple[int, ...] = (), *, expert: bool = False,
) -> Op:  # fmt: skip
    """Describe work that only moves memory: the least bytes it reads and writes, in rows of some width."""
    return Op(name, kind, 0.0, read_bytes, written_bytes, shape=shape, direction=direction, expert=expert)


def collective(kind: str, group: str, message_bytes: float, degree: int) -> tuple[Op, ...]:
    """Describe a collective over a group, or nothing when the group is one rank."""
    if degree <= 1 or message_bytes <= 0:
        return ()
    sent_bytes = message_bytes * COLLECTIVES[kind](degree)
    return (Op(f"{group} {kind}", kind, 0.0, message_bytes, message_bytes, message_bytes, sent_bytes, group),)


def is_communication(op: Op) -> bool:
    """Tell whether an op moves data between ranks."""
    return op.kind in COLLECTIVES
