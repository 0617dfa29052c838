"""Initial weights are the same however a model is cut."""

import pytest
import torch

from charllm.measure.trainer import weights
from charllm.measure.trainer.linear import Piece
from charllm.measure.trainer.weights import initialise

FULL = (37, 12)


def drawn(start: tuple[int, int], shape: tuple[int, int], name: str = "layers.0.fc1", skipped: int = 0) -> torch.Tensor:
    weight = torch.empty(shape)
    initialise(weight, Piece(FULL, start), name, 3, skipped)
    return weight


@pytest.mark.parametrize("elements", [1, 60, 1 << 22])
def test_a_piece_is_what_lies_there_in_the_whole(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "BLOCK_ELEMENTS", elements)
    whole = drawn((0, 0), FULL)
    assert torch.equal(drawn((0, 4), (37, 4)), whole[:, 4:8])
    assert torch.equal(drawn((11, 0), (13, 12)), whole[11:24])
    assert torch.equal(drawn((11, 6), (5, 6), skipped=3), whole[14:19, 6:])


def test_rows_that_pad_a_vocabulary_are_zero() -> None:
    last = drawn((30, 0), (10, 12))
    assert torch.equal(last[:7], drawn((0, 0), FULL)[30:])
    assert not last[7:].any()


def test_weights_differ_by_name_and_are_spread_as_asked() -> None:
    assert not torch.equal(drawn((0, 0), FULL), drawn((0, 0), FULL, "layers.1.fc1"))
    assert float(drawn((0, 0), FULL).std()) == pytest.approx(weights.DEVIATION, rel=0.1)


def test_norms_start_as_ones_and_biases_as_zeros() -> None:
    for kind, value in (("ones", 1.0), ("zeros", 0.0)):
        weight = torch.empty(5)
        initialise(weight, Piece((5,), (0,), initial=kind), "norm", 0)
        assert weight.tolist() == [value] * 5
