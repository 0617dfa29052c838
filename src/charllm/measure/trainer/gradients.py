"""What ranks do with gradients at the end of a step: complete them, average them over replicas, shard them, clip them.

Dense weights are averaged over `data` (with ZeRO over `shard`, then `replicate`), experts over `edp`. Gradients form
one long vector, which is exchanged in equal buckets; a tensor may lie in two of them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from charllm.measure.trainer.exchange import all_reduce, gather_flat, reduce_scatter_flat
from charllm.measure.trainer.linear import Piece
from charllm.measure.trainer.model import Transformer
from charllm.measure.trainer.place import Group, Place
from charllm.spec.run import RunSpec

MAX_NORM = 1.0
PARTIAL_GROUPS = ("tp", "kv", "etp")
REDUCED = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Trained(NamedTuple):
    """A weight that is trained."""

    weight: Any
    piece: Piece
    tied: bool
    """Whether first and last stage each hold it."""


def trained_weights(chunks: Iterable[Transformer]) -> list[Trained]:
    """List the weights of a rank that have gradients."""
    found = []
    for chunk in chunks:
        lone = chunk.chunk.opens != chunk.chunk.closes and chunk.shares_table
        for name, weight in chunk.named_parameters():
            if weight.requires_grad:
                found.append(Trained(weight, chunk.pieces[name], lone and name in ("embedding.weight", "head.weight")))
    return found


def local(tensor: Any) -> Tensor:
    """Return what this rank holds of a tensor that may be sharded."""
    here: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return here


def complete(weights: list[Trained], place: Place) -> None:
    """Add up the gradients that ranks of one replica have parts of, one flat all-reduce a group; then tied weights."""
    for weight, _piece, _tied in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    for name in PARTIAL_GROUPS:
        group = place[name]
        parts = [local(weight.grad) for weight, piece, _tied in weights if piece.partial == name]
        if group.size > 1 and parts:
            flat = all_reduce(torch.cat([part.flatten() for part in parts]), group)
            for part, values in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
                part.copy_(values.view_as(part))
    tied = [local(weight.grad) for weight, _piece, tied in weights if tied]
    if len(tied) == 2:
        tied[0].add_(tied[1])
        tied[1].copy_(tied[0])
    elif tied:
        all_reduce(tied[0], place["embedding"])


class Slice(NamedTuple):
    """Neighbouring elements of one tensor inside a bucket."""

    weight: int
    start: int
    stop: int
    offset: int
    """In the bucket."""


def cut_buckets(sizes: list[int], count: int, multiple: int) -> tuple[int, list[list[Slice]]]:
    """Cut tensors laid end to end into equal buckets whose length is a multiple of `multiple`; the last is padded."""
    length = -(-sum(sizes) // (count * multiple)) * multiple
    buckets: list[list[Slice]] = [[] for _ in range(count)]
    at = 0
    for number, size in enumerate(sizes):
        done = 0
        while done < size:
            bucket, offset = divmod(at, length)
            part = min(size - done, length - offset)
            buckets[bucket].append(Slice(number, done, done + part, offset))
            done, at = done + part, at + part
    return length, buckets


def count_buckets(run: RunSpec, elements: int, dtype: torch.dtype) -> int:
    """Count the buckets that the framework's profile asks for."""
    framework = run.framework
    bucketed = framework.buckets == "always" or "dp" in run.parallelism.overlap
    if not bucketed or not framework.bucket_bytes:
        return 1
    size_bytes: int = dtype.itemsize
    return max(1, round(elements * size_bytes / framework.bucket_bytes))


def reduced_dtype(run: RunSpec, stored: torch.dtype) -> torch.dtype:
    """Return the format that gradients are exchanged in: the run's, else the profile's but no narrower than stored."""
    asked = run.training.reduce_precision
    if asked is not None:
        return REDUCED.get(asked, stored)
    return torch.float32 if run.framework.reduce_precision == "fp32" or stored == torch.float32 else stored


class Replicas(NamedTuple):
    """Weights whose gradients are averaged over the same ranks."""

    weights: list[Trained]
    whole: Group
    """Ranks that hold a copy, or a shard of one."""
    shard: Group
    replicate: Group
    divisor: float
    """Replicas of the batch that the sum of gradients is over."""


def dense_replicas(run: RunSpec, place: Place, weights: list[Trained]) -> Replicas:
    """Return the dense weights with their groups."""
    dense = [entry for entry in weights if not entry.piece.expert]
    return Replicas(dense, place["data"], place["shard"], place["replicate"], run.parallelism.data_ranks)


def expert_replicas(run: RunSpec, place: Place, weights: list[Trained]) -> Replicas:
    """Return the experts' weights with their groups.

    Where tp ranks do not share the sequence, each sends all of its tokens: experts see every token tp times.
    """
    degrees = run.parallelism
    experts = [entry for entry in weights if entry.piece.expert]
    divisor = degrees.data_ranks * (1 if degrees.sp else degrees.tp)
    split = degrees.expert_shard_ranks < degrees.expert_data_ranks
    shard = place["expert shard"] if split else place["edp"]
    return Replicas(experts, place["edp"], shard, place["expert replicate"], divisor)


class Owned(NamedTuple):
    """Values that this rank updates, with how many ranks hold each of them."""

    weight: Any
    segments: tuple[tuple[int, int, float], ...]
    """Start, stop, copies."""


class WholeGradients:
    """ZeRO 0: every replica adds up all gradients and updates all weights."""

    def __init__(self, run: RunSpec, replicas: Replicas) -> None:
        self.replicas = replicas
        weights = [entry.weight for entry in replicas.weights]
        self.sizes = [weight.numel() for weight in weights]
        if weights:
            self.dtype = reduced_dtype(run, weights[0].dtype)
            count = count_buckets(run, sum(self.sizes), self.dtype)
            self.length, self.buckets = cut_buckets(self.sizes, count, 1)
        copies = replicas.whole.size
        self.owned = [_owned(entry, copies) for entry in replicas.weights]

    def reduce(self) -> None:
        """Average the gradients over replicas."""
        gradients = [entry.weight.grad.view(-1) for entry in self.replicas.weights]
        if not gradients:
            return
        if self.replicas.whole.size == 1:
            if self.replicas.divisor != 1:
                for gradient in gradients:
                    gradient.div_(self.replicas.divisor)
            return
        for bucket in self.buckets:
            flat = torch.cat([gradients[part.weight][part.start : part.stop] for part in bucket]).to(self.dtype)
            all_reduce(flat, self.replicas.whole).div_(self.replicas.divisor)
            for part, values in zip(bucket, flat.split([part.stop - part.start for part in bucket]), strict=True):
                gradients[part.weight][part.start : part.stop].copy_(values)

    def spread(self) -> None:
        """Hand on updated weights: nothing to do, all ranks have updated theirs."""


class ShardedUpdate:
    """ZeRO 1: each rank of a shard adds up some gradients, updates those weights and hands them on."""

    def __init__(self, run: RunSpec, replicas: Replicas) -> None:
        self.replicas, ranks = replicas, replicas.shard.size
        weights = [entry.weight for entry in replicas.weights]
        self.dtype = reduced_dtype(run, weights[0].dtype)
        sizes = [weight.numel() for weight in weights]
        count = count_buckets(run, sum(sizes), self.dtype)
        self.length, self.buckets = cut_buckets(sizes, count, ranks)
        self.flat = torch.zeros(self.length * count, dtype=weights[0].dtype, device=weights[0].device)
        at = 0
        for weight in weights:
            room = self.flat[at : at + weight.numel()].view_as(weight)
            room.copy_(weight.detach())
            weight.data = room
            at += weight.numel()
        mine = self.length // ranks
        self.low = replicas.shard.index * mine
        self.parts = [
            torch.nn.Parameter(bucket[self.low : self.low + mine]) for bucket in self.flat.detach().split(self.length)
        ]
        self.owned = [
            Owned(part, self._segments(bucket, mine)) for part, bucket in zip(self.parts, self.buckets, strict=True)
        ]

    def _segments(self, bucket: list[Slice], mine: int) -> tuple[tuple[int, int, float], ...]:
        found = []
        for part in bucket:
            entry = self.replicas.weights[part.weight]
            copies = float(entry.piece.copies * (2 if entry.tied else 1) * self.replicas.replicate.size)
            start = max(part.offset, self.low) - self.low
            stop = min(part.offset + part.stop - part.start, self.low + mine) - self.low
            if start < stop:
                found.append((start, stop, copies))
        return tuple(found)

    def reduce(self) -> None:
        """Give each rank the averaged gradients of its part."""
        gradients = [entry.weight.grad.view(-1) for entry in self.replicas.weights]
        for part, bucket in zip(self.parts, self.buckets, strict=True):
            flat = torch.zeros(self.length, dtype=self.dtype, device=part.device)
            for piece in bucket:
                values = gradients[piece.weight][piece.start : piece.stop]
                flat[piece.offset : piece.offset + len(values)].copy_(values)
            mine = torch.empty(part.shape, dtype=self.dtype, device=part.device)
            reduce_scatter_flat(mine, flat, self.replicas.shard)
            all_reduce(mine, self.replicas.replicate)
            part.grad = mine.div_(self.replicas.divisor).to(part.dtype)

    def spread(self) -> None:
        """Gather the weights that the others have updated."""
        for part, bucket in zip(self.parts, self.flat.split(self.length), strict=True):
            gather_flat(bucket, part.detach().clone(), self.replicas.shard)


class ReducedBySharding:
    """ZeRO 2 and 3: fully_shard has averaged the gradients in backward and gathers weights in forward."""

    def __init__(self, replicas: Replicas) -> None:
        self.owned = [_owned(entry, replicas.replicate.size) for entry in replicas.weights]
        self.scale = replicas.whole.size / replicas.divisor

    def reduce(self) -> None:
        """Backward has averaged over the ranks that hold a weight; experts also work for the ranks that do not."""
        if self.scale != 1:
            for owned in self.owned:
                local(owned.weight.grad).mul_(self.scale)

    def spread(self) -> None:
        """Do nothing: forward will."""


Sync = WholeGradients | ShardedUpdate | ReducedBySharding


def _owned(entry: Trained, replicas: int) -> Owned:
    copies = float(entry.piece.copies * (2 if entry.tied else 1) * replicas)
    return Owned(entry.weight, ((0, local(entry.weight).numel(), copies),))


def square_sum(owned: Iterable[Owned], device: str) -> Tensor:
    """Add up squared gradients so that the sum over all ranks counts each element of the model once."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for weight, segments in owned:
        gradient = local(weight.grad).flatten()
        for start, stop, copies in segments:
            total += gradient[start:stop].float().square().sum().double() / copies
    return total


def clip(owned: Iterable[Owned], squares: Tensor) -> None:
    """Scale gradients down where their norm over the whole model is more than MAX_NORM."""
    factor = (MAX_NORM / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for weight, _segments in owned:
        gradient = local(weight.grad)
        gradient.mul_(factor.to(gradient.dtype))
