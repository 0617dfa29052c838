"""How one step is cut over ranks: the degrees of each axis, the schedule and what overlaps."""

from dataclasses import dataclass

from charllm.errors import SpecError
from charllm.spec.fields import check_fields, choice, count, counts, flag, text, words
from charllm.spec.schedules import SCHEDULES
from charllm.spec.validity import hideable, sp_needs_tp, vpp_needs_pp

AXES = ("tp", "cp", "ep", "dp", "pp")
OVERLAPS = ("tp", "dp", "pp", "ep", "cp")
CP_KINDS = ("ring", "all-to-all")
MAX_DEGREE = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Degrees of every axis; tp x cp x dp x pp ranks in all, experts spread over etp x ep of tp x cp x dp."""

    tp: int = count("Tensor parallelism: ranks that share every matrix multiplication.", 1, MAX_DEGREE, 1)
    cp: int = count("Context parallelism: ranks that share a sequence.", 1, MAX_DEGREE, 1)
    dp: int = count("Data parallelism: replicas that share the batch.", 1, MAX_DEGREE, 1)
    pp: int = count("Pipeline parallelism: stages that the layers are divided into.", 1, MAX_DEGREE, 1)
    vpp: int = count("Virtual pipeline: chunks of layers on each stage (interleaving).", 1, 4096, 1)
    ep: int = count("Expert parallelism: ranks that the experts are spread over.", 1, MAX_DEGREE, 1)
    etp: int = count("Expert tensor parallelism: ranks that share one expert's GEMMs.", 1, MAX_DEGREE, 1)
    zero: int = count("ZeRO stage: replicas shard 1 the optimizer, 2 also gradients, 3 also weights (FSDP).", 0, 3, 0)
    shard_size: int = count("Ranks over which one copy is sharded; 0: all dp x cp ranks.", 0, MAX_DEGREE, 0)
    regather_size: int = count(
        "Ranks that share a second copy of sharded weights, gathered in backward (ZeRO++ hpZ); 0: no copy.",
        0,
        MAX_DEGREE,
        0,
    )
    sp: bool = flag(
        "Sequence parallelism: whether tp ranks also share the sequence outside the matrix multiplications.", False
    )
    cp_kind: str = choice("How cp ranks exchange keys and values.", CP_KINDS, "ring")
    schedule: str = choice("Pipeline schedule: order of microbatches on the stages.", tuple(SCHEDULES), "1f1b")
    layers_per_stage: tuple[int, ...] = counts(
        "Layers of each stage, or of each chunk; empty: evenly divided.", 0, 4096
    )
    overlap: tuple[str, ...] = words("Axes whose communication is overlapped with compute.", OVERLAPS)
    order: str = text("Order of the axes, innermost (neighbouring ranks) first.", "tp-cp-ep-dp-pp")

    def __post_init__(self) -> None:
        check_fields(self)
        if sorted(self.order.split("-")) != sorted(AXES):
            raise SpecError("order", self.order, f"an order of {', '.join(AXES)}, e.g. {'-'.join(AXES)}")
        if not sp_needs_tp(self):
            raise SpecError("sp", True, "only with tp > 1")
        if not vpp_needs_pp(self):
            raise SpecError("vpp", self.vpp, "1 unless pp > 1")
        if self.schedule == "interleaved" and self.vpp == 1:
            raise SpecError("schedule", self.schedule, "interleaved needs vpp > 1")
        if self.vpp > 1 and not SCHEDULES[self.schedule].interleaves:
            raise SpecError("schedule", self.schedule, f"interleaved with vpp {self.vpp}")

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def trains(self) -> bool:
        """Whether microbatches also go backward, and weights are updated."""
        return SCHEDULES[self.schedule].trains

    @property
    def data_ranks(self) -> int:
        """Ranks that hold a copy of the same dense weights: gradients are reduced over them."""
        return self.dp * self.cp

    @property
    def effective_overlap(self) -> tuple[str, ...]:
        """Axes of `overlap` that have something to hide."""
        able = hideable(self)
        return tuple(axis for axis in self.overlap if able[axis])

    @property
    def expert_data_ranks(self) -> int:
        """Ranks that hold a copy of the same experts."""
        return self.tp * self.cp * self.dp // (self.etp * self.ep)

    @property
    def shard_ranks(self) -> int:
        """Ranks one copy of the dense state is sharded over; 1 when nothing is sharded."""
        return (self.shard_size or self.data_ranks) if self.zero else 1

    @property
    def expert_shard_ranks(self) -> int:
        """Ranks one copy of the expert state is sharded over."""
        if not self.zero:
            return 1
        return min(self.expert_data_ranks, self.shard_size) if self.shard_size else self.expert_data_ranks
