"""A transformer out of a spec: plain modules, SDPA attention, experts, adapters, recomputation.

Ranks are added around it, not inside: blocks are separate modules with separate projections, so that tensor, pipeline,
expert and sharded parallelism can wrap or cut them later.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from charllm.errors import SpecError
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
ROPE_BASE = 10_000.0


def require_trainable(model: Model) -> None:
    """Refuse what this trainer does not build."""
    if model.pattern:
        raise SpecError("model.pattern", model.pattern, "empty: the trainer has no hybrids")
    for field in ("mixers", "sparse_layers", "attention_gate", "index_heads"):
        if getattr(model, field):
            raise SpecError(f"model.{field}", getattr(model, field), "left out: the trainer does not build it")
    if model.window and model.window_kind != "sliding":
        raise SpecError("model.window_kind", model.window_kind, "sliding in the trainer")
    if model.expert_latent:
        raise SpecError("model.expert_latent", model.expert_latent, "0: the trainer has no latent experts")
    if model.attention_sinks:
        raise SpecError("model.attention_sinks", True, "false: the trainer has no attention sinks")
    if model.mtp_layers:
        raise SpecError("model.mtp_layers", model.mtp_layers, "0: the trainer predicts one token")
    if model.vocab < 2:
        raise SpecError("model.vocab", model.vocab, "at least 2, to have a loss")
    field = "rope_head_dim" if model.attention == "mla" else "head_dim"
    if model.position == "rope" and getattr(model, field) % 2:
        raise SpecError(f"model.{field}", getattr(model, field), "an even width, to turn in pairs")
    if model.attention == "mla" and model.position != "rope":
        raise SpecError("model.position", model.position, "rope with latent attention")


def make_norm(model: Model, width: int) -> nn.Module:
    """Build the model's kind of norm."""
    return nn.LayerNorm(width) if model.norm == "layernorm" else nn.RMSNorm(width, eps=1e-5)


class Linear(nn.Module):
    """A linear layer; with an adapter its weight is frozen and a low-rank path beside it is trained."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, training: Training, target: str) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=bias)
        rank = training.lora_rank
        if rank:
            self.base.requires_grad_(False)
        adapted = rank > 0 and target in training.lora_targets
        self.down = nn.Linear(inputs, rank, bias=False) if adapted else None
        self.up = nn.Linear(rank, outputs, bias=False) if adapted else None
        if self.up is not None:
            nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply, and add the adapter's path where there is one."""
        out: Tensor = self.base(x)
        if self.down is not None and self.up is not None:
            out = out + self.up(self.down(x))
        return out


def rotate(x: Tensor) -> Tensor:
    """Turn pairs of a head's channels by an angle that grows with position (Su 2021); x is [batch, heads, seq, dim]."""
    half = x.shape[-1] // 2
    positions = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    frequencies = ROPE_BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.outer(positions, frequencies)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half : 2 * half]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


def attend(model: Model, query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Softmax attention: one fused kernel, or with a mask where a window or ALiBi needs one."""
    grouped = query.shape[1] != key.shape[1]
    mask = _mask(model, query.shape[-2], window, query.shape[1], query)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=model.causal and mask is None, enable_gqa=grouped
    )


def _mask(model: Model, seq: int, window: int, heads: int, like: Tensor) -> Tensor | None:
    if not (model.position == "alibi" or 0 < window < seq):
        return None
    distance = torch.arange(seq, device=like.device)[:, None] - torch.arange(seq, device=like.device)[None, :]
    hidden = (distance < 0) if model.causal else torch.zeros_like(distance, dtype=torch.bool)
    if 0 < window < seq:
        hidden = hidden | (distance >= window)
    bias = torch.zeros(1, seq, seq, dtype=like.dtype, device=like.device)
    if model.position == "alibi":
        slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1, device=like.device) / heads)
        bias = (-slopes[:, None, None] * distance.abs()).to(like.dtype)
    return bias.masked_fill(hidden, float("-inf"))


class Core(nn.Module):
    """Softmax(QK)V, run again in backward where recomputation is selective."""

    def __init__(self, model: Model, training: Training, window: int) -> None:
        super().__init__()
        self.model, self.window, self.again = model, window, training.recompute == "selective"

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend, keeping the result or only what it is made from."""
        if not self.again:
            return attend(self.model, query, key, value, self.window)
        out: Tensor = checkpoint(attend, self.model, query, key, value, self.window, use_reentrant=False)
        return out


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self, model: Model, training: Training, window: int) -> None:
        super().__init__()
        self.attend = Core(model, training, window)
        self.model = model
        query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
        bias = model.bias not in ("none", "mlp")
        self.q = Linear(model.hidden, query, bias=bias, training=training, target="qkv")
        self.k = Linear(model.hidden, key, bias=bias, training=training, target="qkv")
        self.v = Linear(model.hidden, key, bias=bias, training=training, target="qkv")
        self.proj = Linear(
            query, model.hidden, bias=model.bias in ("attention", "all"), training=training, target="proj"
        )
        self.q_norm = make_norm(model, model.head_dim) if model.qk_norm else nn.Identity()
        self.k_norm = make_norm(model, model.head_dim) if model.qk_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each sequence."""
        batch, seq, _ = x.shape
        query, key, value = (
            part(x).view(batch, seq, -1, self.model.head_dim).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        query, key = self.q_norm(query), self.k_norm(key)
        if self.model.position == "rope":
            query, key = rotate(query), rotate(key)
        out = self.attend(query, key, value)
        projected: Tensor = self.proj(out.transpose(1, 2).reshape(batch, seq, -1))
        return projected


class LatentAttention(nn.Module):
    """DeepSeek's latent attention: queries, keys and values through narrow layers."""

    def __init__(self, model: Model, training: Training, window: int) -> None:
        super().__init__()
        self.attend = Core(model, training, window)
        self.model = model
        make = {"bias": False, "training": training, "target": "qkv"}
        query = model.heads * model.query_head_dim
        self.q_down = Linear(model.hidden, model.q_lora_rank, **make) if model.q_lora_rank else nn.Identity()  # type: ignore[arg-type]
        self.q_norm = make_norm(model, model.q_lora_rank) if model.q_lora_rank else nn.Identity()
        self.q_up = Linear(model.q_lora_rank or model.hidden, query, **make)  # type: ignore[arg-type]
        self.kv_down = Linear(model.hidden, model.kv_lora_rank + model.rope_head_dim, **make)  # type: ignore[arg-type]
        self.kv_norm = make_norm(model, model.kv_lora_rank)
        self.kv_up = Linear(model.kv_lora_rank, model.heads * (model.head_dim + model.v_head_dim), **make)  # type: ignore[arg-type]
        bias = model.bias in ("attention", "all")
        self.proj = Linear(model.heads * model.v_head_dim, model.hidden, bias=bias, training=training, target="proj")

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each sequence."""
        model = self.model
        batch, seq, _ = x.shape
        query = self.q_up(self.q_norm(self.q_down(x))).view(batch, seq, model.heads, -1).transpose(1, 2)
        plain, turned = query.split([model.head_dim, model.rope_head_dim], -1)
        compressed, position = self.kv_down(x).split([model.kv_lora_rank, model.rope_head_dim], -1)
        kv = self.kv_up(self.kv_norm(compressed)).view(batch, seq, model.heads, -1).transpose(1, 2)
        key, value = kv.split([model.head_dim, model.v_head_dim], -1)
        position = rotate(position[:, None]).expand(-1, model.heads, -1, -1)
        query, key = torch.cat((plain, rotate(turned)), -1), torch.cat((key, position), -1)
        out = self.attend(query, key, value)
        projected: Tensor = self.proj(out.transpose(1, 2).reshape(batch, seq, -1))
        return projected


class FeedForward(nn.Module):
    """Two linear layers around a non-linearity, gated or not."""

    def __init__(self, model: Model, training: Training, width: int) -> None:
        super().__init__()
        self.activation, self.gated = ACTIVATIONS[model.activation], model.gated
        bias = model.bias in ("mlp", "all")
        self.fc1 = Linear(model.hidden, width, bias=bias, training=training, target="fc1")
        self.up = Linear(model.hidden, width, bias=bias, training=training, target="fc1") if model.gated else None
        self.fc2 = Linear(width, model.hidden, bias=bias, training=training, target="fc2")

    def forward(self, x: Tensor) -> Tensor:
        """Widen, bend, narrow."""
        inner = self.activation(self.fc1(x))
        if self.up is not None:
            inner = inner * self.up(x)
        out: Tensor = self.fc2(inner)
        return out


class Moe(nn.Module):
    """Experts behind a router; every token visits its topk, nothing is dropped."""

    def __init__(self, model: Model, training: Training) -> None:
        super().__init__()
        self.topk = model.topk
        self.router = nn.Linear(model.hidden, model.experts, bias=False).requires_grad_(training.lora_rank == 0)
        self.experts = nn.ModuleList(FeedForward(model, training, model.expert_ffn) for _ in range(model.experts))
        self.shared = FeedForward(model, training, model.shared_ffn) if model.shared_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        """Send each token to its experts and add their weighted outputs."""
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.topk, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype)
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        owners = order // self.topk
        parts = tokens[owners].split(counts)
        outputs = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        out = torch.zeros_like(tokens).index_add(0, owners, outputs * weights.flatten()[order, None])
        if self.shared is not None:
            out = out + self.shared(tokens)
        return out.view_as(x)


class Layer(nn.Module):
    """Norm, attention, residual, norm, feed-forward, residual."""

    def __init__(self, model: Model, training: Training, *, sparse: bool, window: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(make_norm(model, model.hidden) for _ in range(model.norms_per_layer))
        self.attention: nn.Module = (
            LatentAttention(model, training, window) if model.attention == "mla" else Attention(model, training, window)
        )
        self.mlp: nn.Module = Moe(model, training) if sparse else FeedForward(model, training, model.ffn)
        self.dropout = nn.Dropout(model.dropout_fraction)
        if training.lora_rank:
            self.norms.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Pass the stream through both blocks."""
        norms = self.norms
        normed = norms[0](x)
        attended = self.attention(normed)
        if len(norms) == 1:
            return x + self.dropout(attended) + self.dropout(self.mlp(normed))
        if len(norms) == 4:
            attended = norms[3](attended)
        x = x + self.dropout(attended)
        widened = self.mlp(norms[1](x))
        if len(norms) >= 3:
            widened = norms[2](widened)
        return x + self.dropout(widened)


class Transformer(nn.Module):
    """Embedding, layers, last norm, LM head; forward returns the loss."""

    def __init__(self, model: Model, training: Training, kinds: "tuple[tuple[bool, int], ...]") -> None:
        super().__init__()
        require_trainable(model)
        self.recomputed = training.recompute_layers if training.recompute_layers is not None else len(kinds)
        self.full = training.recompute == "full"
        self.embedding = nn.Embedding(model.vocab, model.hidden)
        places = max(model.seq_length, training.seq_length)
        self.positions = nn.Embedding(places, model.hidden) if model.position == "learned" else None
        self.layers = nn.ModuleList(Layer(model, training, sparse=sparse, window=window) for sparse, window in kinds)
        self.norm = make_norm(model, model.hidden)
        self.head = nn.Linear(model.hidden, model.vocab, bias=False)
        self.apply(_initialise)
        if model.tied_embeddings:
            self.head.weight = self.embedding.weight
        if training.lora_rank:
            for part in (self.embedding, self.positions, self.norm, self.head):
                if part is not None:
                    part.requires_grad_(False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of predicting each next token."""
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for index, layer in enumerate(self.layers):
            again = self.full and index < self.recomputed
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
