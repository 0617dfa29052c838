"""Plain PyTorch models that judge the workload's flop and memory: ordinary modules, SDPA, a training step."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from charllm.spec.model import Model


def make_norm(model: Model, width: int) -> nn.Module:
    return nn.LayerNorm(width) if model.norm == "layernorm" else nn.RMSNorm(width)


class LoraLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False)
        self.base.requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def make_linear(inputs: int, outputs: int, *, bias: bool = False, rank: int = 0, adapted: bool = False) -> nn.Module:
    if adapted and rank:
        return LoraLinear(inputs, outputs, rank)
    layer = nn.Linear(inputs, outputs, bias=bias)
    return layer.requires_grad_(rank == 0)


def rotate(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    angle = torch.ones(x.shape[-2], x.shape[-1], dtype=x.dtype)
    return x * angle + turned * angle


class Attention(nn.Module):
    def __init__(self, model: Model, *, fused: bool, rank: int = 0) -> None:
        super().__init__()
        self.model, self.fused = model, fused
        query = model.heads * model.head_dim
        key = model.kv_heads * model.head_dim
        self.qkv = make_linear(model.hidden, query + 2 * key, bias=model.bias != "none", rank=rank, adapted=True)
        self.proj = make_linear(query, model.hidden, bias=model.bias in ("attention", "all"), rank=rank, adapted=True)

    def forward(self, x: Tensor) -> Tensor:
        model = self.model
        batch, seq, _ = x.shape
        widths = [
            model.heads * model.head_dim,
            model.kv_heads * model.head_dim,
            model.kv_heads * model.head_dim,
        ]
        q, k, v = (part.view(batch, seq, -1, model.head_dim).transpose(1, 2) for part in self.qkv(x).split(widths, -1))
        if model.position == "rope":
            q, k = rotate(q), rotate(k)
        out = attend(q, k, v, model.causal, self.fused)
        result: Tensor = self.proj(out.transpose(1, 2).reshape(batch, seq, -1))
        return result


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, fused: bool) -> Tensor:
    if fused:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


class LatentAttention(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        query = model.heads * model.query_head_dim
        self.q_down = nn.Linear(model.hidden, model.q_lora_rank, bias=False) if model.q_lora_rank else None
        self.q_norm = make_norm(model, model.q_lora_rank) if model.q_lora_rank else nn.Identity()
        self.q_up = nn.Linear(model.q_lora_rank or model.hidden, query, bias=False)
        self.kv_down = nn.Linear(model.hidden, model.kv_lora_rank + model.rope_head_dim, bias=False)
        self.kv_norm = make_norm(model, model.kv_lora_rank)
        self.kv_up = nn.Linear(model.kv_lora_rank, model.heads * (model.head_dim + model.v_head_dim), bias=False)
        self.proj = nn.Linear(model.heads * model.v_head_dim, model.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        model = self.model
        batch, seq, _ = x.shape
        q = self.q_up(self.q_norm(self.q_down(x)) if self.q_down is not None else x)
        q = q.view(batch, seq, model.heads, -1).transpose(1, 2)
        compressed, position = self.kv_down(x).split([model.kv_lora_rank, model.rope_head_dim], -1)
        kv = self.kv_up(self.kv_norm(compressed)).view(batch, seq, model.heads, -1).transpose(1, 2)
        k, v = kv.split([model.head_dim, model.v_head_dim], -1)
        k = torch.cat((k, position[:, None].expand(-1, model.heads, -1, -1)), -1)
        out = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        result: Tensor = self.proj(out.transpose(1, 2).reshape(batch, seq, -1))
        return result


class FeedForward(nn.Module):
    def __init__(self, model: Model, width: int, *, rank: int = 0) -> None:
        super().__init__()
        bias = model.bias == "all"
        self.gated = model.gated
        self.fc1 = make_linear(model.hidden, width * (2 if model.gated else 1), bias=bias, rank=rank)
        self.fc2 = make_linear(width, model.hidden, bias=bias, rank=rank)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.fc1(x)
        if self.gated:
            gate, up = inner.chunk(2, -1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.gelu(inner)
        out: Tensor = self.fc2(inner)
        return out


class Moe(nn.Module):
    """Experts with perfectly even routing: token copy i goes to expert i modulo experts."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.router = nn.Linear(model.hidden, model.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(model, model.expert_ffn) for _ in range(model.experts))
        self.shared = FeedForward(model, model.shared_ffn) if model.shared_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        model = self.model
        tokens = x.reshape(-1, model.hidden)
        weight = self.router(tokens).softmax(-1)
        copies = tokens.repeat_interleave(model.topk, 0)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            mine = torch.arange(index, len(copies), model.experts)
            owner = mine // model.topk
            out = out.index_add(0, owner, expert(copies[mine]) * weight[owner, index, None])
        if self.shared is not None:
            out = out + self.shared(tokens)
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self, model: Model, *, fused: bool = True, rank: int = 0) -> None:
        super().__init__()
        self.norm1, self.norm2 = make_norm(model, model.hidden), make_norm(model, model.hidden)
        if rank:
            self.norm1.requires_grad_(False)
            self.norm2.requires_grad_(False)
        self.attention: nn.Module = (
            LatentAttention(model) if model.attention == "mla" else Attention(model, fused=fused, rank=rank)
        )
        self.mlp: nn.Module = Moe(model) if model.experts else FeedForward(model, model.ffn, rank=rank)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class Checkpointed(nn.Module):
    """A block that keeps only its input and runs again in backward."""

    def __init__(self, block: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return out


class Transformer(nn.Module):
    def __init__(self, model: Model, *, fused: bool = True, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(model.vocab, model.hidden)
        self.layers = nn.ModuleList(Layer(model, fused=fused) for _ in range(model.layers))
        self.norm = make_norm(model, model.hidden)
        self.head = nn.Linear(model.hidden, model.vocab, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Mamba(nn.Module):
    """Mamba-2 with the chunked scan as four products for each chunk (Dao & Gu 2024, listing 1)."""

    def __init__(self, model: Model, chunk: int) -> None:
        super().__init__()
        self.model, self.chunk = model, chunk
        self.inner, self.shared = model.ssm_heads * model.ssm_head_dim, model.ssm_groups * model.ssm_state
        self.widths = [self.inner, self.inner + 2 * self.shared, model.ssm_heads]
        self.into = nn.Linear(model.hidden, sum(self.widths), bias=False)
        self.filters = nn.Parameter(torch.randn(model.ssm_conv, self.widths[1]))
        self.shift = nn.Parameter(torch.zeros(self.widths[1]))
        self.decay, self.skip, self.step = (nn.Parameter(torch.ones(model.ssm_heads)) for _ in range(3))
        self.norm = nn.RMSNorm(self.inner)
        self.out = nn.Linear(self.inner, model.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, mixed, step = self.into(x).split(self.widths, -1)
        mixed = self._convolve(mixed)
        values, write, read = mixed.split([self.inner, self.shared, self.shared], -1)
        scanned = self._scan(values, write, read, functional.softplus(step + self.step))
        out: Tensor = self.out(self.norm(scanned * functional.silu(gate)))
        return out

    def _convolve(self, mixed: Tensor) -> Tensor:
        taps = len(self.filters)
        padded = functional.pad(mixed, (0, 0, taps - 1, 0))
        parts = (padded[:, tap : tap + mixed.shape[1]] * self.filters[tap] for tap in range(taps))
        return functional.silu(sum(parts, self.shift))

    def _scan(self, values: Tensor, write: Tensor, read: Tensor, step: Tensor) -> Tensor:
        model, (batch, seq, _) = self.model, values.shape
        chunks = seq // self.chunk

        def chunked(x: Tensor, heads: int) -> Tensor:
            return x.view(batch, chunks, self.chunk, heads, -1).transpose(2, 3)

        times = model.ssm_heads // model.ssm_groups
        values, step = chunked(values, model.ssm_heads), chunked(step, model.ssm_heads)
        write, read = chunked(write, model.ssm_groups), chunked(read, model.ssm_groups)
        total = (-self.decay.view(-1, 1, 1) * step).cumsum(-2)
        scores = (read @ write.transpose(-1, -2)).repeat_interleave(times, 2)
        inside = (scores * (total - total.transpose(-1, -2)).exp().tril()) @ (values * step)
        write, read = write.repeat_interleave(times, 2), read.repeat_interleave(times, 2)
        states = (write * (total[..., -1:, :] - total).exp()).transpose(-1, -2) @ (values * step)
        passed = [torch.zeros_like(states[:, 0])]
        for chunk in range(chunks - 1):
            passed.append(passed[-1] * total[:, chunk, :, -1:, :].exp() + states[:, chunk])
        outputs = inside + (read * total.exp()) @ torch.stack(passed, 1) + values * self.skip.view(-1, 1, 1)
        return outputs.transpose(2, 3).reshape(batch, seq, -1)
