"""Each collective as torch launches it on slices of two buffers, and a check that its numbers are right."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from charllm.errors import CharllmError
from charllm.measure.bench.nccl_suite import ELEMENT_BYTES

CHECKED_ELEMENTS = 96
"""Of each block that a check sends."""


class Member(NamedTuple):
    """This rank in one group."""

    group: Any
    """torch's process group."""
    ranks: tuple[int, ...]
    """Its members, by rank of the whole job."""
    place: int
    """This rank's place among them."""


class Buffers(NamedTuple):
    """What is sent and what is received, each as long as the largest message."""

    sent: torch.Tensor
    received: torch.Tensor


Launch = Callable[[], None]
# torch 2.13 has renamed both.
gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def allocate(message_bytes: int, device: str) -> Buffers:
    """Allocate both buffers once: every size is a slice of them."""
    return Buffers(*(torch.zeros(message_bytes // ELEMENT_BYTES, dtype=torch.bfloat16, device=device) for _ in "sr"))


def even_bytes(message_bytes: int, ranks: int) -> int:
    """Return the nearest size that has the same whole number of elements for each rank, at least one."""
    block = ranks * ELEMENT_BYTES
    return max(1, message_bytes // block) * block


def _all_reduce(member: Member, buffers: Buffers, count: int) -> Launch:
    tensor = buffers.sent[:count]
    return lambda: _done(dist.all_reduce(tensor, group=member.group))


def _all_gather(member: Member, buffers: Buffers, count: int) -> Launch:
    sent, received = buffers.sent[: count // len(member.ranks)], buffers.received[:count]
    return lambda: _done(gather(received, sent, group=member.group))


def _reduce_scatter(member: Member, buffers: Buffers, count: int) -> Launch:
    sent, received = buffers.sent[:count], buffers.received[: count // len(member.ranks)]
    return lambda: _done(scatter(received, sent, group=member.group))


def _all_to_all(member: Member, buffers: Buffers, count: int) -> Launch:
    sent, received = buffers.sent[:count], buffers.received[:count]
    return lambda: _done(dist.all_to_all_single(received, sent, group=member.group))


def _broadcast(member: Member, buffers: Buffers, count: int) -> Launch:
    tensor = buffers.sent[:count]
    return lambda: _done(dist.broadcast(tensor, src=member.ranks[0], group=member.group))


def _send(member: Member, buffers: Buffers, count: int) -> Launch:
    sent, received = buffers.sent[:count], buffers.received[:count]
    hops = []
    if member.place + 1 < len(member.ranks):
        hops.append(dist.P2POp(dist.isend, sent, member.ranks[member.place + 1], group=member.group))
    if member.place:
        hops.append(dist.P2POp(dist.irecv, received, member.ranks[member.place - 1], group=member.group))

    def launch() -> None:
        for work in dist.batch_isend_irecv(hops):
            work.wait()

    return launch


def _done(_work: Any) -> None:
    """Drop what torch returns: on a GPU the stream keeps the order, on a CPU the call has waited."""


LAUNCHES: dict[str, Callable[[Member, Buffers, int], Launch]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "send": _send,
}
"""Collective: what launches it once on a message of some elements."""


def check_collective(collective: str, member: Member, device: str) -> None:
    """Run a collective on known numbers and compare what this rank receives, or raise CharllmError."""
    ranks = len(member.ranks)
    count = CHECKED_ELEMENTS * ranks
    buffers = allocate(count * ELEMENT_BYTES, device)
    buffers.sent.copy_(_numbers(collective, member.place, count))
    LAUNCHES[collective](member, buffers, count)()
    in_place = collective in ("all_reduce", "broadcast")
    found = (buffers.sent if in_place else buffers.received).float().cpu()
    expected = _expected(collective, member.place, ranks, count)
    # A sum of more than 256 ones is rounded.
    if not torch.allclose(found[: len(expected)], expected, rtol=0.02, atol=0.0):
        raise CharllmError(f"{collective} over ranks {list(member.ranks)}: rank {member.place} received wrong numbers")


def _numbers(collective: str, place: int, count: int) -> torch.Tensor:
    """Return what a rank sends: integers that bf16 holds exactly, ones and noughts where they are added up."""
    modulus = 2 if collective in ("all_reduce", "reduce_scatter") else 97
    return (torch.arange(count) + 7 * place) % modulus * 1.0


def _expected(collective: str, place: int, ranks: int, count: int) -> torch.Tensor:
    block = slice(place * CHECKED_ELEMENTS, (place + 1) * CHECKED_ELEMENTS)
    sent = [_numbers(collective, other, count) for other in range(ranks)]
    if collective == "all_reduce":
        return torch.stack(sent).sum(0)
    if collective == "reduce_scatter":
        return torch.stack(sent).sum(0)[block]
    if collective == "all_gather":
        return torch.cat([numbers[:CHECKED_ELEMENTS] for numbers in sent])
    if collective == "all_to_all":
        return torch.cat([numbers[block] for numbers in sent])
    if collective == "broadcast":
        return sent[0]
    return sent[place - 1] if place else torch.zeros(0)
