"""The kernels that a simulated step launches, in the classes of traces, to be laid beside traced ones."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from charllm.timeline.costs import FIXED, MATRIX, OTHER, kernel_rows, matrix_hz
from charllm.timeline.step_time import StepTime
from charllm.workload.kernel_calls import Launched
from charllm.workload.launches import launched
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step
from charllm.workload.totals import AXIS_OF_GROUP, stage_ops

CLASS_OF_KERNEL = {
    "gemm": "gemm", "grouped_gemm": "gemm", "grouped_wgrad": "gemm",
    "attention": "attention", "attention_backward": "attention",
    "norm": "norm", "norm_backward": "norm", "rmsnorm": "norm", "rmsnorm_backward": "norm",
    "optimizer": "optimizer", "optimizer_16bit": "optimizer", "norm_of_tensor": "optimizer", "scale": "optimizer",
    "softmax": "softmax", "topk": "routing", "scan": "scan", "scan_backward": "scan",
}  # fmt: skip
"""Kind of kernel: its class; all others move memory, element by element."""
MEMORY = "memory-bound"
"""Class of kernels that only move memory. Traces name them finer (elementwise, copy, embedding, loss ...), but one op
of the simulator, such as a loss, is several of those."""
FINE = (
    "elementwise", "copy", "embedding", "loss", "routing", "reduction", "softmax", "memset", "memcpy", "quantize",
    "host",
)  # fmt: skip
"""Classes of traces that are compared together as MEMORY."""


class SimulatedKernel(NamedTuple):
    """Equal kernels of one op in a simulated step of one rank."""

    op: str
    kind: str
    """Kind of the kernel, or of the collective."""
    work: str
    """Class, as `compared_class` has it."""
    kernels: float
    launches: float
    """What a profiler shows for them, memory clears included."""
    seconds: float
    """Of all of them, at the clock of the step."""
    launch_s: float
    """What launching them takes the host."""


def compared_class(name: str) -> str:
    """Return the class under which traced and simulated work are compared."""
    return MEMORY if name in FINE else name


def simulated_kernels(step: Step, timed: StepTime, stage: int) -> list[SimulatedKernel]:
    """List the kernels and collectives of a step of one stage."""
    costs = timed.costs
    updates = [(op, 1.0) for op in costs.kernels.updates[stage]]
    # The update is priced apart from the list of a stage's ops.
    listed = [(op, times) for op, times, _phase in stage_ops(step, stage) if op.kind not in ("optimizer", "clip")]
    found = []
    for op, times in [*listed, *updates]:
        found += [_collective(op, times, timed)] if is_communication(op) else list(_of_op(step, timed, op, times))
    return found


def _collective(op: Op, times: float, timed: StepTime) -> SimulatedKernel:
    name = f"{AXIS_OF_GROUP[op.group]} {op.kind}"
    seconds = times * timed.costs.collective_s(op)
    return SimulatedKernel(op.name, op.kind, name, times, times, seconds, times * timed.costs.launch_s(op))


def _of_op(step: Step, timed: StepTime, op: Op, times: float) -> Iterator[SimulatedKernel]:
    """Split the seconds of an op among its kernels, as they take by themselves."""
    costs = timed.costs
    parts = launched(op, step.run)
    row = costs.kernels.row_of[id(op)]
    own = _seconds_each(timed)[costs.kernels.kernel[costs.kernels.op == row]]
    total = sum(one.times * float(each) for one, each in zip(parts, own, strict=True)) or 1.0
    launch_s = costs.launch_s(op) / max(sum(map(_launches, parts)), 1e-12)
    running_s = costs.price(op) - costs.kernels.shapes.launch_gap_s * sum(one.times for one in parts)
    for one, each in zip(parts, own, strict=True):
        work = compared_class(CLASS_OF_KERNEL.get(one.shape.kind, MEMORY))
        seconds = times * running_s * one.times * float(each) / total
        launches = times * _launches(one)
        yield SimulatedKernel(op.name, one.shape.kind, work, times * one.times, launches, seconds, launches * launch_s)


def _launches(one: Launched) -> float:
    """Count what a profiler shows on the device for them."""
    return one.times * one.events


def _seconds_each(timed: StepTime) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the seconds of one call of each distinct kernel at the clock of the step.

    A trace has kernels without what lies between them where the queue is empty.
    """
    costs = timed.costs
    gpu, clock_hz, shapes = costs.run.cluster.gpu, costs.clock_hz, costs.kernels.shapes._replace(launch_gap_s=0.0)
    rows = kernel_rows(shapes, gpu, np.full(len(shapes.flop), clock_hz))
    return np.asarray(rows[:, MATRIX] / matrix_hz(gpu, clock_hz) + rows[:, OTHER] / clock_hz + rows[:, FIXED])
