"""What ranks exchange inside a forward and backward pass, as functions of autograd over a group.

Each function is one collective forward and one backward; over a group of one rank it does nothing at all.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from charllm.measure.trainer.place import Group

# Older releases of torch have only the longer names, newer ones warn of them.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def gather_flat(whole: Tensor, part: Tensor, group: Group) -> None:
    """Fill a tensor with the parts of all ranks, in their order."""
    _all_gather(whole, part, group=group.handle)


def reduce_scatter_flat(part: Tensor, whole: Tensor, group: Group) -> None:
    """Add up a tensor over ranks and keep this rank's part."""
    _reduce_scatter(part, whole, group=group.handle)


def all_reduce(x: Tensor, group: Group, op: Any = dist.ReduceOp.SUM) -> Tensor:
    """Add up a tensor over ranks, in place."""
    if group.size > 1:
        dist.all_reduce(x, op, group=group.handle)
    return x


def all_gather(x: Tensor, group: Group, dim: int) -> Tensor:
    """Join the parts of all ranks along a dimension."""
    whole = x.new_empty((group.size * x.shape[0], *x.shape[1:]))
    gather_flat(whole, x.contiguous(), group)
    return whole if dim == 0 else torch.cat(whole.chunk(group.size), dim)


def reduce_scatter(x: Tensor, group: Group, dim: int) -> Tensor:
    """Add up a tensor over ranks and keep this rank's part along a dimension."""
    whole = x.contiguous() if dim == 0 else torch.cat(x.chunk(group.size, dim))
    part = x.new_empty((whole.shape[0] // group.size, *whole.shape[1:]))
    reduce_scatter_flat(part, whole, group)
    return part


def all_to_all(x: Tensor, group: Group, sent: Sequence[int] | None, received: Sequence[int] | None) -> Tensor:
    """Send rows to every rank and receive rows from it: equal parts, or as many as listed."""
    rows = x.shape[0] if received is None else sum(received)
    out = x.new_empty((rows, *x.shape[1:]))
    dist.all_to_all_single(
        out, x.contiguous(), list(received) if received is not None else None, list(sent) if sent is not None else None,
        group=group.handle,
    )  # fmt: skip
    return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return all_gather(x, group, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return reduce_scatter(gradient, ctx.group, ctx.dim), None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return reduce_scatter(x, group, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return all_gather(gradient, ctx.group, ctx.dim), None, None


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return all_reduce(gradient.contiguous().clone(), ctx.group), None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor, group: Group) -> Tensor:
        return all_reduce(x.contiguous().clone(), group)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, group: Group, sent: Sequence[int] | None, received: Sequence[int] | None
    ) -> Tensor:
        ctx.group, ctx.sent, ctx.received = group, sent, received
        return all_to_all(x, group, sent, received)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return all_to_all(gradient, ctx.group, ctx.received, ctx.sent), None, None, None


def gather(x: Tensor, group: Group, dim: int = 1) -> Tensor:
    """All-gather; its gradient is reduce-scattered."""
    return x if group.size == 1 else _Gather.apply(x, group, dim)


def scatter(x: Tensor, group: Group, dim: int = 1) -> Tensor:
    """Reduce-scatter; its gradient is all-gathered."""
    return x if group.size == 1 else _Scatter.apply(x, group, dim)


def share(x: Tensor, group: Group) -> Tensor:
    """Hand an equal tensor to ranks that each use it for their part; its gradient is all-reduced."""
    return x if group.size == 1 else _Share.apply(x, group)


def total(x: Tensor, group: Group) -> Tensor:
    """All-reduce; its gradient is equal on all ranks already."""
    return x if group.size == 1 else _Total.apply(x, group)


def exchange(
    x: Tensor, group: Group, sent: Sequence[int] | None = None, received: Sequence[int] | None = None
) -> Tensor:
    """All-to-all of rows; its gradient goes the way back."""
    return x if group.size == 1 else _Exchange.apply(x, group, sent, received)


class _CutLoss(torch.autograd.Function):
    """Cross entropy of logits whose vocabulary is cut over ranks: all-reduces of the largest, the sum, the target's."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, first: int, group: Group) -> Tensor:
        largest = all_reduce(logits.max(-1).values, group, dist.ReduceOp.MAX)
        shifted = logits - largest[:, None]
        own = (targets >= first) & (targets < first + logits.shape[-1])
        column = torch.where(own, targets - first, 0)
        target = torch.where(own, shifted.gather(-1, column[:, None])[:, 0], 0.0)
        exponentials = shifted.exp_()
        sums = all_reduce(exponentials.sum(-1), group)
        all_reduce(target, group)
        ctx.save_for_backward(exponentials.div_(sums[:, None]), column, own)
        return (sums.log() - target).mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        softmax, column, own = ctx.saved_tensors
        out = softmax.clone()
        out[torch.arange(len(column), device=column.device), column] -= own.to(out.dtype)
        return out * (gradient / len(column)), None, None, None


def cut_cross_entropy(logits: Tensor, targets: Tensor, first: int, group: Group) -> Tensor:
    """Return the mean loss; `logits` are this rank's columns, from the vocabulary's entry `first` on."""
    loss: Tensor = _CutLoss.apply(logits, targets, first, group)
    return loss
