import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge, parse_settings
from charllm.workload.cut import cut_run
from charllm.workload.layer import LayerKind, layer
from charllm.workload.recompute import POLICIES, Replay, kept_bytes, policy_of, replay

REQUEST = {"model": "mixtral-8x7b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 2, "ep": 8}}


def replayed(*settings: str, sparse: bool = True) -> Replay:
    cut = cut_run(resolve_run(merge(REQUEST, parse_settings(settings))))
    return replay(cut, layer(cut, LayerKind(sparse=sparse, window=0)), policy_of(cut))


def test_nothing_is_recomputed_by_default() -> None:
    cut = cut_run(resolve_run(REQUEST))
    modules = layer(cut, LayerKind(sparse=True, window=0))
    assert replayed() == Replay(kept_bytes(modules), ())


def test_full_runs_all_of_forward_again() -> None:
    cut = cut_run(resolve_run(REQUEST))
    forward = tuple(op for module in layer(cut, LayerKind(sparse=True, window=0)) for op in module.forward)
    assert replayed("training.recompute=full").ops == forward


def test_a_dropout_mask_needs_the_last_product_again_unless_a_compiler_sees_that_it_does_not() -> None:
    def again(kind: str, dropout: float) -> set[str]:
        settings = (f"framework.full_recompute={kind}", f"model.dropout_fraction={dropout}", "training.recompute=full")
        return {op.name for op in replayed(*settings, sparse=False).ops}

    assert "fc2" not in again("saved", 0.0)
    assert "fc2" in again("saved", 0.1)
    assert "fc2" not in again("needed", 0.1)
    assert "fc2" in again("all", 0.0)


def test_selective_means_core_attention_in_megatron() -> None:
    assert [op.kind for op in replayed("training.recompute=selective").ops] == ["attention"]


def test_recomputing_the_experts_exchanges_tokens_again() -> None:
    again = replayed("training.recompute=selective", "training.recompute_modules=['moe']")
    assert [op.kind for op in again.ops].count("all_to_all") == 2


def test_an_activation_costs_no_product() -> None:
    again = replayed("training.recompute=selective", "training.recompute_modules=['moe_act']")
    assert {op.kind for op in again.ops} == {"activation"}
    assert again.kept_bytes < replayed().kept_bytes


def test_alternate_products_keep_less_than_none_and_more_than_full() -> None:
    none, selective, full = (
        replayed("framework=fsdp", f"training.recompute={kind}", sparse=False).kept_bytes
        for kind in ("none", "selective", "full")
    )
    assert full < selective < none
    again = replayed("framework=fsdp", "training.recompute=selective", sparse=False).ops
    assert "attention" not in {op.kind for op in again}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_policy_keeps_more_than_the_layer_makes(policy: str) -> None:
    cut = cut_run(resolve_run(REQUEST))
    modules = layer(cut, LayerKind(sparse=False, window=0))
    assert 0 < replay(cut, modules, policy).kept_bytes <= kept_bytes(modules)
