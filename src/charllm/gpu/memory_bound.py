"""Kernels that only move memory: bytes for each element, the rate they reach, and what they execute.

Equation: t = bytes / r, 1 / r^q = 1 / bandwidth^q + 1 / (b multiprocessors clock)^q, with b bytes a clock and
multiprocessor by kind: a kernel slower than a copy is held up by its own instructions or by latency, which follow the
clock, and not by memory. On an H200 at its highest clock r is the kind's share of a copy's rate. NORMS and UPDATES of
PyTorch wait for memory with too few bytes under way: most of that wait does not follow the clock, which then stands for
1 / (w / highest clock + (1 - w) / clock).
Source: 77 kernels of PyTorch 2.11 on an H200 (evaluate/h200/readings/single_kernels.csv); softmax, dropout_add,
cast and swiglu on three boards (benchmarks/calibrate_h200.py).
Ignores: how kernels of other GPUs are tuned beyond their multiprocessors and clocks.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.spec.hardware import Gpu

USUAL_WIDTH = 8192.0
BYTES_PER_CLOCK = 16.57
"""Measured: 4.33 TB/s of copies over 132 multiprocessors at 1980 MHz."""
ROOF_POWER = 6.0
"""Derived: how sharply the issue and memory limits meet. GELU on an H200 moves 3.34 TB/s at 1719 MHz (random operands)
and 3.71 at 1980 MHz (zeros), which takes 5 to 8."""


class StreamKind(NamedTuple):
    """One kind of kernel that only moves memory."""

    element_bytes: float
    """Read and written for each element, in 16 bits unless the kind says otherwise."""
    share: float
    """Rate over a copy's."""
    instructions: float
    """Of one thread, for each element: what its energy is charged to."""
    width_power: float = 0.0
    """How the rate falls with the width of a row, over 8192."""
    by_width: tuple[float, ...] = ()
    """Rates at rows of WIDTHS elements, in place of `share`."""


WIDTHS = (1024.0, 2048.0, 4096.0, 8192.0, 12288.0)
STREAMS = {
    "copy": StreamKind(4, 1.0, 0.0),
    "add": StreamKind(6, 1.0, 2.4),
    "gelu": StreamKind(4, 0.848, 15.1),
    "gelu_backward": StreamKind(6, 0.937, 20.4),
    "silu": StreamKind(4, 0.898, 12),
    "silu_backward": StreamKind(6, 0.957, 14.2),
    "strided": StreamKind(4, 0.36, 25.0),
    "strided_add": StreamKind(6, 0.52, 25.0),
    "cat": StreamKind(4, 0.862, 0),
    "strided_cat": StreamKind(4, 0.23, 25.0),
    "to_fp32": StreamKind(6, 0.479, 16.5),
    "to_16bit": StreamKind(6, 1.0, 0.0),
    "accumulate": StreamKind(10, 0.636, 27.7),
    "fill": StreamKind(2, 0.809, 0),
    "column_sum": StreamKind(2, 0.8, 3.0),
    "norm_of_tensor": StreamKind(2, 0.51, 3.0),
    "scale": StreamKind(4, 0.67, 3.0),
    "outer_product": StreamKind(4, 0.305, 20.0),
    "scaled_rows": StreamKind(8, 0.5, 25.0),
    "rmsnorm": StreamKind(4, 0.792, 12.2, by_width=(0.781, 0.813, 0.792, 0.637, 0.556)),
    "rmsnorm_backward": StreamKind(10, 0.71, 38.1, by_width=(0.44, 0.64, 0.71, 0.6, 0.58)),
    "norm": StreamKind(4, 0.616, 30, by_width=(0.443, 0.562, 0.616, 0.551, 0.5)),
    "norm_backward": StreamKind(10, 0.686, 57.9, by_width=(0.369, 0.574, 0.686, 0.615, 0.574)),
    "softmax": StreamKind(4, 0.214, 57.5, 0.49),
    "swiglu": StreamKind(6, 0.592, 38.8),
    "dropout": StreamKind(5, 0.681, 14.3),
    "dropout_add": StreamKind(7, 0.536, 41.8),
    "cast": StreamKind(3, 0.773, 9.03),
    "permute": StreamKind(4, 0.884, 0),
    "topk": StreamKind(4, 0.0185, 200.0),
    "index_add": StreamKind(6, 0.17, 68.0),
    "embedding": StreamKind(4, 0.911, 0),
    "embedding_backward": StreamKind(6, 0.078, 20.0),
    "loss": StreamKind(14, 0.545, 53.1),
    "loss_backward": StreamKind(22, 0.8, 0.0),
    "optimizer": StreamKind(28, 0.823, 29.4),
    "optimizer_16bit": StreamKind(14, 0.615, 21.5),
    "convolution": StreamKind(4, 0.70, 10.0),
    "convolution_backward": StreamKind(6, 0.49, 10.0),
    "scan": StreamKind(4, 0.46, 10.0),
    "scan_backward": StreamKind(4, 0.38, 10.0),
    "tiny": StreamKind(1, 1.0, 0.0),
}
"""Measured: rates and instructions of PyTorch's own kernels. strided: views whose rows are apart, and broadcasts.
outer_product, scaled_rows: a column times a row, and a matrix times one of them, in fp32. convolution,
scan: those of Mamba-2 (evaluate/h200/readings/mamba_mixer.csv), their instructions assumed.
tiny: a kernel on a few numbers, which takes as long as it takes to start. add: draws 42 to 57 W more than a copy on
each of four boards (ops, readings, single_kernels and memory_loops.csv)."""


NORMS = ("norm", "norm_backward", "rmsnorm", "rmsnorm_backward")
UPDATES = ("optimizer_16bit", "norm_of_tensor", "scale")
WAITING = "waiting"
"""Variant of the kernels of NORMS and UPDATES that are PyTorch's own: w is not known of those of other libraries."""
LATENT_NORM, LATENT_UPDATE = 0.55, 0.9
"""Measured: w of norms, and of torch's multi-tensor kernels. In traced steps at 1550 and 1690 MHz norms take 1.05 and
1.13 times, clipping 1.04 and AdamW 0.99 to 1.03 times what each takes alone at 1980 MHz; 1.28 and 1.17 if they followed
the clock (evaluate/h200/readings/traced_classes.csv, single_kernels.csv)."""


def share_of(kind: str, width: float) -> float:
    """Return the rate of a kernel over a copy's, in rows of a width."""
    stream = STREAMS[kind]
    if stream.by_width:
        return float(np.interp(np.log(width), np.log(WIDTHS), stream.by_width))
    return float(min(1.0, stream.share * (USUAL_WIDTH / width) ** stream.width_power))


def stream_rate(gpu: Gpu, share: Floats, clock_hz: Floats, latent: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """Return the bytes a second of kernels, and the share of their time that follows the clock; `latent` is w.

    Undoing the roof on the H200 gives the rate at which multiprocessors alone could issue a kernel; that rate follows
    multiprocessors and clock, and meets the GPU's own bandwidth under the same roof.
    """
    memory = gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    over = np.maximum(share**-ROOF_POWER - 1, 0.0) ** (1 / ROOF_POWER)
    fixed, follows = latent * clock_hz / gpu.clock_max_hz, 1.0 - latent
    issued = BYTES_PER_CLOCK * gpu.multiprocessors * clock_hz / (fixed + follows)
    slow = (over * memory / issued) ** ROOF_POWER
    return memory / (1 + slow) ** (1 / ROOF_POWER), slow / (1 + slow) * follows / (fixed + follows)
