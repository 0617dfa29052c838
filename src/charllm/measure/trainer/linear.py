"""Linear layers, norms and feed-forward blocks, whole or cut over the ranks of a group.

A column-cut layer holds some of the outputs, a row-cut layer some of the inputs. `enter` brings the tokens to all ranks
before column-cut layers, `leave` adds up what row-cut layers give (Shoeybi 2019; with sequence parallelism, Korthikanti
2022). Each weight carries a `Piece`: where it lies in the whole tensor and how ranks complete its gradient.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from charllm.measure.trainer.exchange import gather, scatter, share, total
from charllm.measure.trainer.place import Group, Place
from charllm.spec.model import Model
from charllm.spec.training import Training

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": functional.silu,
    "geglu": functional.gelu,
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
    "squared-relu": lambda x: functional.relu(x).square(),
}


class Split(NamedTuple):
    """Over which ranks a block's widths are cut."""

    name: str = "tp"
    group: Group = Group()
    sequence: bool = False
    """Whether the ranks also share the tokens outside the block."""
    expert: bool = False
    """Whether it holds experts, whose tokens are brought and taken by others."""


WHOLE = Split()


def split_over_tp(place: Place) -> Split:
    """Cut dense blocks over tp ranks."""
    return Split("tp", place["tp"], place.sp)


def split_over_etp(place: Place) -> Split:
    """Cut each expert over etp ranks."""
    return Split("etp", place["etp"], expert=True)


def enter(x: Tensor, split: Split) -> Tensor:
    """Bring tokens [batch, seq, width] to all ranks that work on them."""
    if split.expert or split.group.size == 1:
        return x
    return gather(x, split.group) if split.sequence else share(x, split.group)


def leave(x: Tensor, split: Split) -> Tensor:
    """Add up the ranks' parts of an output."""
    if split.expert or split.group.size == 1:
        return x
    return scatter(x, split.group) if split.sequence else total(x, split.group)


class Piece(NamedTuple):
    """A weight's place in the whole tensor."""

    full: tuple[int, ...]
    start: tuple[int, ...]
    copies: int = 1
    """Ranks of the split that hold the same piece."""
    partial: str = ""
    """Group whose ranks each have a part of the gradient; empty: each has it all."""
    expert: bool = False
    initial: str = "normal"
    """normal, zeros or ones."""


def make_norm(model: Model, width: int) -> nn.Module:
    """Build the model's kind of norm."""
    return nn.LayerNorm(width) if model.norm == "layernorm" else nn.RMSNorm(width, eps=1e-5)


class Linear(nn.Module):
    """A linear layer; with an adapter its weight is frozen and a low-rank path beside it is trained.

    `side` is column, row or none; `heads` cuts the outputs into fewer parts than ranks, so that neighbours share one.
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool, training: Training, target: str, split: Split = WHOLE,
        side: str = "none", heads: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        ranks = split.group.size
        self.split = split if side == "row" and ranks > 1 else None
        parts = min(ranks, heads) if heads else ranks
        wide = outputs // parts if side == "column" else outputs
        deep = inputs // ranks if side == "row" else inputs
        self.base = nn.Linear(deep, wide, bias=bias)
        rank = training.lora_rank
        if rank:
            self.base.requires_grad_(False)
        adapted = rank > 0 and target in training.lora_targets
        self.down = nn.Linear(deep, rank, bias=False) if adapted else None
        self.up = nn.Linear(rank, wide, bias=False) if adapted else None
        if self.up is not None:
            nn.init.zeros_(self.up.weight)
        if side == "none":
            return
        row, column = (0, 0), (0, 0)
        if side == "row":
            column = (0, split.group.index * deep)
        else:
            row = (split.group.index * parts // ranks * wide, 0)
        shared = {"copies": ranks // parts, "partial": "kv" if parts < ranks else "", "expert": split.expert}
        whole = {"copies": ranks, "partial": split.name, "expert": split.expert}
        start = (row[0], column[1])
        locate(self.base.weight, (outputs, inputs), start, **shared)
        if bias and side == "column":
            locate(self.base.bias, (outputs,), (row[0],), initial="zeros", **shared)
        elif bias and split.expert:
            locate(self.base.bias, (outputs,), (0,), copies=ranks, expert=True, initial="zeros")
        if self.down is not None and self.up is not None:
            locate(self.down.weight, (rank, inputs), column, **(shared if side == "row" else whole))
            locate(self.up.weight, (outputs, rank), row, initial="zeros", **(shared if side == "column" else whole))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply, and add the adapter's path where there is one."""
        out: Tensor = self.base(x) if self.split is None else functional.linear(x, self.base.weight)
        if self.down is not None and self.up is not None:
            out = out + self.up(self.down(x))
        if self.split is None:
            return out
        out = leave(out, self.split)
        bias = self.base.bias
        if bias is None:
            return out
        if self.split.expert:
            # Ranks are added up later: each adds its share of the bias, whose gradient is whole on all of them.
            return out + (bias - bias.detach() * (1 - 1 / self.split.group.size))
        return out + bias


def locate(weight: Any, full: tuple[int, ...], start: tuple[int, ...], **facts: Any) -> None:
    """Note where a weight lies in the whole tensor."""
    weight.piece = Piece(full, start, **facts)


class FeedForward(nn.Module):
    """Two linear layers around a non-linearity, gated or not."""

    def __init__(self, model: Model, training: Training, width: int, split: Split = WHOLE) -> None:
        super().__init__()
        self.activation, self.gated, self.split = ACTIVATIONS[model.activation], model.gated, split
        bias = model.bias in ("mlp", "all")
        made = {"bias": bias, "training": training, "split": split}
        self.fc1 = Linear(model.hidden, width, target="fc1", side="column", **made)  # type: ignore[arg-type]
        self.up = Linear(model.hidden, width, target="fc1", side="column", **made) if model.gated else None  # type: ignore[arg-type]
        self.fc2 = Linear(width, model.hidden, target="fc2", side="row", **made)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Widen, bend, narrow."""
        x = enter(x, self.split)
        inner = self.activation(self.fc1(x))
        if self.up is not None:
            inner = inner * self.up(x)
        out: Tensor = self.fc2(inner)
        return out


def pieces(network: nn.Module, tp: int, *, sequence: bool) -> dict[str, Piece]:
    """List the piece of every weight by its name in the whole model.

    A weight that says nothing is whole on every tp rank; where these share the sequence, each has a part of its
    gradient.
    """
    found = {}
    for name, module in network.named_modules():
        initial = "normal" if isinstance(module, nn.Linear | nn.Embedding) else "ones"
        for part, weight in module.named_parameters(recurse=False):
            shape = tuple(weight.shape)
            plain = Piece(shape, (0,) * len(shape), tp, "tp" if sequence else "", initial=initial)
            if part == "bias" or (initial == "normal" and name.endswith(".up")):
                # An adapter starts as nothing.
                plain = plain._replace(initial="zeros")
            found[f"{name}.{part}"] = getattr(weight, "piece", plain)
    return found
