"""Routing: forced balance gives every expert equally many tokens where experts are spread over ranks."""

from dataclasses import replace

import torch

from charllm.measure.trainer.experts import Moe
from charllm.measure.trainer.place import Group, Place
from charllm.spec.model import Model
from charllm.spec.training import Training

MODEL = Model(
    name="sparse",
    layers=1,
    hidden=16,
    ffn=8,
    heads=2,
    kv_heads=2,
    head_dim=8,
    vocab=30,
    experts=8,
    topk=2,
    expert_ffn=8,
)
TRAINING = Training(seq_length=12, global_batch_size=2)
TWO_RANKS = Place(groups={"ep": Group(size=2, index=1)})


def counts(training: Training, place: Place) -> list[int]:
    torch.manual_seed(0)
    block = Moe(MODEL, training, place)
    _weights, chosen = block._route(torch.randn(12, 16))
    found: list[int] = torch.bincount(chosen.flatten(), minlength=8).tolist()
    return found


def test_forced_routing_over_ranks_is_even_and_natural_routing_is_the_routers() -> None:
    assert counts(TRAINING, TWO_RANKS) == [3] * 8
    natural = counts(replace(TRAINING, routing="natural"), TWO_RANKS)
    assert natural != [3] * 8
    assert sum(natural) == 24


def test_a_rank_that_holds_all_experts_lets_the_router_choose() -> None:
    assert counts(TRAINING, Place()) == counts(replace(TRAINING, routing="natural"), Place())


def test_a_rank_holds_its_share_of_the_experts() -> None:
    block = Moe(MODEL, TRAINING, TWO_RANKS)
    assert (block.first, len(block.experts)) == (4, 4)
