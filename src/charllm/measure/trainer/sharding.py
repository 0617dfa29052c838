"""Weights sharded over replicas with fully_shard (FSDP2): ZeRO 3, and 2 that keeps weights from forward to backward.

Units: the embedding, each layer, last norm and head together (a tied embedding is one unit with the last norm and stays
gathered); experts of a layer are a unit of their own over `edp`. In a pipeline all stay gathered until the step ends.
"""

from typing import Any

import torch
from torch import nn

from charllm.measure.trainer.experts import Moe
from charllm.measure.trainer.gradients import Replicas, reduced_dtype
from charllm.measure.trainer.model import Transformer
from charllm.measure.trainer.place import Group
from charllm.spec.run import RunSpec


def shard_chunk(run: RunSpec, chunk: Transformer, device: str, dense: Replicas, experts: Replicas) -> None:
    """Shard a chunk's weights in place."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    stored = next(chunk.parameters()).dtype
    reduced = reduced_dtype(run, stored)
    policy = MixedPrecisionPolicy(reduce_dtype=None if reduced == stored else reduced)
    freed = run.parallelism.zero == 3 and run.parallelism.pp == 1
    kind = torch.device(device).type
    how: dict[str, Any] = {"mesh": make_mesh(kind, dense), "mp_policy": policy, "reshard_after_forward": freed}
    aside: set[nn.Parameter] = set()
    for moe in (module for module in chunk.modules() if isinstance(module, Moe)):
        if experts.shard.size == 1:
            aside |= set(moe.experts.parameters())
        else:
            fully_shard(moe.experts, **{**how, "mesh": make_mesh(kind, experts)})
    how["ignored_params"] = aside
    for layer in chunk.layers.values():
        fully_shard(layer, **how)
    lent = chunk.norm is not None and chunk.head is None
    if chunk.embedding is not None and not lent:
        fully_shard([part for part in (chunk.embedding, chunk.positions) if part is not None], **how)
    if chunk.head is not None:
        fully_shard([chunk.norm, chunk.head], **how)
    fully_shard(chunk, **{**how, "reshard_after_forward": False})


def make_mesh(device: str, replicas: Replicas) -> Any:
    """Return torch's mesh over the groups of a run: the shard, or replicas of shards."""
    from torch.distributed.device_mesh import DeviceMesh

    shard, replicate = replicas.shard, replicas.replicate
    if replicate.size == 1:
        return DeviceMesh.from_group(shard.handle, device)
    table = torch.tensor(replicas.whole.ranks).view(replicate.size, shard.size)
    return DeviceMesh.from_group(
        [replicate.handle, shard.handle], device, mesh=table, mesh_dim_names=("replicate", "shard")
    )


def skipped_rows(rows: int, shard: Group) -> int:
    """Return the rows of a weight before this rank's shard of it."""
    return min(rows, shard.index * -(-rows // shard.size))
