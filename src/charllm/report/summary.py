"""The first lines of a report: what was simulated, under which conditions, and the answers in one line each."""

from collections.abc import Sequence
from typing import Protocol

from charllm.report.tables import format_percent, render_facts, wrap
from charllm.result.answers import answer_lines
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec
from charllm.units import MEGA

LARGEST_GAINS, MANY = 2, 6


class PredictedGain(Protocol):
    """What a report needs of a change that was tried."""

    @property
    def asked(self) -> str:
        """How to ask for it."""

    @property
    def step_time_s(self) -> float:
        """Step time with it."""

    @property
    def memory_need_bytes(self) -> float:
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
        else f"power limit {gpu.power_cap_w:g} W (default)",
        f"clock capped at {asked.clock_cap_hz / MEGA:.0f} of {gpu.clock_max_hz / MEGA:.0f} MHz"
        if asked.clock_cap_hz is not None
        else f"clock up to {gpu.clock_max_hz / MEGA:.0f} MHz",
        f"{cooling.kind} cooling, inlet {_inlets(run)}",
    ]
    if cooling.flow_fraction != 1:
        found.append(f"flow {cooling.flow_fraction:g} times normal")
    found.append("rank i on GPU i" if not asked.gpu_of_rank else f"ranks placed by {asked.placement}")
    if asked.weak_gpus:
        weak = [f"{gpu} (x {factor:g})" for gpu, factor in run.weak_factors.items()]
        found.append(f"dynamic power of weak GPUs {_listed(weak)}")
    if asked.braked_nodes:
        clock = "half the clock" if asked.brake_clock_hz is None else f"{asked.brake_clock_hz / MEGA:.0f} MHz"
        found.append(f"power brake on nodes {_listed(asked.braked_nodes)} ({clock})")
    found += _faults(run)
    if asked.replica_stagger_s:
        found.append(f"replicas begin a step within {asked.replica_stagger_s:g} s of each other")
    if asked.silicon_spread_fraction:
        found.append(f"spread between dies {format_percent(asked.silicon_spread_fraction)} (seed {asked.seed})")
    length = f"{asked.steps} steps" if asked.steps is not None else f"{asked.seconds_s:g} s" if asked.seconds_s else ""
    return [*found, f"{length} from a cold start" if length else "thermal steady state"]


def _faults(run: RunSpec) -> list[str]:
    """Name the GPUs, links and hosts that a run makes worse than the others."""
    asked, found = run.conditions, []
    if asked.capped_gpus:
        found += _caps(run)
    if asked.hot_gpus:
        hot = [f"{gpu} (x {factor:g})" for gpu, factor in run.sink_factors.items()]
        found.append(f"sink resistance of hot GPUs {_listed(hot)}")
    for nodes, what, fraction in (
        (asked.slow_nic_nodes, "network adapters of nodes", asked.slow_nic_fraction),
        (asked.slow_link_gpus, "scale-up links of GPUs", asked.slow_link_fraction),
        (asked.slow_host_nodes, "hosts of nodes", asked.slow_host_fraction),
    ):
        if nodes:
            found.append(f"{what} {_listed(nodes)} at {format_percent(fraction)} of normal speed")
    return found


def _caps(run: RunSpec) -> list[str]:
    """Name the GPUs that have a power or clock cap of their own, by cap."""
    words: dict[str, list[int]] = {}
    for gpu, (power_w, clock_hz) in run.caps.items():
        limits = [] if power_w is None else [f"power limit {power_w:g} W"]
        limits += [] if clock_hz is None else [f"clock limit {clock_hz / MEGA:.0f} MHz"]
        words.setdefault(", ".join(limits), []).append(gpu)
    return [f"{limits} on GPUs {_listed(gpus)}" for limits, gpus in words.items()]


def _inlets(run: RunSpec) -> str:
    inlets_c = run.cluster.cooling.inlet_c
    if not isinstance(inlets_c, tuple):
        return f"{inlets_c:g} C"
    return f"{min(inlets_c):g} to {max(inlets_c):g} C by node ({_listed([f'{inlet:g}' for inlet in inlets_c])})"


def _listed(numbers: Sequence[object]) -> str:
    more = f" and {len(numbers) - MANY} more" if len(numbers) > MANY else ""
    return ", ".join(map(str, numbers[:MANY])) + more


def render_summary(result: RunResult, gains: Sequence[PredictedGain], notes: Sequence[str]) -> str:
    """Return the answers, one line each, and the changes that would help; `notes` explain figures that look wrong."""
    text = render_facts([*answer_lines(result), ("Best changes", _gains(gains))])
    explained = ["\n".join(wrap(f"Explanation: {note}", indent="  ")) for note in notes]
    return "\n\n".join([text, *explained])


def _gains(gains: Sequence[PredictedGain]) -> str:
    if not gains:
        return "no change that was tried is faster and fits in memory"
    return "; ".join(f"{gain.asked} (+{format_percent(gain.gain_fraction)} tokens/s)" for gain in gains[:LARGEST_GAINS])
