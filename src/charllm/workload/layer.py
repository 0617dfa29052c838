"""One layer, of each kind a model has."""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from charllm.spec.model import Model
from charllm.workload.attention import attention
from charllm.workload.convolution import short_convolution
from charllm.workload.cut import Cut
from charllm.workload.feedforward import feedforward
from charllm.workload.linear import linear
from charllm.workload.moe import moe
from charllm.workload.norm import norm, residual, vectors
from charllm.workload.op import Kept, Module, elementwise
from charllm.workload.recurrence import recurrence


class LayerKind(NamedTuple):
    """What makes one layer of a model differ from another."""

    sparse: bool
    window: int
    part: str = ""
    """The one part it is in a hybrid, as a letter of the pattern; empty: attention, then feed-forward."""
    mixer: str = ""
    """The letter of what mixes its tokens where that is no attention; empty: attention."""
    borrows: bool = False
    """Whether its keys and values are those of a layer before it."""
    wide: bool = False
    """Whether its products stay in 16 bits where those of others are narrower."""


@lru_cache(maxsize=256)
def layer_kinds(model: Model) -> tuple[LayerKind, ...]:
    """List the kind of each layer: the first ones may be dense, and one in n may attend to everything."""
    if model.pattern:
        return _parts(model.pattern)
    return tuple(_kind(model, index) for index in range(model.layers))


def _kind(model: Model, index: int) -> LayerKind:
    letter = model.mixers[index % len(model.mixers)] if model.mixers else _attention_letter(model, index)
    return LayerKind(
        sparse=model.experts > 0 and _has_experts(model, index),
        window=model.window if letter == "w" else 0,
        mixer="" if letter in ("*", "w") else letter,
        borrows=index >= model.layers - model.shared_kv_layers,
    )


def _attention_letter(model: Model, index: int) -> str:
    period = model.full_attention_every
    return "w" if model.window and (period == 1 or (index + 1) % period) else "*"


def _has_experts(model: Model, index: int) -> bool:
    pattern = model.sparse_layers
    return pattern[index % len(pattern)] == "E" if pattern else index >= model.dense_layers


def mtp_kinds(model: Model) -> tuple[LayerKind, ...]:
    """List the kinds of layer that one multi-token-prediction layer is made of."""
    return _parts(model.mtp_pattern) or layer_kinds(model)[-1:]


def _parts(pattern: str) -> tuple[LayerKind, ...]:
    return tuple(LayerKind(sparse=letter == "E", window=0, part=letter) for letter in pattern)


def layer(cut: Cut, kind: LayerKind) -> tuple[Module, ...]:
    """Describe one layer: norm, attention, residual, norm, feed-forward, residual; a hybrid's has one of the two."""
    model = cut.model
    if kind.part:
        return _single(cut, kind.part)
    stream = cut.shard_tokens * model.hidden
    parallel_blocks = model.norms_per_layer == 1
    modules = [norm(cut, "attention norm", stream, model.hidden), *_mixer(cut, kind)]
    if model.norms_per_layer >= 4:
        modules.append(norm(cut, "attention post norm", stream, model.hidden))
    if not parallel_blocks:
        modules += [residual(cut, "attention residual"), norm(cut, "mlp norm", stream, model.hidden)]
    width = (kind.borrows and model.shared_kv_ffn) or model.ffn
    modules += moe(cut) if kind.sparse else feedforward(cut, width)
    if model.norms_per_layer >= 3:
        modules.append(norm(cut, "mlp post norm", stream, model.hidden))
    modules += [norm(cut, "further norm", stream, model.hidden)] * (model.norms_per_layer - 4)
    modules.append(residual(cut, "mlp residual"))
    modules += _layer_input(cut)
    modules += vectors(cut, "layer vectors", model.layer_vectors)
    modules += vectors(cut, "router vectors", model.sparse_vectors if kind.sparse else 0)
    return tuple(modules)


def _mixer(cut: Cut, kind: LayerKind) -> tuple[Module, ...]:
    """Describe what mixes tokens; side by side, both read the same normalised input and their outputs are added."""
    if kind.mixer == "C":
        return short_convolution(cut)
    if kind.mixer == "H":
        return (*recurrence(cut, "H"), *attention(cut, 0), residual(cut, "mixer addition"))
    return (
        recurrence(cut, kind.mixer) if kind.mixer else attention(of_kind(cut, kind), kind.window, borrows=kind.borrows)
    )


def _layer_input(cut: Cut) -> tuple[Module, ...]:
    """Describe how a layer takes in its own embedding of each token: gated, projected back, normalised and added.

    Source: transformers' Gemma4TextDecoderLayer.
    """
    model, width = cut.model, cut.model.layer_input
    if not width:
        return ()
    stream, narrow = cut.shard_tokens * model.hidden, cut.shard_tokens * width * cut.element_bytes
    inputs = Kept("layer input gate", stream * cut.operand_bytes)
    gated = Kept("layer input gated", 2 * narrow)
    return (
        linear(cut, "layer input gate", model.hidden, width, input_kept=(inputs,)),
        Module(
            "layer input",
            (elementwise("layer input", "activation", 2 * narrow, narrow),),
            (elementwise("layer input", "activation", 3 * narrow, 2 * narrow, "backward"),),
            (gated,),
        ),
        linear(cut, "layer input proj", width, model.hidden),
        norm(cut, "layer input norm", stream, model.hidden),
        residual(cut, "layer input residual"),
    )


def of_kind(cut: Cut, kind: LayerKind) -> Cut:
    """Return a rank's share of a layer's attention: windowed layers may have other heads."""
    model = cut.model
    if not model.window:
        return cut
    own = {"heads": model.window_heads, "kv_heads": model.window_kv_heads, "head_dim": model.window_head_dim}
    changed: dict[str, Any] = {name: value for name, value in own.items() if value and kind.window}
    changed["shared_values"] = model.shared_values and not kind.window
    changed["attention_sinks"] = model.attention_sinks and not (model.window_sinks and not kind.window)
    if all(getattr(model, name) == value for name, value in changed.items()):
        return cut
    model = replace(model, **changed)
    return replace(cut, model=model, heads=model.heads // cut.tp, kv_heads=max(1, model.kv_heads // cut.tp))


def _single(cut: Cut, part: str) -> tuple[Module, ...]:
    """Describe a layer of a hybrid."""
    name = {"M": "mamba", "*": "attention"}.get(part, "mlp")
    before = norm(cut, f"{name} norm", cut.shard_tokens * cut.model.hidden, cut.model.hidden)
    if part == "M":
        modules = recurrence(cut, part)
    elif part == "*":
        modules = attention(cut, 0)
    else:
        modules = moe(cut) if part == "E" else feedforward(cut, cut.model.ffn)
    further = vectors(cut, "router vectors", cut.model.sparse_vectors if part == "E" else 0)
    return (before, *modules, residual(cut, f"{name} residual"), *further)
