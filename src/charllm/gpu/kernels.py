"""Seconds and energy of single kernels, from their shape, at a clock: what the op bench runs and emulation plays.

Equation: products t = (tc^p + tm^p)^(1/p) + gap, where tc is the best of several tiles and cuts in depth:
waves x 2 rows columns (depth + ramp) / (rate per multiprocessor x clock), partial waves counting in part; tm = traffic
/ bandwidth with what waves read again (power/ops.py). Full matrix units clock at most at the governor's burst clock.
Attention t = FLOP (1 + ramp / length) (1 + tiles / blocks) / rate. Memory-bound kernels t = bytes / b with
1 / b^q = 1 / (memory bandwidth)^q + 1 / (bytes per cycle and multiprocessor, by kind, x multiprocessors x clock)^q.
A kernel called over and over on a working set that fits in cache takes nothing from memory.

Source: 265 ops on three H200 boards (benchmarks/calibrate_h200.py), PyTorch's own kernels.
Ignores: which kernel the library picks beyond tile and depth; alignment; values beyond random and zeros.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.gpu.ops import TILE_OUTPUTS, reread_bytes, uncached_fraction
from charllm.gpu.shape import OPERAND_BYTES, KernelShape, work
from charllm.spec.hardware import Gpu
from charllm.units import MICRO

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

PRODUCTS = ("gemm", "grouped_gemm")
USUAL_WIDTH = 8192.0
SHORTEST_S = 1e-12
TILES = (
    (256, 128, 1.0), (128, 256, 1.0), (128, 192, 0.98), (192, 128, 0.98), (128, 128, 0.95), (64, 256, 0.9),
    (256, 64, 0.9), (128, 64, 0.8), (64, 128, 0.8), (64, 64, 0.55), (64, 32, 0.3),
)  # fmt: skip
SPLITS, LEAST_DEPTH = (1, 2, 3, 4, 6, 8), 256
"""Assumed: tiles a library has (rows, columns, rate over the largest one's), and parts of one in depth."""
LONELY_FRACTION = 0.25
"""Share of multiprocessors with a tile below which libraries cut a product in depth, which takes a second launch."""


class StreamKind(NamedTuple):
    """How one of PyTorch's streaming kernels runs: its share of bandwidth, and instructions for each element."""

    bandwidth_fraction: float
    instructions: float
    width_power: float = 0.0
    """How the share falls with the width of a row, over 8192."""


STREAMS = {
    "copy": StreamKind(1.0, 1.0),
    "add": StreamKind(1.0, 3.97),
    "gelu": StreamKind(0.79, 15.7),
    "gelu_backward": StreamKind(0.885, 21.2),
    "rmsnorm": StreamKind(0.654, 13.7, 0.32),
    "norm": StreamKind(0.523, 29.1),
    "norm_backward": StreamKind(0.365, 78.7),
    "softmax": StreamKind(0.215, 55.7, 0.49),
    "swiglu": StreamKind(0.573, 38.5),
    "dropout_add": StreamKind(0.536, 41.6),
    "cast": StreamKind(0.778, 9.5),
    "permute": StreamKind(0.876, 3.08),
    "embedding": StreamKind(0.906, 2.44),
    "loss": StreamKind(0.39, 74.3),
    "optimizer": StreamKind(0.823, 36.8),
}
"""Derived: fitted on the ops of three H200 boards, each to about 1 % and 6 %."""
READ_AT_HZ = {"gelu": 1.76e9, "gelu_backward": 1.715e9, "norm": 1.92e9, "norm_backward": 1.873e9, "swiglu": 1.9e9}
STREAM_CLOCK_HZ = 1.98e9
"""Measured: clock of the H200 boards while the shares in STREAMS were read; STREAM_CLOCK_HZ where not named."""
STREAM_BANDWIDTH, STREAM_MULTIPROCESSORS = 4.33e12, 132
"""Measured: bytes a second of copies on an H200, over which the shares in STREAMS are, and its multiprocessors."""
PATTERN_BOUND = ("permute", "embedding", "optimizer")
"""Assumed: kinds with less than 1.5 instructions a byte, whose access pattern costs them a share of any bandwidth."""
STREAM_ROOF_POWER = 6.0
"""Derived: how sharply the issue and memory limits of a memory-bound kernel meet. GELU on an H200 moves 3.34 TB/s at
1719 MHz (random operands) and 3.71 at 1980 MHz (zeros), which takes 5 to 8."""
VALUES = {"random": 1.0, "trained": 1.0, "unknown": 0.905, "zeros": 0.70}
"""Derived: energy of instructions and bytes on operands, over random ones; unknown: one board, to 1 %."""
ZERO_FLOP_FRACTION = 0.30
"""Derived: energy of products of zeros over random ones, from 408 W at 1754 MHz."""
STREAM_CACHED_FRACTIONS = (0.85, 1.25)
"""Derived: size over the cache's up to which a stream stays in it, and from which none of it does: 50 MB stay in 60."""
BOUND_SHARE = 0.55
"""Derived: share of bandwidth up to which a stream gains nothing from cache, as a layer norm; copies gain most."""
STREAM_LAUNCH_S = 6.5 * MICRO
GRADIENT_TRAFFIC = 2.2
"""Derived: traffic of adding gradients up after a backward pass through autograd, over the gradients' size."""
AUTOGRAD_S = 270 * MICRO
"""Derived: host time of a forward and backward pass through autograd."""


class Shapes(NamedTuple):
    """Many kernels as arrays, one entry each; what does not depend on any constant that is fitted."""

    kinds: tuple[KernelShape, ...]
    flop: Floats
    least_bytes: Floats
    again_bytes: Floats
    uncached: Floats
    """Share of traffic that cache does not keep."""
    fill: Floats
    """Share of multiprocessors that have a tile."""
    length: Floats
    blocks: Floats
    elements: Floats
    width: Floats
    gradient_bytes: Floats
    tiles: "Tiles"
    share: Floats
    """Of streams: share of bandwidth (STREAMS)."""
    share_clock_hz: Floats
    """Clock at which that share was read (READ_AT_HZ)."""
    width_power: Floats
    instructions: Floats
    values: Floats
    """Energy of bytes and instructions for these operands over that for random ones (VALUES)."""
    flop_values: Floats
    """The same of matrix operations."""
    masks: Mapping[str, Mask]

    def where(self, *kinds: str) -> Mask:
        """Tell which kernels are of some kinds."""
        return np.array([shape.kind in kinds for shape in self.kinds], dtype=np.bool_)


class Tiles(NamedTuple):
    """Every tile and cut in depth that a product may use, [kernel, choice]."""

    waves: Floats
    """Multiprocessors' turns, not rounded."""
    flop_per_depth: Floats
    depths: Floats
    padding: Floats
    cuts: Floats


def read_shapes(shapes: Sequence[KernelShape], gpu: Gpu) -> Shapes:
    """Describe kernels for one GPU."""
    count, choices = len(shapes), len(TILES) * len(SPLITS)
    zeros = {name: np.zeros(count) for name in ("flop", "least", "again", "elements", "gradient")}
    ones = {name: np.ones(count) for name in ("uncached", "fill", "length", "blocks")}
    width = np.full(count, USUAL_WIDTH)
    tiles = Tiles(*(np.full((count, choices), np.inf if name == "flop_per_depth" else 1.0) for name in Tiles._fields))
    for place, shape in enumerate(shapes):
        zeros["flop"][place], zeros["least"][place] = work(shape)
        ones["uncached"][place] = _uncached_stream(zeros["least"][place] / gpu.l2_bytes)
        if shape.kind in PRODUCTS:
            ones["uncached"][place] = uncached_fraction(gpu, zeros["least"][place])
            batch, m, n, k = shape.dims
            operand_bytes = OPERAND_BYTES.get(shape.precision, 2.0)
            zeros["again"][place] = reread_bytes(gpu, batch, m, n, k, operand_bytes)
            ones["fill"][place] = min(1.0, batch * m * n / (gpu.multiprocessors * TILE_OUTPUTS))
            _lay_tiles(gpu.multiprocessors, batch, m, n, k, place, tiles)
        elif shape.kind.startswith("attention"):
            batch, heads, kv_heads, queries, head_dim = shape.dims
            ones["length"][place], ones["blocks"][place] = queries, batch * heads * queries / 128
            if shape.kind == "attention_both":
                zeros["gradient"][place] = 2.0 * batch * queries * head_dim * (heads + 2 * kv_heads)
        else:
            zeros["elements"][place] = float(np.prod(shape.dims))
            width[place] = shape.dims[1] if len(shape.dims) > 1 else USUAL_WIDTH
    streams = [STREAMS.get(shape.kind, StreamKind(1.0, 0.0)) for shape in shapes]
    share, instructions, width_power = np.array(streams, dtype=np.float64).reshape(count, 3).T
    return Shapes(
        tuple(shapes), zeros["flop"], zeros["least"], zeros["again"], ones["uncached"], ones["fill"], ones["length"],
        ones["blocks"], zeros["elements"], width, zeros["gradient"], tiles, share,
        np.array([READ_AT_HZ.get(shape.kind, STREAM_CLOCK_HZ) for shape in shapes]), width_power, instructions,
        np.array([_values_fraction(shape) for shape in shapes]),
        np.array([ZERO_FLOP_FRACTION if shape.values == "zeros" else 1.0 for shape in shapes]), _masks(shapes, gpu),
    )  # fmt: skip


def _uncached_stream(size_fraction: float) -> float:
    """Return the share of a stream called over and over that comes from memory, by its size over the cache's."""
    low, high = STREAM_CACHED_FRACTIONS
    return min(1.0, max(0.0, (size_fraction - low) / (high - low)))


def _values_fraction(shape: KernelShape) -> float:
    # Unknown operands: what they cost was only seen in streams.
    return VALUES[shape.values] if shape.values == "zeros" or shape.kind in STREAMS else 1.0


def _masks(shapes: Sequence[KernelShape], gpu: Gpu) -> dict[str, Mask]:
    """Tell which kernels are what."""
    few = LONELY_FRACTION * gpu.multiprocessors * TILE_OUTPUTS / 2

    tests: dict[str, Callable[[KernelShape], bool]] = {
        "products": lambda shape: shape.kind in PRODUCTS,
        "grouped": lambda shape: shape.kind == "grouped_gemm",
        "streams": lambda shape: shape.kind in STREAMS,
        "patterns": lambda shape: shape.kind in PATTERN_BOUND,
        "both": lambda shape: shape.kind == "attention_both",
        "backward": lambda shape: shape.kind == "attention_backward",
        "lonely": lambda shape: shape.kind in PRODUCTS and float(np.prod(shape.dims[:3])) < few,
        "narrow": lambda shape: shape.precision in ("fp8", "mxfp8"),
        "narrowest": lambda shape: shape.precision == "nvfp4",
    }
    return {name: np.array([test(shape) for shape in shapes], dtype=np.bool_) for name, test in tests.items()}


def _lay_tiles(processors: int, batch: int, m: int, n: int, k: int, place: int, laid: Tiles) -> None:
    """Write down every tile and cut in depth that a product may use."""
    for number, (rows, columns, rate) in enumerate(TILES):
        for cut_number, cuts in enumerate(SPLITS):
            if cuts > 1 and k / cuts < LEAST_DEPTH:
                continue
            at = number * len(SPLITS) + cut_number
            tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
            laid.waves[place, at] = tiles * cuts / processors
            laid.depths[place, at], laid.cuts[place, at] = k / cuts, cuts
            laid.padding[place, at] = tiles * rows * columns / (batch * m * n)
            laid.flop_per_depth[place, at] = 2.0 * rows * columns / rate


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


def matrix_flop_per_cycle(gpu: Gpu, precision: str = "bf16") -> float:
    """Return the FLOPs of one multiprocessor's matrix units in a cycle: a power of two in 16 bits.

    Narrower precisions do a whole multiple of that, as the datasheet's peaks do (six times in 4 bits on a B300);
    a GPU without units for one runs it at the next wider rate.
    """
    wide = float(2 ** np.round(np.log2(gpu.peak_16bit_flop_per_s / gpu.multiprocessors / gpu.clock_max_hz)))
    eight = max(1.0, float(np.round(gpu.peak_fp8_flop_per_s / gpu.peak_16bit_flop_per_s)))
    four = max(eight, float(np.round(gpu.peak_fp4_flop_per_s / gpu.peak_16bit_flop_per_s)))
    return wide * {"fp8": eight, "mxfp8": eight, "nvfp4": four}.get(precision, 1.0)


def stream_bandwidth(share: Floats, share_clock_hz: Floats, gpu: Gpu, clock_hz: Floats) -> tuple[Floats, Floats]:
    """Return the bytes a second of memory-bound kernels on a GPU at a clock, and the share of their time it bounds.

    `share` is the kernel's share of copy bandwidth on an H200 at `share_clock_hz`. Undoing the roof there gives the
    rate at which its multiprocessors alone could issue it; that rate follows multiprocessors and clock, and meets the
    GPU's own bandwidth under the same roof.
    """
    memory = gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    over = np.maximum(share**-STREAM_ROOF_POWER - 1, 0.0) ** (1 / STREAM_ROOF_POWER)
    scale = gpu.multiprocessors / STREAM_MULTIPROCESSORS * clock_hz / share_clock_hz
    slow = (over * memory / (STREAM_BANDWIDTH * scale)) ** STREAM_ROOF_POWER
    return memory / (1 + slow) ** (1 / STREAM_ROOF_POWER), slow / (1 + slow)


def matrix_clock_hz(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> Floats:
    """Return the clock of matrix units: full ones stay below the governor's burst clock, idle ones do not."""
    burst_hz = gpu.governor.burst_clock_fraction * gpu.clock_max_hz
    highest = burst_hz + (gpu.clock_max_hz - burst_hz) * (1 - shapes.fill)
    return np.where(shapes.masks["products"], np.minimum(clock_hz, highest), clock_hz)


def time_kernels(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> KernelTimes:
    """Return how long each kernel takes at its clock."""
    kernels = gpu.kernels
    products, streams = shapes.masks["products"], shapes.masks["streams"]
    memory_bytes = shapes.uncached * (shapes.least_bytes + kernels.reread_factor * shapes.again_bytes)
    bandwidth = kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    arithmetic, padding = _time_tiles(shapes, gpu, matrix_clock_hz(shapes, gpu, clock_hz))
    memory = memory_bytes / bandwidth
    power = kernels.roof_power
    together = (arithmetic**power + memory**power) ** (1 / power)
    attention = _time_attention(shapes, gpu, clock_hz, bandwidth)
    share = np.minimum(shapes.share * (USUAL_WIDTH / shapes.width) ** shapes.width_power, 1.0)
    # A slow stream is bound by its own instructions, wherever its data lie.
    gain = 1 + kernels.cache_fraction * np.maximum(0.0, share - BOUND_SHARE) / (1 - BOUND_SHARE)
    slow = shapes.uncached + (1 - shapes.uncached) / gain
    moved, issue_bound = stream_bandwidth(share, shapes.share_clock_hz, gpu, clock_hz)
    moved = np.where(shapes.masks["patterns"], bandwidth * share, moved)
    issue_bound = np.where(shapes.masks["patterns"], 0.0, issue_bound)
    stream = shapes.least_bytes / moved * slow
    gap = np.where(streams, kernels.stream_gap_s, kernels.gap_s)
    running = np.where(products, together, np.where(streams, stream, attention)) + gap
    launch = kernels.launch_s + np.where(shapes.masks["lonely"], kernels.split_s, 0.0)
    host = np.where(shapes.masks["both"], AUTOGRAD_S, np.where(streams, STREAM_LAUNCH_S, launch))
    seconds = np.maximum(running, host)
    bound = np.where(products, (arithmetic / together) ** power, np.where(streams, issue_bound, 1.0))
    bound = np.where(running >= host, bound * (1 - gap / running), 0.0)
    return KernelTimes(seconds, running, bound, padding, memory_bytes)


def _time_tiles(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> tuple[Floats, Floats]:
    """Return the arithmetic time of each product with its best tile, and the padding of that tile."""
    kernels, laid = gpu.kernels, Tiles(*(column[shapes.masks["products"]] for column in shapes.tiles))
    grouped = np.where(shapes.masks["grouped"], kernels.grouped_fraction, 1.0)
    wide = matrix_flop_per_cycle(gpu) * kernels.matrix_fraction
    eight = matrix_flop_per_cycle(gpu, "fp8") * kernels.fp8_fraction
    four = matrix_flop_per_cycle(gpu, "nvfp4") * kernels.fp4_fraction
    each = np.where(shapes.masks["narrow"], eight, np.where(shapes.masks["narrowest"], four, wide))
    rate = (each * grouped * clock_hz)[shapes.masks["products"], None]
    whole = np.ceil(laid.waves)
    waves = np.where(laid.waves < 1, whole, laid.waves + kernels.wave_fraction * (whole - laid.waves))
    lonely = 1 + kernels.fill_fraction * np.maximum(0.0, 1 - laid.waves)
    takes = waves * laid.flop_per_depth * (laid.depths + kernels.ramp) / (rate * lonely)
    takes = takes + np.where(laid.cuts > 1, kernels.split_s, 0.0)
    best = np.argmin(takes, axis=1)
    every = np.arange(len(best))
    time_s, padding = np.full(len(shapes.flop), SHORTEST_S), np.ones(len(shapes.flop))
    time_s[shapes.masks["products"]] = takes[every, best]
    padding[shapes.masks["products"]] = laid.padding[every, best]
    return time_s, padding


def _time_attention(shapes: Shapes, gpu: Gpu, clock_hz: Floats, bandwidth: float) -> Floats:
    """Return the time of attention kernels, forward, backward, or both through autograd."""
    kernels = gpu.kernels
    peak = gpu.multiprocessors * matrix_flop_per_cycle(gpu) * clock_hz
    filled = 1 + kernels.tile_ramp / shapes.blocks
    forward = filled * (1 + kernels.attention_ramp / shapes.length) / (peak * kernels.attention_fraction)
    backward = (
        filled * (1 + kernels.attention_backward_ramp / shapes.length) / (peak * kernels.attention_backward_fraction)
    )
    both = shapes.masks["both"]
    share = np.where(both, 2.5 / 3.5, np.where(shapes.masks["backward"], 1.0, 0.0))
    extra = np.where(both, kernels.gap_s + GRADIENT_TRAFFIC * shapes.gradient_bytes / bandwidth, 0.0)
    return np.asarray(shapes.flop * ((1 - share) * forward + share * backward) + extra)


class KernelEnergies(NamedTuple):
    """Joules of one call, at the reference voltage where voltage matters."""

    matrix_j: Floats
    core_j: Floats
    board_j: Floats


def energy_of_kernels(shapes: Shapes, gpu: Gpu, times: KernelTimes) -> KernelEnergies:
    """Return what one call of each kernel takes beside what the board draws anyway."""
    power, kernels, masks = gpu.power, gpu.kernels, shapes.masks
    products, streams = masks["products"], masks["streams"]
    each = np.where(masks["narrow"], power.fp8_flop_j, np.where(masks["narrowest"], power.fp4_flop_j, power.flop_j))
    flop_j = shapes.flop * each * shapes.flop_values
    matrix = np.where(products, flop_j * (1 + kernels.padding_fraction * (times.padding - 1)), 0.0)
    softmax = np.where(masks["backward"], power.softmax_backward_flop_fraction, power.softmax_flop_fraction)
    mixed = (power.softmax_flop_fraction + 2.5 * power.softmax_backward_flop_fraction) / 3.5
    extra = (1 + np.where(masks["both"], mixed, softmax)) * (1 + kernels.softmax_ramp / shapes.length)
    attention = np.where(products | streams, 0.0, flop_j * extra)
    on_die = (shapes.least_bytes + kernels.reread_factor * shapes.again_bytes) * power.cache_byte_j
    # A kernel that needs longer for each element of a wide row does more for it.
    count = shapes.instructions * (shapes.width / USUAL_WIDTH) ** shapes.width_power
    core = attention + (shapes.elements * count * power.instruction_j + on_die) * shapes.values
    return KernelEnergies(matrix, core, times.memory_bytes * power.memory_byte_j * shapes.values)
