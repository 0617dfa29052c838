"""The trainer's network is the model of the spec: its parts, its size, what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from charllm.catalog.resolve import resolve_model
from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.measure.trainer.attention import Attention, rotate
from charllm.measure.trainer.experts import Moe
from charllm.measure.trainer.linear import Linear
from charllm.measure.trainer.model import Transformer, require_trainable
from charllm.spec.model import ACTIVATIONS, BIASES, Model
from charllm.spec.training import Training
from charllm.workload.layer import layer_kinds
from charllm.workload.parameters import count_parameters

# Tensors this small only wait for each other on more threads.
torch.set_num_threads(1)

SEQ = 12
TRAINING = Training(seq_length=SEQ, global_batch_size=2, micro_batch_size=2)
DENSE = Model(name="dense", layers=2, hidden=24, ffn=40, heads=6, kv_heads=2, head_dim=4, vocab=30, seq_length=SEQ)
CLASSIC = replace(
    DENSE, name="classic", kv_heads=6, activation="gelu", norm="layernorm", position="learned", bias="all",
    tied_embeddings=True,
)  # fmt: skip
SPARSE = replace(DENSE, name="sparse", experts=4, topk=2, expert_ffn=16, shared_ffn=24, dense_layers=1)
LATENT = replace(
    DENSE, name="latent", kv_heads=6, attention="mla", q_lora_rank=10, kv_lora_rank=8, rope_head_dim=2, v_head_dim=6
)
WINDOWED = replace(DENSE, name="windowed", window=4, full_attention_every=2)
ALIBI = replace(DENSE, name="alibi", position="alibi", norm="layernorm")
MODELS = [DENSE, CLASSIC, SPARSE, LATENT, WINDOWED, ALIBI]


def build(model: Model, training: Training = TRAINING) -> Transformer:
    torch.manual_seed(0)
    kinds = tuple((kind.sparse, kind.window) for kind in layer_kinds(model))
    network: Transformer = Transformer(model, training, kinds)
    return network


def parameters(network: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def batch(model: Model, rows: int = 2) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    tokens = torch.randint(0, model.vocab, (rows, SEQ + 1))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_its_size_is_what_the_workload_counts(model: Model) -> None:
    assert parameters(build(model)) == count_parameters(model)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize(
    "model", [DENSE, SPARSE, LATENT, replace(LATENT, name="wide queries", q_lora_rank=0)], ids=lambda model: model.name
)
def test_biases_are_where_the_workload_counts_them(model: Model, bias: str) -> None:
    model = replace(model, bias=bias if model.attention == "gqa" or bias != "qkv" else "none")
    assert parameters(build(model)) == count_parameters(model)


@pytest.mark.parametrize("norms", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["rmsnorm", "layernorm"])
def test_norms_are_where_the_workload_counts_them(norms: int, kind: str) -> None:
    model = replace(DENSE, norms_per_layer=norms, norm=kind, qk_norm=True)
    network = build(model)
    assert parameters(network) == count_parameters(model)
    network(*batch(model)).backward()
    assert all(weight.grad is not None for weight in network.parameters())


def shrunk(model: Model) -> Model:
    """Keep what makes a family, in small."""
    heads = 4 if model.kv_heads < model.heads else 2
    small: dict[str, Any] = {
        "layers": 2, "hidden": 16, "ffn": 24, "vocab": 20, "seq_length": SEQ, "heads": heads,
        "kv_heads": 2, "head_dim": 4,
    }  # fmt: skip
    if model.attention == "mla":
        latent = {"kv_heads": heads, "q_lora_rank": 6 if model.q_lora_rank else 0, "kv_lora_rank": 6}
        small.update(latent, rope_head_dim=2, v_head_dim=4)
    if model.experts:
        small.update(experts=4, topk=min(2, model.topk), expert_ffn=12, dense_layers=min(1, model.dense_layers))
        small.update(shared_ffn=8 if model.shared_ffn else 0)
    if model.pattern:
        small.update(pattern="ME" if model.experts else "M-")
    if model.mixers:
        small.update(mixers=model.mixers[0] + model.mixers[-1])
    if model.sparse_layers:
        small.update(sparse_layers=model.sparse_layers[-2:])
    window = 4 if model.window else 0
    return replace(model, **small, window=window, full_attention_every=2 if model.full_attention_every > 1 else 1)


FAMILIES = {repr(replace(shrunk(resolve_model(name)), name="", stated_params=None, stated_active_params=None)): name
            for name in sorted(entries("models"))}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FAMILIES.values()))
def test_every_family_of_the_catalog_is_built_as_it_is_counted_or_refused(name: str) -> None:
    model = shrunk(resolve_model(name))
    buildable = replace(
        model, attention_sinks=False, mtp_layers=0, pattern="", mtp_pattern="", expert_latent=0, mixers="",
        sparse_layers="", window_kind="sliding", ssm_heads=0, attention_gate=False,
    )  # fmt: skip
    if replace(buildable, attention_gate=model.attention_gate, ssm_heads=model.ssm_heads) != model:
        with pytest.raises(SpecError, match=r"attention_sinks|mtp_layers|pattern|mixers|sparse_layers|window_kind"):
            build(model)
        model = buildable
    network = build(model)
    assert parameters(network) == count_parameters(model)
    network(*batch(model)).backward()


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (replace(DENSE, attention_sinks=True), "model.attention_sinks"),
        (replace(DENSE, mtp_layers=1), "model.mtp_layers"),
        (replace(DENSE, vocab=1), "model.vocab"),
        (replace(DENSE, head_dim=5), "model.head_dim"),
        (replace(LATENT, rope_head_dim=3), "model.rope_head_dim"),
        (replace(LATENT, position="learned"), "model.position"),
    ],
)
def test_what_it_cannot_build_is_refused(model: Model, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        require_trainable(model)
    assert caught.value.field == field


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_trains(activation: str) -> None:
    model = replace(DENSE, activation=activation)
    network = build(model)
    assert parameters(network) == count_parameters(model)
    network(*batch(model)).backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in network.parameters())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_token_knows_nothing_of_later_ones(model: Model) -> None:
    network = build(model)
    tokens, targets = batch(model, rows=1)
    seen: list[Tensor] = []
    network.norm.register_forward_hook(lambda _module, _inputs, out: seen.append(out.detach()))
    changed = tokens.clone()
    changed[0, 8:] = (changed[0, 8:] + 1) % model.vocab
    network(tokens, targets)
    network(changed, targets)
    assert torch.allclose(seen[0][0, :8], seen[1][0, :8], atol=1e-6)
    assert not torch.allclose(seen[0][0, 8:], seen[1][0, 8:], atol=1e-6)


@pytest.mark.parametrize(
    "model", [replace(WINDOWED, full_attention_every=1), replace(LATENT, window=4)], ids=lambda m: m.name
)
def test_a_window_hides_what_is_further_back(model: Model) -> None:
    model = replace(model, layers=1)
    network = build(model)
    tokens, targets = batch(model, rows=1)
    seen: list[Tensor] = []
    network.norm.register_forward_hook(lambda _module, _inputs, out: seen.append(out.detach()))
    changed = tokens.clone()
    changed[0, 0] = (changed[0, 0] + 1) % model.vocab
    network(tokens, targets)
    network(changed, targets)
    same = [torch.allclose(seen[0][0, place], seen[1][0, place], atol=1e-6) for place in range(SEQ)]
    assert same == [False] * 4 + [True] * (SEQ - 4)


def test_grouped_queries_are_plain_attention_over_repeated_keys() -> None:
    torch.manual_seed(0)
    block = Attention(replace(DENSE, position="none"), TRAINING, 0)
    x = torch.randn(2, SEQ, DENSE.hidden)
    query, key, value = (
        part(x).view(2, SEQ, -1, DENSE.head_dim).transpose(1, 2) for part in (block.q, block.k, block.v)
    )
    key, value = key.repeat_interleave(3, 1), value.repeat_interleave(3, 1)
    scores = (query @ key.transpose(-1, -2)) / DENSE.head_dim**0.5
    hidden = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value
    assert torch.allclose(block(x), block.proj(mixed.transpose(1, 2).reshape(2, SEQ, -1)), atol=1e-5)


def test_alibi_weighs_a_distance_by_the_slope_of_its_head() -> None:
    torch.manual_seed(0)
    block = Attention(replace(ALIBI, kv_heads=6), TRAINING, 0)
    x = torch.randn(1, SEQ, DENSE.hidden)
    query, key, value = (
        part(x).view(1, SEQ, -1, DENSE.head_dim).transpose(1, 2) for part in (block.q, block.k, block.v)
    )
    places = torch.arange(SEQ)
    slopes = torch.tensor([2 ** (-8 * (head + 1) / 6) for head in range(6)])
    bias = -slopes[:, None, None] * (places[:, None] - places[None, :])
    scores = (query @ key.transpose(-1, -2)) / DENSE.head_dim**0.5 + bias
    mixed = scores.masked_fill(places[None, :] > places[:, None], float("-inf")).softmax(-1) @ value
    assert torch.allclose(block(x), block.proj(mixed.transpose(1, 2).reshape(1, SEQ, -1)), atol=1e-5)


def test_rotation_keeps_lengths_and_only_distance_matters() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 1, 1, 8).expand(1, 1, SEQ, 8)
    turned = rotate(x)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-5)
    products = turned[0, 0] @ turned[0, 0].T
    for distance in range(3):
        assert torch.allclose(products.diagonal(distance), products[0, distance].expand(SEQ - distance), atol=1e-4)


def test_every_token_visits_its_experts_by_their_weight() -> None:
    torch.manual_seed(0)
    block = Moe(SPARSE, TRAINING)
    x = torch.randn(2, SEQ, SPARSE.hidden)
    tokens = x.reshape(-1, SPARSE.hidden)
    weights, chosen = block.router(tokens).softmax(-1).topk(2, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    expected = torch.stack(
        [
            sum(weight * block.experts[int(expert)](token) for weight, expert in zip(*pair, strict=True))
            for token, *pair in zip(tokens, weights, chosen, strict=True)
        ]
    )
    assert block.shared is not None
    assert torch.allclose(block(x).reshape(expected.shape), expected + block.shared(tokens), atol=1e-5)


def test_an_adapter_starts_as_nothing_and_its_base_is_frozen() -> None:
    training = replace(TRAINING, lora_rank=3, lora_targets=("qkv",))
    layer = Linear(8, 12, bias=True, training=training, target="qkv")
    x = torch.randn(5, 8)
    assert torch.equal(layer(x), functional.linear(x, layer.base.weight, layer.base.bias))
    trained = {name for name, weight in layer.named_parameters() if weight.requires_grad}
    assert trained == {"down.weight", "up.weight"}
    plain = Linear(8, 12, bias=True, training=training, target="fc1")
    assert not any(weight.requires_grad for weight in plain.parameters())


def test_learned_positions_are_as_many_as_the_model_has() -> None:
    for length, places in ((50, 50), (4, SEQ)):
        positions = build(replace(CLASSIC, seq_length=length)).positions
        assert positions is not None
        assert positions.num_embeddings == places
