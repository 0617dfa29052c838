"""Which kernels a framework launches around its experts: router, sorting of tokens, their way back, biases."""

from charllm.gpu.shape import KernelShape
from charllm.spec.framework import groups_experts
from charllm.spec.run import RunSpec
from charllm.workload import plain_launches as plain
from charllm.workload.kernel_calls import Launched, moving, rows_of, sized, tiny
from charllm.workload.op import Op

ROUTER_KERNELS, MAP_KERNELS = (12, 30), (10, 20)
"""Counted: small kernels of a router (scores, top-k, probabilities, balancing loss) and of maps and counts of tokens by
expert, forward and backward: 45 in eager PyTorch on an H200, alike in Megatron-Core's token dispatchers."""
CHOOSING_KERNELS = 2
"""Published: kernels between router and experts in vLLM (topk_softmax, moe_align_block_size), beside one that sorts."""


def router(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Scores, top-k, probabilities, counts and the balancing loss, over tokens x experts in fp32."""
    backward = op.direction == "backward"
    if run.framework.plain_modules:
        return plain.route(op, run.model.experts)
    if run.framework.expert_kernels != "grouped":
        return (tiny(CHOOSING_KERNELS),)
    # With a fixed capacity no tokens are counted.
    maps = MAP_KERNELS[backward] if run.training.capacity_factor is None else 0
    small = Launched(KernelShape("tiny", (1024,)), ROUTER_KERNELS[backward] + maps, calls=0.0, small=1.0)
    streams = Launched(moving((op.read_bytes + op.written_bytes) / 2).shape, 4)
    if backward or run.framework.fused_router:
        return (small, streams)
    return (small, streams, Launched(KernelShape("topk", op.shape)))


def permute(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Sort rows of tokens by expert: one kernel, or gathers whose backward clears, adds up and joins.

    Source: torch.profiler on an H200: index_select for each expert of a loop, or once with copies for a grouped GEMM.
    """
    if run.framework.fused_permute:
        return (rows_of("permute", op),)
    rows, width = op.shape
    parts = expert_parts(run)
    tokens = run.training.micro_batch_size * run.training.seq_length
    if run.framework.plain_modules:
        return plain.pick_rows(rows, tokens, width, op.direction)
    each, whole = (max(1, rows // parts), width), (tokens, width)
    if op.direction == "forward":
        extra = () if parts > 1 else (sized("fill", each), sized("copy", each), sized("strided", each))
        return (sized("permute", each, parts), *extra)
    added = (sized("fill", whole, parts), sized("index_add", each, parts))
    return (*added, sized("add", whole, parts)) if parts > 1 else (sized("permute", each), *added)


def unpermute(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Weigh experts' rows and add them up by token: one kernel, or a product and an addition by index."""
    if run.framework.fused_permute:
        return (rows_of("permute", op),)
    rows, width = op.shape
    parts = expert_parts(run)
    if run.framework.plain_modules:
        return plain.add_rows_up(rows, run.training.micro_batch_size * run.training.seq_length, width, op.direction)
    each = (max(1, rows // parts), width)
    if op.direction == "forward":
        return (sized("strided_add", each, parts), sized("index_add", each, parts))
    gathered = (sized("permute", each, parts), sized("strided_add", each, parts), sized("add", each, parts))
    return gathered if parts > 1 else (*gathered, sized("fill", each), sized("index_add", each))


def expert_parts(run: RunSpec) -> int:
    """Return how many parts experts' tokens are handled in: one by one in a loop, else together."""
    return 1 if groups_experts(run.framework, run.training) else run.model.experts_on_rank(run.parallelism.ep)


def expert_bias(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Add each expert's bias times the router's probability in fp32, join the experts and cast; or go back through it.

    Source: Megatron-Core's `_apply_bias`, its kernels and bytes as a profile on an H200 shows them: 167 kernels forward
    and backward for 16 experts, 1.7 ms; 27 for 2 experts, 5.0 ms.
    """
    elements = float(op.shape[0] * op.shape[1])
    experts = run.model.experts_on_rank(run.parallelism.ep)

    def one(kind: str, element_bytes: float) -> Launched:
        return moving(element_bytes * elements, kind)._replace(calls=0.0, small=1.0)

    def each(kind: str, element_bytes: float, times: int = 1) -> Launched:
        return moving(element_bytes * elements / experts, kind)._replace(calls=0.0, small=1.0, times=times * experts)

    if op.direction == "forward":
        return each("outer_product", 4), each("accumulate", 10), one("cat", 8), one("to_16bit", 6)
    return (
        one("to_fp32", 6), each("to_16bit", 6), one("cat", 4), each("scaled_rows", 8, 2), each("column_sum", 4, 2),
        each("tiny", 0, 3),
    )  # fmt: skip
