from dataclasses import replace

import pytest

from charllm.errors import SpecError
from charllm.spec.model import Model, fill_model

DENSE = Model(name="m", layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=16, vocab=100)


def test_key_value_heads_and_head_width_follow_from_the_others() -> None:
    filled = fill_model({"heads": 8, "hidden": 512, "experts": 4, "ffn": 100})
    assert (filled["kv_heads"], filled["head_dim"], filled["expert_ffn"]) == (8, 64, 100)


def test_a_head_width_that_does_not_follow_must_be_given() -> None:
    with pytest.raises(SpecError, match="head_dim"):
        fill_model({"heads": 7, "hidden": 512})


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_heads": 3},
        {"experts": 4, "topk": 5, "expert_ffn": 8},
        {"experts": 4, "topk": 2},
        {"topk": 2},
        {"shared_ffn": 8},
        {"dense_layers": 3, "experts": 4, "topk": 1, "expert_ffn": 8},
        {"attention": "mla"},
        {"layers": 0},
        {"activation": "tanh"},
    ],
)
def test_contradictions_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        replace(DENSE, **changes)  # type: ignore[arg-type]


HYBRID = replace(DENSE, pattern="M*", ssm_heads=8, ssm_head_dim=16, ssm_state=32, ssm_groups=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"pattern": "M"},
        {"pattern": "MX"},
        {"pattern": "ME"},
        {"pattern": "", "mtp_pattern": "*"},
        {"mtp_pattern": "E"},
        {"ssm_heads": 0},
        {"ssm_groups": 3},
        {"window": 16},
        {"expert_latent": 8},
        {"experts": 4, "topk": 1, "expert_ffn": 8},
    ],
)
def test_contradictions_of_a_hybrid_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        replace(HYBRID, **changes)  # type: ignore[arg-type]


def test_latent_heads_are_wider_by_their_position_part() -> None:
    latent = replace(DENSE, attention="mla", kv_lora_rank=8, rope_head_dim=4, v_head_dim=12)
    assert (latent.query_head_dim, latent.value_head_dim) == (20, 12)
