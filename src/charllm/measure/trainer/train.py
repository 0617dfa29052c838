"""Train: microbatches, gradients, update, a mark at every step."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from charllm import mark
from charllm.errors import DoesNotFit, SpecError
from charllm.measure.trainer.data import Batches, file_batches, synthetic_batches
from charllm.measure.trainer.model import Transformer
from charllm.spec.run import RunSpec
from charllm.workload.layer import layer_kinds

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LEARNING_RATE = 3e-4


class TrainStep(NamedTuple):
    """One step as it happened."""

    number: int
    loss: float
    seconds_s: float
    tokens: int


def train(
    run: RunSpec, device: str, steps: int | None, seconds_s: float | None, data: Path | None = None
) -> Iterator[TrainStep]:
    """Yield every step until the count or the time is reached."""
    _require_one_rank(run)
    torch.manual_seed(run.conditions.seed)
    network = build_network(run, device)
    optimizer = _make_optimizer(run, network, device)
    training = run.training
    batch, seq, seed = training.micro_batch_size, training.seq_length, run.conditions.seed
    if data is None:
        batches = synthetic_batches(run.model.vocab, batch, seq, seed, device)
    else:
        batches = file_batches(data, run.model.vocab, batch, seq, seed, device)
    began_s = time.monotonic()
    number = 0
    mark.step(tokens=0)
    while (steps is None or number < steps) and (seconds_s is None or time.monotonic() - began_s < seconds_s):
        start_s = time.monotonic()
        try:
            loss = _step(network, optimizer, batches, run.microbatches)
        except torch.cuda.OutOfMemoryError:
            raise DoesNotFit(f"{run.model.name} does not fit on this GPU while it is trained") from None
        number += 1
        mark.step(number, tokens=run.tokens_per_step)
        yield TrainStep(number, loss, time.monotonic() - start_s, run.tokens_per_step)


def build_network(run: RunSpec, device: str) -> Transformer:
    """Build the model of a run on a device, in its precision."""
    if run.training.precision not in DTYPES:
        raise SpecError("training.precision", run.training.precision, f"{', '.join(DTYPES)} with the reference trainer")
    kinds = tuple((kind.sparse, kind.window) for kind in layer_kinds(run.model))
    torch.set_default_dtype(DTYPES[run.training.precision])
    try:
        with torch.device(device):
            network: Transformer = Transformer(run.model, run.training, kinds)
    except torch.cuda.OutOfMemoryError:
        raise DoesNotFit(f"{run.model.name} does not fit on this GPU") from None
    finally:
        torch.set_default_dtype(torch.float32)
    return network


def _require_one_rank(run: RunSpec) -> None:
    if run.parallelism.world != 1:
        raise SpecError("parallelism", f"{run.parallelism.world} ranks", "1 rank: the trainer runs on one GPU")


def _make_optimizer(run: RunSpec, network: Transformer, device: str) -> torch.optim.Optimizer | None:
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    if run.training.optimizer == "none":
        return None
    if run.training.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=LEARNING_RATE)
    return torch.optim.AdamW(trained, lr=LEARNING_RATE, betas=(0.9, 0.95), fused=device != "cpu")


def _step(
    network: Transformer,
    optimizer: torch.optim.Optimizer | None,
    batches: Batches,
    microbatches: int,
) -> float:
    """Work through the microbatches of one step and update; returns the mean loss, which waits for the GPU."""
    with mark.phase("forward-backward"):
        losses = []
        for _ in range(microbatches):
            tokens, targets = next(batches)
            loss = network(tokens, targets) / microbatches
            loss.backward()
            losses.append(loss.detach())
    with mark.phase("update"):
        if optimizer is not None:
            optimizer.step()
        network.zero_grad(set_to_none=True)
    return float(torch.stack(losses).sum())
