import pytest

from charllm.catalog.resolve import resolve_model
from charllm.spec.model import Model
from charllm.workload.parameters import count_active_parameters, count_parameters, parameter_table

DENSE = Model(name="m", layers=3, hidden=8, ffn=16, heads=4, kv_heads=2, head_dim=2, vocab=10)


def test_a_dense_model_adds_up_by_hand() -> None:
    layer = 2 * 8 + 8 * (4 + 4) * 2 + 8 * 8 + 3 * 8 * 16
    assert count_parameters(DENSE) == 2 * 10 * 8 + 3 * layer + 8


def test_a_tied_head_is_counted_once() -> None:
    tied = Model(name="m", layers=3, hidden=8, ffn=16, heads=4, kv_heads=2, head_dim=2, vocab=10, tied_embeddings=True)
    assert count_parameters(DENSE) - count_parameters(tied) == 10 * 8


def test_a_token_meets_only_its_experts() -> None:
    model = resolve_model("mixtral-8x7b")
    assert count_parameters(model) == pytest.approx(46.7e9, rel=2e-3)
    assert count_active_parameters(model) == pytest.approx(12.9e9, rel=2e-3)


def test_prediction_layers_are_counted_apart() -> None:
    model = resolve_model("deepseek-v3")
    extra = count_parameters(model, with_mtp=True) - count_parameters(model)
    assert 10e9 < extra < 13e9
    assert count_parameters(model) == pytest.approx(671.03e9, rel=1e-4)


def test_rows_of_one_name_are_one_row() -> None:
    names = [row.name for row in parameter_table(resolve_model("deepseek-v3"))]
    assert len(names) == len(set(names))
    assert next(row for row in parameter_table(DENSE) if row.name == "qkv").copies == 3
