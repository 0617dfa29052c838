"""A transformer out of a spec, or the part of it that one rank holds: some layers, and some of each layer's widths."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from charllm.errors import SpecError
from charllm.measure.trainer.attention import Attention, LatentAttention, own_positions
from charllm.measure.trainer.exchange import cut_cross_entropy
from charllm.measure.trainer.experts import Moe
from charllm.measure.trainer.linear import FeedForward, enter, leave, locate, make_norm, pieces, split_over_tp
from charllm.measure.trainer.place import ALONE, Place
from charllm.spec.model import Model
from charllm.spec.training import Training

UNBUILT = (
    "mixers", "sparse_layers", "attention_gate", "index_heads", "window_heads", "window_kv_heads", "window_head_dim",
    "window_sinks", "shared_values", "shared_kv_layers", "layer_input", "layer_vectors", "sparse_vectors",
    "end_vectors",
)  # fmt: skip


def require_trainable(model: Model) -> None:
    """Refuse what this trainer does not build."""
    if model.pattern:
        raise SpecError("model.pattern", model.pattern, "empty: the trainer has no hybrids")
    if model.qk_norm and model.qk_norm_weights != "shared":
        raise SpecError("model.qk_norm_weights", model.qk_norm_weights, "shared in the trainer")
    if model.norms_per_layer > 4:
        raise SpecError("model.norms_per_layer", model.norms_per_layer, "at most 4 in the trainer")
    if model.norm.partition("-")[2]:
        raise SpecError("model.norm", model.norm, "rmsnorm or layernorm in the trainer")
    if model.attention != "mla" and model.v_head_dim:
        raise SpecError("model.v_head_dim", model.v_head_dim, "0: values are as wide as keys in the trainer")
    for field in UNBUILT:
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


class Layer(nn.Module):
    """Norm, attention, residual, norm, feed-forward, residual."""

    def __init__(self, model: Model, training: Training, place: Place = ALONE, *, sparse: bool, window: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(make_norm(model, model.hidden) for _ in range(model.norms_per_layer))
        kind = LatentAttention if model.attention == "mla" else Attention
        self.attention: nn.Module = kind(model, training, window, place)
        self.mlp: nn.Module = (
            Moe(model, training, place) if sparse else FeedForward(model, training, model.ffn, split_over_tp(place))
        )
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


class Chunk(NamedTuple):
    """Neighbouring layers of the model, with the embedding before the first and the head after the last."""

    first: int
    stop: int
    opens: bool = True
    closes: bool = True


class Transformer(nn.Module):
    """Embedding, layers, last norm, LM head, or those of them that a chunk has; with targets it returns the loss."""

    def __init__(
        self,
        model: Model,
        training: Training,
        kinds: "tuple[tuple[bool, int], ...]",
        place: Place = ALONE,
        chunk: Chunk | None = None,
    ) -> None:
        super().__init__()
        require_trainable(model)
        chunk = chunk or Chunk(0, len(kinds))
        self.chunk, self.place, self.vocab, self.seq = chunk, place, model.vocab, training.seq_length
        self.split = split_over_tp(place)
        layers = range(chunk.first, chunk.stop)
        self.recomputed = training.recompute_layers if training.recompute_layers is not None else len(layers)
        self.full = training.recompute == "full"
        self.rows = -(-model.vocab // self.split.group.size)
        lent = model.tied_embeddings and chunk.opens
        self.embedding: Any = nn.Embedding(self.rows, model.hidden) if chunk.opens else None
        places = max(model.seq_length, training.seq_length)
        learned = model.position == "learned" and chunk.opens
        self.positions = nn.Embedding(places, model.hidden) if learned else None
        self.layers = nn.ModuleDict(
            {str(at): Layer(model, training, place, sparse=kinds[at][0], window=kinds[at][1]) for at in layers}
        )
        self.norm: Any = make_norm(model, model.hidden) if chunk.closes else None
        owned = chunk.closes and not lent
        self.shares_table = model.tied_embeddings
        self.head = nn.Linear(model.hidden, self.rows, bias=False) if owned else None
        for table in (self.embedding, self.head):
            if table is not None:
                locate(table.weight, (model.vocab, model.hidden), (self.first_row, 0))
        if training.lora_rank:
            for part in (self.embedding, self.positions, self.norm, self.head):
                if part is not None:
                    part.requires_grad_(False)
        self.pieces = pieces(self, self.split.group.size, sequence=self.split.sequence)

    @property
    def first_row(self) -> int:
        """The vocabulary's first entry on this tp rank."""
        return self.split.group.index * self.rows

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the mean loss of predicting each next token; without targets, what the chunk hands on."""
        if self.embedding is not None:
            x = self.embed(x)
        for index, layer in enumerate(self.layers.values()):
            again = self.full and index < self.recomputed
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        if self.norm is not None:
            x = enter(self.norm(x), self.split)
            x = functional.linear(x, self.embedding.weight) if self.head is None else self.head(x)
        return x if targets is None else self.loss(x, targets)

    def embed(self, tokens: Tensor) -> Tensor:
        """Look tokens up, and their positions where these are learned."""
        if self.split.group.size == 1:
            x = self.embedding(tokens)
        else:
            row = tokens - self.first_row
            elsewhere = (row < 0) | (row >= self.rows)
            x = self.embedding(row.masked_fill(elsewhere, 0)).masked_fill(elsewhere[..., None], 0.0)
            x = leave(x, self.split)
        if self.positions is None:
            return x
        if self.place["cp"].size == 1:
            places = torch.arange(tokens.shape[1], device=tokens.device)
        else:
            places = own_positions(self.seq, self.place["cp"], self.place.cp_kind, tokens.device)
        if self.split.sequence:
            places = places.chunk(self.split.group.size)[self.split.group.index]
        return x + self.positions(places)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of this rank's logits."""
        flat = logits.float().flatten(0, 1)
        if self.split.group.size == 1:
            return functional.cross_entropy(flat, targets.flatten())
        padding = self.first_row + self.rows - self.vocab
        if padding > 0:
            flat = torch.cat((flat[:, :-padding], torch.full_like(flat[:, -padding:], float("-inf"))), -1)
        return cut_cross_entropy(flat, targets.flatten(), self.first_row, self.split.group)


def global_name(network: Transformer, name: str) -> str:
    """Return the name that a weight has in the whole model: experts are numbered over all ranks."""
    if name == "head.weight" and network.shares_table:
        return "embedding.weight"
    words = name.split(".")
    if "experts" in words and words[words.index("experts") + 1].isdecimal():
        at = words.index("experts")
        moe = network.get_submodule(".".join(words[:at]))
        words[at + 1] = str(int(words[at + 1]) + moe.first)
    return ".".join(words)
