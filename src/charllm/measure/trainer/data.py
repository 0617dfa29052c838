"""Tokens to train on: made up with something to learn in them, or memory-mapped from a file."""

from collections.abc import Iterator
from itertools import count, repeat
from pathlib import Path

import numpy as np
import torch

from charllm.errors import SpecError

NOISE_FRACTION, FACTOR, SHIFT = 0.1, 5, 7
POOL_ROWS = 256


Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def own_turns(replica: int, replicas: int, microbatches: int) -> Iterator[bool]:
    """Say of each microbatch of the run whether it is this replica's: replicas take theirs one after the other."""
    return (number // microbatches % replicas == replica for number in count())


def synthetic_batches(
    vocab: int, batch: int, seq: int, seed: int, device: str, turns: Iterator[bool] | None = None
) -> Batches:
    """Yield tokens and the ones after them; each follows from the one before by a fixed rule, one in ten does not.

    All replicas draw the same microbatches and each yields those whose turn is its own.
    """
    turns = turns or repeat(True)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    rows = max(POOL_ROWS, batch)
    pool = torch.empty(rows, seq + 1, dtype=torch.int64)
    pool[:, 0] = torch.randint(0, vocab, (rows,), generator=generator)
    noise = torch.rand(seq, rows, generator=generator) < NOISE_FRACTION
    drawn = torch.randint(0, vocab, (seq, rows), generator=generator)
    for place in range(seq):
        pool[:, place + 1] = torch.where(noise[place], drawn[place], (pool[:, place] * FACTOR + SHIFT) % vocab)
    pool = pool.to(device)
    while True:
        drawn = torch.randint(0, rows, (batch,), generator=generator)
        if next(turns):
            chosen = pool[drawn.to(device)]
            yield chosen[:, :-1], chosen[:, 1:]


def file_batches(
    path: Path, vocab: int, batch: int, seq: int, seed: int, device: str, turns: Iterator[bool] | None = None
) -> Batches:
    """Yield random windows of a file of 16-bit tokens (32-bit where the vocabulary needs it)."""
    turns = turns or repeat(True)
    dtype = np.uint16 if vocab <= 1 << 16 else np.uint32
    try:
        tokens = np.memmap(path, dtype=dtype, mode="r")
    except (OSError, ValueError) as error:
        raise SpecError("--data", str(path), f"a file of {dtype.__name__} tokens ({error})") from None
    if len(tokens) <= seq:
        raise SpecError("--data", str(path), f"more than {seq} tokens, it has {len(tokens)}")
    generator = np.random.default_rng(seed)
    while True:
        starts = generator.integers(0, len(tokens) - seq, batch)
        if not next(turns):
            continue
        rows = np.stack([tokens[start : start + seq + 1].astype(np.int64) for start in starts])
        if rows.max() >= vocab:
            raise SpecError("--data", str(path), f"tokens below the vocabulary of {vocab}, it has {rows.max()}")
        moved = torch.from_numpy(rows).to(device, non_blocking=True)
        yield moved[:, :-1], moved[:, 1:]


def own_tokens(batches: Batches, positions: torch.Tensor) -> Batches:
    """Yield the tokens at the positions that a rank of context parallelism holds."""
    for tokens, targets in batches:
        yield tokens[:, positions], targets[:, positions]
