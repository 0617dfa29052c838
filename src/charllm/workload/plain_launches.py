"""What plain modules launch (`framework.plain_modules`): the lists of the reference trainer, counted in its traces.

Source: torch.profiler on an H200, PyTorch 2.11 (benchmarks/device/traced_steps.py; examples/h200-moe holds one trace).
"""

from charllm.gpu.memory_bound import NORMS, UPDATES, WAITING
from charllm.spec.run import RunSpec
from charllm.workload.kernel_calls import Launched, chain, moving, sized, tiny
from charllm.workload.op import Op

HOST_CALLS = {
    "gemm": 1.45, "grouped_gemm": 2.0, "grouped_wgrad": 2.0, "attention": 5.4, "attention_backward": 7.7,
    "norm": 2.1, "rmsnorm": 2.1, "norm_backward": 1.9, "rmsnorm_backward": 1.9, "loss": 4.0, "loss_backward": 6.0,
}  # fmt: skip
"""Measured: host time of an operator with its kernels over that of an elementwise one (40 us with a profiler; medians
of examples/h200-moe): 58 us a product, 79 a grouped one, 214 and 307 us attention forward and backward, 84 and 76 us a
norm."""
OWN_CALLS, INNER_CALLS = 0.85, 0.25
"""Measured, as above: an operator without gradient (24 to 44 us); a further kernel inside an operator (5 to 15 us)."""


def weigh(found: tuple[Launched, ...]) -> tuple[Launched, ...]:
    """Give operators the host time that was measured for their kind, and PyTorch's own kernels their variant.

    What a library loops over has a host time of its own.
    """
    return tuple(_weighed(one) for one in found)


def _weighed(one: Launched) -> Launched:
    kind = one.shape.kind
    if kind in (*NORMS, *UPDATES):
        one = one._replace(shape=one.shape._replace(variant=WAITING))
    return one._replace(calls=HOST_CALLS[kind]) if kind in HOST_CALLS and not one.looped else one


def _own(times: int) -> Launched:
    """Return small operators, each called from Python."""
    return tiny(times)._replace(calls=OWN_CALLS, small=0.0)


def _inner(times: int) -> Launched:
    """Return small kernels inside one operator."""
    return tiny(times)._replace(calls=INNER_CALLS, small=0.0)


def later_share(run: RunSpec) -> float:
    """Return the share of microbatches that find gradients to add to."""
    return (run.microbatches - 1) / run.microbatches


def accumulate_small(run: RunSpec, weights: int) -> tuple[Launched, ...]:
    """Add gradients of narrow weights, such as a norm's, to what earlier microbatches left."""
    share = later_share(run)
    return (tiny(weights)._replace(calls=share, small=0.0, events=share),) if share else ()


ANGLE_KERNELS = 11
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
    turned = chain(elements, HALVES[direction])
    return (_own(ANGLE_KERNELS), *turned) if direction == "forward" else turned


def lay_out_heads(elements: float, shares: tuple[float, float], direction: str) -> tuple[Launched, ...]:
    """Copy heads into the order of tokens: attention's output, whose layout follows the turned queries; then gradients.

    `shares` are the queries' and keys' parts of the elements.
    """
    copied = shares[:1] if direction == "forward" else shares
    return chain(elements, [("strided", share) for share in copied])


LOSS_KERNELS = {"forward": 4, "backward": 6}
"""Counted: cast, log softmax, choice of the target and mean; then two of the mean, zeros, the target's, the softmax's
gradient and the cast back."""
ROUTER_KERNELS = {"forward": (17, 24), "backward": (19, 8)}
"""Counted: operators on scores, weights and counts of tokens; further kernels inside them, 20 of the sort by expert."""


def route(op: Op, experts: int) -> tuple[Launched, ...]:
    """Score, choose, weigh, sort and count tokens: an operator each; the choice is a kernel of its own."""
    own, inner = ROUTER_KERNELS[op.direction]
    chosen = () if op.direction == "backward" else (sized("topk", (op.shape[0], experts)),)
    return (_own(own), _inner(inner), *chosen)


INDEX_PUT = (5, 7)
"""Counted: operators that make the index positive, and kernels of the sort by index, before rows are put back in the
backward pass of x[index] (traces on an H200)."""


def pick_rows(rows: int, tokens: int, width: int, direction: str) -> tuple[Launched, ...]:
    """Pick rows by index; backward sorts the indices and puts gradients into zeros."""
    if direction == "forward":
        return (sized("permute", (rows, width)),)
    own, inner = INDEX_PUT
    return sized("fill", (tokens, width)), _own(own), _inner(inner), sized("permute", (rows, width))


def add_rows_up(rows: int, tokens: int, width: int, direction: str) -> tuple[Launched, ...]:
    """Weigh rows and add them to zeros by index; backward picks them again and has two products and a sum."""
    elements = rows * width
    if direction == "forward":
        return moving(4.0 * elements), sized("fill", (tokens, width)), sized("index_add", (rows, width))
    return sized("permute", (rows, width)), moving(4.0 * elements), sized("add", (elements,)), moving(2.0 * elements)


UNSORTED_ROWS, SORT_KERNELS = 3072, 29
"""Published: torch's gradient of an embedding sorts more rows than this (ATen/native/cuda/Embedding.cu); counted in
traces on an H200: the kernels and memory clears of that sort."""
TOKEN_KERNELS = 2
"""Counted: tokens copied to the device and targets picked from them."""


def bring_tokens(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Bring a microbatch's tokens; add positions, where a table holds them."""
    found = (_own(TOKEN_KERNELS),)
    if run.model.position != "learned":
        return found
    return (*found, _own(2), moving(6.0 * op.shape[0] * op.shape[1], "add"))


def finish_embedding(op: Op, run: RunSpec, table_elements: int) -> tuple[Launched, ...]:
    """Sort the rows of an embedding's gradient, where there are many, and add it to what is there already."""
    found = (_inner(SORT_KERNELS),) if op.shape[0] > UNSORTED_ROWS else ()
    if run.model.position == "learned":
        found = (*found, _own(3))
    # A tied table has the head's gradient of each microbatch, too.
    times = later_share(run) + run.model.tied_embeddings
    return (*found, moving(6.0 * table_elements * times, "add")._replace(events=times)) if times else found


CHUNK_ELEMENTS = 65536 * 320
"""Published: chunk size and blocks of a launch of torch's multi-tensor kernels (ATen/native/cuda/MultiTensorApply.cuh);
counted in traces on an H200: 55, 64 and 151 launches for 1.13, 1.34 and 3.17 billion elements."""
STEP_TENSORS = 110
"""Published, as above: tensors of a launch that adds to counters of steps."""
LAYER_TENSORS = 16
"""Counted: weights and biases of a layer; fewer without biases, which makes at most one launch less."""


def cut_to_chunks(one: Launched, elements: float) -> Launched:
    """Launch a kernel over all weights in as many pieces as the library cuts it into."""
    pieces = -(-elements // CHUNK_ELEMENTS)
    return one._replace(looped=pieces, events=pieces)


NORM_KERNELS = 7
"""Counted in the operators of clip_grad_norm_: norms joined, their norm (two kernels), and four on that one number."""


def take_norm(one: Launched, elements: float) -> tuple[Launched, ...]:
    """Take the norm of all gradients: of each in pieces, then of the norms."""
    return cut_to_chunks(one, elements), _own(NORM_KERNELS)


def update_in_chunks(update: Launched, elements: float, run: RunSpec) -> tuple[Launched, ...]:
    """Count the steps of all weights up, and update them in pieces."""
    counted = -(-run.model.layers * LAYER_TENSORS // STEP_TENSORS)
    return Launched(update.shape._replace(dims=(1,)), counted), cut_to_chunks(update, elements)


SUM_KERNELS = 5
"""Measured: what a sum over tokens takes beyond its bytes, in times of a small kernel: its counter is cleared, and the
last block of each column waits for the others (288 sums took 3.4 ms in a traced run of GPT-3 1.3B, 1.2 for bytes)."""


def sum_bias_gradient(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Add the gradient of a bias up over tokens, and to that of earlier microbatches."""
    summed, waited = moving(op.read_bytes + op.written_bytes, "column_sum"), _inner(SUM_KERNELS)
    # A profiler shows the sum and the clearing of its counter.
    return (summed, waited._replace(calls=INNER_CALLS / SUM_KERNELS, events=1 / SUM_KERNELS), *accumulate_small(run, 1))
