"""Seconds and energy of single kernels, from their shape, at a clock: what the op bench runs and emulation plays.

Equation: products t = (tc^p + tm^p)^(1/p) + gap, where tc is the best of several tiles and cuts in depth:
waves x 2 rows columns (depth + ramp) / (rate per multiprocessor x clock), partial waves counting in part; tm = traffic /
bandwidth with what waves read again (power/ops.py). Full matrix units clock at most at the governor's burst clock.
Attention t = FLOP (1 + ramp / length) (1 + tiles / blocks) / rate. Streams t = bytes / (bandwidth x share by kind).
A kernel called over and over on a working set that fits in cache takes nothing from memory.

Source: 258 ops on three H200 boards (benchmarks/calibrate_h200.py), PyTorch's own kernels.
Ignores: which kernel the library picks beyond tile and depth; alignment; values beyond random and zeros.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.power.ops import TILE_OUTPUTS, reread_bytes, uncached_fraction
from charllm.spec.hardware import Gpu
from charllm.timeline.shape import KernelShape, work
from charllm.units import MICRO

Floats = NDArray[np.float64]

TILES = (
    (256, 128, 1.0), (128, 256, 1.0), (128, 192, 0.98), (192, 128, 0.98), (128, 128, 0.95), (64, 256, 0.9),
    (256, 64, 0.9), (128, 64, 0.8), (64, 128, 0.8), (64, 64, 0.55), (64, 32, 0.3),
)  # fmt: skip
"""Assumed: tiles a library has, rows, columns, and rate over the largest one's."""
SPLITS = (1, 2, 3, 4, 6, 8)
LEAST_DEPTH = 256
"""Assumed: depth below which a product is not cut further."""


class StreamKind(NamedTuple):
    """How one of PyTorch's streaming kernels runs: its share of bandwidth, and instructions for each element."""

    bandwidth_fraction: float
    instructions: float
    width_power: float = 0.0
    """How the share falls with the width of a row, over 8192."""


STREAMS = {
    "copy": StreamKind(1.0, 1.0),
    "add": StreamKind(1.0, 3.1),
    "gelu": StreamKind(0.788, 16.5),
    "gelu_backward": StreamKind(0.881, 22.0),
    "rmsnorm": StreamKind(0.639, 14.4, 0.284),
    "norm": StreamKind(0.525, 31.2),
    "norm_backward": StreamKind(0.365, 86.5),
    "softmax": StreamKind(0.226, 39.1, 0.44),
    "swiglu": StreamKind(0.571, 41.3),
    "dropout_add": StreamKind(0.536, 45.4),
    "cast": StreamKind(0.774, 10.3),
    "permute": StreamKind(0.872, 3.1),
    "embedding": StreamKind(0.901, 2.3),
    "loss": StreamKind(0.39, 80.5),
    "optimizer": StreamKind(0.822, 41.8),
}
"""Derived: fitted on the ops of three H200 boards, each to about 1 % and 6 %."""
VALUES = {"random": 1.0, "trained": 1.0, "unknown": 0.95, "zeros": 0.69}
"""Derived: energy of instructions and bytes on operands, over random ones; 0.89 on one board whose operands are not known."""
ZERO_FLOP_FRACTION = 0.45
"""Derived: energy of products of zeros over random ones, from 408 W at 1754 MHz."""
STREAM_LAUNCH_S = 6.5 * MICRO
GRADIENT_TRAFFIC = 1.5
"""Derived: traffic of adding gradients up after a backward pass through autograd, over the gradients' size."""
AUTOGRAD_S = 270 * MICRO
"""Derived: host time of a forward and backward pass through autograd."""


class Shapes(NamedTuple):
    """Many kernels as arrays, one entry each; what does not depend on any constant that is fitted."""

    flop: Floats
    least_bytes: Floats
    again_bytes: Floats
    uncached: Floats
    """Share of traffic that cache does not keep."""
    fill: Floats
    """Share of multiprocessors that have a tile."""
    waves: Floats
    """[kernel, tile]; multiprocessors' turns, not rounded."""
    tile_flop_per_depth: Floats
    depths: Floats
    padding: Floats
    cuts: Floats
    length: Floats
    blocks: Floats
    elements: Floats
    width: Floats
    gradient_bytes: Floats
    kinds: tuple[KernelShape, ...]

    def where(self, *kinds: str) -> NDArray[np.bool_]:
        """Tell which kernels are of some kinds."""
        return np.array([shape.kind in kinds for shape in self.kinds], dtype=np.bool_)


def read_shapes(shapes: Sequence[KernelShape], gpu: Gpu) -> Shapes:
    """Describe kernels for one GPU."""
    count, tiles = len(shapes), len(TILES) * len(SPLITS)
    columns = {name: np.zeros(count) for name in ("flop", "least", "again", "elements", "gradient")}
    ones = {name: np.ones(count) for name in ("uncached", "fill", "length", "blocks")}
    width = np.full(count, 8192.0)
    tile = {name: np.ones((count, tiles)) for name in ("waves", "depths", "padding", "cuts")}
    area = np.full((count, tiles), np.inf)
    for place, shape in enumerate(shapes):
        flop, least = work(shape)
        columns["flop"][place], columns["least"][place] = flop, least
        ones["uncached"][place] = uncached_fraction(gpu, least)
        if shape.kind in ("gemm", "grouped_gemm"):
            batch, m, n, k = shape.dims
            operand_bytes = 1.0 if shape.precision == "fp8" else 2.0
            columns["again"][place] = reread_bytes(gpu, batch, m, n, k, operand_bytes)
            ones["fill"][place] = min(1.0, batch * m * n / (gpu.multiprocessors * TILE_OUTPUTS))
            _lay_tiles(gpu.multiprocessors, batch, m, n, k, place, tile, area)
        elif shape.kind.startswith("attention"):
            batch, heads, kv_heads, queries, head_dim = shape.dims
            ones["length"][place], ones["blocks"][place] = queries, batch * heads * queries / 128
            ones["uncached"][place] = 1.0
            if shape.kind == "attention_both":
                columns["gradient"][place] = 2.0 * batch * queries * head_dim * (heads + 2 * kv_heads)
        else:
            columns["elements"][place] = float(np.prod(shape.dims))
            width[place] = shape.dims[1] if len(shape.dims) > 1 else 8192.0
    return Shapes(
        columns["flop"], columns["least"], columns["again"], ones["uncached"], ones["fill"], tile["waves"], area,
        tile["depths"], tile["padding"], tile["cuts"], ones["length"], ones["blocks"], columns["elements"], width,
        columns["gradient"], tuple(shapes),
    )  # fmt: skip


def _lay_tiles(
    processors: int, batch: int, m: int, n: int, k: int, place: int, tile: dict[str, Floats], area: Floats
) -> None:
    """Write down every tile and cut in depth that a product may use."""
    for number, (rows, columns, rate) in enumerate(TILES):
        for cut_number, cuts in enumerate(SPLITS):
            if cuts > 1 and k / cuts < LEAST_DEPTH:
                continue
            at = number * len(SPLITS) + cut_number
            tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
            tile["waves"][place, at] = tiles * cuts / processors
            tile["depths"][place, at], tile["cuts"][place, at] = k / cuts, cuts
            tile["padding"][place, at] = tiles * rows * columns / (batch * m * n)
            area[place, at] = 2.0 * rows * columns / rate


class KernelTimes(NamedTuple):
    """Kernels at their clocks."""

    seconds: Floats
    """From one call to the next."""
    running_s: Floats
    """On the GPU."""
    clock_bound: Floats
    """Share of `seconds` that scales with the clock."""
    padding: Floats
    memory_bytes: Floats


def matrix_flop_per_cycle(gpu: Gpu) -> float:
    """Return what one multiprocessor's matrix units do in a cycle, in 16 bits: a power of two."""
    return float(2 ** np.round(np.log2(gpu.peak_16bit_flop_per_s / gpu.multiprocessors / gpu.clock_max_hz)))


def matrix_clock_hz(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> Floats:
    """Return the clock of matrix units: full ones stay below the governor's burst clock, idle ones do not."""
    burst_hz = gpu.governor.burst_clock_fraction * gpu.clock_max_hz
    highest = burst_hz + (gpu.clock_max_hz - burst_hz) * (1 - shapes.fill)
    return np.where(shapes.where("gemm", "grouped_gemm"), np.minimum(clock_hz, highest), clock_hz)


def time_kernels(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> KernelTimes:
    """Return how long each kernel takes at its clock."""
    kernels = gpu.kernels
    products, streams = shapes.where("gemm", "grouped_gemm"), shapes.where(*STREAMS)
    memory_bytes = shapes.uncached * (shapes.least_bytes + kernels.reread_factor * shapes.again_bytes)
    bandwidth = kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    arithmetic, padding = _time_tiles(shapes, gpu, matrix_clock_hz(shapes, gpu, clock_hz))
    memory = memory_bytes / bandwidth
    power = kernels.roof_power
    together = (arithmetic**power + memory**power) ** (1 / power)
    attention = _time_attention(shapes, gpu, clock_hz, bandwidth)
    kinds = [STREAMS.get(shape.kind, STREAMS["copy"]) for shape in shapes.kinds]
    share = np.array([kind.bandwidth_fraction * (8192 / wide) ** kind.width_power
                      for kind, wide in zip(kinds, shapes.width, strict=True)])  # fmt: skip
    cached = 1 + kernels.cache_fraction * (shapes.uncached < 1)
    stream = shapes.least_bytes / (bandwidth * np.minimum(share, 1.0) * cached)
    running = np.where(products, together, np.where(streams, stream, attention)) + kernels.gap_s
    host = np.where(shapes.where("attention_both"), AUTOGRAD_S, np.where(streams, STREAM_LAUNCH_S, kernels.launch_s))
    seconds = np.maximum(running, host)
    bound = np.where(products, (arithmetic / together) ** power, np.where(streams, 0.0, 1.0))
    bound = np.where(running >= host, bound * (1 - kernels.gap_s / running), 0.0)
    return KernelTimes(seconds, running, bound, np.where(products, padding, 1.0), memory_bytes)


def _time_tiles(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> tuple[Floats, Floats]:
    """Return the arithmetic time of each product with its best tile, and the padding of that tile."""
    kernels = gpu.kernels
    narrow = np.array([shape.precision == "fp8" for shape in shapes.kinds])
    grouped = np.where(shapes.where("grouped_gemm"), kernels.grouped_fraction, 1.0)
    rate = matrix_flop_per_cycle(gpu) * np.where(narrow, 2 * kernels.fp8_fraction, kernels.matrix_fraction * grouped)
    whole = np.ceil(shapes.waves)
    partial = shapes.waves + kernels.wave_fraction * (whole - shapes.waves)
    waves = np.where(shapes.waves < 1, whole, partial)
    lonely = 1 + kernels.fill_fraction * np.maximum(0.0, 1 - shapes.waves)
    takes = waves * shapes.tile_flop_per_depth * (shapes.depths + kernels.ramp) / (rate * clock_hz)[:, None] / lonely
    takes = takes + np.where(shapes.cuts > 1, kernels.split_s, 0.0)
    best = np.argmin(takes, axis=1)
    every = np.arange(len(best))
    products = np.isfinite(shapes.tile_flop_per_depth[every, best])
    return np.where(products, takes[every, best], 1e-12), shapes.padding[every, best]


def _time_attention(shapes: Shapes, gpu: Gpu, clock_hz: Floats, bandwidth: float) -> Floats:
    """Return the time of attention kernels, forward, backward, or both through autograd."""
    kernels = gpu.kernels
    peak = gpu.multiprocessors * matrix_flop_per_cycle(gpu) * clock_hz
    filled = 1 + kernels.tile_ramp / shapes.blocks
    forward = filled * (1 + kernels.attention_ramp / shapes.length) / (peak * kernels.attention_fraction)
    backward = filled * (1 + kernels.attention_backward_ramp / shapes.length) / (
        peak * kernels.attention_backward_fraction
    )
    both = shapes.where("attention_both")
    share = np.where(both, 2.5 / 3.5, np.where(shapes.where("attention_backward"), 1.0, 0.0))
    extra = np.where(both, kernels.gap_s + GRADIENT_TRAFFIC * shapes.gradient_bytes / bandwidth, 0.0)
    return np.asarray(shapes.flop * ((1 - share) * forward + share * backward) + extra)


class KernelEnergies(NamedTuple):
    """Joules of one call, at the reference voltage where voltage matters."""

    matrix_j: Floats
    core_j: Floats
    board_j: Floats


def energy_of_kernels(shapes: Shapes, gpu: Gpu, times: KernelTimes) -> KernelEnergies:
    """Return what one call of each kernel takes beside what the board draws anyway."""
    power, kernels = gpu.power, gpu.kernels
    values = np.array([VALUES[shape.values] for shape in shapes.kinds])
    zeros = np.array([shape.values == "zeros" for shape in shapes.kinds])
    narrow = np.array([shape.precision == "fp8" for shape in shapes.kinds])
    each = np.where(narrow, power.fp8_flop_j, power.flop_j) * np.where(zeros, ZERO_FLOP_FRACTION, 1.0)
    products, streams = shapes.where("gemm", "grouped_gemm"), shapes.where(*STREAMS)
    flop_j = shapes.flop * each
    matrix = np.where(products, flop_j * (1 + kernels.padding_fraction * (times.padding - 1)), 0.0)
    both, backward = shapes.where("attention_both"), shapes.where("attention_backward")
    softmax = np.where(backward, power.softmax_backward_flop_fraction, power.softmax_flop_fraction)
    mixed = (power.softmax_flop_fraction + 2.5 * power.softmax_backward_flop_fraction) / 3.5
    extra = (1 + np.where(both, mixed, softmax)) * (1 + kernels.softmax_ramp / shapes.length)
    attention = np.where(products | streams, 0.0, flop_j * extra)
    count = np.array([STREAMS[shape.kind].instructions if shape.kind in STREAMS else 0.0 for shape in shapes.kinds])
    streamed = np.where(streams, values, 1.0)
    on_die = shapes.least_bytes + kernels.reread_factor * shapes.again_bytes
    core = attention + shapes.elements * count * power.instruction_j * np.where(zeros, values, 1.0)
    return KernelEnergies(
        matrix, core + on_die * power.cache_byte_j * streamed, times.memory_bytes * power.memory_byte_j * streamed
    )
