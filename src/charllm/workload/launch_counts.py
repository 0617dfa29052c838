"""What a profiler shows on the device for one call of a library: its kernel, and the clears and kernels around it.

Source: the kernels of every operator in traces of cuBLAS and cuDNN on an H200 (examples/h200-moe); the rules below
give the counts of all five traced runs of evaluate/h200/readings/traced_classes.csv.
"""

TILE = (128, 256)
"""Published in the names of cuBLAS's kernels (nvjet_sm90_tst_128x256_64x4_...): outputs of a block of most products."""
ALIGNED = 8
"""Elements to which every size of a product must be aligned for those kernels."""
WAVES = 2
"""Counted: from more blocks than this many for each multiprocessor on, blocks are handed out by a counter, which is
cleared first. 256 blocks on 132 multiprocessors have none, 512 have one."""
FORWARD, BACKWARD, GROUPED = 2, 4, 2
"""Counted: a clear and a kernel of attention; a clear, row sums, a kernel and a cast of its backward; and two sums over
the query heads of a group where there are groups."""


def gemm_events(m: int, n: int, k: int, multiprocessors: int) -> int:
    """Count what one product shows: with the clear of its counter, or the kernel that adds up parts of a split sum.

    Ignores: batches; products so narrow that another tile is taken.
    """
    if any(size % ALIGNED for size in (m, n, k)):
        return 1
    blocks = -(-m // TILE[0]) * -(-n // TILE[1])
    split = 2 * blocks <= multiprocessors
    return 2 if split or blocks > WAVES * multiprocessors else 1


def attention_events(direction: str, *, grouped: bool) -> int:
    """Count what one attention shows, forward or backward."""
    if direction != "backward":
        return FORWARD
    return BACKWARD + (GROUPED if grouped else 0)
