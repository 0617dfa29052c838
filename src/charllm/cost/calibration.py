"""The constants of the cost model that belong to no GPU and no framework: each a mechanism, with where it was found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted or derived constants; `benchmarks/fit_time.py` refits and scores them on held-out rows."""

    narrow_ramp: float = 348
    """Depth at which a product in 8 or 4 bits fills its pipeline as long as it multiplies: time x (1 + ramp / k).
    Operator tables of six GPUs, k 1024 to 16384: 300 to 500. In 16 bits it is the GPU's own (`product_ramp`)."""
    fill_power: float = 0.7915
    """How much idle multiprocessors of a partial wave cost: 1 all, 0 nothing, others using the power they leave."""
    roof_power: float = 2.3
    """How sharply arithmetic and memory limits meet: t = (a^p + m^p)^(1/p). Derived on an H200 (2.26 +- 0.09)."""
    grouped_fraction: float = 0.6611
    """Rate of a grouped product over a plain one of the same rows. H200: 0.95 at 1024 rows, 0.82 at 256."""
    block_scaled_fraction: float = 0.9448
    """Rate of 8-bit products with a scale for each 32 values (mxfp8) over those with one scale for a tensor. Published
    steps of equal runs in both: 4 to 8 % longer."""
    attention_ramp: float = 558.5
    """Sequence at which attention reaches half of its rate. H200: 503 +- 42 forward, 1219 +- 84 with backward."""
    exponential_fraction: float = 0.7429
    """Share of the exponentials' time that attention takes beyond its products'. Operator tables, widths 64 and 128:
    0.5 to 0.9 on H100 and H200, 0.7 to 0.9 on B200 and GB200, nothing on Ada, whose products are slower."""
    attention_backward_fraction: float = 0.8455
    """Rate of the backward kernel over the forward one. H200: 0.80 to 0.91."""
    kernel_gap_s: float = 3.502e-06
    """Time between two kernels that the GPU itself needs. H200: 3.9 +- 0.3 us for products, 3.2 us for streams."""
    link_fraction: float = 0.7727
    """Share of a scale-up link that a large ring uses at many ranks. NCCL tables: 0.74 to 0.79 at 8 ranks."""
    nic_fraction: float = 0.7551
    """Share of a NIC that a large ring uses."""
    nic_hop_s: float = 6.144e-06
    """Time each further node of a ring adds by LL128."""
    misaligned_fraction: float = 0.3
    """Rate of a 16-bit product one of whose rows is no multiple of 16 bytes, over an aligned one. Derived: GPT-3 1.3B
    with its vocabulary of 50257 on H200 boards; NVIDIA's guide to matrix multiplication: several times slower."""
    misaligned_batch_fraction: float = 0.08161
    """The same of batched products, as of heads whose width is odd. Published runs with heads of 108 and 150."""
    contention_fraction: float = 0.2009
    """Compute time added for each second of communication hidden under it: multiprocessors and memory are shared.
    H200: 0.07 beside a spin, 0.11 to 0.15 beside a copy on 16 to 32 blocks."""
    overlap_chunks: float = 3.983
    """Pieces a tensor-parallel exchange is cut into to hide under its product: the first stays exposed."""
    jitter_fraction: float = 0.005415
    """Step time added for each e-fold of ranks beyond a node: the slowest of many paces all."""
    tensor_host_s: float = 7.083e-05
    """Host time of a step for each tensor it trains: norm of its gradient, update, copies, clearing."""
    pass_launches: float = 39.02
    """Host work of each pass of a chunk beyond its ops, in launches: inputs, masks, calls of the schedule."""
    alone_launch_factor: float = 1.4
    """Host time of a launch in a traced model of one layer over one in a stack of 24: caches are cold each time.
    Measured beside an H200, an unfused layer of Megatron's shape: 1.26 to 1.36 traced, 1.14 to 1.23 untraced."""
    sparse_host_s: float = 0.001632
    """Host time of a sparse layer beyond its launches, in each direction: routing, counts, permutation maps."""
    expert_host_s: float = 1.175e-05
    """The same for each expert a rank holds: splitting, casting, launching."""
    uncaptured_fraction: float = 0.4959
    """Share of a sparse layer's host time that graphs of attention and routing leave: dispatch, splits, experts' calls.
    Assumed; published steps with such graphs."""
    narrow_cast_factor: float = 1.125
    """Traffic of casting operands to 8 or 4 bits over the least (read 16 bits, write both layouts)."""


CALIBRATION = Calibration()
