"""Experts behind a router, spread over ep ranks and each cut over etp ranks.

Tokens are sorted by expert; ranks tell each other how many they will send (one all-to-all of counts), then send them,
and the outputs come back the same way. The router's weights are applied at home.

Routing `natural`: the router chooses. Routing `forced`: where experts are spread over ranks, token i of a rank visits
the next topk experts in turn, so that all get equally many; the router still weighs them. A rank that holds all experts
lets the router choose, because there is nothing to balance between ranks.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from charllm.measure.trainer.exchange import all_gather, all_to_all, exchange, gather, scatter
from charllm.measure.trainer.linear import ACTIVATIONS, FeedForward, Split, locate, split_over_etp, split_over_tp
from charllm.measure.trainer.place import ALONE, Place
from charllm.spec.model import Model
from charllm.spec.training import Training


class Experts(nn.Module):
    """The experts of one rank."""

    def __init__(self, experts: Iterable[nn.Module]) -> None:
        super().__init__()
        for number, expert in enumerate(experts):
            self.add_module(str(number), expert)

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, number: int) -> nn.Module:
        return self._modules[str(number)]

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Run experts on rows that are sorted by expert."""
        parts = rows.split(counts.tolist())
        return torch.cat([expert(part) for expert, part in zip(self._modules.values(), parts, strict=True)])


class GroupedExperts(nn.Module):
    """The experts of one rank in three tensors, each multiplied by one grouped GEMM where the device has one."""

    def __init__(self, model: Model, first: int, held: int, split: Split) -> None:
        super().__init__()
        self.held, self.activation = held, ACTIVATIONS[model.activation]
        width = model.expert_ffn // split.group.size
        left = split.group.index * width
        wide, narrow = (model.experts, model.expert_ffn, model.hidden), (model.experts, model.hidden, model.expert_ffn)
        self.fc1 = nn.Parameter(torch.empty(held, width, model.hidden))
        self.up = nn.Parameter(torch.empty(held, width, model.hidden)) if model.gated else None
        self.fc2 = nn.Parameter(torch.empty(held, model.hidden, width))
        for weight in (self.fc1, self.up):
            if weight is not None:
                locate(weight, wide, (first, left, 0), expert=True)
        locate(self.fc2, narrow, (first, 0, left), expert=True)

    def __len__(self) -> int:
        return self.held

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Run experts on rows that are sorted by expert."""
        ends = counts.cumsum(0, dtype=torch.int32)
        inner = self.activation(_grouped(rows, self.fc1, counts, ends))
        if self.up is not None:
            inner = inner * _grouped(rows, self.up, counts, ends)
        return _grouped(inner, self.fc2, counts, ends)


def _grouped(rows: Tensor, weights: Tensor, counts: Tensor, ends: Tensor) -> Tensor:
    """Multiply each expert's rows by its weight."""
    if rows.is_cuda and rows.dtype == torch.bfloat16:
        out: Tensor = torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)
        return out
    parts = rows.split(counts.tolist())
    return torch.cat([functional.linear(part, weight) for part, weight in zip(parts, weights, strict=True)])


def can_group(model: Model, training: Training) -> bool:
    """Tell whether experts may be stacked: adapters and biases need layers of their own."""
    return training.lora_rank == 0 and model.bias not in ("mlp", "all")


class Moe(nn.Module):
    """Every token visits its topk experts; nothing is dropped."""

    def __init__(self, model: Model, training: Training, place: Place = ALONE) -> None:
        super().__init__()
        self.topk, self.all_experts = model.topk, model.experts
        self.ep, self.etp = place["ep"], place["etp"]
        self.forced = training.routing == "forced" and self.ep.size > 1
        held = model.experts // self.ep.size
        self.first = self.ep.index * held
        self.router = nn.Linear(model.hidden, model.experts, bias=False).requires_grad_(training.lora_rank == 0)
        split = split_over_etp(place)
        self.experts: nn.Module = (
            GroupedExperts(model, self.first, held, split)
            if place.grouped_gemm and can_group(model, training)
            else Experts(FeedForward(model, training, model.expert_ffn, split) for _ in range(held))
        )
        self.shared = FeedForward(model, training, model.shared_ffn, split_over_tp(place)) if model.shared_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        """Send each token to its experts and add their weighted outputs."""
        tokens = x.reshape(-1, x.shape[-1])
        shared = self.shared(x) if self.shared is not None else None
        weights, chosen = self._route(tokens)
        order = chosen.flatten().argsort()
        owners = order // self.topk
        counts = torch.bincount(chosen.flatten(), minlength=self.all_experts)
        work = self.experts if self.ep.size * self.etp.size == 1 else self._spread
        outputs = work(tokens[owners], counts)
        out = torch.zeros_like(tokens).index_add(0, owners, outputs * weights.flatten()[order, None])
        return out.view_as(x) if shared is None else out.view_as(x) + shared

    def _route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the experts of each token and their weights, which add up to one."""
        scores = self.router(tokens).float().softmax(-1)
        if self.forced:
            chosen = torch.arange(len(tokens) * self.topk, device=tokens.device).view(-1, self.topk) % self.all_experts
            weights = scores.gather(-1, chosen)
        else:
            weights, chosen = scores.topk(self.topk, -1)
        return (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype), chosen

    def _spread(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Send rows to the ranks of their experts, run these and bring the outputs back."""
        held = len(self.experts)
        theirs = all_to_all(counts, self.ep, None, None) if self.ep.size > 1 else counts
        sent = counts.view(-1, held).sum(-1).tolist()
        received = theirs.view(-1, held).sum(-1).tolist()
        arrived = exchange(rows, self.ep, sent, received)
        arrived, theirs, sizes = self._join(arrived, theirs)
        # Rows came by rank and then by expert; experts want them by expert.
        owner = torch.arange(held, device=rows.device).repeat(len(theirs) // held).repeat_interleave(theirs)
        order = owner.argsort(stable=True)
        done = self.experts(arrived[order], theirs.view(-1, held).sum(0))
        done = torch.empty_like(done).index_copy(0, order, done)
        return exchange(self._part(done, sizes), self.ep, received, sent)

    def _join(self, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, list[int]]:
        """Gather the rows of the etp ranks that share these experts, padded to the most that one has."""
        if self.etp.size == 1:
            return rows, counts, []
        counts = all_gather(counts, self.etp, 0)
        sizes = counts.view(self.etp.size, -1).sum(-1).tolist()
        padded = gather(functional.pad(rows, (0, 0, 0, max(sizes) - len(rows))), self.etp, dim=0)
        parts = padded.chunk(self.etp.size)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]), counts, sizes

    def _part(self, rows: Tensor, sizes: list[int]) -> Tensor:
        """Add up the outputs of the etp ranks and keep those of this rank's rows."""
        if self.etp.size == 1:
            return rows
        most = max(sizes)
        padded = torch.cat([functional.pad(part, (0, 0, 0, most - len(part))) for part in rows.split(sizes)])
        return scatter(padded, self.etp, dim=0)[: sizes[self.etp.index]]
