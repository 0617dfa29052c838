"""Predict a run without a GPU: execution, power, temperature and clocks in a closed loop."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from charllm.gpu.heat import check_cooling
from charllm.layout.grid import Grid
from charllm.layout.nodes import node_kinds
from charllm.layout.placement import place_ranks
from charllm.result.answers import ONLY_MEMORY, name_some
from charllm.result.description import tabulate_description
from charllm.result.memory_verdict import MemoryVerdict, judge_memory
from charllm.result.metrics import AXES, Metrics, fill_metrics, missing
from charllm.result.provenance import describe_provenance, tabulate_figures
from charllm.result.result import Columns, RunResult
from charllm.simulate.cold import seconds_to_shutdown
from charllm.simulate.long_step import Execution, execute, extend
from charllm.simulate.misfit import memory_warnings
from charllm.simulate.signals import (
    gpu_signals,
    node_rows,
    power_metrics,
    tabulate_cluster,
    tabulate_power_changes,
    tabulate_sensor,
    tabulate_signals,
)
from charllm.simulate.steady import Machine, SimulatedStep, proceed
from charllm.simulate.work import LONGEST_S, check_size
from charllm.spec.run import RunSpec, idle_requests
from charllm.timeline.link_table import tabulate_links
from charllm.timeline.step_time import StepTime
from charllm.timeline.table import tabulate_breakdown, tabulate_timeline
from charllm.timeline.traffic_table import tabulate_traffic
from charllm.units import format_percent
from charllm.workload.model_flop import model_flop, model_flop_utilization
from charllm.workload.parameters import count_active_parameters, count_parameters
from charllm.workload.step import Step, build_step
from charllm.workload.table import tabulate_memory, tabulate_ops, tabulate_parameters
from charllm.workload.totals import Traffic, count_traffic, executed_flop

Tables = dict[str, Callable[[], Columns]]


class Simulation(NamedTuple):
    """A predicted run, and what it was predicted from."""

    result: RunResult
    step: Step
    memory: MemoryVerdict
    timed: StepTime | None
    """The step at the clocks it was simulated at; None where a run does not fit."""
    machine: Machine | None
    simulated_step: SimulatedStep | None
    simulated: Execution | None
    """What was simulated of it: fewer microbatches, where those tell the rest."""


def simulate(run: RunSpec, *, ignore_memory: bool = False) -> RunResult:
    """Return memory, step time, power and temperature of a run; only memory where it does not fit."""
    return predict(run, ignore_memory=ignore_memory).result


def predict(
    run: RunSpec, *, ignore_memory: bool = False, longest_s: float = LONGEST_S, whole: bool = False,
    before_round: Callable[[], None] = proceed, described: "Described | None" = None,
) -> Simulation:  # fmt: skip
    """Price a step, simulate it on every GPU at its clock of the moment, warm the GPUs up, and again until it repeats.

    What would take longer than `longest_s` to simulate is refused with the estimate. A long step is simulated in part,
    unless its timeline is needed as a `whole`. `before_round` is called now and then, and ends the work by raising.
    A step that was `described` before is not built again.
    """
    check_size(run, longest_s)
    described = described or describe_step(run, longest_s)
    step, memory, traffic, metrics = described
    warnings = idle_requests(run)
    simulated = (
        execute(step, longest_s, whole=whole, before_round=before_round) if metrics["fits"] or ignore_memory else None
    )
    found = extend(simulated, step) if simulated else None
    if simulated and found:
        metrics.update(time_metrics(step, found.timed, traffic))
        metrics.update(power_metrics(found.machine, found.simulated_step))
        metrics["critical_path"] = [part._asdict() for part in found.path.parts]
        warnings += [*_heat_warnings(found.machine, metrics), *_length_warnings(step, simulated.step)]
    warnings += memory_warnings(run, memory)
    if found is None:
        warnings.append(ONLY_MEMORY)
    elif missing(metrics):
        warnings.append(f"not predicted for this run: {name_some(missing(metrics))}")
    machine, simulated_step, timed = (found.machine, found.simulated_step, found.timed) if found else (None, None, None)
    result = RunResult(
        origin="simulated",
        spec=run.as_table(),
        metrics=metrics,
        gpus=gpu_rows(run, memory, machine, simulated_step),
        nodes=node_rows(machine, simulated_step)
        if machine and simulated_step
        else [{"node": n} for n in range(run.cluster.nodes)],
        provenance=describe_provenance(run),
        warnings=warnings,
        tables=_tables(described, simulated, timed),
    )
    return Simulation(result, step, memory, timed, machine, simulated_step, simulated)


def _length_warnings(step: Step, simulated: Step) -> list[str]:
    """Say where a step was extended from fewer microbatches."""
    if simulated is step:
        return []
    few, all_of_them = simulated.run.microbatches, step.run.microbatches
    return [f"microbatches: {few:,} of {all_of_them:,} were simulated; the rest repeats them"]


def _tables(described: "Described", simulated: Execution | None, timed: StepTime | None) -> Tables:
    """Return what tabulates a run in detail: its breakdown as reported, times as far as they were simulated."""
    step, memory, traffic = described.step, described.memory, described.traffic
    tables: Tables = {
        "ops": partial(tabulate_ops, step),
        "description": partial(tabulate_description, step.run),
        "figures": partial(tabulate_figures, step.run),
        "memory": partial(tabulate_memory, step.run, memory.stages),
        "traffic": partial(tabulate_traffic, step, traffic),
        "parameters": partial(tabulate_parameters, step.run.model),
    }
    if simulated is not None and timed is not None:
        tables["breakdown"] = partial(tabulate_breakdown, timed)
        tables["timeline"] = partial(tabulate_timeline, simulated.step, simulated.timed)
        tables["signals"] = partial(tabulate_signals, simulated.machine, simulated.simulated_step)
        tables["links"] = partial(tabulate_links, simulated.step, simulated.timed)
        tables["sensor"] = partial(tabulate_sensor, simulated.machine, simulated.simulated_step)
        tables["cluster"] = partial(tabulate_cluster, simulated.simulated_step)
        tables["power_changes"] = partial(tabulate_power_changes, simulated.simulated_step)
    return tables


def _heat_warnings(machine: Machine, metrics: dict[str, Any]) -> list[str]:
    """Return warnings where temperatures exceed those of any measured GPU."""
    run, memory_k = machine.run, metrics["margin_to_memory_limit_k"]
    lost, margin_k = metrics["clock_loss_fraction"]["thermal"], metrics["margin_to_slowdown_k"]
    if metrics["shutdown"]:
        return [_tell_shutdown(machine, metrics["temperature_peak_c"])]
    if margin_k < 0:
        limit_c = run.cluster.gpu.slowdown_temperature_c
        return [f"temperature: {-margin_k:.0f} K above the slowdown limit of {limit_c:g} C"]
    share = format_percent(run.cluster.gpu.governor.thermal_step_fraction, 0)
    who = "memory is at its limit: GPUs" if memory_k is not None and memory_k < 0 else "GPUs"
    told = f"temperature: {who} are thermally throttled, by {share} of the clock for each degree (assumed)"
    return [told] if lost > 0 else []


def _tell_shutdown(machine: Machine, peak_c: float) -> str:
    """Say that a GPU turns itself off, and when: of a run from a cold start its length tells it."""
    asked = machine.run.conditions
    cold = asked.steps is not None or asked.seconds_s is not None
    after_s = None if cold else seconds_to_shutdown(machine)
    when = "" if after_s is None else f" about {max(1.0, float(f'{after_s:.1g}')):.0f} s after a cold start"
    figures = "figures are those until then" if cold else "other figures are those of a run that went on"
    return f"temperature: a GPU reaches {peak_c:.0f} C{when} and turns itself off, which ends the run; {figures}"


class Described(NamedTuple):
    """A step before it is timed."""

    step: Step
    memory: MemoryVerdict
    traffic: Traffic
    metrics: Metrics
    """Those that need no clock."""


def describe_step(run: RunSpec, longest_s: float) -> Described:
    """Build a step with its memory and traffic; one that would take longer than `longest_s` is refused."""
    check_size(run, longest_s)
    check_cooling(run.cluster)
    step = build_step(run)
    memory, traffic = judge_memory(step), count_traffic(step)
    return Described(step, memory, traffic, fill_metrics(_needs(step, memory, traffic)))


def _needs(step: Step, memory: MemoryVerdict, traffic: Traffic) -> dict[str, Any]:
    """Return the metrics that need no clock."""
    run = step.run
    return {
        **memory.as_metrics(),
        "parameters": count_parameters(run.model, with_mtp=True),
        "active_parameters": count_active_parameters(run.model),
        "model_flop": model_flop(run),
        "executed_flop": executed_flop(step),
        "microbatches": run.microbatches,
        "link_bytes": traffic.link_bytes,
        "axis_bytes": traffic.axis_bytes,
        "message_bytes_median": traffic.message_bytes_median,
        "messages": traffic.messages,
    }


def time_metrics(step: Step, timed: StepTime, traffic: Traffic | None) -> dict[str, Any]:
    """Return the metrics that follow from a step's time; the use of links where its traffic is known."""
    run = step.run
    seconds, gpus = timed.step_time_s, run.parallelism.world
    use = {} if traffic is None else {"link_utilization_fraction": _link_use(run, traffic, seconds)}
    return {
        "step_time_s": seconds,
        "tokens_per_s": run.tokens_per_step / seconds,
        "tokens_per_s_per_gpu": run.tokens_per_step / seconds / gpus,
        "mfu": model_flop_utilization(run, seconds),
        "breakdown_s": timed.breakdown_s,
        "hidden_communication_s": {axis: timed.hidden_s.get(axis, 0.0) for axis in AXES},
        **use,
    }


def _link_use(run: RunSpec, traffic: Traffic, seconds: float) -> dict[str, float | None]:
    """Return what is sent over each kind of link over what it could carry in the step, one way."""
    node, fabric, nodes = run.cluster.uniform(0).node, run.cluster.fabric, run.cluster.nodes
    can_carry = {
        "nvlink": node.link_bandwidth_bytes_per_s * node.gpus * nodes,
        "pcie": node.pcie_bandwidth_bytes_per_s * node.gpus * nodes,
        "nic": fabric.node_bandwidth_bytes_per_s * nodes,
    }
    return {link: traffic.link_bytes[link] / (rate * seconds) if rate else None for link, rate in can_carry.items()}


def gpu_rows(
    run: RunSpec, memory: MemoryVerdict, machine: Machine | None, simulated_step: SimulatedStep | None
) -> list[dict[str, Any]]:
    """Describe every GPU: where it is, which stage it works on, what it needs, draws and shows."""
    ranks = np.arange(run.parallelism.world)
    stages, gpus = Grid(run.parallelism).stage(ranks), place_ranks(run)
    per_node, kinds = run.cluster.node.gpus, node_kinds(run.cluster).tolist()
    needs = {(one.stage, one.node_kind): (one.need_bytes, one.total_bytes) for one in memory.ranks}
    signals = gpu_signals(machine, simulated_step) if machine and simulated_step else {}
    columns = {name: column[gpus].tolist() for name, column in signals.items()}
    rows = []
    for place, (gpu, stage) in enumerate(zip(gpus.tolist(), stages.tolist(), strict=True)):
        row = {"rank": place, "node": gpu // per_node, "slot": gpu % per_node, "stage": stage}
        row["memory_need_bytes"], row["memory_peak_bytes"] = needs[stage, kinds[gpu // per_node]]
        rows.append({**row, **{name: column[place] for name, column in columns.items()}})
    return rows
