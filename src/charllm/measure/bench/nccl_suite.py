"""Which collectives the network bench runs: all that training uses, on each group of a layout, by message size."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.errors import SpecError, unknown_name
from charllm.layout.grid import EXPERT_AXES, GROUPS, Grid, Ranks, cached_groups
from charllm.spec.parallelism import Parallelism
from charllm.units import GIB, KIB, MIB

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
"""send: every member sends to the next one and receives from the one before, as pipeline stages do."""
TOGETHER, ALONE = "together", "alone"
"""All groups of a kind at once, as in training; or the first of them while the others are idle."""
UNITS = {"": 1.0, "b": 1.0, "kib": KIB, "mib": MIB, "gib": GIB}
ELEMENT_BYTES = 2
"""bf16"""
LARGEST_BYTES = 64 * GIB


class CollectiveCase(NamedTuple):
    """One collective of one size, on all groups of a kind or on the first alone."""

    group: str
    mode: str
    collective: str
    message_bytes: int
    """The larger of a rank's two buffers, as nccl-tests counts it."""


def parse_sizes(text: str) -> list[int]:
    """Return powers of two from `1KiB:1GiB`, or the one size of `4MiB`."""
    low, _colon, high = text.partition(":")
    first, last = (_parse_size(word, text) for word in (low, high or low))
    if not ELEMENT_BYTES <= first <= last <= LARGEST_BYTES:
        raise SpecError("--sizes", text, "sizes from 2 B to 64 GiB, the smaller first, such as 1KiB:1GiB")
    return [first << place for place in range((last // first).bit_length())]


def _parse_size(word: str, text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", word.strip().lower())
    if not found or found[2] not in UNITS:
        raise SpecError("--sizes", text, "FROM:TO, each a whole number of B, KiB, MiB or GiB, such as 1KiB:1GiB")
    return int(int(found[1]) * UNITS[found[2]])


def parse_collectives(text: str) -> tuple[str, ...]:
    """Return the collectives that were asked for, in the order of the suite."""
    words = [word.strip() for word in text.split(",") if word.strip()] or list(COLLECTIVES)
    for word in words:
        if word not in COLLECTIVES:
            raise unknown_name("--collectives", word, COLLECTIVES)
    return tuple(name for name in COLLECTIVES if name in words)


def fill_layout(given: dict[str, int], ranks: int, ranks_per_node: int) -> dict[str, int]:
    """Return degrees for all ranks: dp takes what is left; with none given tp fills a node and dp joins nodes."""
    degrees = dict(given) or {"tp": ranks_per_node}
    if "dp" not in degrees:
        rest = degrees.get("tp", 1) * degrees.get("cp", 1) * degrees.get("pp", 1)
        degrees["dp"] = ranks // rest if rest and ranks % rest == 0 else 1
    return degrees


def check_layout(parallelism: Parallelism, ranks: int) -> None:
    """Refuse a layout of another number of ranks than were started."""
    if parallelism.world != ranks:
        degrees = " x ".join(f"{axis} {getattr(parallelism, axis)}" for axis in ("tp", "cp", "dp", "pp"))
        possible = f"a layout of {ranks} ranks, as many as were started ({degrees} = {parallelism.world})"
        raise SpecError("layout", f"{parallelism.world} ranks", possible)
    experts = parallelism.etp * parallelism.ep
    if parallelism.tp * parallelism.cp * parallelism.dp % experts:
        raise SpecError("parallelism.ep", parallelism.ep, "etp x ep that divides tp x cp x dp")


def groups_of(parallelism: Parallelism, asked: str = "") -> dict[str, Ranks]:
    """Return the groups of each kind that has more than one rank; kinds with the same members are listed once."""
    words = [word.strip() for word in asked.split(",") if word.strip()]
    for word in words:
        if word not in GROUPS:
            raise unknown_name("--groups", word, GROUPS)
        if Grid(parallelism).degree(word) < 2:
            raise SpecError("--groups", word, f"a group of two ranks or more: {word} has one in this layout")
    found: dict[str, Ranks] = {}
    sparse = parallelism.ep * parallelism.etp > 1
    for name in words or [each for each in GROUPS if sparse or each not in EXPERT_AXES.values()]:
        if Grid(parallelism).degree(name) < 2:
            continue
        members = cached_groups(parallelism, name)
        # Pipeline stages send; ranks of any other kind with the same members do the same collectives.
        if words or name == "pp" or not any(_same(members, other) for key, other in found.items() if key != "pp"):
            found[name] = members
    if not found:
        raise SpecError("layout", f"{parallelism.world} ranks", "at least one group of two ranks or more")
    return found


def _same(one: Ranks, other: Ranks) -> bool:
    return one.shape == other.shape and bool(np.array_equal(np.sort(one), np.sort(other)))


def build_suite(groups: dict[str, Ranks], collectives: Sequence[str], sizes: Sequence[int]) -> list[CollectiveCase]:
    """List every case: sizes from small to large inside each series, so that a slow series can be cut short."""
    cases = []
    for name, members in groups.items():
        for mode in (TOGETHER, ALONE) if len(members) > 1 else (TOGETHER,):
            for collective in collectives:
                if name != "pp" or collective == "send":
                    cases += [CollectiveCase(name, mode, collective, size) for size in sizes]
    if not cases:
        raise SpecError("--collectives", ",".join(collectives), "send, the one that pipeline stages use")
    return cases
