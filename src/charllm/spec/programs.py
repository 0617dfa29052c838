"""What a program runs of the strategies that charllm can simulate: its rules, once for plans and for export.

Each function says what a program expects instead, or None where it runs what is asked. A program without rules here is
not asked: what its settings cannot say is found when a run is written and read back (catalog/export.py).
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from charllm.errors import SpecError, Words
from charllm.spec.run import RunSpec

SCHEDULES = {"megatron": ("1f1b", "interleaved"), "nemo": ("1f1b", "interleaved")}
"""Program: the pipeline schedules that it has."""
SHARDS_WEIGHTS = 2
"""From this stage of ZeRO on NeMo shards with FSDP."""


class Hiding(NamedTuple):
    """What decides which communication can be hidden."""

    overlap: Collection[str]
    """Axes that have something to hide."""
    data_ranks: int
    pp: int
    vpp: int
    zero: int
    recompute: str


def schedule_fault(program: str | None, schedule: str) -> str | None:
    """Judge a pipeline schedule."""
    known = SCHEDULES.get(program or "", (schedule,))
    return None if schedule in known else f"{' or '.join(known)}, the schedules of {program}"


def sharding_fault(program: str | None, zero: int, shard_size: int, node_ranks: float) -> str | None:
    """Judge shards over some of the replicas; `node_ranks` are the tp groups of a node."""
    if program != "nemo" or not shard_size or (zero == 3 and shard_size == node_ranks):
        return None
    return "0, or with zero 3 as many as share a node in NeMo"


def overlap_fault(program: str | None, asked: Hiding) -> str | None:
    """Judge what is hidden."""
    return OVERLAP_FAULTS[program](asked) if program in OVERLAP_FAULTS else None


def _megatron_overlap(asked: Hiding) -> str | None:
    """Megatron-LM's TransformerConfig.__post_init__ refuses these."""
    if "ep" in asked.overlap and asked.pp > 1 and asked.vpp == 1:
        return "vpp of at least 2 with ep in a pipeline of Megatron-LM"
    if "ep" in asked.overlap and asked.recompute == "full":
        return "recompute none or selective with ep in Megatron-LM"
    return None


def _nemo_overlap(asked: Hiding) -> str | None:
    """NeMo hides nothing of expert exchanges; FSDP always hides dp, and NeMo then turns tp's off."""
    if "ep" in asked.overlap:
        return "any of tp, dp, pp in NeMo"
    if asked.zero < SHARDS_WEIGHTS or asked.data_ranks == 1:
        return None
    if "dp" not in asked.overlap or "tp" in asked.overlap:
        return f"dp and not tp with zero {asked.zero} in NeMo"
    return None


OVERLAP_FAULTS: dict[str | None, Callable[[Hiding], str | None]] = {
    "megatron": _megatron_overlap,
    "nemo": _nemo_overlap,
}
"""Program: its rules of what can be hidden."""


def effective_overlap(run: RunSpec) -> list[str]:
    """Return the overlapped axes that have something to hide in a program: sends, only between chunks of stages."""
    degrees = run.parallelism
    sizes = {"tp": degrees.tp, "dp": degrees.data_ranks, "pp": degrees.vpp, "ep": degrees.ep, "cp": 1}
    return sorted(axis for axis in degrees.overlap if sizes[axis] > 1)


def check_program(run: RunSpec, program: str) -> None:
    """Refuse a strategy that a program does not run, with the field at fault."""
    degrees, overlap = run.parallelism, effective_overlap(run)
    asked = Hiding(overlap, degrees.data_ranks, degrees.pp, degrees.vpp, degrees.zero, run.training.recompute)
    faults = {
        "parallelism.schedule": (degrees.schedule, schedule_fault(program, degrees.schedule)),
        "parallelism.shard_size": (
            degrees.shard_size,
            sharding_fault(program, degrees.zero, degrees.shard_size, run.cluster.node.gpus / degrees.tp),
        ),
        "parallelism.overlap": (Words(", ".join(overlap) or "none"), overlap_fault(program, asked)),
    }
    for field, (got, expected) in faults.items():
        if expected is not None:
            raise SpecError(field, got, expected)
