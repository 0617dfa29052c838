"""Which sets of axes strategies hide: those with something to hide, where the program of the software can hide it."""

from typing import Any, NamedTuple

import numpy as np

from charllm.spec.programs import Hiding, overlap_fault
from charllm.timeline.costs import Ints


class Traits(NamedTuple):
    """What decides what a strategy can hide; an array each, or a number each."""

    tp: Any
    """Whether its tp ranks exchange parts of the sequence."""
    copies: Any
    """Whether several ranks hold the same weights."""
    pipelined: Any
    chunked: Any
    experts: Any
    dualpipe: Any
    full: Any
    """Whether it recomputes whole layers."""
    zero: Any


def traits_of(cells: Any, full: Any, zero: Any) -> Traits:
    """Return the traits of a cell, or of arrays of cells, with ways to recompute and to shard."""
    return Traits(
        (cells.tp > 1) & cells.sp, cells.dp * cells.cp > 1, cells.pp > 1, cells.vpp > 1, cells.ep > 1,
        cells.schedule == "dualpipe", full, zero,
    )  # fmt: skip


def number_traits(traits: Traits) -> Ints:
    """Return one number for all traits of each strategy."""
    *flags, zero = traits
    return np.asarray(sum(np.asarray(flag, dtype=np.int64) << (place + 4) for place, flag in enumerate(flags)) + zero)


def list_overlaps(
    traits: Traits, tried: tuple[frozenset[str], ...], program: str | None
) -> tuple[tuple[str, ...], ...]:
    """List the sets that strategies with some traits hide, of those tried; `program` None allows all."""
    free = not traits.dualpipe
    able = {"tp": traits.tp, "dp": traits.copies, "pp": traits.pipelined and free, "ep": traits.experts and free}
    found = dict.fromkeys(tuple(axis for axis in able if able[axis] and axis in asked) for asked in tried)
    return tuple(one for one in found if overlap_fault(program, _hiding(traits, one)) is None)


def _hiding(traits: Traits, overlap: tuple[str, ...]) -> Hiding:
    return Hiding(
        overlap, 1 + bool(traits.copies), 1 + bool(traits.pipelined), 1 + bool(traits.chunked), int(traits.zero),
        "full" if traits.full else "none",
    )  # fmt: skip
