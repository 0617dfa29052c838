"""The whole request in one frozen object, and the checks that need more than one part of it."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar

from charllm.errors import SpecError
from charllm.spec.fields import check_fields, count, counts, number, number_or_list, text
from charllm.spec.forward_only import check_forward_only
from charllm.spec.framework import Framework
from charllm.spec.generation import Generation
from charllm.spec.hardware import Cluster, Gpu
from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.schedules import hiding_schedules
from charllm.spec.training import PRECISIONS, Training
from charllm.spec.validity import (
    batch_divides,
    context_pieces,
    expert_width_divides,
    experts_divide,
    experts_fill_ranks,
    fills_cluster,
    heads_divide,
    heads_exchange,
    kv_heads_divide,
    layers_part,
    mamba_divides,
    rounds_are_whole,
    sequence_divides,
    sequence_shards_divide,
    shard_divides_ranks,
    shard_needs_zero,
    width_divides,
)
from charllm.units import MEGA

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the run is subjected to: limits, placement, spread between dies, length."""

    power_cap_w: float | None = number(
        "Power limit of every GPU (package); default: the GPU's own limit.", 10, 2e4, None
    )
    clock_cap_hz: float | None = number("Highest clock allowed (default: the GPU's own).", 1e7, 1e10, None)
    placement: str = text(
        "GPU of each rank: default (rank i on GPU i), thermal (each node's ranks on slots from coolest to hottest), "
        "a TOML file of `charllm place`, or a JSON list of GPUs.",
        "default",
    )
    gpu_of_rank: tuple[int, ...] = counts("GPU of each rank, from the placement; empty: rank i on GPU i.", 0, 2**31)
    silicon_spread_fraction: float = number("Standard deviation of leakage between dies.", 0.0, 0.5, 0.0)
    weak_gpus: tuple[int, ...] = counts("GPUs, by number, that draw more power than others at equal work.", 0, 2**31)
    weak_power_fraction: float | tuple[float, ...] = number_or_list(
        "Dynamic-power multiplier of weak GPUs: one for all, or one for each.", 0.5, 3.0, 1.15
    )
    braked_nodes: tuple[int, ...] = counts("Nodes, by number, whose power supplies hold the power brake.", 0, 2**31)
    brake_clock_hz: float | None = number("Clock under the power brake (default: half the highest).", 1e7, 1e10, None)
    capped_gpus: tuple[int, ...] = counts("GPUs, by number, with a power or clock cap of their own.", 0, 2**31)
    capped_power_w: float | tuple[float, ...] | None = number_or_list(
        "Power limit of capped GPUs (packages): one for all, or one for each.", 10, 2e4, None
    )
    capped_clock_hz: float | tuple[float, ...] | None = number_or_list(
        "Highest clock of capped GPUs: one for all, or one for each.", 1e7, 1e10, None
    )
    hot_gpus: tuple[int, ...] = counts("GPUs, by number, whose heat sink conducts worse than usual.", 0, 2**31)
    hot_sink_fraction: float | tuple[float, ...] = number_or_list(
        "Sink resistance of hot GPUs relative to normal (dust, a loose sink, a failed fan): one for all or each.",
        0.1, 20.0, 2.0,
    )  # fmt: skip
    slow_nic_nodes: tuple[int, ...] = counts("Nodes, by number, whose network adapters are slow.", 0, 2**31)
    slow_nic_fraction: float = number("Bandwidth of slow adapters relative to normal, each way.", 0.01, 1.0, 0.5)
    slow_link_gpus: tuple[int, ...] = counts("GPUs, by number, whose scale-up links are slow.", 0, 2**31)
    slow_link_fraction: float = number("Bandwidth of slow scale-up links relative to normal, each way.", 0.01, 1.0, 0.5)
    slow_host_nodes: tuple[int, ...] = counts("Nodes, by number, whose host launches kernels slowly.", 0, 2**31)
    slow_host_fraction: float = number("Launch speed of slow hosts relative to normal.", 0.01, 1.0, 0.5)
    replica_stagger_s: float = number(
        "Stagger of data-parallel replicas: the last begins a step this long after the first.", 0.0, 3600.0, 0.0
    )
    seed: int = count("Random seed.", 0, 2**63 - 1, 0)
    steps: int | None = count("Steps from a cold start (default: thermal steady state).", 1, 100_000_000, None)
    seconds_s: float | None = number("Seconds from a cold start (default: thermal steady state).", 1e-3, 1e9, None)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steps is not None and self.seconds_s is not None:
            raise SpecError("steps", self.steps, "steps or seconds, not both")
        for name in ("weak_power_fraction", "hot_sink_fraction", "capped_power_w", "capped_clock_hz"):
            word = name.partition("_")[0]
            values, listed = getattr(self, name), getattr(self, f"{word}_gpus")
            if isinstance(values, tuple) and len(values) != len(listed):
                raise SpecError(name, list(values), f"a number, or one for each of the {len(listed)} {word} GPUs")
        if self.capped_gpus and self.capped_power_w is None and self.capped_clock_hz is None:
            raise SpecError("capped_power_w", None, "the power limit of the capped GPUs (or capped_clock_hz)")

    @property
    def has_faults(self) -> bool:
        """Whether some GPU, link or host differs from the others."""
        return bool(self.capped_gpus) or self.differs_beyond_caps

    @property
    def differs_beyond_caps(self) -> bool:
        """Whether some GPU, link or host differs from the others by more than its power or clock cap."""
        return any(getattr(self, name) for name in (*GPU_LISTS, *NODE_LISTS) if name != "capped_gpus")


GPU_LISTS = ("weak_gpus", "capped_gpus", "hot_gpus", "slow_link_gpus")
NODE_LISTS = ("braked_nodes", "slow_nic_nodes", "slow_host_nodes")
"""Conditions that list the GPUs, or the nodes, that differ from the others."""
SEVERITIES = {
    "capped_gpus": ("capped_power_w", "capped_clock_hz"),
    "hot_gpus": ("hot_sink_fraction",),
    "slow_nic_nodes": ("slow_nic_fraction",),
    "slow_link_gpus": ("slow_link_fraction",),
    "slow_host_nodes": ("slow_host_fraction",),
}
"""How far those differ; neither is written out for a run without them."""


class Cap(NamedTuple):
    """Power and clock limit of one GPU; None: that of the run."""

    power_w: float | None = None
    clock_hz: float | None = None


CLASSES = {"dense": "dense", "moe": "sparse", "lora": "LoRA"}
"""Class of a run by which predictions are scored: what it is called."""


def class_of(experts: int | None, lora_rank: int | None) -> str:
    """Return the class of a run with so many experts and such a rank of LoRA."""
    return "lora" if lora_rank else "moe" if experts else "dense"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A run: model x training x parallelism x cluster x framework x conditions."""

    model: Model
    training: Training
    parallelism: Parallelism
    cluster: Cluster
    framework: Framework
    conditions: Conditions
    generation: Generation | None = None
    """What is generated, in a run that does; its parallelism is forward-only then."""
    defaults_taken: tuple[str, ...] = field(default=(), compare=False)
    """Settings that the request left open and the framework's profile supplied, in words."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What the reader of a foreign file did not use or had to assume, a sentence each."""

    @property
    def scored_as(self) -> str:
        """The class by which its prediction is scored."""
        return class_of(self.model.experts, self.training.lora_rank)

    @property
    def microbatches(self) -> int:
        """Microbatches that each replica works through in a step."""
        training = self.training
        return training.global_batch_size // (training.micro_batch_size * self.parallelism.dp)

    @property
    def weak_factors(self) -> dict[int, float]:
        """Dynamic-power multiplier of each weak GPU."""
        return _each(self.conditions.weak_gpus, self.conditions.weak_power_fraction)

    @property
    def sink_factors(self) -> dict[int, float]:
        """Sink resistance of each hot GPU over the usual."""
        return _each(self.conditions.hot_gpus, self.conditions.hot_sink_fraction)

    @property
    def caps(self) -> dict[int, Cap]:
        """Power and clock limit of each GPU that has its own."""
        asked = self.conditions
        powers_w, clocks_hz = (
            _each(asked.capped_gpus, limit) for limit in (asked.capped_power_w, asked.capped_clock_hz)
        )
        return {gpu: Cap(powers_w[gpu], clocks_hz[gpu]) for gpu in asked.capped_gpus}

    @property
    def power_caps_w(self) -> dict[int, float]:
        """Power limit of each GPU that has its own."""
        return {gpu: cap.power_w for gpu, cap in self.caps.items() if cap.power_w is not None}

    @property
    def tokens_per_step(self) -> int:
        """Tokens in a step, over all replicas."""
        return self.training.global_batch_size * self.training.seq_length

    def as_table(self) -> dict[str, Any]:
        """Return the spec as a plain table that builds the same spec again."""
        table: dict[str, Any] = _plain(asdict(self))
        del table["defaults_taken"], table["notes"]
        if self.generation is None:
            table.pop("generation", None)
        if not self.cluster.mixed:
            del table["cluster"]["mixed"]
        for listed, severities in SEVERITIES.items():
            if not getattr(self.conditions, listed):
                for name in (listed, *severities):
                    table["conditions"].pop(name, None)
        if not self.conditions.replica_stagger_s:
            del table["conditions"]["replica_stagger_s"]
        if self.framework.drops_tokens:
            # Stated, so that the profile does not supply it again.
            table["training"]["capacity_factor"] = self.training.capacity_factor
        return table


def _each(listed: tuple[int, ...], values: T | tuple[T, ...]) -> dict[int, T]:
    return dict(zip(listed, values if isinstance(values, tuple) else (values,) * len(listed), strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def check_run(run: RunSpec) -> None:
    """Raise SpecError when the parts of a run contradict each other."""
    _check_degrees(run)
    _check_layers(run)
    _check_widths(run)
    _check_experts(run)
    _check_batch(run)
    _check_recompute(run)
    check_forward_only(run.training, run.parallelism)
    _check_conditions(run)


def _check_degrees(run: RunSpec) -> None:
    degrees, gpus = run.parallelism, run.cluster.gpus
    if not fills_cluster(degrees, gpus):
        product = f"tp {degrees.tp} x cp {degrees.cp} x dp {degrees.dp} x pp {degrees.pp} = {degrees.world} ranks"
        rest = degrees.tp * degrees.cp * degrees.pp
        hint = f", e.g. dp {gpus // rest}" if gpus % rest == 0 else ""
        raise SpecError("parallelism", product, f"{gpus} ranks, one for each GPU of {run.cluster.name}{hint}")
    if not shard_divides_ranks(degrees):
        raise SpecError("parallelism.shard_size", degrees.shard_size, f"a divisor of dp x cp = {degrees.data_ranks}")
    if not shard_needs_zero(degrees):
        raise SpecError("parallelism.shard_size", degrees.shard_size, "0 unless zero is 1, 2 or 3")
    if degrees.regather_size and (degrees.zero < 3 or degrees.shard_ranks % degrees.regather_size):
        asked = (
            f"a divisor of the {degrees.shard_ranks} ranks that share a copy"
            if degrees.zero == 3
            else "0 unless zero is 3"
        )
        raise SpecError("parallelism.regather_size", degrees.regather_size, asked)


def _check_layers(run: RunSpec) -> None:
    degrees, layers = run.parallelism, run.model.layers
    chunks = degrees.pp * degrees.vpp
    split = degrees.layers_per_stage
    if len(split) != chunks:
        raise SpecError(
            "parallelism.layers_per_stage", f"{len(split)} entries", f"{chunks}, one for each stage (chunk)"
        )
    if sum(split) != layers:
        possible = f"{layers}, the layers of {run.model.name}"
        raise SpecError("parallelism.layers_per_stage", f"{sum(split)} layers", possible)


def _check_widths(run: RunSpec) -> None:
    model, degrees, training = run.model, run.parallelism, run.training
    tp, cp = degrees.tp, degrees.cp
    if not heads_divide(model, degrees):
        raise SpecError("parallelism.tp", tp, f"a divisor of the {model.heads} heads")
    if not kv_heads_divide(model, degrees):
        raise SpecError("parallelism.tp", tp, f"a divisor or multiple of the {model.kv_heads} key-value heads")
    if not layers_part(model, degrees):
        raise SpecError("parallelism.pp", degrees.pp, "1: layers share keys and values, or embeddings of their own")
    if not mamba_divides(model, degrees):
        possible = (
            f"tp x cp a divisor of the {model.ssm_heads} Mamba heads, tp of the {model.ssm_groups} groups or a multiple"
        )
        raise SpecError("parallelism.tp", tp, possible)
    for name, width in (("ffn", model.ffn), ("shared_ffn", model.shared_ffn), ("hidden", model.hidden)):
        if not width_divides(width, degrees):
            raise SpecError("parallelism.tp", tp, f"a divisor of {name} {width}")
    if not sequence_divides(degrees, training):
        pieces = context_pieces(degrees)
        raise SpecError("training.seq_length", training.seq_length, f"a multiple of {pieces} with cp {cp}")
    if not sequence_shards_divide(degrees, training):
        possible = f"a multiple of cp x tp = {cp * tp} with sequence parallelism"
        raise SpecError("training.seq_length", training.seq_length, possible)
    if not heads_exchange(model, degrees):
        raise SpecError("parallelism.cp", cp, f"a divisor of heads / tp = {model.heads // tp} with all-to-all")
    for gpu in (node.gpu for node in run.cluster.kinds):
        if not gpu.peak_flop_per_s(training.precision) and training.precision != "bf16":
            able = ", ".join(name for name in PRECISIONS if name == "bf16" or gpu.peak_flop_per_s(name))
            why = f"{able} on {gpu.name}, whose matrix units take no {training.precision}"
            raise SpecError("training.precision", training.precision, why)


def _check_experts(run: RunSpec) -> None:
    model, degrees, training = run.model, run.parallelism, run.training
    if not model.experts:
        for name, value, neutral in (
            ("parallelism.ep", degrees.ep, 1),
            ("parallelism.etp", degrees.etp, 1),
            ("training.capacity_factor", training.capacity_factor, None),
            ("training.routing_skew", training.routing_skew, None),
            ("training.routing", training.routing, "forced"),
            ("training.grouped_gemm", training.grouped_gemm, None),
        ):
            if value != neutral:
                raise SpecError(name, value, f"{neutral}: {model.name} has no experts")
        return
    if not experts_divide(model, degrees):
        raise SpecError("parallelism.ep", degrees.ep, f"a divisor of the {model.experts} experts")
    if not expert_width_divides(model, degrees):
        raise SpecError("parallelism.etp", degrees.etp, f"a divisor of expert_ffn {model.expert_ffn}")
    if not experts_fill_ranks(degrees):
        ranks = degrees.tp * degrees.cp * degrees.dp
        asked = f"ep {degrees.ep} x etp {degrees.etp} = {degrees.ep * degrees.etp}"
        raise SpecError("parallelism.ep", asked, f"a divisor of tp x cp x dp = {ranks} ranks")
    if training.capacity_factor is not None and (training.routing_skew or 1.0) != 1.0:
        raise SpecError(
            "training.routing_skew", training.routing_skew, "1 with a capacity_factor, which evens the load"
        )


def _check_batch(run: RunSpec) -> None:
    training, degrees = run.training, run.parallelism
    if not batch_divides(degrees, training):
        per_round = training.micro_batch_size * degrees.dp
        low = training.global_batch_size // per_round * per_round
        near = f"{low} or {low + per_round}" if low else str(per_round)
        possible = f"a multiple of micro_batch_size x dp = {training.micro_batch_size} x {degrees.dp}, e.g. {near}"
        raise SpecError("training.global_batch_size", training.global_batch_size, possible)
    if not rounds_are_whole(degrees, training):
        asked = f"{run.microbatches} microbatches"
        raise SpecError("parallelism.schedule", asked, f"a multiple of pp = {degrees.pp} microbatches with interleaved")


def _check_recompute(run: RunSpec) -> None:
    training = run.training
    if training.recompute_layers is not None and training.recompute != "full":
        raise SpecError("training.recompute_layers", training.recompute_layers, "only with recompute full")
    if training.recompute_modules and training.recompute != "selective":
        raise SpecError("training.recompute_modules", training.recompute_modules, "only with recompute selective")


def _check_conditions(run: RunSpec) -> None:
    conditions = run.conditions
    for node in run.cluster.kinds:
        _check_limits(node.gpu, conditions)
    placed, gpus, nodes = conditions.gpu_of_rank, run.cluster.gpus, run.cluster.nodes
    for names, most, what in ((GPU_LISTS, gpus, "GPUs"), (NODE_LISTS, nodes, "nodes")):
        for name in names:
            listed = getattr(conditions, name)
            if max(listed, default=0) >= most:
                raise SpecError(f"conditions.{name}", list(listed), f"{what} 0 to {most - 1}")
    if placed and (len(placed) != gpus or set(placed) != set(range(gpus))):
        raise SpecError("conditions.placement", conditions.placement, f"the GPUs 0 to {gpus - 1}, each once")


def _check_limits(gpu: Gpu, conditions: Conditions) -> None:
    for name in ("power_cap_w", "capped_power_w"):
        for cap_w in _listed(getattr(conditions, name)):
            if not gpu.power_cap_min_w <= cap_w <= gpu.power_cap_w:
                possible = f"{gpu.power_cap_min_w:g} to {gpu.power_cap_w:g} W on {gpu.name}"
                raise SpecError(f"conditions.{name}", cap_w, possible)
            if cap_w <= gpu.idle_draw_w:
                possible = f"more than the {gpu.idle_draw_w:.0f} W {gpu.name} draws idle"
                raise SpecError(f"conditions.{name}", cap_w, possible)
    for name in ("clock_cap", "brake_clock", "capped_clock"):
        for clock_hz in _listed(getattr(conditions, f"{name}_hz")):
            if not gpu.clock_idle_hz <= clock_hz <= gpu.clock_max_hz:
                possible = f"{gpu.clock_idle_hz / MEGA:g} to {gpu.clock_max_hz / MEGA:g} MHz on {gpu.name}"
                raise SpecError(f"conditions.{name}_mhz", clock_hz / MEGA, possible)


def _listed(values: float | tuple[float, ...] | None) -> tuple[float, ...]:
    return values if isinstance(values, tuple) else () if values is None else (values,)


def _why_idle(degrees: Parallelism, axis: str) -> str:
    """Say why an overlap hides nothing (spec/validity.py: hideable)."""
    if (degrees.data_ranks if axis == "dp" else getattr(degrees, axis)) == 1:
        return f": {axis} is 1"
    if degrees.schedule in hiding_schedules(axis):
        return f": {degrees.schedule} always overlaps {axis}"
    reasons = {
        "tp": " without sequence parallelism (sp)",
        "pp": ": 1f1b stages wait for their sends; interleaved stages (vpp of at least 2) overlap them",
        "cp": ": a ring is always overlapped with attention",
    }
    return reasons[axis]


def idle_requests(run: RunSpec) -> list[str]:
    """Return warnings: settings without effect, and defaults that the profile supplied."""
    degrees, found = run.parallelism, list(run.notes)
    if run.defaults_taken:
        found.append(f"defaults taken from profile {run.framework.name}: {'; '.join(run.defaults_taken)}")
    idle = [axis for axis in degrees.overlap if axis not in degrees.effective_overlap]
    found += [f"parallelism.overlap: {axis} has no effect{_why_idle(degrees, axis)}" for axis in idle]
    if degrees.zero and degrees.data_ranks == 1:
        found.append(f"parallelism.zero: {degrees.zero} has no effect: dp x cp is 1")
    if run.conditions.replica_stagger_s and degrees.dp == 1:
        found.append("conditions.replica_stagger_s: no effect: dp is 1")
    training = run.training
    slow = {node.gpu.name: None for node in run.cluster.kinds if not node.gpu.peak_bf16_flop_per_s}
    if training.precision == "bf16" and slow:
        found.append(
            f"training.precision: the matrix units of {', '.join(slow)} take no bf16: products run in fp32 units"
        )
    if training.recompute == "full" and training.recompute_layers == 0:
        found.append("training.recompute: full with 0 layers recomputes nothing")
    return found
