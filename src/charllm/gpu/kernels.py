"""Seconds and energy of single kernels, from their shape, at a clock: what the op bench runs and emulation executes.

Equation: products t = (tc^p + tm^p)^(1/p) + gap, where tc is the best of several tiles and cuts in depth:
waves x 2 rows columns (depth + ramp) / (rate per multiprocessor x clock), partial waves counting in part; tm = traffic
/ bandwidth with what waves read again. Full matrix units clock at most at the governor's burst clock.
Grouped products have one tile, 128 rows of one group by 256 columns, in whole waves over all groups together, depth in
steps of 64, a sharper roof, and weights read in short segments at a part of the bandwidth.
Attention t = FLOP (1 + ramp / length) (1 + tiles / blocks) / rate. Streams t = bytes / (bandwidth x share by kind).
A kernel called over and over on a working set that fits in cache takes nothing from memory.

Source: ops on five H200 boards (benchmarks/calibrate_h200.py), PyTorch's own kernels.
Ignores: which kernel the library picks beyond tile and depth; values beyond random and zeros; uneven depths of grouped
weight gradients.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats
from charllm.gpu.cached_attention import time_cached
from charllm.gpu.formats import (
    attention_slowness,
    busy_fraction,
    flop_j,
    matrix_rate,
    padded_width,
    rate_multiple,
)
from charllm.gpu.l2_cache import reread_bytes, uncached_fraction, uncached_stream
from charllm.gpu.memory_bound import (
    LATENT_NORM,
    LATENT_UPDATE,
    NORMS,
    STREAMS,
    UPDATES,
    USUAL_WIDTH,
    WAITING,
    share_of,
    stream_rate,
)  # fmt: skip
from charllm.gpu.shape import GROUPED, OPERAND_BYTES, PRODUCTS, TILED, UNTUNED, KernelShape, work
from charllm.gpu.tiles import TILE_OUTPUTS, Tiles, lay_tiles
from charllm.spec.hardware import Gpu
from charllm.units import MICRO

Mask = Bools

SHORTEST_S = 1e-12
UNDERFILLED_FRACTION = 0.25
"""Share of multiprocessors with a tile below which libraries cut a product in depth, which takes a second launch."""
VALUES = {"random": 1.0, "trained": 1.0, "unknown": 0.93, "zeros": 0.71}
"""Derived: energy of instructions and bytes on operands, over random ones; unknown: one board, to 1 %."""
ZERO_FLOP_FRACTION = 0.29
"""Derived: energy of products of zeros over random ones, from 408 W at 1754 MHz."""
BOUND_SHARE = 0.55
"""Derived: share of bandwidth up to which a stream gains nothing from cache, as a layer norm; copies gain most."""
STREAM_LAUNCH_S = 6.5 * MICRO
GROUPED_LAUNCH_S = 30.9 * MICRO
"""Measured: host time of a grouped product in eager PyTorch."""
QUEUED_GAP_S = 1.4 * MICRO
"""Measured: time between two kernels whose launches are queued, median of 2,100 in eleven training steps."""
EAGER_GAP_S = 1.1 * MICRO
"""Measured: what the mean gap lasts beyond the median where a host launches kernels one by one: 2.5 us a kernel lie
between kernels, the median of five runs that no host binds. Kernels themselves take what they take alone."""
STEP_UNCACHED_FRACTION = 0.5
"""Assumed: share of the traffic of a small kernel that reaches memory within a step: what the kernel before it wrote is
still in cache, and what it writes leaves the cache later."""
TILED_BLOCK, TILED_CYCLES = (64, 128, 128), 4730.0
"""Derived: rows, columns and depth of a block of Triton's 8-bit product, and a multiprocessor's cycles for it: 2.39 us
on an H100, where experts of DeepSeek-V3 take 12.5, 6.0, 3.1 and 1.7 ms with 4096 to 512 columns and 128 tokens, 13.8 ms
with 1536 and 27.2 with 3072 (vLLM, pull request 13932); the formula gives 12.5, 6.2, 3.1, 1.6, 15.6 and 24.9."""
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
    slower: Floats
    """Of attention: time over that of the best kernel with heads of 128."""
    head_width: Floats
    elements: Floats
    width: Floats
    gradient_bytes: Floats
    tiles: Tiles
    share: Floats
    """Of kernels that only move memory: rate over a copy's (gpu/memory_bound.py)."""
    width_power: Floats
    instructions: Floats
    values: Floats
    """Energy of bytes and instructions for these operands over that for random ones (VALUES)."""
    flop_values: Floats
    """The same of matrix operations."""
    rate: Floats
    """Of products: rate over what matrix units could do in 16 bits."""
    flop_j: Floats
    """Energy of a matrix operation."""
    queued: Mask
    """Launches are queued, as in a step or a graph: shorter gaps, and no wait for the host."""
    launch_gap_s: float
    """Between kernels beyond the gap of queued ones, where the queue is at times empty."""
    masks: Mapping[str, Mask]

    def where(self, *kinds: str) -> Mask:
        """Tell which kernels are of some kinds."""
        return np.array([shape.kind in kinds for shape in self.kinds], dtype=np.bool_)


def read_shapes(
    shapes: Sequence[KernelShape], gpu: Gpu, *, cold: bool | Mask = False, in_step: bool = False, eager: bool = False
) -> Shapes:
    """Describe kernels for one GPU.

    `cold`: operands come from memory, not from the call before, and launches are queued. `in_step`: launches are
    queued, and small operands are in part still in cache. `eager`: a host launches them one by one.
    """
    count = len(shapes)
    queued = np.broadcast_to(np.asarray(cold, dtype=np.bool_) | in_step, (count,))
    zeros = {name: np.zeros(count) for name in ("flop", "least", "elements", "gradient")}
    ones = {name: np.ones(count) for name in ("length", "blocks")}
    products = np.array([shape.kind in PRODUCTS for shape in shapes], dtype=np.bool_)
    sizes = np.array([shape.dims if product else (1, 1, 1, 1) for shape, product in zip(shapes, products, strict=True)])
    sizes = sizes.reshape(count, 4).astype(np.float64)
    operand_bytes = np.array([OPERAND_BYTES[shape.precision] for shape in shapes])
    width = np.full(count, USUAL_WIDTH)
    for place, shape in enumerate(shapes):
        zeros["flop"][place], zeros["least"][place] = work(shape)
        if products[place]:
            if shape.variant == TILED:
                ones["blocks"][place] = _triton_blocks(shape)
            continue
        if shape.kind.startswith("attention"):
            batch, heads, kv_heads, queries, head_dim = shape.dims
            ones["length"][place], ones["blocks"][place] = queries, batch * heads * queries / 128
            if shape.kind == "attention_both":
                zeros["gradient"][place] = 2.0 * batch * queries * head_dim * (heads + 2 * kv_heads)
        elif shape.kind == "cached_attention":
            ones["blocks"][place], ones["length"][place] = shape.dims[0] * shape.dims[2], shape.dims[3]
        else:
            zeros["elements"][place] = float(np.prod(shape.dims))
            width[place] = shape.dims[1] if len(shape.dims) > 1 else USUAL_WIDTH
    least = zeros["least"]
    cached = np.where(products, uncached_fraction(gpu, least), uncached_stream(least / gpu.l2_bytes))
    again = np.where(
        products, reread_bytes(gpu, sizes[:, 0], sizes[:, 1], sizes[:, 2], sizes[:, 3], operand_bytes), 0.0
    )
    outputs = sizes[:, 0] * sizes[:, 1] * sizes[:, 2]
    busy = np.array([busy_fraction(gpu, shape) for shape in shapes])
    fill = np.where(products, busy * np.minimum(1.0, outputs / (gpu.multiprocessors * TILE_OUTPUTS)), 1.0)
    share, width_power, instructions = _read_streams(shapes, width)
    queued_uncached = np.maximum(STEP_UNCACHED_FRACTION if in_step else 1.0, cached)
    uneven = np.array([shape.variant == "uneven" for shape in shapes], dtype=np.bool_)
    grouped = np.array([shape.kind in GROUPED for shape in shapes], dtype=np.bool_)
    return with_constants(Shapes(
        tuple(shapes), zeros["flop"], least, again, np.where(queued, queued_uncached, cached), fill, ones["length"],
        ones["blocks"], np.ones(count),
        np.array([padded_width(shape) if shape.kind.startswith("attention") else 128.0 for shape in shapes]),
        zeros["elements"], width, zeros["gradient"],
        lay_tiles(gpu.multiprocessors, sizes[products], grouped[products], uneven[products]), share, width_power,
        instructions,
        np.array([_values_fraction(shape) for shape in shapes]),
        np.array([ZERO_FLOP_FRACTION if shape.values == "zeros" else 1.0 for shape in shapes]),
        np.ones(count), np.ones(count), queued, EAGER_GAP_S if eager else 0.0, _masks(shapes, gpu),
    ), gpu)  # fmt: skip


def _triton_blocks(shape: KernelShape) -> float:
    """Return the blocks of Triton's 8-bit product."""
    batch, m, n, k = shape.dims
    # Experts have unequal rows: on average half a tile is not full.
    tall = max(1.0, m / TILED_BLOCK[0] + 0.5)
    return batch * tall * ceil(n / TILED_BLOCK[1]) * k / TILED_BLOCK[2]


def _read_streams(shapes: Sequence[KernelShape], width: Floats) -> tuple[Floats, Floats, Floats]:
    """Return rate over a copy's, power of the width, and instructions of kernels that only move memory."""
    known = [STREAMS.get(shape.kind) for shape in shapes]
    share = np.array([share_of(shape.kind, wide) if stream else 1.0
                      for shape, stream, wide in zip(shapes, known, width, strict=True)])  # fmt: skip
    width_power, instructions = (
        np.array([getattr(stream, name) if stream else 0.0 for stream in known])
        for name in ("width_power", "instructions")
    )
    return share, width_power, instructions


def with_constants(shapes: Shapes, gpu: Gpu) -> Shapes:
    """Return kernels with the rates and energies that a GPU's constants give their formats."""
    return shapes._replace(
        slower=np.array([attention_slowness(gpu, shape) for shape in shapes.kinds]),
        rate=np.array([rate_multiple(gpu, shape) for shape in shapes.kinds]),
        flop_j=np.array([flop_j(gpu, shape) for shape in shapes.kinds]),
    )


def _values_fraction(shape: KernelShape) -> float:
    # Unknown operands: what they cost was only seen in streams. A fill writes one number over and over.
    values = "zeros" if shape.kind == "fill" else shape.values
    return VALUES[values] if values == "zeros" or shape.kind in STREAMS else 1.0


def _masks(shapes: Sequence[KernelShape], gpu: Gpu) -> dict[str, Mask]:
    """Tell which kernels are what."""
    few = UNDERFILLED_FRACTION * gpu.multiprocessors * TILE_OUTPUTS / 2

    tests: dict[str, Callable[[KernelShape], bool]] = {
        "cached": lambda shape: shape.kind == "cached_attention",
        "products": lambda shape: shape.kind in PRODUCTS,
        "tiled": lambda shape: shape.variant == TILED,
        "streams": lambda shape: shape.kind in STREAMS,
        "norms": lambda shape: shape.kind in NORMS and shape.variant == WAITING,
        "updates": lambda shape: shape.kind in UPDATES and shape.variant == WAITING,
        "both": lambda shape: shape.kind == "attention_both",
        "backward": lambda shape: shape.kind == "attention_backward",
        "grouped": lambda shape: shape.kind in GROUPED,
        "underfilled": lambda shape: shape.kind in PRODUCTS and float(np.prod(shape.dims[:3])) < few,
    }
    return {name: np.array([test(shape) for shape in shapes], dtype=np.bool_) for name, test in tests.items()}


class KernelTimes(NamedTuple):
    """Kernels at their clocks."""

    seconds: Floats
    """From one call to the next."""
    running_s: Floats
    """On the GPU."""
    clock_bound: Floats
    """Share of `seconds` that scales with the clock."""
    memory_bytes: Floats


def matrix_clock_hz(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> Floats:
    """Return the clock of matrix units: full ones stay below the governor's burst clock, idle ones do not."""
    burst_hz = gpu.burst_clock_hz
    highest = burst_hz + (gpu.clock_max_hz - burst_hz) * (1 - shapes.fill)
    return np.where(shapes.masks["products"], np.minimum(clock_hz, highest), clock_hz)


def time_kernels(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> KernelTimes:
    """Return how long each kernel takes at its clock."""
    kernels = gpu.kernels
    products, streams = shapes.masks["products"], shapes.masks["streams"]
    memory_bytes = shapes.uncached * (shapes.least_bytes + kernels.reread_factor * shapes.again_bytes)
    bandwidth = kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    arithmetic = _time_tiles(shapes, gpu, matrix_clock_hz(shapes, gpu, clock_hz))
    grouped = shapes.masks["grouped"]
    untuned = np.array([shape.rate if shape.variant == UNTUNED else 1.0 for shape in shapes.kinds])
    memory = memory_bytes / (bandwidth * np.where(grouped, kernels.grouped_memory_fraction, untuned))
    power = np.where(grouped, kernels.grouped_roof_power, kernels.roof_power)
    together = (arithmetic**power + memory**power) ** (1 / power)
    tiled = shapes.masks["tiled"]
    if tiled.any():
        arithmetic = np.where(tiled, shapes.blocks / gpu.multiprocessors * TILED_CYCLES / clock_hz, arithmetic)
        together = np.where(tiled, np.maximum(arithmetic, memory), together)
    attention = _time_attention(shapes, gpu, clock_hz, bandwidth)
    cached, follows = shapes.masks["cached"], np.ones_like(attention)
    if cached.any():
        over_cache, shares = time_cached(shapes.flop, shapes.least_bytes, shapes.blocks, gpu, clock_hz)
        attention, follows = np.where(cached, over_cache, attention), np.where(cached, shares, 1.0)
    # A slow stream is bound by its own instructions, wherever its data lie.
    gain = 1 + kernels.cache_fraction * np.maximum(0.0, shapes.share - BOUND_SHARE) / (1 - BOUND_SHARE)
    slow = shapes.uncached + (1 - shapes.uncached) / gain
    latent = LATENT_NORM * shapes.masks["norms"] + LATENT_UPDATE * shapes.masks["updates"]
    rate, issued = stream_rate(gpu, shapes.share, clock_hz, latent)
    stream = shapes.least_bytes / rate * slow
    product_gap_s = np.where(shapes.queued, kernels.queued_gap_s, kernels.gap_s) + grouped * kernels.grouped_s
    stream_gap_s = np.where(shapes.queued, QUEUED_GAP_S, kernels.stream_gap_s)
    gap = np.where(streams, stream_gap_s, product_gap_s) + shapes.launch_gap_s
    running = np.where(products, together, np.where(streams, stream, attention)) + gap
    launch = kernels.launch_s + np.where(shapes.masks["underfilled"], kernels.split_s, 0.0)
    launch = np.where(grouped, GROUPED_LAUNCH_S, launch)
    host = np.where(shapes.masks["both"], AUTOGRAD_S, np.where(streams, STREAM_LAUNCH_S, launch))
    host = np.where(shapes.queued, 0.0, host)
    seconds = np.maximum(running, host)
    bound = np.where(products, (arithmetic / together) ** power, np.where(streams, issued, follows))
    bound = np.where(running >= host, bound * (1 - gap / running), 0.0)
    return KernelTimes(seconds, running, bound, memory_bytes)


def _time_tiles(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> Floats:
    """Return the arithmetic time of each product with its best tile."""
    kernels, laid = gpu.kernels, shapes.tiles
    rate = (matrix_rate(gpu) * shapes.rate * clock_hz)[shapes.masks["products"], None]
    whole = np.ceil(laid.waves)
    lost = np.where(laid.grouped | (laid.waves < 1), 1.0, kernels.wave_fraction)
    waves = laid.waves + lost * (whole - laid.waves)
    underfilled_gain = 1 + kernels.fill_fraction * np.where(laid.grouped, 0.0, np.maximum(0.0, 1 - laid.waves))
    ramp = np.where(laid.grouped, kernels.grouped_ramp, kernels.ramp)
    takes = waves * laid.flop_per_depth * (laid.depths + ramp) / (rate * underfilled_gain)
    takes = takes + np.where(laid.cuts > 1, kernels.split_s, 0.0)
    time_s = np.full(len(shapes.flop), SHORTEST_S)
    time_s[shapes.masks["products"]] = takes.min(axis=1)
    return time_s


def _time_attention(shapes: Shapes, gpu: Gpu, clock_hz: Floats, bandwidth: float) -> Floats:
    """Return the time of attention kernels, forward, backward, or both through autograd."""
    kernels = gpu.kernels
    peak = gpu.multiprocessors * matrix_rate(gpu) * clock_hz
    filled = 1 + kernels.tile_ramp / shapes.blocks
    # Wide heads leave less to do beside the products, which take their own time at least.
    forward, backward = (np.maximum(1.0, shapes.slower / fraction) * (1 + ramp / shapes.length) * filled / peak
                         for fraction, ramp in ((kernels.attention_fraction, kernels.attention_ramp),
                         (kernels.attention_backward_fraction, kernels.attention_backward_ramp)))  # fmt: skip
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
    """Return what one call of each kernel takes beside what the board draws anyway.

    Rows and columns that fill up a product's tile are zeros, and switch next to nothing: products of 1 to 32 rows draw
    637 to 695 W on an H200 where a copy draws 621 (evaluate/h200/readings/memory_loops.csv).
    """
    power, kernels, masks = gpu.power, gpu.kernels, shapes.masks
    products, streams = masks["products"], masks["streams"]
    flop_j = shapes.flop * shapes.flop_j * shapes.flop_values
    matrix = np.where(products, flop_j, 0.0)
    softmax = np.where(masks["backward"], power.softmax_backward_flop_fraction, power.softmax_flop_fraction)
    mixed = (power.softmax_flop_fraction + 2.5 * power.softmax_backward_flop_fraction) / 3.5
    # Exponentials are as many however narrow a head is.
    narrow = 128 / np.maximum(shapes.head_width, 1.0)
    extra = (1 + np.where(masks["both"], mixed, softmax) * narrow) * (1 + kernels.softmax_ramp / shapes.length)
    attention = np.where(products | streams, 0.0, flop_j * extra)
    on_die = (shapes.least_bytes + kernels.reread_factor * shapes.again_bytes) * power.cache_byte_j
    # A kernel that needs longer for each element of a wide row does more for it.
    count = shapes.instructions * (shapes.width / USUAL_WIDTH) ** shapes.width_power
    core = attention + (shapes.elements * count * power.instruction_j + on_die) * shapes.values
    on_board = times.memory_bytes * power.memory_byte_j * shapes.values
    return KernelEnergies(*(power.energy_fraction * part for part in (matrix, core, on_board)))
