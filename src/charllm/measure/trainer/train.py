"""Train: microbatches, gradients, update, a mark at every step; on one rank alone or on each of many."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from charllm import mark
from charllm.errors import CharllmError, DoesNotFit
from charllm.measure.trainer.attention import own_positions
from charllm.measure.trainer.data import Batches, file_batches, own_tokens, own_turns, synthetic_batches
from charllm.measure.trainer.gradients import MAX_NORM
from charllm.measure.trainer.model import Chunk, Transformer
from charllm.measure.trainer.place import TIMEOUT_S, Group, Launch, Place, first_line, take_place
from charllm.measure.trainer.trace import StepTrace
from charllm.measure.trainer.work import build_work, initialise_chunk, make_chunk, make_optimizer, work_step
from charllm.spec.framework import groups_experts
from charllm.spec.run import RunSpec

LOST_PEER = ("gloo", "connection", "nccl", "timed out", "timeout", "socket", "store")
"""Words of torch's messages when another rank is gone or late."""

ONE_PROCESS = Launch()
Stepper = Callable[[Batches, float], tuple[float, bool]]
"""Trains one step: takes batches and the time to end at, returns the loss and whether that was the last step."""


class TrainStep(NamedTuple):
    """One step as it happened."""

    number: int
    loss: float
    seconds_s: float
    tokens: int


def train(
    run: RunSpec,
    device: str,
    steps: int | None,
    seconds_s: float | None,
    data: Path | None = None,
    *,
    launch: Launch = ONE_PROCESS,
    timeout_s: float = TIMEOUT_S,
    trace: Path | None = None,
    zbv: bool = False,
) -> Iterator[TrainStep]:
    """Yield every step until the count or the time is reached, on every rank; losses are those of the whole batch."""
    place = take_place(run, device, launch, timeout_s)
    torch.manual_seed(_own_seed(run.conditions.seed, place))
    build = _one_rank if place.world == 1 else partial(_one_of_many, zbv=zbv)
    stepper = _explained(run, place, lambda: build(run, place))
    batches = own_batches(run, place, data)
    tracer = StepTrace(trace, place.rank) if trace is not None else None
    end_s = time.monotonic() + seconds_s if seconds_s is not None else float("inf")
    number, last = 0, False
    mark.step(tokens=0)
    try:
        while (steps is None or number < steps) and not last:
            start_s = time.monotonic()
            number += 1
            with tracer.step(number) if tracer else nullcontext():
                loss, last = _explained(run, place, lambda: stepper(batches, end_s))
            mark.point("loss", loss)
            mark.step(number, tokens=run.tokens_per_step if place.rank == 0 else None)
            yield TrainStep(number, loss, time.monotonic() - start_s, run.tokens_per_step)
    finally:
        if tracer:
            tracer.close()


def build_network(run: RunSpec, device: str) -> Transformer:
    """Build the whole model of a run on a device, in its precision."""
    place = Place(grouped_gemm=groups_experts(run.framework, run.training))
    network = make_chunk(run, place, Chunk(0, run.model.layers), device)
    initialise_chunk(run, network, Group(), Group())
    return network


def own_batches(run: RunSpec, place: Place, data: Path | None) -> Batches:
    """Yield the microbatches of this rank: its replica's, and of these the tokens that it holds."""
    training = run.training
    turns = own_turns(place.replica, run.parallelism.dp, run.microbatches)
    settings = (run.model.vocab, training.micro_batch_size, training.seq_length, run.conditions.seed, place.device)
    batches = synthetic_batches(*settings, turns) if data is None else file_batches(data, *settings, turns)
    if place["cp"].size == 1:
        return batches
    positions = own_positions(training.seq_length, place["cp"], place.cp_kind, torch.device(place.device))
    return own_tokens(batches, positions)


def _own_seed(seed: int, place: Place) -> int:
    """Seed dropout: equal on tp ranks that work on the same tokens, different elsewhere."""
    tp = place["tp"]
    return seed + (tp.ranks[0] if tp.size > 1 and not place.sp else place.rank)


def _explained(run: RunSpec, place: Place, step: Callable[[], Any]) -> Any:
    """Build or train; say in a sentence what went wrong where memory or another rank is the cause."""
    try:
        return step()
    except torch.cuda.OutOfMemoryError:
        where = f" of rank {place.rank}" if place.world > 1 else ""
        raise DoesNotFit(f"{run.model.name} does not fit on this GPU{where} while it is trained") from None
    except RuntimeError as error:
        said = first_line(error)
        if place.world == 1 or not any(word in said.lower() for word in LOST_PEER):
            raise
        raise CharllmError(
            f"rank {place.rank} lost contact with another rank, which has failed or is late: {said}"
        ) from None


def _one_rank(run: RunSpec, place: Place) -> Stepper:
    network = build_network(run, place.device)
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    optimizer = make_optimizer(run, trained, place.device)

    def step(batches: Batches, end_s: float) -> tuple[float, bool]:
        loss = plain_step(network, optimizer, batches, run.microbatches, clips=run.training.clip_gradients)
        return loss, time.monotonic() >= end_s

    return step


def _one_of_many(run: RunSpec, place: Place, *, zbv: bool) -> Stepper:
    work = build_work(run, place, zbv=zbv)
    return lambda batches, end_s: work_step(work, batches, end_s)


def plain_step(
    network: Transformer,
    optimizer: torch.optim.Optimizer | None,
    batches: Batches,
    microbatches: int,
    *,
    clips: bool = False,
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
            if clips:
                torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_NORM)
            optimizer.step()
        network.zero_grad(set_to_none=True)
    return float(torch.stack(losses).sum())
