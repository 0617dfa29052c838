"""Which sets of axes strategies hide: those with something to hide, where the program of the software can hide it."""

from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Ints
from charllm.spec.programs import Hiding, overlap_fault
from charllm.spec.validity import hideable

AXES = ("tp", "dp", "pp", "ep")
"""Axes that may hide their communication."""


class Traits(NamedTuple):
    """What decides what a strategy can hide; an array each, or a number each."""

    tp: Any
    """Whether tp has something to hide, and so on."""
    dp: Any
    pp: Any
    ep: Any
    pipelined: Any
    chunked: Any
    full: Any
    """Whether it recomputes whole layers."""
    zero: Any


def traits_of(cells: Any, full: Any, zero: Any) -> Traits:
    """Return the traits of a cell, or of arrays of cells, with ways to recompute and to shard."""
    able = hideable(cells)
    return Traits(able["tp"], able["dp"], able["pp"], able["ep"], cells.pp > 1, cells.vpp > 1, full, zero)


def number_traits(traits: Traits) -> Ints:
    """Return one number for all traits of each strategy."""
    *flags, zero = traits
    return np.asarray(sum(np.asarray(flag, dtype=np.int64) << (place + 4) for place, flag in enumerate(flags)) + zero)


def list_overlaps(
    traits: Traits, tried: tuple[frozenset[str], ...], program: str | None
) -> tuple[tuple[str, ...], ...]:
    """List the sets that strategies with some traits hide, of those tried; `program` None allows all."""
    able = [axis for axis in AXES if getattr(traits, axis)]
    found = dict.fromkeys(tuple(axis for axis in able if axis in asked) for asked in tried)
    return tuple(one for one in found if overlap_fault(program, _hiding(traits, one)) is None)


def _hiding(traits: Traits, overlap: tuple[str, ...]) -> Hiding:
    able = [axis for axis in AXES if getattr(traits, axis)]
    return Hiding(
        overlap, able, 1 + bool(traits.pipelined), 1 + bool(traits.chunked), int(traits.zero),
        "full" if traits.full else "none",
    )  # fmt: skip
