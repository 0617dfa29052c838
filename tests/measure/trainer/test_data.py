"""Tokens to train on."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from charllm.errors import SpecError
from charllm.measure.trainer.data import FACTOR, NOISE_FRACTION, SHIFT, file_batches, synthetic_batches

VOCAB, SEQ = 97, 32


def write_tokens(path: Path, tokens: list[int], dtype: type = np.uint16) -> Path:
    np.array(tokens, dtype=dtype).tofile(path)
    return path


def test_made_up_tokens_follow_a_rule_nine_times_out_of_ten() -> None:
    tokens, targets = next(synthetic_batches(VOCAB, 64, SEQ, 0, "cpu"))
    assert tokens.shape == targets.shape == (64, SEQ)
    assert bool((tokens[:, 1:] == targets[:, :-1]).all())
    assert int(tokens.max()) < VOCAB
    followed = float(((tokens * FACTOR + SHIFT) % VOCAB == targets).float().mean())
    assert followed == pytest.approx(1 - NOISE_FRACTION, abs=0.05)


def test_a_seed_gives_the_same_tokens_and_another_gives_others() -> None:
    first, same, other = (next(synthetic_batches(VOCAB, 4, SEQ, seed, "cpu"))[0] for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_small_batches_are_the_large_one_in_parts(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "tokens", list(np.arange(3000) % VOCAB))
    pairs = [
        (synthetic_batches(VOCAB, 4, SEQ, 3, "cpu"), synthetic_batches(VOCAB, 1, SEQ, 3, "cpu")),
        (file_batches(path, VOCAB, 4, SEQ, 3, "cpu"), file_batches(path, VOCAB, 1, SEQ, 3, "cpu")),
    ]
    for large, small in pairs:
        parts = torch.cat([tokens for tokens, _ in islice(small, 4)])
        assert torch.equal(next(large)[0], parts)


def test_a_file_is_read_in_windows_that_lie_inside_it(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "tokens", list(range(40)))
    for tokens, targets in islice(file_batches(path, 40, 8, SEQ, 0, "cpu"), 20):
        assert tokens.dtype == torch.int64
        assert bool((targets == tokens + 1).all())
        assert int(targets.max()) <= 39


def test_a_file_with_one_window_is_enough(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "tokens", list(range(SEQ + 1)))
    tokens, targets = next(file_batches(path, VOCAB, 2, SEQ, 0, "cpu"))
    assert tokens[0].tolist() == list(range(SEQ))
    assert targets[1].tolist() == list(range(1, SEQ + 1))


def test_large_vocabularies_have_wider_tokens(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "tokens", [70_000] * 40, np.uint32)
    tokens, _ = next(file_batches(path, 100_000, 1, SEQ, 0, "cpu"))
    assert set(tokens.flatten().tolist()) == {70_000}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a file of uint16 tokens"),
        (b"123", "a file of uint16 tokens"),
        (b"\0\0" * SEQ, f"more than {SEQ} tokens, it has {SEQ}"),
        (b"\xff\xff" * 100, "tokens below the vocabulary of 97, it has 65535"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        next(file_batches(path, VOCAB, 2, SEQ, 0, "cpu"))
