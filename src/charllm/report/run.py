"""A simulated run as text: configuration, parameters, memory, FLOPs, traffic, step time, power and temperature."""

from collections.abc import Sequence

from charllm.layout.links import group_links, nic_sharers
from charllm.network.collectives import algorithms_taken
from charllm.report.power import render_power
from charllm.report.summary import PredictedGain, describe, render_summary
from charllm.report.tables import render_facts, render_table, shown_ends
from charllm.report.time import render_gains, render_time
from charllm.result.answers import answer_memory
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec
from charllm.timeline.step_time import StepTime
from charllm.units import GIB, format_bytes, format_params, format_si
from charllm.workload.liveness import in_flight
from charllm.workload.memory import KINDS, stage_memories
from charllm.workload.parameters import parameter_table
from charllm.workload.step import Step
from charllm.workload.totals import count_traffic

TRAFFIC_COLUMNS = (
    "axis",
    "ranks",
    "sent",
    "intra-node",
    "over NICs",
    "messages",
    "median message",
    "algorithm",
    "hops",
    "flows per NIC",
    "NIC shared with",
)
TRAFFIC_DROP = ("hops", "NIC shared with", "algorithm", "flows per NIC", "messages", "ranks")
MEMORY_DROP = ("in flight", "context", "communication", "scratch", "reserve")
"""Columns that a narrow terminal has no room for, the least important first."""
AXIS_GROUPS = {"tp": "tp", "cp": "cp", "ep": "ep", "dp": "data", "pp": "pp"}


def render_run(
    step: Step,
    result: RunResult,
    timed: StepTime | None = None,
    gains: Sequence[PredictedGain] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return the whole report of a simulated run, answers first; one that does not fit has no time and power."""
    run = step.run
    parts = [render_answer(run, result, gains, notes)]
    if timed is not None:
        parts += render_time(step, result, timed)
        parts += render_power(run, result) if result.metrics["power_mean_w"] is not None else []
    parts += [render_memory(step, result), render_traffic(step), render_arithmetic(run, result), render_parameters(run)]
    if timed is not None:
        parts.append(render_gains(gains))
    return "\n\n".join(parts)


def render_answer(
    run: RunSpec, result: RunResult, gains: Sequence[PredictedGain] = (), notes: Sequence[str] = ()
) -> str:
    """Return the first lines of a report: what was simulated, and the answers in one line each."""
    if result.metrics["step_time_s"] is None:
        return f"{describe(run)}\n\n{render_facts([('Memory', answer_memory(result))])}"
    return f"{describe(run)}\n\n{render_summary(result, gains, notes)}"


def render_parameters(run: RunSpec) -> str:
    """Return the parameter table of the model."""
    rows = parameter_table(run.model)
    cells = [
        [row.name, f"{row.each:,.0f}", str(row.copies), format_params(row.total), format_params(row.active)]
        for row in rows
    ]
    total, active = sum(row.total for row in rows), sum(row.active for row in rows)
    cells.append(["all", "", "", format_params(total), format_params(active)])
    return render_table("Parameters", ["weights", "each", "count", "total", "active"], cells)


def render_memory(step: Step, result: RunResult) -> str:
    """Return the memory of one rank of each stage, by kind, in GiB."""
    run, memories = step.run, stage_memories(step)
    shown, left_out = shown_ends(memories)
    cells = []
    for memory in shown:
        kinds = [f"{memory.by_kind()[kind] / GIB:.2f}" for kind in KINDS]
        mark = ", worst" if memory.rank == result.metrics["memory_rank"] else ""
        flights = "+".join(str(count) for count in dict.fromkeys(sum(one) for one in in_flight(run, memory.stage)))
        cells.append(
            [
                f"{memory.stage} (rank {memory.rank}{mark})",
                flights,
                *kinds,
                f"{memory.total_bytes / GIB:.2f}",
                f"{memory.need_bytes / GIB:.2f}",
            ]
        )
    has_gib = run.cluster.smallest_gpu.memory_bytes / GIB
    title = f"Memory per stage, GiB on one GPU ({run.cluster.smallest_gpu.name}: {has_gib:.1f} GiB){left_out}"
    table = render_table(title, ["stage", "in flight", *KINDS, "total", "needed"], cells, drop=MEMORY_DROP)
    allocated, reserved = (result.metrics[f"memory_{name}_bytes"] / GIB for name in ("allocated", "reserved"))
    return f"{table}\nlargest of any rank: allocated {allocated:.2f}, reserved {reserved:.2f}"


def render_arithmetic(run: RunSpec, result: RunResult) -> str:
    """Return the matrix arithmetic of a step."""
    model, executed = result.metrics["model_flop"], result.metrics["executed_flop"]
    cells = [
        [
            "model",
            format_si(model, "FLOP"),
            format_si(model / run.cluster.gpus, "FLOP"),
            format_si(model / run.tokens_per_step, "FLOP"),
        ],
        [
            "executed",
            format_si(executed, "FLOP"),
            format_si(executed / run.cluster.gpus, "FLOP"),
            format_si(executed / run.tokens_per_step, "FLOP"),
        ],
    ]
    return render_table("Matrix FLOPs per step", ["", "all GPUs", "per GPU", "per token"], cells)


def render_traffic(step: Step) -> str:
    """Return what is sent in a step: by axis, over which links, in which messages, with whom the NIC is shared."""
    traffic, run, ways = count_traffic(step), step.run, algorithms_taken(step)
    shared = {group: axis for axis, group in AXIS_GROUPS.items() if traffic.axis_bytes[axis]}
    cells = []
    for axis, group in AXIS_GROUPS.items():
        size_bytes = traffic.axis_bytes[axis]
        if not size_bytes:
            continue
        links = group_links(run, group)
        hops = ", ".join(f"{count} {name}" for name, count in links.ring_hops.items())
        median = traffic.message_bytes_median[axis]
        by_link = traffic.axis_link_bytes[axis]
        cells.append(
            [
                axis,
                str(links.degree),
                format_bytes(size_bytes),
                format_bytes(by_link["nvlink"] + by_link["pcie"]),
                format_bytes(by_link["nic"]),
                f"{traffic.messages[axis]:,.0f}",
                format_bytes(median) if median else "-",
                ", ".join(ways[axis]),
                hops,
                str(links.ring_flows_per_nic or "-"),
                ", ".join(shared[other] for other in nic_sharers(run, group, tuple(shared))) or "-",
            ]
        )
    if not cells:
        return "Communication traffic per step: none, the job has a single GPU"
    return render_table("Communication traffic per step (all GPUs)", TRAFFIC_COLUMNS, cells, drop=TRAFFIC_DROP)
