"""Seconds of one kernel on a GPU at a clock.

Equation: products t = (tc^p + tm^p)^(1/p) + gap, with tc = FLOP (1 + ramp/k) / (rate at the clock x fill^q), tm = bytes
/ bandwidth; fill is the share of multiprocessors that whole waves of tiles keep busy, q < 1 because a capped GPU clocks
higher when some are idle. Attention t = FLOP (1 + ramp/s) / rate + gap. Streams t = bytes x traffic / bandwidth + gap.
The arithmetic part scales with 1/clock, the memory part does not.

Source: ops of an H200 at known clocks (benchmarks/device/h200); operator tables of NVIDIA's aiconfigurator for shapes.
Ignores: choice among kernels by shape beyond waves and depth; cache residency; clocks that change within an op.
"""

from functools import lru_cache
from math import ceil

from charllm.cost.calibration import Calibration
from charllm.cost.clocks import time_factor
from charllm.spec.framework import Framework
from charllm.spec.hardware import Gpu
from charllm.spec.run import RunSpec
from charllm.workload.op import Op

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.92), (128, 64, 0.75), (64, 64, 0.5), (64, 32, 0.3))
"""Tile of a product: rows, columns, rate over the largest one's. Operator tables: small tiles read more again."""
ALIGNED = 8
"""Elements of 16 bits in the 16 bytes that matrix units load at once."""
USUAL_WIDTH = 128
"""Head width for which rates of attention are given."""
EXPONENTIALS_PER_CLOCK = 16
"""What the special-function units of a multiprocessor give each clock, from V100 to B200, and of a CDNA unit."""
SCAN_BYTES_PER_CLOCK = 4.9
"""What Mamba-2's scan moves each clock and multiprocessor. Derived: 8192 tokens of 128 heads of 64, state 128, take
0.65 ms on an H100 for 0.83 GB in chunks of 256 (vllm-project/vllm, pull request 27299, the five Triton kernels)."""
FLASH1_FRACTION = 0.7
"""FlashAttention's first form in Triton over FlashAttention-2: published as 1.3 to 2.5 times slower (Dao 2023)."""
NARROW = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}


def product_rate(gpu: Gpu, precision: str) -> float:
    """Return the FLOP/s that large products sustain in a precision, at the clock the power cap leaves them."""
    kind = NARROW.get(precision, "16bit")
    fraction = {
        "fp8": gpu.fp8_matmul_fraction,
        "fp4": gpu.fp4_matmul_fraction,
        "16bit": gpu.matmul_fraction,
    }[kind]
    if precision == "fp32":
        # Products asked for in fp32 run on the matrix units as TF32: half the 16-bit rate.
        return gpu.matmul_fraction * gpu.peak_16bit_flop_per_s / 2
    peak = gpu.peak_flop_per_s(precision)
    # What a GPU has no units for runs in the 16-bit format it has.
    return fraction * peak if peak else gpu.matmul_fraction * gpu.peak_16bit_flop_per_s


def stream_rate(gpu: Gpu) -> float:
    """Return the bytes a second that large streams reach."""
    return gpu.stream_fraction * gpu.memory_bandwidth_bytes_per_s


@lru_cache(maxsize=65536)
def fill_fraction(batch: int, m: int, n: int, multiprocessors: int) -> float:
    """Return the share of multiprocessors that whole waves of tiles keep busy, with the best size of tile."""
    best = 0.0
    for high, wide, rate in TILES:
        waves = ceil(batch * ceil(m / high) * ceil(n / wide) / multiprocessors)
        best = max(best, rate * batch * m * n / (waves * multiprocessors * high * wide))
    return best


def price_product(op: Op, gpu: Gpu, framework: Framework, calibration: Calibration, slower: float = 1.0) -> float:
    """Return the seconds of a product, plain, batched or grouped."""
    batch, m, n, k = op.shape
    rate = product_rate(gpu, op.precision)
    if rate <= 0 or not op.flop:
        return 0.0
    if op.kind == "gemm" and batch > 1 and "expert" in op.name:
        # A loop over experts is as many products, each on its own.
        one = op._replace(
            flop=op.flop / batch,
            read_bytes=op.read_bytes / batch,
            written_bytes=op.written_bytes / batch,
            shape=(1, m, n, k),
        )
        return batch * price_product(one, gpu, framework, calibration, slower)
    filled = fill_fraction(max(1, batch), m, n, gpu.multiprocessors) ** calibration.fill_power
    ramp = 1 + (calibration.narrow_ramp if op.precision in NARROW else gpu.product_ramp) / max(1, k)
    arithmetic = slower * op.flop * ramp / (rate * framework.matmul_fraction * filled)
    if op.kind == "grouped_gemm":
        arithmetic /= calibration.grouped_fraction
    if op.precision == "mxfp8":
        arithmetic /= calibration.block_scaled_fraction
    # Rows in memory are features: of the output and the depth, or of both sides of a weight gradient.
    if n % ALIGNED or (m if op.name.endswith("wgrad") else k) % ALIGNED:
        arithmetic /= calibration.misaligned_batch_fraction if batch > 1 else calibration.misaligned_fraction
    memory = (op.read_bytes + op.written_bytes) / stream_rate(gpu)
    power = calibration.roof_power
    seconds = float((arithmetic**power + memory**power) ** (1 / power)) + calibration.kernel_gap_s
    if op.name.endswith("wgrad") and not framework.fused_gradients:
        seconds += price_accumulation(op, gpu, framework, calibration)
    return seconds


def price_accumulation(op: Op, gpu: Gpu, framework: Framework, calibration: Calibration) -> float:
    """Return the seconds of adding a weight's gradient to what earlier microbatches left, as a kernel of its own."""
    batch, m, n, _k = op.shape
    # With fp16's loss scaling gradients accumulate in 16 bits.
    total_bytes = 4.0 if framework.gradient_precision == "fp32" and op.precision != "fp16" else 2.0
    size_bytes = max(1, batch) * m * n * (2.0 + 2 * total_bytes)
    return size_bytes / stream_rate(gpu) + calibration.kernel_gap_s


def kernel_fraction(gpu: Gpu, framework: Framework) -> float:
    """Return the rate of the framework's attention kernel over the GPU's best one."""
    if framework.attention_kernel == "best":
        return 1.0
    return gpu.flash2_fraction * (FLASH1_FRACTION if framework.attention_kernel == "flash1" else 1.0)


def softmax_factor(gpu: Gpu, width: float, calibration: Calibration) -> float:
    """Return attention's time over that of its products: exponentials are as many however narrow a head is.

    Equation: 1 + e (F / 16) / (4 width), F FLOP a clock of a multiprocessor, which makes 16 exponentials in it; a score
    takes 4 width FLOP and one exponential, of whose time the share e is not hidden.
    Source: CUDA programming guide, throughput of special functions; FlashAttention-3 (Shah 2024), section 3.1.
    Ignores: exponentials computed as polynomials (FlashAttention-4); the doubled units of B300.
    """
    flop_per_clock = gpu.peak_16bit_flop_per_s / (gpu.multiprocessors * gpu.clock_max_hz)
    return 1 + calibration.exponential_fraction * flop_per_clock / EXPONENTIALS_PER_CLOCK / (4 * width)


def price_attention(op: Op, gpu: Gpu, framework: Framework, calibration: Calibration, slower: float = 1.0) -> float:
    """Return the seconds of one fused attention kernel, forward or backward."""
    batch, heads, _kv_heads, queries, keys, width, value_width = op.shape
    fraction = gpu.attention_fraction * framework.attention_fraction * kernel_fraction(gpu, framework)
    backward = "backward" in op.name
    if backward:
        fraction *= calibration.attention_backward_fraction
    # Ranks that share a sequence work on it block by block, each block a kernel of their own length.
    length = min(queries, keys)
    tiles = batch * heads * queries / 128
    unfilled = max(1.0, gpu.multiprocessors / max(1.0, tiles)) ** 0.5
    peak = gpu.peak_16bit_flop_per_s
    narrow = softmax_factor(gpu, (width + value_width) / 2, calibration) / softmax_factor(gpu, USUAL_WIDTH, calibration)
    ramp = (1 + calibration.attention_ramp / length) * narrow
    arithmetic = slower * op.flop / (fraction * peak) * ramp * unfilled
    memory = (op.read_bytes + op.written_bytes) / stream_rate(gpu)
    return float(max(arithmetic, memory)) + calibration.kernel_gap_s


def price_stream(op: Op, gpu: Gpu, framework: Framework, calibration: Calibration) -> float:
    """Return the seconds of a kernel that only moves memory."""
    size_bytes = op.read_bytes + op.written_bytes
    factor = framework.traffic_factor
    if op.kind in ("optimizer", "loss"):
        # Their traffic is counted kernel by kernel.
        factor = 1.0
    elif op.kind == "permute":
        # One copy for each rank needs sorting once, after it has arrived.
        factor = 0.5 if framework.dispatcher != "alltoall" else 1.0
    elif op.kind == "cast":
        factor = calibration.narrow_cast_factor
    return size_bytes * factor / stream_rate(gpu) + op.launches * calibration.kernel_gap_s


def price_scan(op: Op, gpu: Gpu, calibration: Calibration) -> float:
    """Return the seconds of Mamba-2's chunked scan, forward or backward.

    Equation: bytes / min(stream rate, b multiprocessors clock). Its kernels are held up by latency: they reach low
    shares of both memory and matrix rates, so that more of either helps little.
    Source: foundation-model-stack/bamba, issue 3 (profile on an H100); b as above. Assumed: that backward runs at the
    same rate, and that other GPUs differ by multiprocessors and clock; no rate on Blackwell is published.
    Ignores: GPUs for which kernels are tuned better or worse than on Hopper; clocks below the highest.
    """
    rate = min(stream_rate(gpu), SCAN_BYTES_PER_CLOCK * gpu.multiprocessors * gpu.clock_max_hz)
    return (op.read_bytes + op.written_bytes) / rate + op.launches * calibration.kernel_gap_s


def price_kernel(op: Op, run: RunSpec, calibration: Calibration) -> float:
    """Return the seconds of one kernel of a run."""
    gpu, framework, conditions = run.cluster.gpu, run.framework, run.conditions
    if op.kind in ("gemm", "grouped_gemm"):
        slower = time_factor(gpu, conditions, gpu.matmul_clock_fraction)
        return price_product(op, gpu, framework, calibration, slower)
    if op.kind == "attention":
        slower = time_factor(gpu, conditions, gpu.attention_clock_fraction)
        return price_attention(op, gpu, framework, calibration, slower)
    if op.kind == "scan":
        return price_scan(op, gpu, calibration)
    return price_stream(op, gpu, framework, calibration)
