"""Draw some cases out of a large product of axes, without listing the product.

A draw is a position on each axis. `random` draws each case with equal probability, `latin` spreads every axis evenly
(Latin hypercube), `sobol` fills the space evenly (scrambled Sobol sequence). Cases that break a constraint are drawn
again, as are those drawn before.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from charllm.errors import MissingExtra, SpecError
from charllm.spec.fields import check_fields, choice, count, read

MOST = 2**63 - 1
DRAWS_PER_CASE, FEWEST_DRAWS = 100, 10_000
"""Draws after which constraints count as too tight to sample."""
SOBOL_BATCH = 10
"""Draws of a Sobol sequence at a time, as a power of two: only these are balanced."""


Draws = Iterator[Sequence[int]]


def _random(sizes: Sequence[int], _count: int, seed: str) -> Draws:
    random = Random(seed)
    while True:
        yield [random.randrange(size) for size in sizes]


def _latin(sizes: Sequence[int], count: int, seed: str) -> Draws:
    """Draw `count` cases at a time, among which the values of an axis are equally frequent."""
    random = Random(seed)
    while True:
        columns = [[place * size // count for place in range(count)] for size in sizes]
        for column in columns:
            random.shuffle(column)
        yield from zip(*columns, strict=True)


def _sobol(sizes: Sequence[int], _count: int, seed: str) -> Draws:
    try:
        from scipy.stats import qmc
    except ImportError:
        raise MissingExtra("sobol sampling needs scipy", "fit") from None
    engine = qmc.Sobol(len(sizes), rng=Random(seed).getrandbits(32))
    while True:
        for point in engine.random(2**SOBOL_BATCH):
            yield [int(share * size) for share, size in zip(point, sizes, strict=True)]


METHODS: dict[str, Callable[[Sequence[int], int, str], Draws]] = {
    "random": _random,
    "latin": _latin,
    "sobol": _sobol,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How many cases of a study are drawn, and how."""

    method: str = choice("how they are drawn", tuple(METHODS), "random")
    seed: int = count("seed of the draws", 0, MOST, 0)
    count: int = count("cases to draw", 1, MOST)

    def __post_init__(self) -> None:
        check_fields(self)


def read_sample(asked: Any) -> Sample | None:
    """Read ``sample = 1000`` or ``sample = { count = 1000, method = "sobol", seed = 1 }``."""
    if asked is None:
        return None
    return read(Sample, asked if isinstance(asked, dict) else {"count": asked}, "STUDY.sample")


def share_out(count: int, sizes: Sequence[int]) -> list[int]:
    """Divide a sample among groups in proportion to their sizes, at least one case each as long as there are any."""
    shares, left, rest = [], count, sum(sizes)
    for size in sizes:
        share = min(size, left, max(1, round(left * size / rest)))
        shares.append(share)
        left, rest = left - share, rest - size
    return shares


def draw(sizes: Sequence[int], sample: Sample, allows: Callable[[int], bool]) -> list[int]:
    """Return the numbers of `sample.count` different cases that are allowed, in order; a number counts the product."""
    found: set[int] = set()
    draws = METHODS[sample.method](sizes, sample.count, str(sample.seed)) if sizes else iter([()])
    for tried, positions in enumerate(draws):
        number = 0
        for position, size in zip(positions, sizes, strict=True):
            number = number * size + position
        if number not in found and allows(number):
            found.add(number)
        if len(found) == min(sample.count, math.prod(sizes)):
            break
        if tried > max(FEWEST_DRAWS, DRAWS_PER_CASE * sample.count):
            said = f"constraints that more cases meet: {len(found)} were found in {tried:,} draws"
            raise SpecError("STUDY.where", f"{sample.count} cases to draw", said)
    return sorted(found)
