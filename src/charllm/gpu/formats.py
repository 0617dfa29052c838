"""What a kernel's format makes of its rate and energy: precision, alignment, head width, which attention kernel.

Equation: rate = 16-bit rate x peak of the format over the 16-bit peak x fraction reached in it x alignment; energy of
an operation likewise, by factors. Attention: `attention_slowness`.
Source: kernels by themselves on an H200 (evaluate/h200/readings/single_kernels.csv) where no other is named.
Ignores: which of several kernels a library picks for a format.
"""

import math

from charllm.gpu.shape import GROUPED, OPERAND_BYTES, PRODUCTS, KernelShape
from charllm.spec.hardware import Gpu

GROUPED_TILE = (128, 256)
GROUPED_STEP = 64
"""Rows and columns of the tile of PyTorch's grouped product on Hopper, and its step in depth."""
NARROW = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
BLOCK_SCALED_FRACTION = 0.945
"""Published: equal runs take 4 to 8 % longer with a scale for each 32 values (mxfp8) than with one for a tensor."""
EXPONENTIALS_PER_CLOCK = 16
"""What the special-function units of a multiprocessor give each clock, from V100 to B200, and of a CDNA unit."""
EXPONENTIAL_FRACTIONS = (1.15, 0.9)
"""Derived, forward and backward: heads of 64 against 128 in cuDNN on an H200, with as many blocks (operator tables,
which do not hold blocks apart, suggest 0.5 to 0.9 on H100 and H200, 0.7 to 0.9 on B200 and GB200)."""
FLASH2_EXPONENTIAL_FRACTION = 0.25
"""Derived: the same of FlashAttention-2, whose products leave more time to hide them in."""
FLASH1_FRACTIONS = (0.7, 0.5)
"""Published: FlashAttention's first form in Triton over FlashAttention-2, forward and backward (Dao 2023: 1.3 to 2.5
times slower)."""
ALIGNED = 8
"""Elements of 16 bits in the 16 bytes that matrix units load at once."""
MISALIGNED_OUTPUT_FRACTION, MISALIGNED_FRACTION, MISALIGNED_BATCH_FRACTION = 0.107, 0.144, 0.08
"""Measured: rate of a 16-bit product over an aligned one, where rows of its output, or of an operand alone, are no
multiple of 16 bytes (vocabulary of 50257 on an H200: 96 forward, 134 and 136 TFLOP/s backward). Derived: batched ones
(published runs with heads of 108 and 150)."""
MISALIGNED_ENERGY = 2.6
"""Measured: energy of an operation of those over an aligned one's (425 and 506 W)."""
FP32_FRACTION = 0.76
"""Measured: rate of a product in 32 bits over the GPU's peak outside matrix units (47.8 of 66.9 TFLOP/s)."""
BEST_WIDTHS, FLASH2_WIDTHS = (64, 128, 192, 256), (32, 64, 96, 128, 160, 192, 256)
"""Head widths that attention kernels have; others are padded (80 and 96 take as long as 128 in cuDNN)."""
QUERY_ROWS = 64
"""Published: rows of a tile of attention over a cache, in which the queries that share a key head lie."""
FLASH2_ENERGIES = (1.4, 1.2)
"""Measured: energy of an operation of FlashAttention-2 over the best kernel's, forward and backward."""


def matrix_flop_per_cycle(gpu: Gpu) -> float:
    """Return what one multiprocessor's matrix units do in a cycle, in 16 bits: a power of two."""
    return float(2 ** round(math.log2(gpu.peak_16bit_flop_per_s / gpu.multiprocessors / gpu.clock_max_hz)))


def matrix_rate(gpu: Gpu) -> float:
    """Return the 16-bit FLOPs of one multiprocessor in a cycle, by the rate that a GPU's kernels are fitted to."""
    return gpu.kernels.rate_fraction * matrix_flop_per_cycle(gpu)


def rate_multiple(gpu: Gpu, shape: KernelShape) -> float:
    """Return the rate of deep products in a format over what matrix units do in 16 bits, alignment included.

    fp32 runs outside the matrix units, as PyTorch does by default. A narrow format that a GPU has no units for runs in
    16 bits.
    """
    if shape.kind not in PRODUCTS:
        return 1.0
    if shape.precision == "fp32":
        return FP32_FRACTION * gpu.peak_fp32_flop_per_s / gpu.peak_16bit_flop_per_s
    if shape.precision == "tf32":
        return shape.rate * gpu.kernels.matrix_fraction * gpu.peak_tf32_flop_per_s / gpu.peak_16bit_flop_per_s
    peak = gpu.peak_flop_per_s(shape.precision) / gpu.peak_16bit_flop_per_s
    kernels, narrow = gpu.kernels, NARROW.get(shape.precision)
    fraction = {"fp8": kernels.fp8_fraction, "fp4": kernels.fp4_fraction}.get(narrow or "", kernels.matrix_fraction)
    multiple = peak if narrow and peak else 1.0
    rate = multiple * (fraction if peak or not narrow else kernels.matrix_fraction)
    if shape.precision == "mxfp8":
        rate *= BLOCK_SCALED_FRACTION
    if shape.kind != "gemm":
        return shape.rate * rate * kernels.grouped_fraction
    return shape.rate * rate * _aligned_fraction(shape)


def _aligned_fraction(shape: KernelShape) -> float:
    """Return the rate over that of operands whose rows are multiples of 16 bytes."""
    if not _misaligned(shape):
        return 1.0
    if shape.dims[0] > 1:
        return MISALIGNED_BATCH_FRACTION
    return MISALIGNED_OUTPUT_FRACTION if shape.dims[2] % ALIGNED else MISALIGNED_FRACTION


def busy_fraction(gpu: Gpu, shape: KernelShape) -> float:
    """Return the share of its time in which a full multiprocessor's matrix units work, where that is far from 1."""
    if shape.kind not in GROUPED:
        return 0.0 if shape.precision == "fp32" else _aligned_fraction(shape) if shape.kind == "gemm" else 1.0
    _groups, m, _n, k = shape.dims
    rows = m if shape.kind == "grouped_gemm" else GROUPED_TILE[0]
    padded = -(-rows // GROUPED_TILE[0]) * GROUPED_TILE[0]
    return rows / padded * k / (k + gpu.kernels.grouped_ramp)


def _misaligned(shape: KernelShape) -> bool:
    """Tell whether rows in memory are no multiple of 16 bytes; those of a weight gradient are its m and n wide."""
    if shape.kind != "gemm" or OPERAND_BYTES[shape.precision] != 2.0:
        return False
    _batch, m, n, k = shape.dims
    return bool(n % ALIGNED or (m if shape.variant in ("wgrad", "accumulated") else k) % ALIGNED)


def flop_j(gpu: Gpu, shape: KernelShape) -> float:
    """Return the energy of one matrix operation in a kernel's format."""
    power = gpu.power
    narrow = NARROW.get(shape.precision)
    if _misaligned(shape):
        return MISALIGNED_ENERGY * power.flop_j
    if shape.kind == "cached_attention":
        return power.flop_j * (1 + _padded_queries(shape) / 2)
    if shape.kind.startswith("attention"):
        own = 1.0 if shape.variant == "best" else FLASH2_ENERGIES[shape.kind == "attention_backward"]
        return own * power.flop_j * padded_width(shape) / shape.dims[4]
    if narrow and not gpu.peak_flop_per_s(shape.precision):
        return power.flop_j
    if shape.precision in ("fp32", "tf32"):
        return power.fp32_flop_j if shape.precision == "fp32" else 2.0 * power.flop_j
    return {"fp8": power.fp8_flop_j, "fp4": power.fp4_flop_j}.get(narrow or "", power.flop_j)


def _padded_queries(shape: KernelShape) -> float:
    """Return the rows that fill up a tile, over the queries that share a key head.

    Their scores are zero, which switches nothing, but their probabilities are equal and multiply every value: half of
    the operations (the rows a tile has: FlashAttention-2 and -3, flash_fwd_launch_template.h).
    """
    queries = max(1.0, shape.dims[1] / shape.dims[2])
    return -(-queries // QUERY_ROWS) * QUERY_ROWS / queries - 1


def attention_slowness(gpu: Gpu, shape: KernelShape) -> float:
    """Return an attention kernel's time over that of the GPU's best one with heads of 128.

    Equation: exponentials are as many however narrow a head is: 1 + e (F / 16) / (4 width), F FLOP a clock of a
    multiprocessor, which makes 16 exponentials in it; of their time the share e is not hidden. From some width on
    kernels gain nothing more.
    Source: CUDA programming guide, throughput of special functions; FlashAttention-3 (Shah 2024), section 3.1.
    """
    if not shape.kind.startswith("attention"):
        return 1.0
    kernels, width = gpu.kernels, padded_width(shape)
    backward = shape.kind == "attention_backward"
    padding = width / shape.dims[4]
    best = shape.variant == "best"
    exposed = EXPONENTIAL_FRACTIONS[backward] if best else FLASH2_EXPONENTIAL_FRACTION
    exponential = exposed * matrix_flop_per_cycle(gpu) / EXPONENTIALS_PER_CLOCK / 4
    slower = padding * (1 + exponential / min(width, kernels.attention_widest)) / (1 + exponential / 128)
    if best:
        return slower
    rate = kernels.flash2_backward_fraction if backward else kernels.flash2_fraction
    if shape.variant == "flash1":
        rate *= FLASH1_FRACTIONS[backward]
    return slower / rate


def padded_width(shape: KernelShape) -> float:
    """Return the head width that an attention kernel computes."""
    widths = BEST_WIDTHS if shape.variant == "best" else FLASH2_WIDTHS
    # Latent attention's queries are wider than its values, and kernels take both as they are.
    return float(next((width for width in widths if 128 >= width >= shape.dims[4]), shape.dims[4]))
