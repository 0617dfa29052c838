"""Initial weights that do not depend on how a model is cut.

Each weight is drawn in blocks of rows, each block with a seed of its own made from the run's seed, the weight's name
and the block's number. A rank draws only the blocks that its rows lie in and keeps its columns, so that no whole tensor
is ever held and every layout starts from the same weights.
"""

from collections.abc import Iterator
from hashlib import blake2b

import torch
from torch import Tensor, nn

from charllm.measure.trainer.linear import Piece

BLOCK_ELEMENTS = 1 << 22
DEVIATION = 0.02


def initialise(weight: Tensor, piece: Piece, name: str, seed: int, skipped_rows: int = 0) -> None:
    """Fill a weight, or the rows of it from `skipped_rows` on that a shard has."""
    with torch.no_grad():
        if piece.initial != "normal":
            nn.init.constant_(weight, 1.0 if piece.initial == "ones" else 0.0)
            return
        rows, width = piece.full[0], piece.full[1]
        first, left = piece.start[0] + skipped_rows, piece.start[1]
        height = max(1, BLOCK_ELEMENTS // width)
        weight.zero_()
        end = min(rows, first + weight.shape[0])
        for block in range(first // height, -(-end // height) if end > first else 0):
            top, bottom = max(first, block * height), min(end, (block + 1) * height)
            drawn = _draw(f"{seed}/{name}/{block}", min(height, rows - block * height), width, weight.device)
            part = drawn[top - block * height : bottom - block * height, left : left + weight.shape[1]]
            weight[top - first : bottom - first].copy_(part)


def stacked(weight: Tensor, piece: Piece, name: str, skipped: int) -> Iterator[tuple[Tensor, Piece, str]]:
    """Yield a weight as it is, or the weights of the experts that one tensor stacks, as if each were alone."""
    if weight.ndim < 3:
        yield weight, piece, name
        return
    block, _dot, layer = name.rpartition(".")
    for number, part in enumerate(weight):
        expert = piece.start[0] + skipped + number
        yield part, piece._replace(full=piece.full[1:], start=piece.start[1:]), f"{block}.{expert}.{layer}.base.weight"


def _draw(key: str, rows: int, width: int, device: torch.device) -> Tensor:
    seed = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little") >> 1
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.empty(rows, width, device=device, dtype=torch.float32).normal_(0.0, DEVIATION, generator=generator)
