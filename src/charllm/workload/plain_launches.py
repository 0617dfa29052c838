"""What plain modules launch (`framework.plain_modules`): the lists of the reference trainer, counted in its traces.

Source: torch.profiler on an H200, PyTorch 2.11 (benchmarks/device/traced_steps.py).
"""

from charllm.workload.kernel_calls import Launched, chain, moving, sized, tiny
from charllm.workload.op import Op

ANGLE_KERNELS = 10
"""Counted: positions, frequencies, their product, sine and cosine and their casts (measure/trainer/attention.py)."""
HALVES = {
    "forward": (*(("strided_add", 0.5),) * 4, ("add", 0.5), ("add", 0.5), ("strided_cat", 1.0)),
    "backward": (
        *(("strided_add", 0.5),) * 4, *(("strided", 0.5),) * 3, *(("fill", 1.0),) * 2, *(("add", 0.5),) * 2,
        ("add", 1.0),
    ),
}  # fmt: skip
"""Counted in traces of the reference trainer: four products of halves, their sum and difference, and their join; then
the products' gradients, those of the halves put into zeros, and their sums."""


def turn_halves(elements: float, direction: str) -> tuple[Launched, ...]:
    """Compute angles and turn the halves of heads with them, a kernel for each step."""
    angles = tiny(ANGLE_KERNELS)
    turned = chain(elements, HALVES[direction])
    return (angles, *turned) if direction == "forward" else turned


INDEX_PUT_KERNELS = 8
"""Counted: the sort by index before rows are put back in the backward pass of x[index] (traces on an H200)."""


def pick_rows(rows: int, tokens: int, width: int, direction: str) -> tuple[Launched, ...]:
    """Pick rows by index; backward sorts the indices and puts gradients into zeros."""
    if direction == "forward":
        return (sized("permute", (rows, width)),)
    sorted_ = tiny(INDEX_PUT_KERNELS)
    return (sized("fill", (tokens, width)), sorted_, sized("permute", (rows, width)))


def add_rows_up(rows: int, tokens: int, width: int, direction: str) -> tuple[Launched, ...]:
    """Weigh rows and add them to zeros by index; backward picks them again and has two products and a sum."""
    elements = rows * width
    if direction == "forward":
        return moving(4.0 * elements), sized("fill", (tokens, width)), sized("index_add", (rows, width))
    return sized("permute", (rows, width)), moving(4.0 * elements), sized("add", (elements,)), moving(2.0 * elements)


UNSORTED_ROWS, SORT_KERNELS = 3072, 27
"""Published: torch's gradient of an embedding sorts more rows than this (ATen/native/cuda/Embedding.cu); counted in
traces on an H200: the kernels and memory clears of that sort."""


def sort_rows(rows: int) -> tuple[Launched, ...]:
    """Sort the rows of an embedding's gradient, where there are many."""
    return (tiny(SORT_KERNELS),) if rows > UNSORTED_ROWS else ()


CHUNK_ELEMENTS = 65536 * 320
"""Published: chunk size and blocks of a launch of torch's multi-tensor kernels (ATen/native/cuda/MultiTensorApply.cuh);
counted in traces on an H200: 55, 64 and 151 launches for 1.13, 1.34 and 3.17 billion elements."""


def cut_to_chunks(one: Launched, elements: float) -> Launched:
    """Launch a kernel over all weights in as many pieces as the library cuts it into."""
    return one._replace(looped=-(-elements // CHUNK_ELEMENTS))


BIAS_CALLS = 2.0
"""Counted: a sum over tokens and the clearing of its counter."""


def sum_bias_gradient(op: Op) -> tuple[Launched, ...]:
    """Add the gradient of a bias up over tokens."""
    return (moving(op.read_bytes + op.written_bytes, "column_sum")._replace(calls=BIAS_CALLS),)
