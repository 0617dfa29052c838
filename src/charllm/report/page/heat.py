"""Which GPUs are hot, and which is the bottleneck? Each node as it stands: slots in their rows, front to rear."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.quantity import metric_column
from charllm.report.page.view import RunView, missing
from charllm.result.answers import pacing_gpus
from charllm.result.metrics import METRICS
from charllm.spec.hardware import Node
from charllm.units import MEGA

NAME, KIND, QUESTION = "heat", "node-map", "Which GPUs are hot, and which is the bottleneck?"
MEAN = METRICS["temperature_mean_c"].label
ABOVE_INLET = f"{MEAN} above inlet"
MOST_NODES = 8
"""Node maps on a page; of a larger cluster the telling ones are shown."""
ALIKE_K = 0.05
"""GPUs that differ by less are equally warm."""


def heat_figure(run: RunView) -> Figure:
    """Return the temperature of every GPU of the nodes that tell most, where it stands."""
    rows = [row for row in run.gpu_rows() if row.get("temperature_mean_c") is not None]
    if not rows:
        return missing(NAME, KIND, QUESTION, run.why_not("temperature_mean_c"))
    inlets_c = _inlets(run, {row["node"] for row in rows})
    pacers = pacing_gpus(run.result)
    chosen = _choose_nodes(rows, pacers)
    shown = [row for row in rows if row["node"] in chosen]
    columns = _columns(run, shown, inlets_c, pacers)
    above = inlets_c is not None
    options: dict[str, Any] = {
        "value": "value",
        "unit": "K" if above else "C",
        "scale": "cividis",
        "label": ABOVE_INLET if above else MEAN,
        "airflow": "front to rear" if _has_rows(run) else "",
        "nodes_shown": len(chosen),
    }
    if inlets_c is not None:
        options["inlet"] = _inlet_text(inlets_c)
    count = len({row["node"] for row in rows})
    if len(chosen) < count:
        options["more"] = (
            f"{len(chosen)} of {count} nodes shown: the bottleneck, the hottest, the coolest, then one of each stage"
        )
    return Figure(NAME, KIND, QUESTION, _message(run, rows, inlets_c, pacers), columns, options, run.conditions)


def place_slots(node: Node) -> list[tuple[int, int]]:
    """Return row (0: where air enters) and place across of every slot, from which slot stands upstream of which."""
    rows = [len(node.upstream_slots(slot)) for slot in range(node.gpus)]
    front = [slot for slot in range(node.gpus) if rows[slot] == 0] or list(range(node.gpus))
    taken: set[tuple[int, int]] = set()
    found = []
    for slot in range(node.gpus):
        ahead = (*node.upstream_slots(slot), slot) if rows[slot] == 0 else node.upstream_slots(slot)
        across = front.index(ahead[-1]) if ahead and ahead[-1] in front else 0
        # Two slots behind the same one stand side by side.
        while (rows[slot], across) in taken:
            across += 1
        taken.add((rows[slot], across))
        found.append((rows[slot], across))
    return found


def _has_rows(run: RunView) -> bool:
    return run.cluster is not None and any(ahead >= 0 for ahead in run.cluster.node.upstream)


def _inlets(run: RunView, nodes: set[int]) -> dict[int, float] | None:
    """Return what enters each node, as it was read or asked for; None where it is not known for all."""
    read = {row["node"]: row["inlet_mean_c"] for row in run.result.nodes if row.get("inlet_mean_c") is not None}
    if run.result.origin == "simulated" and run.cluster is not None:
        read = {node: run.cluster.cooling.inlet_of(node) for node in nodes}
    return read if nodes <= set(read) else None


def _inlet_text(inlets_c: Mapping[int, float]) -> str:
    low, high = min(inlets_c.values()), max(inlets_c.values())
    return f"{low:.1f} C" if high - low < 0.05 else f"{low:.1f} to {high:.1f} C by node"


def _choose_nodes(rows: Sequence[Mapping[str, Any]], pacers: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the nodes to show: the pacing one, the hottest, the coolest, one of each stage, then the first ones."""
    by_node: dict[int, float] = {}
    of_stage: dict[Any, int] = {}
    for row in rows:
        by_node[row["node"]] = max(by_node.get(row["node"], -1e9), row["temperature_mean_c"])
        of_stage.setdefault(row.get("stage"), row["node"])
    hottest, coolest = max(by_node, key=by_node.__getitem__), min(by_node, key=by_node.__getitem__)
    wanted = [*(row["node"] for row in pacers), hottest, coolest, *of_stage.values(), *sorted(by_node)]
    return sorted(list(dict.fromkeys(wanted))[:MOST_NODES])


def _columns(
    run: RunView,
    rows: Sequence[Mapping[str, Any]],
    inlets_c: Mapping[int, float] | None,
    pacers: Sequence[Mapping[str, Any]],
) -> dict[str, Column]:
    ringed = {row["rank"] for row in pacers}
    places = {number: node for number in {row["node"] for row in rows} if (node := run.node_of(number))}
    stands = [
        place_slots(places[row["node"]])[row["slot"]]
        if row["node"] in places and row["slot"] < places[row["node"]].gpus
        else (0, row["slot"])
        for row in rows
    ]
    columns = {
        "node": Column("node", [run.node_name(row["node"]) for row in rows]),
        "slot": Column("slot", [row["slot"] for row in rows]),
        "row": Column("row (0: front)", [row for row, _across in stands]),
        "place": Column("place across", [across for _row, across in stands]),
        "value": Column(
            ABOVE_INLET if inlets_c else MEAN,
            [row["temperature_mean_c"] - (inlets_c[row["node"]] if inlets_c else 0.0) for row in rows],
            "K" if inlets_c else "C",
            3,
        ),
        "temperature": metric_column("temperature_peak_c", rows, 3),
        **memory_columns(rows),
        "power": metric_column("power_mean_w", rows, 3),
        "clock": metric_column("clock_mean_hz", rows, 4),
        "rank": Column("rank", [row.get("rank") for row in rows]),
        "stage": Column("stage", [row.get("stage") for row in rows]),
        "ring": Column("bottleneck", [row["rank"] in ringed for row in rows]),
    }
    packages = _packages(rows, places)
    return {**columns, "package": Column("package", packages)} if packages else columns


def memory_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return how warm memory becomes, where that is known of every GPU."""
    name = "memory_temperature_peak_c"
    known = all(row.get(name) is not None for row in rows)
    return {"memory": metric_column(name, rows, 3)} if known else {}


def _packages(rows: Sequence[Mapping[str, Any]], places: Mapping[int, Node]) -> list[str]:
    """Name the package of each GPU, where several share one."""
    if any(row.get("package") for row in rows):
        return [str(row.get("package") or "") for row in rows]
    sizes = {number: node.gpu.package_gpus for number, node in places.items()}
    if max(sizes.values(), default=1) < 2:
        return []
    return [f"package {row['slot'] // sizes[row['node']]}" if row["node"] in sizes else "" for row in rows]


def _message(
    run: RunView,
    rows: Sequence[Mapping[str, Any]],
    inlets_c: Mapping[int, float] | None,
    pacers: Sequence[Mapping[str, Any]],
) -> str:
    """Name the hottest GPU, how far those of a node differ, and the bottleneck GPU."""
    hottest, coolest = (pick(rows, key=lambda row: row["temperature_mean_c"]) for pick in (max, min))
    above = f", {hottest['temperature_mean_c'] - inlets_c[hottest['node']]:.1f} K above the inlet" if inlets_c else ""
    spread_k = hottest["temperature_mean_c"] - coolest["temperature_mean_c"]
    if len(rows) > 1 and spread_k < ALIKE_K:
        return f"All {len(rows)} GPUs are equally warm: {hottest['temperature_mean_c']:.1f} C on average{above}."
    text = f"The hottest GPU ({run.gpu_name(hottest)}) has a mean of {hottest['temperature_mean_c']:.1f} C{above}"
    text += f"; the coolest is {spread_k:.1f} K cooler." if len(rows) > 1 else "."
    preheat_k = max((row["preheat_k"] for row in run.result.nodes if row.get("preheat_k")), default=0.0)
    if preheat_k > 0:
        text += f" Up to {preheat_k:.1f} K is assumed preheating by upstream GPUs."
    return f"{text}{_pace_text(run, rows, pacers)}"


def _pace_text(run: RunView, rows: Sequence[Mapping[str, Any]], pacers: Sequence[Mapping[str, Any]]) -> str:
    """Name the GPUs that have a ring."""
    if not pacers:
        told = " Telemetry alone does not show which GPU is the bottleneck; `charllm doctor` looks for slow GPUs."
        return told if run.result.origin != "simulated" and len(rows) > 1 else ""
    clock = f"at {pacers[0]['clock_mean_hz'] / MEGA:.0f} MHz on average"
    if len(pacers) == 1:
        return f" The ring marks the bottleneck GPU: {run.gpu_name(pacers[0])}, {clock}."
    slots = ", ".join(str(row["slot"]) for row in pacers)
    return f" Rings mark the bottleneck GPUs: node {run.node_name(pacers[0]['node'])}, slots {slots}, {clock}."
