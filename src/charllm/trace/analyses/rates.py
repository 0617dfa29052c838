"""How fast are matrix products and copies, by shape, beside what the model gives for them?

Equation: a product of batch x m x n x k takes 2 batch m n k FLOPs in the time of all the kernels that its operator
launched; an element by element operator moves its inputs and its largest operand once more, which it writes.
Source: operands that torch.profiler records with `record_shapes=True`; times of the model in gpu/kernels.py.
Ignores: operators that a compiler has fused; what a cache saves; attention, whose mask a trace does not tell.
"""

import ast
from collections import defaultdict
from math import prod
from typing import NamedTuple

import numpy as np

from charllm.catalog.resolve import resolve_cluster
from charllm.catalog.tables import find_name
from charllm.errors import SpecError
from charllm.gpu.kernels import read_shapes, time_kernels
from charllm.gpu.shape import KernelShape
from charllm.spec.hardware import Gpu
from charllm.trace.analyses.kernels import in_steps
from charllm.trace.events import NONE
from charllm.trace.links import operators_of
from charllm.trace.run import TracedRank
from charllm.trace.shaped import COPIES, PRODUCTS

TYPE_BYTES = {
    "c10::BFloat16": 2, "c10::Half": 2, "float": 4, "double": 8, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1, "c10::Float8_e5m2fnuz": 1, "bool": 1, "unsigned char": 1, "signed char": 1, "int": 4,
    "long int": 8, "long": 8,
}  # fmt: skip
PRECISION = {
    "c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32",
    **{name: "fp8" for name in TYPE_BYTES if "Float8" in name},
}  # fmt: skip
LARGE_BYTES = 1 << 26
"""Less than this may stay in a cache, and its rate says nothing of memory (assumed)."""
SHOWN_RATES = 40


class Work(NamedTuple):
    """What one call of an operator does."""

    operator: str
    shape: str
    dtype: str
    flop: float
    moved_bytes: float
    kernel: KernelShape | None
    """Its product, where the model knows the precision."""


class RateRow(NamedTuple):
    """All calls of an operator on one shape in a mean step of a rank."""

    operator: str
    shape: str
    dtype: str
    calls: float
    seconds: float
    flop_per_s: float | None
    bytes_per_s: float | None
    predicted_seconds: float | None
    """At the GPU's highest clock; None where the GPU or the precision is not known."""


def rate_rows(rank: TracedRank, gpu: Gpu | None) -> list[RateRow]:
    """Return the rates by operator and shape, those that took longest first."""
    trace = rank.trace
    if not trace.shape_of:
        return []
    here, steps = in_steps(rank), max(1, len(rank.windows))
    operators = operators_of(trace, here.call)
    seconds: dict[int, float] = defaultdict(float)
    for operator, spent in zip(operators.tolist(), here.seconds.tolist(), strict=True):
        if operator != NONE:
            seconds[operator] += spent
    works: dict[tuple[str, int], Work | None] = {}
    totals: dict[Work, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for operator, spent in seconds.items():
        number = trace.shape_of.get(int(trace.events.external_id[operator]), NONE)
        key = trace.names[trace.events.name[operator]], number
        if number != NONE and key not in works:
            works[key] = read_work(key[0], trace.shapes[number])
        found = works.get(key)
        if found is not None:
            totals[found][0] += 1 / steps
            totals[found][1] += spent / steps
    rows = [_row(work, calls, spent, gpu) for work, (calls, spent) in totals.items() if spent > 0]
    return sorted(rows, key=lambda row: -row.seconds)[:SHOWN_RATES]


def gpu_of(rank: TracedRank) -> Gpu | None:
    """Return the catalog's GPU that a trace names, where it has it."""
    named = next(filter(None, rank.trace.device_names), None)
    try:
        known = find_name("gpus", named) if named else None
        return resolve_cluster(f"{known}x8").node.gpu if known else None
    except SpecError:
        return None


def read_work(operator: str, operands: str) -> Work | None:
    """Return what an operator does with these operands; None for what is not counted."""
    parsed = _parse(operands)
    if parsed is None:
        return None
    if operator in PRODUCTS:
        return _read_product(operator, *parsed)
    tensors = [(size, kind) for size, kind in zip(*parsed, strict=True) if size]
    if not tensors or any(kind not in TYPE_BYTES for _size, kind in tensors):
        return None
    moved = [prod(size) * TYPE_BYTES[kind] for size, kind in tensors]
    size, kind = tensors[moved.index(max(moved))]
    written = 0 if operator in COPIES else max(moved)
    if sum(moved) + written < LARGE_BYTES:
        return None
    return Work(operator, "x".join(map(str, size)), kind, 0.0, float(sum(moved) + written), None)


def _parse(operands: str) -> tuple[list[tuple[int, ...]], list[str]] | None:
    """Read operands: the sizes of each, () for what is no tensor, and the type of each."""
    head, mark, tail = operands.rpartition("] [")
    try:
        dims, types = ast.literal_eval(f"{head}]"), ast.literal_eval(f"[{tail}")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not mark or len(dims) != len(types):
        return None
    plain = [isinstance(one, list) and all(type(size) is int and 0 < size < 2**31 for size in one) for one in dims]
    return [tuple(one) if good else () for one, good in zip(dims, plain, strict=True)], [str(kind) for kind in types]


def _read_product(operator: str, dims: list[tuple[int, ...]], types: list[str]) -> Work | None:
    first, second = PRODUCTS[operator]
    if len(dims) <= second:
        return None
    left, right, dtype = dims[first], dims[second], types[first]
    if len(left) != len(right) or len(left) not in (2, 3) or left[-1] != right[-2] or left[:-2] != right[:-2]:
        return None
    batch, m, n, k = left[0] if len(left) == 3 else 1, left[-2], right[-1], left[-1]
    kernel = KernelShape("gemm", (batch, m, n, k), PRECISION[dtype]) if dtype in PRECISION else None
    shape = f"{batch}x{m}x{n}x{k}" if batch > 1 else f"{m}x{n}x{k}"
    return Work(operator, shape, dtype, 2.0 * batch * m * n * k, 0.0, kernel)


def _row(work: Work, calls: float, seconds: float, gpu: Gpu | None) -> RateRow:
    predicted = None
    if gpu is not None and work.kernel is not None and gpu.peak_flop_per_s(work.kernel.precision):
        known = read_shapes([work.kernel], gpu, in_step=True)
        predicted = float(time_kernels(known, gpu, np.array([gpu.clock_max_hz])).running_s[0]) * calls
    elif gpu is not None and work.moved_bytes:
        predicted = work.moved_bytes / (gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s) * calls
    flop_per_s = work.flop * calls / seconds if work.flop else None
    bytes_per_s = work.moved_bytes * calls / seconds if work.moved_bytes else None
    return RateRow(work.operator, work.shape, work.dtype, calls, seconds, flop_per_s, bytes_per_s, predicted)
