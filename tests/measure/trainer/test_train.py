"""Training on the CPU: losses fall, and recomputation and microbatches change nothing but the way there."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from charllm.catalog.resolve import resolve_run
from charllm.errors import DoesNotFit, SpecError
from charllm.measure.marks import find_steps, read_marks
from charllm.measure.trainer import train as train_module
from charllm.measure.trainer import work as work_module
from charllm.measure.trainer.data import synthetic_batches
from charllm.measure.trainer.model import Transformer
from charllm.measure.trainer.train import TrainStep, build_network, train
from charllm.spec.request import merge
from charllm.spec.run import RunSpec

# Tensors this small only wait for each other on more threads.
torch.set_num_threads(1)

DENSE: dict[str, Any] = {
    "name": "tiny", "layers": 2, "hidden": 32, "ffn": 64, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 32,
    "seq_length": 16,
}  # fmt: skip
CLASSIC = {**DENSE, "kv_heads": 4, "activation": "gelu", "norm": "layernorm", "position": "learned", "bias": "all"}
SPARSE = {**DENSE, "experts": 4, "topk": 2, "expert_ffn": 32, "shared_ffn": 32}
LATENT = {
    **DENSE, "kv_heads": 4, "attention": "mla", "q_lora_rank": 16, "kv_lora_rank": 16, "rope_head_dim": 4,
    "v_head_dim": 8,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "classic": CLASSIC,
    "sparse": SPARSE,
    "latent": LATENT,
    "windowed": {**DENSE, "window": 4},
    "alibi": {**DENSE, "position": "alibi"},
    "dropout": {**DENSE, "dropout_fraction": 0.1},
}


def spec(model: dict[str, Any] | None = None, **training: Any) -> RunSpec:
    settings = {"precision": "fp32", "micro_batch_size": 4, "global_batch_size": 8, **training}
    request = {"model": model or DENSE, "cluster": "h200x1", "framework": "pytorch-eager", "training": settings}
    return resolve_run(request)


def trained(run: RunSpec, steps: int = 30) -> list[TrainStep]:
    return list(train(run, "cpu", steps, None))


def gradients(run: RunSpec) -> tuple[float, dict[str, Tensor]]:
    """Return loss and gradients of one step without its update."""
    torch.manual_seed(0)
    network = build_network(run, "cpu")
    batches = synthetic_batches(run.model.vocab, run.training.micro_batch_size, run.training.seq_length, 0, "cpu")
    total = 0.0
    for _ in range(run.microbatches):
        torch.manual_seed(7)
        loss = network(*next(batches)) / run.microbatches
        loss.backward()
        total += float(loss.detach())
    return total, {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("name", MODELS)
def test_losses_fall_for_every_kind_of_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "LEARNING_RATE", 3e-3)
    steps = trained(spec(MODELS[name]))
    assert [step.number for step in steps] == list(range(1, 31))
    assert steps[0].loss == pytest.approx(math.log(32), abs=0.2)
    first, last = (np.mean([step.loss for step in part]) for part in (steps[:5], steps[-5:]))
    assert last < first - 0.3


def test_losses_fall_with_the_trainers_own_learning_rate_and_precision() -> None:
    steps = trained(spec(precision="bf16"))
    assert np.mean([step.loss for step in steps[-5:]]) < np.mean([step.loss for step in steps[:5]])


def test_adapters_are_all_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "LEARNING_RATE", 1e-2)
    kept: list[Transformer] = []
    build = build_network

    def keeping(run: RunSpec, device: str) -> Transformer:
        kept.append(build(run, device))
        return kept[-1]

    monkeypatch.setattr(train_module, "build_network", keeping)
    run = spec(lora_rank=4, lora_targets=["qkv", "proj", "fc1", "fc2"])
    torch.manual_seed(run.conditions.seed)
    before = {name: weight.detach().clone() for name, weight in build(run, "cpu").named_parameters()}
    steps = trained(run)
    changed = {name for name, weight in kept[0].named_parameters() if not torch.equal(weight, before[name])}
    adapters = {name for name in before if name.endswith(("down.weight", "up.weight")) and ".base." not in name}
    assert changed == adapters
    assert {name for name, weight in kept[0].named_parameters() if weight.requires_grad} == adapters
    assert np.mean([step.loss for step in steps[-5:]]) < np.mean([step.loss for step in steps[:5]])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation_changes_neither_loss_nor_gradients(name: str, recompute: str) -> None:
    loss, expected = gradients(spec(MODELS[name]))
    again, found = gradients(spec(MODELS[name], recompute=recompute))
    assert again == pytest.approx(loss, abs=1e-6)
    assert found.keys() == expected.keys()
    for weight, gradient in expected.items():
        assert torch.allclose(found[weight], gradient, rtol=1e-6, atol=1e-6), weight


def test_recomputing_some_layers_changes_nothing_either() -> None:
    loss, expected = gradients(spec())
    again, found = gradients(spec(recompute="full", recompute_layers=1))
    assert again == pytest.approx(loss, abs=1e-6)
    assert all(torch.allclose(found[weight], expected[weight], rtol=1e-6, atol=1e-6) for weight in expected)


def test_recomputation_in_16_bits_gives_equal_losses() -> None:
    losses = [[step.loss for step in trained(spec(precision="bf16", recompute=kind), 5)] for kind in ("none", "full")]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", ["dense", "classic", "sparse", "latent"])
def test_more_microbatches_of_the_same_batch_give_the_same_gradient(name: str) -> None:
    (loss, expected), *others = (gradients(spec(MODELS[name], micro_batch_size=size)) for size in (8, 4, 1))
    for again, found in others:
        assert again == pytest.approx(loss, abs=1e-6)
        for weight, gradient in expected.items():
            assert torch.allclose(found[weight], gradient, rtol=1e-5, atol=1e-6), weight


def test_a_seed_gives_the_same_run() -> None:
    runs = [[step.loss for step in trained(spec(), 3)] for _ in range(2)]
    assert runs[0] == runs[1]


def test_steps_are_marked_with_their_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("charllm.mark._files", {})
    monkeypatch.setenv("CHARLLM_MARKS", str(tmp_path))
    trained(spec(), 3)
    (marks,) = read_marks(tmp_path).values()
    assert [step.tokens for step in find_steps(marks)] == [8 * 16] * 3


def test_training_ends_when_its_time_is_up() -> None:
    steps = list(train(spec(), "cpu", None, 0.2))
    assert len(steps) >= 1
    assert sum(step.seconds_s for step in steps[:-1]) < 0.2


def test_an_optimizer_can_be_plain_or_none() -> None:
    build = {name: trained(spec(optimizer=name), 2) for name in ("adam", "sgd", "none")}
    assert all(math.isfinite(step.loss) for steps in build.values() for step in steps)
    assert build["adam"][0].loss == build["none"][0].loss
    assert build["adam"][1].loss != build["none"][1].loss


def test_a_file_of_tokens_is_trained_on(tmp_path: Path) -> None:
    (np.arange(2000) % 4).astype(np.uint16).tofile(tmp_path / "tokens")
    losses = [step.loss for step in train(spec(), "cpu", 20, None, tmp_path / "tokens")]
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cluster": "h200x8", "parallelism": {"tp": 8}, "model": {"heads": 8, "kv_heads": 8}}, "parallelism"),
        ({"training": {"precision": "fp8"}}, "training.precision"),
        ({"model": {"attention_sinks": True}}, "model.attention_sinks"),
        ({"model": {"layers": 2, "pattern": "*-"}}, "model.pattern"),
        ({"model": {"experts": 4, "topk": 1, "expert_latent": 8}}, "model.expert_latent"),
    ],
)
def test_what_one_rank_cannot_train_is_refused(changes: dict[str, Any], field: str) -> None:
    settings = {"precision": "fp32", "micro_batch_size": 1, "global_batch_size": 8}
    run = resolve_run(merge({"model": DENSE, "cluster": "h200x1", "training": settings}, changes))
    with pytest.raises(SpecError) as caught:
        next(train(run, "cpu", 1, None))
    assert caught.value.field == field


def test_a_model_that_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(*_: object, **_named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(work_module, "Transformer", overflow)
        with pytest.raises(DoesNotFit, match="tiny does not fit on this GPU"):
            next(train(spec(), "cpu", 1, None))
    assert torch.get_default_dtype() == torch.float32
    monkeypatch.setattr(train_module, "plain_step", overflow)
    with pytest.raises(DoesNotFit, match="while it is trained"):
        next(train(spec(), "cpu", 1, None))
