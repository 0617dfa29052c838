"""Which real kernel stands for an op of the workload."""

from charllm.gpu.shape import BYTES_PER_ELEMENT
from charllm.spec.run import RunSpec
from charllm.timeline.play import Item
from charllm.workload.op import Op

MAX_OPTIMIZER_ELEMENTS = 1 << 28
ELEMENT_BYTES = 2
MAX_HEAD_DIM = 256


def kernel_items(run: RunSpec, op: Op) -> list[Item]:
    """Return the kernels that an op runs: same shape for products and attention, same bytes for streams."""
    maker = MAKERS.get(op.kind, _stream)
    return [Item("kernel", op.name, shape=shape) for shape in maker(run, op)]


Shapes = list[tuple[object, ...]]


def _product(_run: RunSpec, op: Op) -> Shapes:
    batch, m, n, k = (max(1, dimension) for dimension in op.shape)
    precision = "fp8" if op.precision in ("fp8", "mxfp8", "nvfp4") else "bf16"
    if op.kind == "grouped_gemm":
        return [("grouped_gemm", (batch, m, n, k), "bf16")]
    # A loop over experts is as many launches as experts.
    repeats = batch if "expert" in op.name else 1
    return [("gemm", (1 if repeats > 1 else batch, m, n, k), precision)] * repeats


def _attention(_run: RunSpec, op: Op) -> Shapes:
    """A causal kernel with as many query-key pairs; windows, full squares and context parallelism change its length.

    Ignores: that latent attention's queries are wider than its values; both get the mean width.
    """
    batch, heads, kv_heads, _queries, _keys, qk, pv = op.shape
    backward = "backward" in op.name
    pairs = op.flop / (2 * batch * heads * (3 * qk + 2 * pv if backward else qk + pv))
    # Kernels exist for head widths up to 256 in steps of 8.
    width = min(MAX_HEAD_DIM, -(-(qk + pv) // 16) * 8)
    kind = "attention_backward" if backward else "attention"
    return [(kind, (batch, heads, kv_heads, max(1, round((2 * pairs) ** 0.5)), width), "bf16")]


def _norm(run: RunSpec, op: Op) -> Shapes:
    backward = "backward" in op.name
    elements = op.written_bytes / ELEMENT_BYTES
    width = run.model.hidden
    rows = max(1, round(elements / width))
    if "softmax" in op.name:
        return [("softmax", (rows, width), "bf16")]
    kind = "norm_backward" if backward else "norm" if run.model.norm == "layernorm" else "rmsnorm"
    return [(kind, (rows, width), "bf16")]


def _elementwise(run: RunSpec, op: Op) -> Shapes:
    if "activation" not in op.name:
        return _stream(run, op)
    if "backward" in op.name:
        return [("gelu_backward", (max(1, round((op.read_bytes + op.written_bytes) / 6)),), "bf16")]
    kind = "swiglu" if run.model.gated else "gelu"
    return [(kind, (max(1, round(op.written_bytes / ELEMENT_BYTES)),), "bf16")]


def _stream(_run: RunSpec, op: Op) -> Shapes:
    return [("copy", (max(1, round((op.read_bytes + op.written_bytes) / 4)),), "bf16")]


def _rows(kind: str, run: RunSpec, op: Op) -> Shapes:
    rows = max(1, round(op.written_bytes / ELEMENT_BYTES / run.model.hidden))
    return [(kind, (rows, run.model.hidden), "bf16")]


def _permute(run: RunSpec, op: Op) -> Shapes:
    return _rows("permute", run, op)


def _embedding(run: RunSpec, op: Op) -> Shapes:
    return _rows("embedding", run, op)


def _loss(run: RunSpec, op: Op) -> Shapes:
    tokens = run.training.micro_batch_size * run.training.seq_length // run.parallelism.cp
    vocab = max(1, round((op.read_bytes + op.written_bytes) / BYTES_PER_ELEMENT["loss"] / tokens))
    return [("loss", (tokens, vocab), "bf16")]


def _optimizer(_run: RunSpec, op: Op) -> Shapes:
    elements = max(1, round((op.read_bytes + op.written_bytes) / 28))
    whole, rest = divmod(elements, MAX_OPTIMIZER_ELEMENTS)
    shapes: Shapes = [("optimizer", (MAX_OPTIMIZER_ELEMENTS,), "fp32")] * whole
    return [*shapes, ("optimizer", (rest,), "fp32")] if rest else shapes


MAKERS = {
    "gemm": _product,
    "grouped_gemm": _product,
    "attention": _attention,
    "norm": _norm,
    "elementwise": _elementwise,
    "permute": _permute,
    "embedding": _embedding,
    "loss": _loss,
    "optimizer": _optimizer,
}
"""Kind of op: the kernels that stand for it; others are streams of the same bytes."""
