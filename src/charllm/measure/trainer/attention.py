"""Attention: grouped queries or DeepSeek's latent form, heads cut over tp ranks, tokens over cp ranks.

cp ranks of kind `ring` hold two spans of the sequence each, one early and one late, so that causal work is even; keys
and values are gathered from all of them in one call. Kind `all-to-all` trades tokens for heads (Jacobs 2023).
"""

from math import lcm
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from charllm.measure.trainer.exchange import exchange, gather
from charllm.measure.trainer.linear import Linear, enter, locate, make_norm, split_over_tp
from charllm.measure.trainer.place import ALONE, Group, Place
from charllm.spec.model import Model
from charllm.spec.training import Training

ROPE_BASE = 10_000.0


class Span(NamedTuple):
    """Neighbouring tokens of a sequence."""

    start: int
    length: int


def own_spans(seq: int, cp: Group, kind: str) -> tuple[Span, ...]:
    """Return the tokens of a sequence that this cp rank holds."""
    if cp.size == 1 or kind == "all-to-all":
        length = seq // cp.size
        return (Span(cp.index * length, length),)
    length = seq // (2 * cp.size)
    return tuple(Span(part * length, length) for part in (cp.index, 2 * cp.size - 1 - cp.index))


def own_positions(seq: int, cp: Group, kind: str, device: torch.device) -> Tensor:
    """Return the positions of the tokens that this cp rank holds."""
    spans = own_spans(seq, cp, kind)
    return torch.cat([torch.arange(span.start, span.start + span.length, device=device) for span in spans])


def rotate(x: Tensor, positions: Tensor | None = None) -> Tensor:
    """Turn pairs of a head's channels by an angle that grows with position (Su 2021); x is [batch, heads, seq, dim]."""
    half = x.shape[-1] // 2
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    frequencies = ROPE_BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.outer(positions.float(), frequencies)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half : 2 * half]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class Heads(NamedTuple):
    """Which of the model's heads are attended with, for the slopes of ALiBi."""

    first: int
    all: int


def attend(
    model: Model, query: Tensor, key: Tensor, value: Tensor, window: int, heads: Heads | None = None,
    spans: tuple[Span, ...] = (),
) -> Tensor:  # fmt: skip
    """Softmax attention: one fused kernel, or with a mask where a window or ALiBi needs one.

    `spans` are the positions of the queries where these are only some of the sequence; keys are all of it, in order.
    """
    heads = heads or Heads(0, query.shape[1])
    if not spans:
        return _attend_span(model, query, key, value, window, heads, Span(0, query.shape[-2]))
    parts = query.split([span.length for span in spans], -2)
    return torch.cat(
        [_attend_span(model, part, key, value, window, heads, span) for part, span in zip(parts, spans, strict=True)],
        -2,
    )


def _attend_span(
    model: Model, query: Tensor, key: Tensor, value: Tensor, window: int, heads: Heads, span: Span
) -> Tensor:
    end = span.start + span.length if model.causal else key.shape[-2]
    if end < key.shape[-2]:
        key, value = key[..., :end, :], value[..., :end, :]
    mask = _mask(model, span, end, window, heads, query)
    causal = model.causal and mask is None
    if causal and span.start:
        mask, causal = _lower_right(query, end), False
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=grouped
    )


def _lower_right(query: Tensor, keys: int) -> Any:
    """Let the last query see all keys: as a kind of kernel on a GPU, as a mask on a CPU."""
    if query.is_cuda:
        from torch.nn.attention.bias import causal_lower_right

        return causal_lower_right(query.shape[-2], keys)
    rows = query.shape[-2]
    return torch.ones(rows, keys, dtype=torch.bool, device=query.device).tril(keys - rows)


def _mask(model: Model, span: Span, keys: int, window: int, heads: Heads, like: Tensor) -> Tensor | None:
    if not (model.position == "alibi" or 0 < window < keys):
        return None
    rows = torch.arange(span.start, span.start + span.length, device=like.device)
    distance = rows[:, None] - torch.arange(keys, device=like.device)[None, :]
    hidden = (distance < 0) if model.causal else torch.zeros_like(distance, dtype=torch.bool)
    if 0 < window < keys:
        hidden = hidden | (distance >= window)
    bias = torch.zeros(1, span.length, keys, dtype=like.dtype, device=like.device)
    if model.position == "alibi":
        numbers = torch.arange(heads.first + 1, heads.first + like.shape[1] + 1, device=like.device)
        slopes = 2.0 ** (-8.0 * numbers / heads.all)
        bias = (-slopes[:, None, None] * distance.abs()).to(like.dtype)
    return bias.masked_fill(hidden, float("-inf"))


class Core(nn.Module):
    """Softmax(QK)V, run again in backward where recomputation is selective."""

    def __init__(self, model: Model, training: Training, window: int, place: Place = ALONE) -> None:
        super().__init__()
        self.model, self.window, self.again = model, window, training.recompute == "selective"
        self.cp, self.kind = place["cp"], place.cp_kind
        self.first_head = place["tp"].index * model.heads // place["tp"].size
        self.spans = own_spans(training.seq_length, self.cp, self.kind) if self.cp.size > 1 else ()

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend, keeping the result or only what it is made from; what cp ranks exchange is exchanged again, too."""
        if not self.again:
            return self._attend(query, key, value)
        out: Tensor = checkpoint(self._attend, query, key, value, use_reentrant=False)
        return out

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        heads = Heads(self.first_head, self.model.heads)
        if self.cp.size == 1:
            return attend(self.model, query, key, value, self.window, heads)
        if self.kind == "ring":
            return attend(self.model, query, *self._gather(key, value), self.window, heads, self.spans)
        query, key, value = (self._trade(self._spread(part)) for part in (query, key, value))
        heads = Heads(self.first_head + self.cp.index * query.shape[1], self.model.heads)
        return self._trade_back(attend(self.model, query, key, value, self.window, heads))

    def _gather(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the whole sequence, in its order."""
        both = gather(torch.cat((key, value), -1), self.cp, dim=-2)
        halves = both.chunk(2 * self.cp.size, -2)
        both = torch.cat((*halves[::2], *reversed(halves[1::2])), -2)
        widths = [key.shape[-1], value.shape[-1]]
        whole_key, whole_value = both.split(widths, -1)
        return whole_key, whole_value

    def _spread(self, x: Tensor) -> Tensor:
        """Repeat key-value heads where there are too few for every cp rank to get one."""
        return x.repeat_interleave(lcm(x.shape[1], self.cp.size) // x.shape[1], 1) if x.shape[1] % self.cp.size else x

    def _trade(self, x: Tensor) -> Tensor:
        """Give away heads for tokens: [batch, heads, part of seq, dim] to [batch, part of heads, seq, dim]."""
        parts = torch.stack(x.chunk(self.cp.size, 1))
        return torch.cat(exchange(parts, self.cp).unbind(0), -2)

    def _trade_back(self, x: Tensor) -> Tensor:
        parts = torch.stack(x.chunk(self.cp.size, -2))
        return torch.cat(exchange(parts, self.cp).unbind(0), 1)


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self, model: Model, training: Training, window: int, place: Place = ALONE) -> None:
        super().__init__()
        self.attend = Core(model, training, window, place)
        self.model, self.split = model, split_over_tp(place)
        self.positions = _Positions(training.seq_length, place)
        query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
        bias = model.bias not in ("none", "mlp")
        made: dict[str, Any] = {"bias": bias, "training": training, "target": "qkv", "split": self.split}
        self.q = Linear(model.hidden, query, side="column", **made)
        self.k = Linear(model.hidden, key, side="column", heads=model.kv_heads, **made)
        self.v = Linear(model.hidden, key, side="column", heads=model.kv_heads, **made)
        made |= {"bias": model.bias in ("attention", "all"), "target": "proj"}
        self.proj = Linear(query, model.hidden, side="row", **made)
        self.q_norm = self._head_norm() if model.qk_norm else nn.Identity()
        self.k_norm = self._head_norm() if model.qk_norm else nn.Identity()

    def _head_norm(self) -> nn.Module:
        norm = make_norm(self.model, self.model.head_dim)
        for name, weight in norm.named_parameters():
            shape, initial = tuple(weight.shape), "zeros" if name == "bias" else "ones"
            locate(weight, shape, (0,), copies=self.split.group.size, partial="tp", initial=initial)
        return norm

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each sequence."""
        x = enter(x, self.split)
        batch, seq, _ = x.shape
        query, key, value = (
            part(x).view(batch, seq, -1, self.model.head_dim).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        query, key = self.q_norm(query), self.k_norm(key)
        if self.model.position == "rope":
            positions = self.positions(x)
            query, key = rotate(query, positions), rotate(key, positions)
        out = self.attend(query, key, value)
        projected: Tensor = self.proj(out.transpose(1, 2).reshape(batch, seq, -1))
        return projected


class _Positions:
    """Positions of this rank's tokens; none where it has the whole sequence."""

    def __init__(self, seq: int, place: Place) -> None:
        self.seq, self.cp, self.kind = seq, place["cp"], place.cp_kind

    def __call__(self, x: Tensor) -> Tensor | None:
        return None if self.cp.size == 1 else own_positions(self.seq, self.cp, self.kind, x.device)


class LatentAttention(nn.Module):
    """DeepSeek's latent attention: queries, keys and values through narrow layers, which have the biases, and proj."""

    def __init__(self, model: Model, training: Training, window: int, place: Place = ALONE) -> None:
        super().__init__()
        self.attend = Core(model, training, window, place)
        self.model, self.split = model, split_over_tp(place)
        self.positions = _Positions(training.seq_length, place)
        bias = model.bias in ("attention", "all")
        made: dict[str, Any] = {"bias": bias, "training": training, "target": "qkv"}
        cut: dict[str, Any] = {**made, "bias": False, "split": self.split, "side": "column"}
        query = model.heads * model.query_head_dim
        self.q_down = Linear(model.hidden, model.q_lora_rank, **made) if model.q_lora_rank else nn.Identity()
        self.q_norm = make_norm(model, model.q_lora_rank) if model.q_lora_rank else nn.Identity()
        self.q_up = Linear(model.q_lora_rank or model.hidden, query, **cut)
        self.kv_down = Linear(model.hidden, model.kv_lora_rank + model.rope_head_dim, **made)
        self.kv_norm = make_norm(model, model.kv_lora_rank)
        self.kv_up = Linear(model.kv_lora_rank, model.heads * (model.head_dim + model.v_head_dim), **cut)
        cut |= {"bias": bias, "target": "proj", "side": "row"}
        self.proj = Linear(model.heads * model.v_head_dim, model.hidden, **cut)

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each sequence."""
        model, heads = self.model, self.model.heads // self.split.group.size
        query = self.q_up(enter(self.q_norm(self.q_down(x)), self.split))
        batch, seq, _ = query.shape
        query = query.view(batch, seq, heads, -1).transpose(1, 2)
        plain, turned = query.split([model.head_dim, model.rope_head_dim], -1)
        compressed, position = self._compress(x)
        kv = self.kv_up(compressed).view(batch, seq, heads, -1).transpose(1, 2)
        key, value = kv.split([model.head_dim, model.v_head_dim], -1)
        places = self.positions(x)
        position = rotate(position[:, None], places).expand(-1, heads, -1, -1)
        query, key = torch.cat((plain, rotate(turned, places)), -1), torch.cat((key, position), -1)
        out = self.attend(query, key, value)
        projected: Tensor = self.proj(out.transpose(1, 2).reshape(batch, seq, -1))
        return projected

    def _compress(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the narrow keys-values and the keys' positions, on all tp ranks."""
        widths = [self.model.kv_lora_rank, self.model.rope_head_dim]
        compressed, position = self.kv_down(x).split(widths, -1)
        compressed = self.kv_norm(compressed)
        if self.split.group.size > 1:
            compressed, position = enter(torch.cat((compressed, position), -1), self.split).split(widths, -1)
        return compressed, position
