"""Energy of one op of a training step.

Equation: products E_matrix = flop x flop_j; bytes are those each tensor needs once, and for products again for each
wave of tiles that cannot hold its operands in cache: 2 m n k (x + y) / (x y) with x y the outputs of one wave.
Attention adds softmax: flop_j (1 + extra) (1 + ramp / length). Streams: instructions for each byte, by kind.

Source: as power/board.py; instructions and re-reads fitted on the same ops.
Ignores: operand values; padding of tiles (the bench's model in power/kernels.py has it).
"""

from charllm.gpu.board import Energy
from charllm.spec.framework import Framework
from charllm.spec.hardware import Gpu
from charllm.workload.op import Op, is_communication

TILE_OUTPUTS = 128 * 256
CACHE_LOW_FRACTION, CACHE_HIGH_FRACTION = 0.48, 0.87
"""Share of the last-level cache below which operands stay in it, and above which none of them do."""
INSTRUCTIONS_PER_BYTE = {
    "norm": 3.4,
    "elementwise": 3.7,
    "optimizer": 1.4,
    "cast": 2.6,
    "permute": 0.8,
    "embedding": 0.9,
    "loss": 0.9,
}
"""Derived: thread instructions for each byte at the rate streams are priced at, so that they draw what kernels of their
kind were read at (560 to 740 W on an H200), whatever share of the bandwidth those reached."""


def reread_bytes(gpu: Gpu, batch: int, m: int, n: int, k: int, operand_bytes: float) -> float:
    """Return what a product reads again because one wave of tiles does not hold all of its operands."""
    outputs = gpu.multiprocessors * TILE_OUTPUTS
    across = min(n, outputs / min(m, outputs**0.5))
    down = min(m, outputs / across)
    operands = (m * k + k * n) * operand_bytes
    again = max(0.0, m * n * k * (down + across) / (down * across) * operand_bytes - operands)
    return float(batch * again * uncached_fraction(gpu, operands))


def uncached_fraction(gpu: Gpu, size_bytes: float) -> float:
    """Return the share of a working set that has to come from memory each time."""
    low, high = CACHE_LOW_FRACTION * gpu.l2_bytes, CACHE_HIGH_FRACTION * gpu.l2_bytes
    return min(1.0, max(0.0, (size_bytes - low) / (high - low))) if high > low else 1.0


def flop_energy_j(gpu: Gpu, precision: str) -> float:
    """Return the energy of one matrix operation in a precision."""
    power = gpu.power
    return {
        "fp8": power.fp8_flop_j,
        "mxfp8": power.fp8_flop_j,
        "nvfp4": power.fp4_flop_j,
        "fp32": 2 * power.flop_j,
    }.get(precision, power.flop_j)


def op_energy(op: Op, gpu: Gpu, framework: Framework) -> Energy:
    """Return the energy of one op on one GPU."""
    power, size_bytes = gpu.power, op.read_bytes + op.written_bytes
    if is_communication(op):
        # What is sent is read, and what arrives is written.
        moved = 2 * op.sent_bytes
        return Energy(0.0, moved * power.cache_byte_j, moved * power.memory_byte_j + op.sent_bytes * power.link_byte_j)
    if op.kind in ("gemm", "grouped_gemm"):
        batch, m, n, k = (max(1, size) for size in op.shape)
        operand_bytes = op.read_bytes / max(1.0, batch * float(m * k + k * n))
        size_bytes += gpu.kernels.reread_factor * reread_bytes(gpu, batch, m, n, k, operand_bytes)
        return _moving(gpu, size_bytes, op.flop * flop_energy_j(gpu, op.precision))
    if op.kind == "attention":
        backward = "backward" in op.name
        extra = power.softmax_backward_flop_fraction if backward else power.softmax_flop_fraction
        length = max(1.0, (op.shape[3] * op.shape[4]) ** 0.5)
        return _moving(
            gpu, size_bytes, 0.0, op.flop * power.flop_j * (1 + extra) * (1 + gpu.kernels.softmax_ramp / length)
        )
    if op.kind not in ("optimizer", "cast", "scan"):
        size_bytes *= framework.traffic_factor
    instructions = INSTRUCTIONS_PER_BYTE.get(op.kind, INSTRUCTIONS_PER_BYTE["elementwise"]) * size_bytes
    # Of streams only a scan has products, too.
    return _moving(gpu, size_bytes, op.flop * power.flop_j, instructions * power.instruction_j)


def _moving(gpu: Gpu, size_bytes: float, matrix_j: float, core_j: float = 0.0) -> Energy:
    return Energy(matrix_j, core_j + size_bytes * gpu.power.cache_byte_j, size_bytes * gpu.power.memory_byte_j)
