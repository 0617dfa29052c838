"""The metrics of a run: each is declared here, and only here.

JSON, SQL and CSV columns, text tables, pages, the explorer, `--limit` and the reference follow from the declaration.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from charllm.gpu.limits import CAUSES as CAUSES
from charllm.gpu.limits import LIMITS as LIMITS
from charllm.result.metric import (
    HIGHER,
    LOWER,
    PAGE,
    PHASES,
    PLAN,
    RUN,
    Member,
    Metric,
    Read,
    complete,
    metric,
    split_unit,
)
from charllm.spec.request import dotted_fields
from charllm.timeline.labels import LABEL_WORDS as LABEL_WORDS
from charllm.timeline.labels import LABELS as LABELS
from charllm.workload.memory_kinds import KINDS as KINDS

AXES = ("tp", "pp", "dp", "ep", "cp")
LINKS = ("nvlink", "pcie", "nic")
AXIS_WORDS = dict(zip(AXES, AXES, strict=True))
LINK_WORDS = {"nvlink": "NVLink", "pcie": "PCIe", "nic": "NICs"}
CAUSE_WORDS = {"power": "power", "thermal": "heat", "brake": "power brake"}
KIND_WORDS = dict(zip(KINDS, KINDS, strict=True))
Table = dict[str, float]


def _clock_loss(read: Read) -> float | None:
    """Add up what every cause takes from the clock, as far as it is known."""
    known = [loss for cause in CAUSES if (loss := read(f"clock_loss_fraction.{cause}")) is not None]
    return sum(known) if known else None


def _joules_per_token(read: Read) -> float | None:
    per_joule = read("tokens_per_j")
    return 1 / per_joule if per_joule else None


class Metrics(dict[str, Any]):
    """Metrics by name, read as ``metrics["step_time_s"]`` or ``metrics.step_time_s``; None: not known."""

    __slots__ = ()

    step_time_s: float | None = metric(
        "Time of one step.", "step time", better=LOWER, heading="step time", digits="seconds"
    )
    tokens_per_s: float | None = metric(
        "Throughput: tokens of a step divided by the step time.", "total throughput", "tokens/s", better=HIGHER,
        heading="tokens/s",
    )  # fmt: skip
    tokens_per_s_per_gpu: float | None = metric(
        "Throughput divided by the number of GPUs.", "throughput", "tokens/s/GPU", better=HIGHER,
        heading="tokens/s/GPU",
    )  # fmt: skip
    mfu: float | None = metric(
        "Model FLOPs (causal attention halved, no recomputation) over the dense peak of the run's precision.",
        "MFU", "%", better=HIGHER,
    )  # fmt: skip
    parameters: float | None = metric(
        "Weights of the model, multi-token-prediction layers included.", "parameters", "billion"
    )
    active_parameters: float | None = metric("Weights used for one token.", "active parameters", "billion")
    model_flop: float | None = metric(
        "Matrix arithmetic of a step without recomputation, all GPUs.", "model FLOPs of a step"
    )
    executed_flop: float | None = metric(
        "Matrix arithmetic of a step as executed, all GPUs.", "executed FLOPs of a step"
    )
    microbatches: int | None = metric(
        "Microbatches of each replica in a step.", "microbatches of a step", heading="microbatches", digits=".0f"
    )
    fits: bool | None = metric(
        "Whether every rank fits in its GPU's memory.", "fits in memory", heading="fits", is_number=False, is_flag=True
    )
    memory_need_bytes: float | None = metric(
        "Device memory that the worst rank must have: cached blocks of its allocator given back.",
        "memory needed by the worst rank", better=LOWER, short="needed memory", heading="needed GiB",
    )  # fmt: skip
    memory_margin_fraction: float | None = metric(
        "Share of its GPU's memory that the worst rank does not need; negative where it does not fit.",
        "memory left on the worst rank", "%", better=HIGHER, short="memory left",
    )  # fmt: skip
    memory_fit_probability: float | None = metric(
        "Probability that the worst rank fits, given the known errors of predicted memory.",
        "probability of fitting in memory", "%", better=HIGHER, short="probability of fitting",
    )  # fmt: skip
    memory_allocated_bytes: float | None = metric(
        "Peak memory allocated by the framework's allocator, on any rank.", "memory allocated by the framework",
        better=LOWER, short="allocated memory",
    )  # fmt: skip
    memory_reserved_bytes: float | None = metric(
        "Peak memory reserved by the allocator, on any rank: allocated, cached or fragmented.",
        "memory reserved by the allocator", better=LOWER, short="reserved memory",
    )  # fmt: skip
    memory_peak_bytes: float | None = metric(
        "Device memory of the worst rank: reserved, context and communication buffers.",
        "peak memory of the worst rank", better=LOWER, short="peak memory", heading="memory GiB",
    )  # fmt: skip
    memory_breakdown_bytes: Table | None = metric(
        "Device memory of the worst rank by kind.", "memory of the worst rank", better=LOWER, keys=KIND_WORDS,
        entry="memory: {key}",
    )  # fmt: skip
    memory_rank: int | None = metric(
        "Worst rank: the one with the least margin of memory.",
        "rank with the least memory left",
        is_number=False,
        digits=".0f",
    )
    power_mean_w: float | None = metric(
        "Board power, mean over a step and over GPUs.", "mean power per GPU", better=LOWER, short="mean power",
        heading="mean W",
    )  # fmt: skip
    power_peak_w: float | None = metric(
        "Largest 1 ms mean of any GPU.", "peak power of a GPU (1 ms)", better=LOWER, short="peak power, 1 ms",
        heading="peak W (1 ms)", needs_heat=True,
    )  # fmt: skip
    power_peak_sensor_w: float | None = metric(
        "Largest 25 ms mean of any GPU, as its sensor shows.", "peak power of a GPU (25 ms)", better=LOWER,
        short="peak power, 25 ms", heading="peak W", needs_heat=True,
    )  # fmt: skip
    energy_per_step_j: float | None = metric(
        "Energy of all GPUs in a step.", "GPU energy per step", better=LOWER, short="energy of a step",
        heading="J/step", digits="prefix",
    )  # fmt: skip
    tokens_per_j: float | None = metric(
        "Tokens of a step divided by the energy of all GPUs.", "tokens per joule", "tokens/J", better=HIGHER,
        short="efficiency", heading="tokens/J", digits=".3g",
    )  # fmt: skip
    node_power_mean_w: float | None = metric(
        "Mean power of a node: GPUs, CPUs, NICs and fans.", "mean power per node", "kW", better=LOWER,
        short="power of a node", digits="prefix", needs_heat=True,
    )  # fmt: skip
    cluster_power_peak_w: float | None = metric(
        "Largest power of all nodes together.", "peak power of the cluster", "kW", better=LOWER,
        short="cluster peak power", needs_heat=True,
    )  # fmt: skip
    cluster_power_ramp_w_per_s: float | None = metric(
        "Fastest change of cluster power from one second to the next.", "maximum power ramp of the cluster",
        better=LOWER, short="power ramp", heading="ramp kW/s", needs_heat=True,
    )  # fmt: skip
    cluster_power_swing_w: float | None = metric(
        "Oscillation of cluster power between 0.1 and 3 Hz, peak to peak.", "0.1-3 Hz oscillation of cluster power",
        "kW", better=LOWER, short="power oscillation", heading="0.1-3 Hz kW", needs_heat=True,
    )  # fmt: skip
    temperature_mean_c: float | None = metric(
        "Temperature, mean over a step and over GPUs.", "mean temperature", better=LOWER, heading="mean C",
        needs_heat=True,
    )  # fmt: skip
    temperature_peak_c: float | None = metric(
        "Highest temperature of any GPU.", "peak temperature", better=LOWER, heading="peak C", needs_heat=True
    )
    temperature_spread_node_k: float | None = metric(
        "Hottest minus coolest GPU of a node, worst node.", "hottest minus coolest GPU of a node", better=LOWER,
        short="spread in a node", heading="spread K", digits=".2f", needs_heat=True,
    )  # fmt: skip
    temperature_swing_k: float | None = metric(
        "Highest minus lowest temperature within a step, worst GPU.", "temperature swing within a step", better=LOWER,
        short="temperature swing", heading="swing K", digits=".2f", needs_heat=True,
    )  # fmt: skip
    margin_to_slowdown_k: float | None = metric(
        "Slowdown temperature minus the peak temperature.", "margin to slowdown", better=HIGHER, heading="margin K",
        needs_heat=True,
    )  # fmt: skip
    memory_temperature_peak_c: float | None = metric(
        "Highest temperature of any GPU's memory.", "peak temperature of memory", better=LOWER, needs_heat=True,
        short="peak memory temperature", heading="memory peak C")  # fmt: skip
    margin_to_memory_limit_k: float | None = metric(
        "Temperature of memory above which its clock is lowered, minus its peak.", "margin of memory to its limit",
        better=HIGHER, short="memory margin", heading="memory margin K", needs_heat=True,
    )  # fmt: skip
    shutdown: bool | None = metric(
        "Whether a GPU gets so hot that it turns itself off, which ends the run.", "shutdown by heat",
        heading="shutdown", is_number=False, is_flag=True, needs_heat=True,
    )  # fmt: skip
    clock_mean_hz: float | None = metric(
        "Clock, mean over a step and over GPUs.", "mean clock", better=HIGHER, heading="MHz"
    )
    clock_std_fraction: float | None = metric(
        "Standard deviation of the clock divided by its mean.", "standard deviation of the clock", better=LOWER,
        short="clock deviation", heading="clock std", digits=".2f", needs_heat=True,
    )  # fmt: skip
    throttled_time_fraction: Table | None = metric(
        "Share of time that GPUs are throttled, by cause.", "time throttled", better=LOWER, keys=CAUSE_WORDS,
        entry="time throttled by {key}", needs_heat=True,
    )  # fmt: skip
    clock_loss_fraction: Table | None = metric(
        "Mean clock below the requested clock, as a fraction of it, by cause.", "clock loss", better=LOWER,
        keys=CAUSE_WORDS, entry="clock lost to {key}", needs_heat=True,
    )  # fmt: skip
    breakdown_s: Table | None = metric(
        "Step time by label, mean over GPUs; adds up to step_time_s.", "breakdown of the step time", better=LOWER,
        keys=LABEL_WORDS, entry="{key}",
    )  # fmt: skip
    critical_path: list[dict[str, Any]] | None = metric(
        "Stages and nodes whose passes the step waits for, with seconds, largest first.", "critical path",
        is_number=False, is_list=True, needs_heat=True,
    )  # fmt: skip
    hidden_communication_s: Table | None = metric(
        "Communication overlapped with compute, by axis.", "hidden communication", keys=AXIS_WORDS,
        entry="hidden {key} communication",
    )  # fmt: skip
    link_bytes: Table | None = metric(
        "Bytes sent per step by kind of link, all GPUs, counted once at the sender.", "bytes sent by kind of link",
        "GB", better=LOWER, keys=LINK_WORDS, entry="bytes sent over {key}", heading="{key}", digits="size",
    )  # fmt: skip
    axis_bytes: Table | None = metric(
        "Bytes sent per step by axis, all GPUs, counted once at the sender.", "bytes sent by axis", "GB",
        better=LOWER, keys=AXIS_WORDS, entry="bytes sent for {key}", heading="{key}", digits="size",
    )  # fmt: skip
    link_utilization_fraction: Table | None = metric(
        "Mean utilisation of each kind of link.", "utilisation of links", keys=LINK_WORDS, entry="utilisation of {key}"
    )
    message_bytes_median: Table | None = metric(
        "Median message size of each axis.", "median message", "MiB", keys=AXIS_WORDS, entry="median {key} message",
        heading="{key} message", digits="size",
    )  # fmt: skip
    messages: Table | None = metric(
        "Messages of each axis in a step, all GPUs.", "messages of a step", keys=AXIS_WORDS,
        entry="{key} messages of a step", digits=",.0f",
    )  # fmt: skip

    # What a plan derives: racks and the hall, money, whole runs.
    cluster_power_mean_w: float | None = metric(
        "Mean power of all nodes together.", "mean power of the cluster", "kW", better=LOWER, part=PLAN
    )
    node_power_peak_w: float | None = metric(
        "Upper bound of a node's 25 ms mean: all its GPUs peak at once.", "peak power of a node", "kW", better=LOWER,
        part=PLAN, needs_heat=True,
    )  # fmt: skip
    rack_power_mean_w: float | None = metric(
        "Mean power of the nodes of one rack.", "mean power of a rack", "kW", better=LOWER, part=PLAN
    )
    rack_power_peak_w: float | None = metric(
        "Upper bound of a rack's 25 ms mean.", "peak power of a rack", "kW", better=LOWER, part=PLAN, needs_heat=True
    )
    facility_power_mean_w: float | None = metric(
        "Mean power from the grid of the cluster and its share of the facility.", "mean power from the grid", "kW",
        better=LOWER, part=PLAN,
    )  # fmt: skip
    energy_delay_product_j_s: float | None = metric(
        "Energy of a step multiplied by its time.", "energy-delay product", better=LOWER, part=PLAN
    )
    money_per_trillion_tokens: float | None = metric(
        "Cost of a trillion tokens: electricity, GPU-hours and demand charge.", "money per trillion tokens",
        better=LOWER, digits=",.0f", part=PLAN,
    )  # fmt: skip
    money_per_hour: float | None = metric(
        "Cost of an hour: electricity, GPU-hours and demand charge.", "money per hour", better=LOWER, part=PLAN
    )
    energy_per_trillion_tokens_j: float | None = metric(
        "Energy from the grid for a trillion tokens.", "energy per trillion tokens", better=LOWER, part=PLAN
    )
    run_time_s: float | None = metric(
        "Expected time of the whole run.", "time of the whole run", "days", better=LOWER, part=PLAN
    )
    run_energy_j: float | None = metric(
        "Expected energy of the whole run, from the grid.", "energy of the whole run", better=LOWER, part=PLAN
    )
    run_money: float | None = metric(
        "Expected cost of the whole run.", "money of the whole run", better=LOWER, digits=",.0f", part=PLAN
    )
    run_useful_fraction: float | None = metric(
        "Share of the run time that is neither checkpoint, lost work nor restart.", "useful share of the run time",
        better=HIGHER, part=PLAN,
    )  # fmt: skip
    run_failures: float | None = metric("Expected interruptions.", "failures", better=LOWER, part=PLAN)
    run_checkpoints: float | None = metric("Number of checkpoints.", "checkpoints", part=PLAN)
    run_checkpoint_s: float | None = metric(
        "Time that training waits for checkpoints.", "time of checkpoints", better=LOWER, part=PLAN
    )
    run_lost_s: float | None = metric(
        "Expected time of repeated work after failures.", "time of repeated work", better=LOWER, part=PLAN
    )
    run_restart_s: float | None = metric(
        "Expected time from failures to the next step.", "time of restarts", better=LOWER, part=PLAN
    )
    checkpoint_interval_s: float | None = metric(
        "Useful time between two checkpoints.", "checkpoint interval", part=PLAN
    )
    checkpoint_interval_best_s: float | None = metric(
        "Checkpoint interval with the shortest run (Daly).", "best checkpoint interval", part=PLAN
    )
    power_dip_w: float | None = metric(
        "Drop of the power of all nodes during a checkpoint or a restart.", "drop of power at a checkpoint", "kW",
        better=LOWER, part=PLAN,
    )  # fmt: skip

    # What pages show beside them.
    clock_loss: float | None = metric(
        "Mean clock below the requested clock, as a fraction of it, by all causes together.", "clock loss", "%",
        better=LOWER, part=PAGE, formula=_clock_loss,
    )  # fmt: skip
    joules_per_token: float | None = metric(
        "Energy of all GPUs divided by the tokens of a step.", "GPU energy per token", "J/token", better=LOWER,
        short="GPU energy", digits=".3g", part=PAGE, formula=_joules_per_token,
    )  # fmt: skip
    time_to_first_token_s: float | None = metric(
        "Time until a batch that waits for nothing has its first tokens: one prefill.", "time to first token",
        better=LOWER, digits="seconds", part=PHASES,
    )  # fmt: skip
    time_per_token_s: float | None = metric(
        "Time of one decode step at the mean context.", "time per token", better=LOWER, digits="seconds", part=PHASES,
    )  # fmt: skip
    cache_bytes: float | None = metric(
        "Key-value cache of the worst rank when every sequence has all of its tokens.", "key-value cache", better=LOWER,
        digits="size", part=PHASES,
    )  # fmt: skip
    probability_best: float | None = metric(
        "Probability that a strategy is the best of those listed.", "probability of being best", "%", better=HIGHER,
        short="probability", part=PAGE,
    )  # fmt: skip

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            near = get_close_matches(name, DECLARED, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise AttributeError(f"no metric is named {name!r}{hint}", name=name, obj=self)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self]


DECLARED: dict[str, Metric] = {
    name: member.metric for name, member in vars(Metrics).items() if isinstance(member, Member)
}
"""Every metric by name, in order."""
METRICS = {name: one for name, one in DECLARED.items() if one.part == RUN}
"""Those of a result."""
PHASE_METRICS = {name: one for name, one in DECLARED.items() if one.part == PHASES}
"""Those that only a generation has."""
PLAN_METRICS = {name: one for name, one in DECLARED.items() if one.part in (RUN, PLAN)}
"""Those that a plan may limit or optimise."""


def flat_names(metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """Return the names of metrics in one level, an entry of a table as `name.key`; lists have no place there."""
    return tuple(
        f"{name}.{key}" if key else name
        for name, one in metrics.items()
        if not one.is_list
        for key in (one.keys if one.keys is not None else ("",))
    )


COLUMNS = flat_names(METRICS)
"""The columns of a table of runs."""


def quantity(name: str) -> Metric:
    """Return a metric by name, an entry of a table by `name.key`; of another figure, what its name says of its unit."""
    base, _, key = name.partition(".")
    if name in DECLARED:
        return DECLARED[name]
    if key and base in DECLARED and DECLARED[base].keys is not None:
        return DECLARED[base].entry_of(key)
    words, unit = split_unit(name)
    return complete(name, words, unit)


def selected(*names: str) -> tuple[str, ...]:
    """Return names of metrics that a table or page shows; a name that is not declared is refused at import."""
    for name in names:
        base, _, key = name.partition(".")
        if base not in DECLARED or (key and key not in (DECLARED[base].keys or ())):
            raise KeyError(f"not a metric: {name}")
    return names


def fill_metrics(known: Mapping[str, Any]) -> Metrics:
    """Return every metric of a run in order, None where it is not known."""
    unknown = set(known) - set(METRICS)
    if unknown:
        raise KeyError(f"not metrics: {sorted(unknown)}")
    return Metrics((name, known.get(name)) for name in METRICS)


def missing(metrics: Mapping[str, Any]) -> list[str]:
    """List the metrics that are not known."""
    return [name for name, value in metrics.items() if value is None]


def numbers_of(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what is a number among metrics in one level, entries of tables by `name.key`; yes is 1, no is 0."""
    return {
        name: None if value is None else float(value)
        for name, value in dotted_fields(metrics).items()
        if value is None or isinstance(value, int | float)
    }


def with_derived(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add to metrics in one level what pages derive from them, with intervals where those of the sources are known."""
    found = dict(values)
    for name, one in DECLARED.items():
        if one.formula is not None:
            found[name] = one.formula(values.get)
            ends = [one.formula(partial(_end, values, side)) for side in (0, 1)]
            known = sorted(end for end in ends if end is not None)
            found |= {f"{name}.interval": tuple(known)} if len(known) == len(ends) else {}
    return found


def _end(values: Mapping[str, Any], side: int, name: str) -> float | None:
    """Return one end of the interval of a metric; None where it has none."""
    interval = values.get(f"{name}.interval")
    return None if interval is None else interval[side]
