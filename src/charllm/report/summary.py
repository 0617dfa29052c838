"""The first lines of a report: what was simulated, under which conditions, and the answers in one line each."""

from collections.abc import Sequence
from statistics import median
from typing import Any, Protocol

from charllm.report.tables import format_percent, render_facts, wrap
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec
from charllm.units import GIB, MEGA, format_si, seconds_format

LARGEST_SHARES, LARGEST_GAINS, MANY = 3, 2, 6
SLOWER_FRACTION = 0.01
"""A GPU whose clock is this much below the median of its mates is named as the one that paces them."""


class PredictedGain(Protocol):
    """What a report needs of a change that was tried."""

    @property
    def asked(self) -> str:
        """How to ask for it."""

    @property
    def step_time_s(self) -> float:
        """Step time with it."""

    @property
    def memory_peak_bytes(self) -> float:
        """Device memory with it."""

    @property
    def gain_fraction(self) -> float:
        """Tokens a second gained."""


def describe(run: RunSpec) -> str:
    """Return the configuration in a few lines: the job, how it is parallelised, conditions, defaults taken."""
    lines = [*wrap(_job(run)), *wrap(_parallelism(run)), *wrap(f"conditions: {'; '.join(conditions(run))}")]
    if run.defaults_taken:
        lines += wrap(f"defaults taken from profile {run.framework.name}: {'; '.join(run.defaults_taken)}")
    return "\n".join(lines)


def _job(run: RunSpec) -> str:
    cluster, per_node = run.cluster, run.cluster.node.gpus
    others = [(len(other.nodes) * per_node, other.node) for other in cluster.mixed]
    counted = [(cluster.gpus - sum(count for count, _ in others), cluster.node), *others]
    gpus = " + ".join(f"{count} x {node.gpu.name}{f' in {node.name}' if others else ''}" for count, node in counted)
    return f"{run.model.name} on {cluster.name} ({gpus}), {run.framework.name}, {run.training.precision}"


def _parallelism(run: RunSpec) -> str:
    degrees, training = run.parallelism, run.training
    axes = ("tp", "cp", "pp", "dp", "ep")
    cut = " x ".join(
        f"{axis} {getattr(degrees, axis)}" for axis in axes if axis in ("tp", "pp", "dp") or getattr(degrees, axis) > 1
    )
    details = [f"zero {degrees.zero}"] if degrees.zero else []
    details += ["sp"] if degrees.sp else []
    details += [f"vpp {degrees.vpp}"] if degrees.vpp > 1 else []
    details += [f"overlap {','.join(degrees.overlap)}"] if degrees.overlap else []
    details += [f"recompute {training.recompute}"] if training.recompute != "none" else []
    details += [f"lora {training.lora_rank}"] if training.lora_rank else []
    return (
        f"{', '.join([cut, *details])}; {degrees.schedule}; batch {training.global_batch_size} = "
        f"{run.microbatches} microbatches of {training.micro_batch_size} x {training.seq_length} tokens on each replica"
    )


def conditions(run: RunSpec) -> list[str]:
    """Say what the GPUs are subjected to: limits, cooling, placement, weak GPUs, braked nodes, length of the run."""
    asked, gpu, cooling = run.conditions, run.cluster.gpu, run.cluster.cooling
    found = [
        f"power limit {asked.power_cap_w:g} of {gpu.power_cap_w:g} W"
        if asked.power_cap_w is not None
        else f"power limit {gpu.power_cap_w:g} W (as delivered)",
        f"clock capped at {asked.clock_cap_hz / MEGA:.0f} of {gpu.clock_max_hz / MEGA:.0f} MHz"
        if asked.clock_cap_hz is not None
        else f"clock up to {gpu.clock_max_hz / MEGA:.0f} MHz",
        f"{cooling.kind} cooling, inlet {_inlets(run)}",
    ]
    if cooling.flow_fraction != 1:
        found.append(f"flow {cooling.flow_fraction:g} times the usual")
    found.append("rank i on GPU i" if not asked.gpu_of_rank else f"ranks placed by {asked.placement}")
    if asked.weak_gpus:
        weak = [f"{gpu} (x {factor:g})" for gpu, factor in run.weak_factors.items()]
        found.append(f"dynamic power of weak GPUs {_listed(weak)}")
    if asked.braked_nodes:
        clock = "half the clock" if asked.brake_clock_hz is None else f"{asked.brake_clock_hz / MEGA:.0f} MHz"
        found.append(f"power brake on nodes {_listed(asked.braked_nodes)} ({clock})")
    found += _faults(run)
    if asked.silicon_spread_fraction:
        found.append(f"spread between dies {format_percent(asked.silicon_spread_fraction)} (seed {asked.seed})")
    length = f"{asked.steps} steps" if asked.steps is not None else f"{asked.seconds_s:g} s" if asked.seconds_s else ""
    return [*found, f"{length} from a cold start" if length else "thermal steady state"]


def _faults(run: RunSpec) -> list[str]:
    """Name the GPUs, links and hosts that a run makes worse than the others."""
    asked, found = run.conditions, []
    if asked.capped_gpus:
        found.append(f"power limit {asked.capped_power_w:g} W on GPUs {_listed(asked.capped_gpus)}")
    if asked.hot_gpus:
        hot = [f"{gpu} (x {factor:g})" for gpu, factor in run.sink_factors.items()]
        found.append(f"sink resistance of hot GPUs {_listed(hot)}")
    for nodes, what, fraction in (
        (asked.slow_nic_nodes, "network adapters of nodes", asked.slow_nic_fraction),
        (asked.slow_link_gpus, "scale-up links of GPUs", asked.slow_link_fraction),
        (asked.slow_host_nodes, "hosts of nodes", asked.slow_host_fraction),
    ):
        if nodes:
            found.append(f"{what} {_listed(nodes)} at {format_percent(fraction)} of the usual speed")
    return found


def _inlets(run: RunSpec) -> str:
    inlets_c = run.cluster.cooling.inlet_c
    if not isinstance(inlets_c, tuple):
        return f"{inlets_c:g} C"
    return f"{min(inlets_c):g} to {max(inlets_c):g} C by node ({_listed([f'{inlet:g}' for inlet in inlets_c])})"


def _listed(numbers: Sequence[object]) -> str:
    more = f" and {len(numbers) - MANY} more" if len(numbers) > MANY else ""
    return ", ".join(map(str, numbers[:MANY])) + more


def render_summary(run: RunSpec, result: RunResult, gains: Sequence[PredictedGain], notes: Sequence[str]) -> str:
    """Return the answers, one line each: time, power, temperature, throttling, memory, what paces the job, what helps.

    `notes` explain figures that look wrong at first sight.
    """
    metrics = result.metrics
    facts = [("Step time", render_headline(result)), ("Time goes to", _largest_shares(metrics["breakdown_s"]))]
    if metrics["power_mean_w"] is not None:
        facts += [("Power", _power(metrics)), ("Temperature", _temperature(metrics)), ("Clock", _clock(run, metrics))]
    facts += [("Memory", describe_memory(run, result)), *((("Paced by", pace),) if (pace := _pace(result)) else ())]
    facts.append(("Best changes", _gains(gains)))
    text = render_facts(facts)
    explained = ["\n".join(wrap(f"Explanation: {note}", indent="  ")) for note in notes]
    return "\n\n".join([text, *explained])


def render_headline(result: RunResult) -> str:
    """Return step time, throughput and MFU."""
    metrics = result.metrics
    mfu = "" if metrics["mfu"] is None else f", MFU {format_percent(metrics['mfu'])}"
    return (
        f"{seconds_format(metrics['step_time_s'])(metrics['step_time_s'])} s, "
        f"{metrics['tokens_per_s']:,.0f} tokens/s, {metrics['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU{mfu}"
    )


def _largest_shares(breakdown_s: dict[str, float]) -> str:
    total_s = sum(breakdown_s.values())
    largest = sorted(breakdown_s.items(), key=lambda pair: -pair[1])[:LARGEST_SHARES]
    return ", ".join(
        f"{label.replace('_', ' ')} {format_percent(seconds / total_s)}" for label, seconds in largest if seconds > 0
    )


def _power(metrics: dict[str, Any]) -> str:
    return (
        f"{metrics['power_mean_w']:.0f} W per GPU (peak {metrics['power_peak_sensor_w']:.0f} W, 25 ms average), "
        f"{format_si(metrics['node_power_mean_w'], 'W')} per node, {format_si(metrics['energy_per_step_j'], 'J')} "
        f"per step, {metrics['tokens_per_j']:.3g} tokens per joule"
    )


def _temperature(metrics: dict[str, Any]) -> str:
    margin_k = metrics["margin_to_slowdown_k"]
    side = f"{margin_k:.1f} K below" if margin_k >= 0 else f"{-margin_k:.1f} K above"
    return f"{metrics['temperature_mean_c']:.1f} C mean, {metrics['temperature_peak_c']:.1f} C peak, {side} slowdown"


def _clock(run: RunSpec, metrics: dict[str, Any]) -> str:
    throttled = [
        f"{cause}-throttled {100 * metrics['throttled_time_fraction'][cause]:.0f} % of the time "
        f"(mean clock {100 * loss:.0f} % below maximum)"
        for cause, loss in metrics["clock_loss_fraction"].items()
        if loss > 0
    ]
    return (
        f"{metrics['clock_mean_hz'] / MEGA:.0f} of {run.cluster.gpu.clock_max_hz / MEGA:.0f} MHz, "
        f"{', '.join(throttled) or 'not throttled'}"
    )


def describe_memory(run: RunSpec, result: RunResult) -> str:
    """Say whether a run fits, and how much the rank with the largest need takes."""
    metrics, has_bytes = result.metrics, run.cluster.smallest_gpu.memory_bytes
    rank, need_bytes = metrics["memory_rank"], metrics["memory_peak_bytes"]
    stage = next(row["stage"] for row in result.gpus if row["rank"] == rank)
    verdict = "fits" if metrics["fits"] else "does not fit"
    return f"{verdict}: {need_bytes / GIB:.1f} of {has_bytes / GIB:.1f} GiB on rank {rank} (stage {stage})"


def _pace(result: RunResult) -> str:
    """Name the stage and node that the step waits for, and the GPU of theirs that is slower than its mates."""
    parts, metrics = result.metrics["critical_path"], result.metrics
    if not parts:
        return ""
    first = parts[0]
    write = seconds_format(metrics["step_time_s"])
    mates = [row for row in result.gpus if (row["stage"], row["node"]) == (first["stage"], first["node"])]
    slowest = min(mates, key=lambda row: row["clock_mean_hz"])
    usual_hz = median(row["clock_mean_hz"] for row in mates)
    lag = 1 - slowest["clock_mean_hz"] / usual_hz
    named = (
        f"; its slowest GPU is in slot {slowest['slot']} at {slowest['clock_mean_hz'] / MEGA:.0f} MHz, "
        f"{format_percent(lag)} below its neighbours"
        if lag > SLOWER_FRACTION
        else ""
    )
    waited_s = metrics["breakdown_s"]["straggler_wait"]
    return (
        f"stage {first['stage']} on node {first['node']}, {write(first['seconds'])} s of the critical path{named}; "
        f"GPUs wait {write(waited_s)} s for slower ones"
    )


def _gains(gains: Sequence[PredictedGain]) -> str:
    if not gains:
        return "none of those tried is faster and fits in memory"
    return "; ".join(f"{gain.asked} (+{format_percent(gain.gain_fraction)} tokens/s)" for gain in gains[:LARGEST_GAINS])
