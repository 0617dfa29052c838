"""What one rank trains and how one step of it goes: chunks of the model, its schedule, its gradients, its optimizer.

Collectives of a step, each on the group of its name (layout/grid.py). E is the size of an activation, T a rank's tokens
of a microbatch (sequence / cp), H the hidden width. A group of one rank does nothing.

Every microbatch, forward (backward runs the opposite on the gradient: an all-reduce for a copy, a reduce-scatter for
an all-gather, an all-gather for a reduce-scatter, an all-to-all for an all-to-all, nothing for an all-reduce):

- tp, T H E bytes: a copy (with sp an all-gather) before q, k, v, before fc1 and gate, and before the head; an
  all-reduce (with sp a reduce-scatter) after the embedding, proj and fc2. Latent attention enters after q_down
  (T q_lora_rank E) and after kv_down (T (kv_lora_rank + rope_head_dim) E) instead. Shared experts are a feed-forward
  block of their own.
- tp, 4 T bytes each: three all-reduces of the loss, for the largest logit, the sum and the target's logit.
- cp, ring: an all-gather of keys and values in one tensor; all-to-all: one call each for q, k, v and output.
- ep: an all-to-all of counts (int64, one for each expert, not in backward), of rows and of outputs, rows H E bytes.
- etp: an all-gather of counts (not in backward) and of rows, a reduce-scatter of outputs, padded to the fullest rank.
- pp: a send of the stream, T H E bytes (with sp T / tp), to the next stage.
- shard (experts: edp), zero 2 and 3: an all-gather of each unit in forward, with zero 3 again in backward; a
  reduce-scatter of its gradients, then an all-reduce over replicate. In a pipeline once a step. Units: sharding.py.

End of every step:

- tp, kv, etp: one flat all-reduce each of gradients that ranks have parts of: with sp norms, router, biases of proj
  and fc2, narrow layers of latent attention, positions; always norms of heads, whole halves of adapters and shared
  key-value heads.
- embedding: an all-reduce of the tied weight's gradient between the first and the last stage.
- data (experts: edp), zero 0: an all-reduce of each bucket.
- shard (edp), zero 1: a reduce-scatter of each bucket, an all-reduce of its part over replicate; after the update an
  all-gather of each bucket.
- world: one all-reduce of three fp64 numbers: loss, squared norm of the gradients, whether the time is up.

Forward collectives of recomputed layers run again in backward. With expert shards smaller than edp, the groups are
`expert shard` and `expert replicate`. The first step of a pipeline also agrees on the shapes of what stages send.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from charllm import mark
from charllm.errors import DoesNotFit, SpecError
from charllm.measure.trainer.data import Batches
from charllm.measure.trainer.exchange import all_reduce
from charllm.measure.trainer.gradients import (
    ReducedBySharding,
    ShardedUpdate,
    Sync,
    Trained,
    WholeGradients,
    clip,
    complete,
    dense_replicas,
    expert_replicas,
    local,
    square_sum,
    trained_weights,
)
from charllm.measure.trainer.model import Chunk, Transformer, global_name
from charllm.measure.trainer.pipeline import make_schedule, own_chunks, pass_through, schedule_name
from charllm.measure.trainer.place import Group, Place
from charllm.measure.trainer.sharding import shard_chunk, skipped_rows
from charllm.measure.trainer.weights import initialise, stacked
from charllm.spec.run import RunSpec
from charllm.workload.layer import layer_kinds

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LEARNING_RATE = 3e-4


@dataclass(frozen=True)
class Work:
    """One rank's part of a run."""

    run: RunSpec
    place: Place
    chunks: dict[int, Transformer]
    schedule: Any
    """torch's pipeline schedule; none with one stage."""
    weights: list[Trained]
    syncs: list[Sync]
    optimizer: Any


def build_work(run: RunSpec, place: Place, *, zbv: bool = False) -> Work:
    """Build what this rank trains."""
    name = schedule_name(run, zbv=zbv)
    require_supported(run)
    sharded = run.parallelism.zero >= 2 and run.parallelism.shard_ranks > 1
    whole = {0: Chunk(0, run.model.layers)}
    parts = own_chunks(run, place.stage, name) if run.parallelism.pp > 1 else whole
    with_device = "meta" if sharded else place.device
    chunks = {number: make_chunk(run, place, chunk, with_device) for number, chunk in parts.items()}
    dense, experts = (make(run, place, []) for make in (dense_replicas, expert_replicas))
    if sharded:
        for chunk in chunks.values():
            shard_chunk(run, chunk, place.device, dense, experts)
            chunk.to_empty(device=place.device)
    for chunk in chunks.values():
        initialise_chunk(run, chunk, dense.shard if sharded else Group(), experts.shard if sharded else Group())
    weights = trained_weights(chunks.values())
    syncs = make_syncs(run, place, weights)
    schedule = None
    if run.parallelism.pp > 1:
        last = max(chunks)
        schedule = make_schedule(
            run, place, chunks, name, lambda logits, targets: chunks[last].loss(logits, targets) / run.microbatches
        )
    # Groups of their own: one call cannot update tensors that are sharded over different ranks.
    updated = [{"params": [owned.weight for owned in sync.owned]} for sync in syncs]
    return Work(run, place, chunks, schedule, weights, syncs, make_optimizer(run, updated, place.device))


UNBUILT: dict[str, tuple[Any, ...]] = {
    "parallelism.regather_size": (0,),
    "training.document_tokens": (0,),
    "training.recompute_modules": ((), ("core_attn",)),
    "training.optimizer_offload_fraction": (0,),
    "training.activation_offload_fraction": (0,),
    "training.capacity_factor": (None,),
    "training.routing_skew": (None, 1.0),
}
"""Settings of a run that many ranks do not act on: the values that ask for nothing."""


def require_supported(run: RunSpec) -> None:
    """Refuse what would be trained otherwise than asked."""
    for name, neutral in UNBUILT.items():
        part, field = name.split(".")
        value = getattr(getattr(run, part), field)
        if value not in neutral:
            shown = " or ".join("left out" if each in (None, ()) else str(each) for each in neutral)
            raise SpecError(name, value, f"{shown}: the trainer does not build it on many ranks")


def make_chunk(run: RunSpec, place: Place, chunk: Chunk, device: str) -> Transformer:
    """Build some layers of the model, in the run's precision."""
    if run.training.precision not in DTYPES:
        raise SpecError("training.precision", run.training.precision, f"{', '.join(DTYPES)} with the reference trainer")
    kinds = tuple((kind.sparse, kind.window) for kind in layer_kinds(run.model))
    torch.set_default_dtype(DTYPES[run.training.precision])
    try:
        with torch.device(device):
            network: Transformer = Transformer(run.model, run.training, kinds, place, chunk)
    except torch.cuda.OutOfMemoryError:
        raise DoesNotFit(f"{run.model.name} does not fit on this GPU") from None
    finally:
        torch.set_default_dtype(torch.float32)
    return network


def initialise_chunk(run: RunSpec, chunk: Transformer, shard: Group, expert_shard: Group) -> None:
    """Draw the weights of a chunk, of which a shard may be here."""
    for name, weight in chunk.named_parameters():
        piece = chunk.pieces[name]
        group = expert_shard if piece.expert else shard
        skipped = skipped_rows(weight.shape[0], group) if hasattr(weight, "to_local") else 0
        for part, place, called in stacked(local(weight.detach()), piece, global_name(chunk, name), skipped):
            initialise(part, place, called, run.conditions.seed, skipped if weight.ndim < 3 else 0)


def make_syncs(run: RunSpec, place: Place, weights: list[Trained]) -> list[Sync]:
    """Choose how dense weights and experts are kept equal on replicas."""
    syncs: list[Sync] = []
    zero = run.parallelism.zero
    for replicas in (dense_replicas(run, place, weights), expert_replicas(run, place, weights)):
        if not replicas.weights:
            continue
        if zero == 0 or replicas.shard.size == 1:
            syncs.append(WholeGradients(run, replicas))
        else:
            syncs.append(ShardedUpdate(run, replicas) if zero == 1 else ReducedBySharding(replicas))
    return syncs


def make_optimizer(run: RunSpec, trained: list[Any], device: str) -> torch.optim.Optimizer | None:
    """Build the run's update rule over weights, or over groups of them."""
    if run.training.optimizer == "none" or not trained:
        return None
    if run.training.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=LEARNING_RATE)
    return torch.optim.AdamW(trained, lr=LEARNING_RATE, betas=(0.9, 0.95), fused=not device.startswith("cpu"))


def work_step(work: Work, batches: Batches, end_s: float) -> tuple[float, bool]:
    """Train one step; returns the mean loss of the whole batch, and whether rank 0 finds that the time is up."""
    place, clips = work.place, work.run.training.clip_gradients and work.optimizer is not None
    with mark.phase("forward-backward"):
        loss = _pass(work, batches)
    with mark.phase("synchronize"), torch.no_grad():
        complete(work.weights, place)
        for sync in work.syncs:
            sync.reduce()
        owned = [entry for sync in work.syncs for entry in sync.owned]
        said = torch.zeros(3, dtype=torch.float64, device=place.device)
        if loss is not None:
            said[0] = loss.double() / (work.run.parallelism.data_ranks * place["tp"].size)
        if clips:
            said[1] = square_sum(owned, place.device)
        said[2] = float(place.rank == 0 and time.monotonic() >= end_s)
        all_reduce(said, place["world"])
        if clips:
            clip(owned, said[1])
    with mark.phase("update"):
        if work.optimizer is not None:
            work.optimizer.step()
        for sync in work.syncs:
            sync.spread()
        for chunk in work.chunks.values():
            chunk.zero_grad(set_to_none=True)
    numbers = said.tolist()
    return numbers[0], numbers[2] > 0


def _pass(work: Work, batches: Batches) -> Tensor | None:
    """Pass a step's microbatches forward and backward; returns this rank's mean loss where it has the head."""
    run = work.run
    taken = [next(batches) for _ in range(run.microbatches)]
    if work.schedule is not None:
        tokens, targets = (torch.cat(parts) for parts in zip(*taken, strict=True))
        losses = pass_through(work.schedule, work.chunks, tokens, targets)
        return torch.stack([loss.detach() for loss in losses]).sum() if losses else None
    (network,) = work.chunks.values()
    losses = []
    for tokens, targets in taken:
        loss = network(tokens, targets) / run.microbatches
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses).sum()
