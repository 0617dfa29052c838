"""A run as text, from its stored result alone: the same functions for simulated, emulated and measured runs."""

from collections.abc import Callable, Mapping
from typing import Any

from charllm.report.energy import NO_PRICES, Prices, render_energy
from charllm.report.power import air_differs, render_gpus, render_nodes, render_power
from charllm.report.screen import render_screen
from charllm.report.tables import render_facts, render_table, shown_ends, wrap
from charllm.report.time import (
    render_changes,
    render_links,
    render_path,
    render_stages,
    render_waterfall,
)
from charllm.result.answers import (
    NOT_STORED,
    answer_changes,
    answer_lines,
    describe_run,
    explanations,
    gpu_table,
    memory_size_bytes,
)
from charllm.result.columns import Columns, rows_of
from charllm.result.metrics import KINDS, numbers_of
from charllm.result.result import RunResult
from charllm.result.uncertainty import with_intervals
from charllm.units import GIB, format_bytes, format_params, format_si

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


def render_run(result: RunResult, *, full: bool = False, prices: Prices = NO_PRICES) -> str:
    """Return a run as text: of a simulated one a screen, or with `full` all its tables; one that it lacks is named."""
    if result.origin == "simulated" and result.table("phases") is not None:
        # Phases are shown beside parts of this file.
        from charllm.report.phases import render_phased

        return render_phased(result, full=full)
    if result.origin == "simulated" and "uncertainty" not in result.provenance:
        result = with_intervals(result)
    if result.origin == "simulated" and not full and result.metrics.get("memory_need_bytes") is not None:
        return render_screen(result)
    timed = result.metrics.get("step_time_s") is not None
    breakdown_s = result.metrics.get("breakdown_s")
    groups = render_power(result)
    parts = [render_answer(result)]
    parts += [render_waterfall(breakdown_s)] if breakdown_s else []
    if full and timed:
        parts += _section(result, "breakdown", "Breakdown of the step time by pipeline stage", render_stages)
        parts += render_path(result)
        parts += _section(result, "traffic", "Communication by axis", render_links)
    parts += groups
    if result.gpus and (full or (not groups and (timed or result.origin != "simulated"))):
        parts.append(render_gpus(result))
    if any(len(node) > 1 for node in result.nodes) and (result.origin == "measured" or air_differs(result)):
        parts.append(render_nodes(result))
    energy = render_energy(result, prices)
    parts += [energy] if energy else []
    parts += _section(result, "memory", "Memory per stage", render_memory)
    if full:
        parts += _section(result, "traffic", "Communication traffic per step", render_traffic)
        parts += render_arithmetic(result)
        parts += _section(result, "parameters", "Parameters", render_parameters)
    if timed:
        parts += _section(result, "best_changes", "Best single changes", lambda _result, table: render_changes(table))
    return "\n\n".join(parts)


def _section(result: RunResult, name: str, title: str, render: Callable[[RunResult, Columns], str]) -> list[str]:
    """Return a table that a run has as text; of a simulated one that lacks it, say so."""
    columns = result.table(name)
    if columns is None or not any(columns.values()):
        return [f"{title}: {NOT_STORED}"] if title and result.origin == "simulated" else []
    try:
        return [render(result, columns)]
    except KeyError as error:
        return [f"{title}: stored by another version, without {error}"]


def render_answer(result: RunResult) -> str:
    """Return the first part of a report: what was run, the answers in one line each, what was predicted of them."""
    lines = [*answer_lines(result), ("Best changes", answer_changes(result))]
    known = [(label, text) for label, text in lines if text]
    notes = ["\n".join(wrap(f"Explanation: {note}", indent="  ")) for note in explanations(result)]
    described = "\n".join(part for line in describe_run(result) for part in wrap(line))
    predicted = _section(result, "predicted", "", render_predicted)
    return "\n\n".join([described, render_facts(known) if known else "no metric is known", *notes, *predicted])


def render_predicted(result: RunResult, predicted: Columns) -> str:
    """Return what was predicted beside what was read."""
    known = numbers_of(result.metrics)
    cells = [
        [
            row["metric"],
            f"{row['value']:.6g}",
            "-" if known.get(row["metric"]) is None else f"{known[row['metric']]:.6g}",
        ]
        for row in rows_of(predicted)
    ]
    return render_table(f"Predicted and {result.origin}", ["metric", "predicted", result.origin], cells)


def render_parameters(_result: RunResult, parameters: Columns) -> str:
    """Return the parameter table of the model."""
    rows = rows_of(parameters)
    cells = [
        [
            row["name"],
            f"{row['each']:,.0f}",
            str(row["copies"]),
            format_params(row["total"]),
            format_params(row["active"]),
        ]
        for row in rows
    ]
    total, active = (sum(row[name] for row in rows) for name in ("total", "active"))
    cells.append(["all", "", "", format_params(total), format_params(active)])
    return render_table("Parameters", ["weights", "each", "count", "total", "active"], cells)


def render_memory(result: RunResult, memory: Columns) -> str:
    """Return the memory of one rank of each stage, by kind, in GiB."""
    shown, left_out = shown_ends(rows_of(memory))
    cells = [
        [
            f"{row['stage']} (rank {row['rank']}{', worst' if row['rank'] == result.metrics['memory_rank'] else ''})",
            row["in_flight"],
            *(f"{row[f'{kind}_bytes'] / GIB:.2f}" for kind in KINDS),
            f"{row['total_bytes'] / GIB:.2f}",
            f"{row['need_bytes'] / GIB:.2f}",
        ]
        for row in shown
    ]
    title = f"Memory per stage, GiB on one GPU{_gpu_size(result.spec)}{left_out}"
    table = render_table(title, ["stage", "in flight", *KINDS, "total", "needed"], cells, drop=MEMORY_DROP)
    allocated, reserved = (max(memory[f"{name}_bytes"]) / GIB for name in ("allocated", "reserved"))
    return f"{table}\nlargest of any rank: allocated {allocated:.2f}, reserved {reserved:.2f}"


def _gpu_size(spec: Mapping[str, Any]) -> str:
    """Name the GPU with the least memory, and its size."""
    has_bytes = memory_size_bytes(spec)
    kinds = [gpu_table(spec), *(other["node"]["gpu"] for other in spec["cluster"].get("mixed", ()))]
    return (
        ""
        if has_bytes is None
        else next(f" ({gpu['name']}: {has_bytes / GIB:.1f} GiB)" for gpu in kinds if gpu["memory_bytes"] == has_bytes)
    )


def render_arithmetic(result: RunResult) -> list[str]:
    """Return the matrix arithmetic of a step."""
    flop: dict[str, Any] = {name: result.metrics.get(f"{name}_flop") for name in ("model", "executed")}
    if any(value is None for value in flop.values()):
        return []
    training = result.spec["training"]
    tokens = training["global_batch_size"] * training["seq_length"]
    cells = [
        [name, format_si(value, "FLOP"), format_si(value / len(result.gpus), "FLOP"), format_si(value / tokens, "FLOP")]
        for name, value in flop.items()
    ]
    return [render_table("Matrix FLOPs per step", ["", "all GPUs", "per GPU", "per token"], cells)]


def render_traffic(_result: RunResult, traffic: Columns) -> str:
    """Return what is sent in a step: by axis, over which links, in which messages, with whom the NIC is shared."""
    cells = [
        [
            row["axis"],
            str(row["ranks"]),
            format_bytes(row["sent_bytes"]),
            format_bytes(row["nvlink_bytes"] + row["pcie_bytes"]),
            format_bytes(row["nic_bytes"]),
            f"{row['messages']:,.0f}",
            format_bytes(row["message_bytes_median"]) if row["message_bytes_median"] else "-",
            row["algorithms"],
            row["hops"],
            str(row["flows_per_nic"] or "-"),
            row["nic_shared_with"] or "-",
        ]
        for row in rows_of(traffic)
    ]
    if not cells:
        return "Communication traffic per step: none, the job has a single GPU"
    return render_table("Communication traffic per step (all GPUs)", TRAFFIC_COLUMNS, cells, drop=TRAFFIC_DROP)
