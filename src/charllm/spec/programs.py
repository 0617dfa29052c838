"""What a program runs of the strategies that charllm can simulate: its rules, once for plans and for export.

Each function says what a program expects instead, or None where it runs what is asked. A program without rules here is
not asked: what its settings cannot say is found when a run is written and read back (catalog/export.py). Rules of
torchtitan are those of its release 0.2.2.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from charllm.errors import SpecError, Words
from charllm.spec.run import RunSpec
from charllm.spec.validity import Rule, hideable

SCHEDULES = {
    "megatron": ("1f1b", "interleaved"),
    "nemo": ("1f1b", "interleaved"),
    "torchtitan": ("1f1b", "gpipe", "interleaved"),
}
"""Program: the pipeline schedules that it has; torchtitan's zero-bubble ones need two stages a rank."""
PROFILES = {"megatron": ("megatron",), "nemo": ("nemo",), "torchtitan": ("torchtitan", "fsdp")}
"""Program: the software profiles that stand for it."""
SBATCH = "sbatch"
TARGETS = (*PROFILES, SBATCH)
"""What a run is written as."""
SHARDS_WEIGHTS = 2
"""From this stage of ZeRO on NeMo shards with FSDP."""


class Hiding(NamedTuple):
    """What decides which communication can be hidden."""

    overlap: Collection[str]
    """Axes that are hidden, of those that have something to hide."""
    able: Collection[str]
    """Axes that have something to hide."""
    pp: int
    vpp: int
    zero: int
    recompute: str


class LayerRule(NamedTuple):
    """A rule of how ranks share layers."""

    holds: Callable[[Any, bool], Rule]
    """Takes degrees, or arrays of them (spec/validity.py), and whether the model has experts."""
    expected: str


LAYER_RULES: dict[str | None, Mapping[str, LayerRule]] = {
    "torchtitan": {
        "sp": LayerRule(lambda degrees, _sparse: degrees.sp == (degrees.tp > 1), "true with tp > 1 in torchtitan"),
        "etp": LayerRule(
            lambda degrees, sparse: not sparse or (degrees.etp == degrees.tp) | ((degrees.etp == 1) & (degrees.ep > 1)),
            "tp, or 1 with ep > 1, in torchtitan",
        ),
    }
}
"""Program: setting of parallelism: its rule."""


def schedule_fault(program: str | None, schedule: str) -> str | None:
    """Judge a pipeline schedule."""
    known = SCHEDULES.get(program or "", (schedule,))
    return None if schedule in known else f"{' or '.join(known)}, the schedules of {program}"


def zero_fault(program: str | None, zero: int, degrees: Any) -> str | None:
    """Judge a stage of ZeRO; torchtitan has FSDP, and DDP where replicas are all there is (parallelize_llama)."""
    if program != "torchtitan" or zero >= SHARDS_WEIGHTS or degrees.dp * degrees.cp == 1:
        return None
    alone = degrees.tp * degrees.cp * degrees.pp * degrees.ep == 1
    return None if zero == 0 and alone else f"{'0, ' if alone else ''}2 or 3 in torchtitan"


def sharding_fault(program: str | None, zero: int, shard_size: int, degrees: Any, node_gpus: int) -> str | None:
    """Judge shards over some of the replicas."""
    if not shard_size:
        return None
    if program == "nemo" and not (zero == 3 and shard_size == node_gpus / degrees.tp):
        return "0, or with zero 3 as many as share a node in NeMo"
    if program == "torchtitan" and shard_size % degrees.cp:
        # torchtitan cuts weights over context-parallel ranks first, then over data-parallel ones.
        return f"a multiple of cp {degrees.cp} in torchtitan"
    if program == "torchtitan" and (shard_size * degrees.tp) % (degrees.ep * degrees.etp):
        return f"whole groups of ep {degrees.ep} x etp {degrees.etp} ranks in torchtitan"
    return None


def depth_fault(program: str | None, depth: int, layers: int) -> str | None:
    """Judge how many of a chunk's layers are recomputed: torchtitan recomputes every nth layer."""
    every = layers // max(1, depth)
    if program != "torchtitan" or (every > 1 and layers // every == depth):
        return None
    return f"{layers} layers over a whole number of at least 2 in torchtitan"


def dispatcher_fault(program: str | None, dispatcher: str, degrees: Any) -> str | None:
    """Judge the exchange of tokens: torchtitan has DeepEP for experts that tensor-parallel ranks do not cut."""
    cut = degrees.ep > 1 and degrees.etp > 1
    return "alltoall with etp in torchtitan" if program == "torchtitan" and cut and dispatcher != "alltoall" else None


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
    if asked.zero < SHARDS_WEIGHTS or "dp" not in asked.able:
        return None
    if "dp" not in asked.overlap or "tp" in asked.overlap:
        return f"dp and not tp with zero {asked.zero} in NeMo"
    return None


def _torchtitan_overlap(asked: Hiding) -> str | None:
    """FSDP2, DDP and pipeline runtimes of PyTorch always hide what they can; expert exchanges are waited for."""
    always = [axis for axis in ("dp", "pp") if axis in asked.able]
    if "ep" in asked.overlap or not set(always) <= set(asked.overlap):
        return f"{' and '.join(always) or 'none'}, with or without tp, in torchtitan"
    return None


OVERLAP_FAULTS: dict[str | None, Callable[[Hiding], str | None]] = {
    "megatron": _megatron_overlap,
    "nemo": _nemo_overlap,
    "torchtitan": _torchtitan_overlap,
}
"""Program: its rules of what can be hidden."""


def check_program(run: RunSpec, program: str | None) -> None:
    """Refuse a strategy that a program does not run, with the field at fault."""
    for fault in program_faults(run, program):
        raise fault


def program_faults(run: RunSpec, program: str | None) -> list[SpecError]:
    """List what a program does not run of a strategy."""
    degrees, training, overlap = run.parallelism, run.training, sorted(run.parallelism.effective_overlap)
    able = [axis for axis, is_able in hideable(degrees).items() if is_able]
    asked = Hiding(overlap, able, degrees.pp, degrees.vpp, degrees.zero, training.recompute)
    layer_faults = {
        f"parallelism.{name}": (
            getattr(degrees, name),
            None if rule.holds(degrees, run.model.experts > 0) else rule.expected,
        )
        for name, rule in LAYER_RULES.get(program, {}).items()
    }
    node_gpus, depth = run.cluster.node.gpus, training.recompute_layers if training.recompute == "full" else None
    faults = {
        **layer_faults,
        "parallelism.schedule": (degrees.schedule, schedule_fault(program, degrees.schedule)),
        "parallelism.zero": (degrees.zero, zero_fault(program, degrees.zero, degrees)),
        "parallelism.shard_size": (
            degrees.shard_size,
            sharding_fault(program, degrees.zero, degrees.shard_size, degrees, node_gpus),
        ),
        "framework.dispatcher": (
            run.framework.dispatcher,
            dispatcher_fault(program, run.framework.dispatcher, degrees),
        ),
        "parallelism.overlap": (Words(", ".join(overlap) or "none"), overlap_fault(program, asked)),
        "training.recompute_layers": (
            depth,
            depth_fault(program, depth, max(degrees.layers_per_stage)) if depth else None,
        ),
    }
    return [SpecError(field, got, expected) for field, (got, expected) in faults.items() if expected is not None]


def program_of(run: RunSpec) -> str | None:
    """Return the program that a run's software profile stands for; None where charllm writes no settings for it."""
    names = (run.framework.name, run.framework.profile)
    return next((name for name, one in PROFILES.items() if any(each in one for each in names)), None)
