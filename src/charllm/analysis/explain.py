"""Why a figure of a run looks wrong at first sight: the arithmetic behind it, from the run's own figures."""

from collections.abc import Callable
from typing import Any, NamedTuple

from charllm.gpu.physics import power_cap_w
from charllm.layout.links import group_links
from charllm.network.collectives import link_bandwidth
from charllm.simulate.predict import Simulation
from charllm.spec.run import RunSpec
from charllm.timeline.passes import launch_seconds
from charllm.timeline.step_time import StepTime
from charllm.units import GIGA, MEGA, format_bytes, format_percent, format_si, seconds_format
from charllm.workload.model_flop import peak_flop_per_s
from charllm.workload.sync import gathers_once
from charllm.workload.totals import AXIS_OF_GROUP, Traffic, count_traffic

DOMINANT_FRACTION = 0.4
"""Share of the step above which a label is explained."""
LOW_MFU, LOST_CLOCK_FRACTION = 0.1, 0.25


def _seconds(seconds: float) -> str:
    return seconds_format(seconds)(seconds)


class LinkLoad(NamedTuple):
    """The link that takes an axis's traffic longest, and how long at its full rate."""

    link: str
    sent_bytes: float
    """Of the axis, over all links of this kind."""
    carriers: int
    """Nodes, or GPUs, that send at once."""
    links_each: int
    bytes_per_s: float
    """Of one link, one way."""

    @property
    def least_s(self) -> float:
        """Seconds to send it all with every link at its full rate."""
        return self.sent_bytes / (self.carriers * self.links_each * self.bytes_per_s)

    def describe(self) -> str:
        """Write the division out."""
        who, what = ("node", "NIC") if self.link == "nic" else ("GPU", "NVLink" if self.link == "nvlink" else "PCIe")
        links = f"{self.links_each} {what}s" if self.links_each > 1 else f"one {what}" if who == "node" else what
        rate = f"{self.bytes_per_s / GIGA:,.3g} GB/s" + (" each" if self.links_each > 1 else "")
        return (
            f"{format_bytes(self.sent_bytes / self.carriers)} from each of {self.carriers} {who}s over {links} of "
            f"{rate} take at least {_seconds(self.least_s)} s"
        )


def explain_run(found: Simulation) -> list[str]:
    """Return a sentence for each figure that needs one: a dominant label, low MFU, lost clocks."""
    if found.timed is None:
        return []
    run, metrics = found.step.run, found.result.metrics
    notes = []
    for label, seconds in sorted(metrics["breakdown_s"].items(), key=lambda pair: -pair[1]):
        share = seconds / metrics["step_time_s"]
        if share > DOMINANT_FRACTION and label in DOMINANT:
            notes.append(DOMINANT[label](found, label, share))
    if metrics["mfu"] is not None and metrics["mfu"] < LOW_MFU:
        notes.append(explain_mfu(run, metrics))
    notes += [
        explain_clocks(run, metrics, cause)
        for cause, lost in metrics["clock_loss_fraction"].items()
        if lost > LOST_CLOCK_FRACTION
    ]
    return notes


def slowest_link(run: RunSpec, traffic: Traffic, axis: str) -> LinkLoad:
    """Return the kind of link on which an axis's bytes take longest."""
    node, fabric, nodes = run.cluster.node, run.cluster.fabric, run.cluster.nodes
    by_link = traffic.axis_link_bytes[axis]
    hops = {hop for group, own in AXIS_OF_GROUP.items() if own == axis for hop in group_links(run, group).ring_hops}
    loads = (
        LinkLoad("nic", by_link["nic"], nodes, fabric.nics_per_node, fabric.nic_bandwidth_bytes_per_s),
        LinkLoad("nvlink", by_link["nvlink"], run.cluster.gpus, 1, link_bandwidth(run.cluster, hops)),
        LinkLoad("pcie", by_link["pcie"], run.cluster.gpus, 1, node.pcie_bandwidth_bytes_per_s),
    )
    return max((load for load in loads if load.sent_bytes), key=lambda load: load.least_s)


def explain_axis(found: Simulation, label: str, share: float) -> str:
    """Explain exposed communication: how often, how many bytes, over which link, and how long that takes at least."""
    run, axis = found.step.run, label.removesuffix("_exposed")
    load = slowest_link(run, count_traffic(found.step), axis)
    sent = f"{format_bytes(load.sent_bytes)} over {'NICs' if load.link == 'nic' else 'links inside nodes'}"
    once = axis == "dp" and (run.parallelism.zero < 3 or gathers_once(run))
    each = format_bytes(load.sent_bytes / run.microbatches)
    verb = "gather and reduce" if axis == "dp" and not once else "send"
    how_often = (
        f"Once a step, {sent} are sent" if once else f"{run.microbatches} microbatches {verb} {sent} ({each} each)"
    )
    exposed_s = found.result.metrics["breakdown_s"][label]
    return (
        f"{axis} communication that is not overlapped takes {format_percent(share, 0)} of the step "
        f"({_seconds(exposed_s)} s). {how_often}: {load.describe()}. To reduce it: {_axis_advice(run, axis, load)}."
    )


def _axis_advice(run: RunSpec, axis: str, load: LinkLoad) -> str:
    degrees, per_node = run.parallelism, run.cluster.node.gpus
    overlap = "" if axis in degrees.overlap else f"--overlap {axis}, "
    if axis == "dp" and degrees.zero == 3:
        return "fewer, larger microbatches (--mbs), --zero 1 with --tp or --pp, or faster NICs"
    if axis == "dp":
        return f"{overlap}a larger batch (--gbs), for gradients are exchanged once a step, or faster NICs"
    if axis in ("tp", "ep", "cp") and load.link == "nic":
        return f"keep {axis} within the {per_node} GPUs of a node, or use faster NICs"
    return f"{overlap}a smaller --{axis}, or faster links"


def explain_bubble(found: Simulation, _label: str, share: float) -> str:
    """Explain an idle pipeline: stages against microbatches."""
    run = found.step.run
    pp, vpp, microbatches = run.parallelism.pp, run.parallelism.vpp, run.microbatches
    waits, all_turns = pp - 1, microbatches * vpp + pp - 1
    return (
        f"the pipeline bubble takes {format_percent(share, 0)} of the step: with {microbatches} microbatches, {pp} "
        f"stages and {vpp} chunks a stage, (pp - 1) / (microbatches x vpp + pp - 1) = {waits} / {all_turns} = "
        f"{format_percent(waits / all_turns, 0)} of the time is filling and draining, if stages are equal. To reduce "
        "it: more microbatches (a larger --gbs or a smaller --mbs), more chunks (--vpp), or fewer stages (--pp)."
    )


def explain_overhead(found: Simulation, _label: str, share: float) -> str:
    """Explain a GPU that waits for its host: launches against kernels."""
    assert found.timed is not None
    run = found.step.run
    launching_s, working_s = launch_totals(run, found.timed)
    launch_s = launch_seconds(run)
    return (
        f"the host launches kernels too slowly for {format_percent(share, 0)} of the step: the busiest GPU waits for "
        f"{launching_s / launch_s if launch_s else 0:,.0f} launches of {launch_s * MEGA:.3g} us = "
        f"{_seconds(launching_s)} s a step, and its kernels take {_seconds(working_s)} s. To reduce it: larger "
        f"microbatches (--mbs), a longer sequence, a smaller --tp, or CUDA graphs (--set framework.graphs=full)."
    )


def launch_totals(run: RunSpec, timed: StepTime) -> tuple[float, float]:
    """Return seconds of launches and of kernels in a step, of the stage whose launches take longest."""
    found = []
    for stage in range(run.parallelism.pp):
        items = [
            (span.repeats * item.launch_s, span.repeats * item.seconds)
            for one in timed.passes[stage :: run.parallelism.pp]
            for part in one
            for span in part.spans
            for item in span.items
        ]
        found.append((run.microbatches * sum(item[0] for item in items), run.microbatches * sum(i[1] for i in items)))
    return max(found)


def explain_waits(found: Simulation, _label: str, share: float) -> str:
    """Explain GPUs that wait for slower ones: who they wait for."""
    metrics = found.result.metrics
    first = metrics["critical_path"][0]
    waited_s = metrics["breakdown_s"]["straggler_wait"]
    return (
        f"GPUs wait {format_percent(share, 0)} of the step ({_seconds(waited_s)} s) for slower ones: the critical path "
        f"spends {_seconds(first['seconds'])} s on stage {first['stage']} of node {first['node']}. To reduce it: move "
        "layers away from that stage (--layers-per-stage), or look at the conditions of that node (weak GPUs, brake, "
        "inlet)."
    )


DOMINANT: dict[str, Callable[[Simulation, str, float], str]] = {
    **{f"{axis}_exposed": explain_axis for axis in ("tp", "pp", "dp", "ep", "cp")},
    "bubble": explain_bubble,
    "overhead": explain_overhead,
    "straggler_wait": explain_waits,
}
"""Label of the breakdown: what explains it where it dominates."""


def explain_mfu(run: RunSpec, metrics: dict[str, Any]) -> str:
    """Write the division of MFU out, once over the whole step and once over its compute alone."""
    peak, step_s = peak_flop_per_s(run), metrics["step_time_s"]
    busy_s = metrics["breakdown_s"]["compute"] + metrics["breakdown_s"]["recompute"]
    inside = metrics["mfu"] * step_s / busy_s if busy_s else 0.0
    cause = (
        "most of the step is not compute"
        if busy_s < (1 - DOMINANT_FRACTION) * step_s
        else "its kernels are too small or too memory-bound to fill the GPU"
    )
    return (
        f"MFU is {100 * metrics['mfu']:.2g} % = {format_si(metrics['model_flop'], 'FLOP')} / ({run.cluster.gpus} GPUs "
        f"x {format_si(peak, 'FLOP/s')} x {_seconds(step_s)} s): {cause}. Compute takes {_seconds(busy_s)} s; over "
        f"that time alone MFU would be {format_percent(inside, 0)}."
    )


def explain_clocks(run: RunSpec, metrics: dict[str, Any], cause: str) -> str:
    """Say what holds clocks down, beside its limit."""
    gpu, conditions = run.cluster.gpu, run.conditions
    lost = metrics["clock_loss_fraction"][cause]
    head = (
        f"clocks are {format_percent(lost, 0)} below maximum because of {'heat' if cause == 'thermal' else cause} "
        f"({metrics['clock_mean_hz'] / MEGA:.0f} MHz on average): "
    )
    if cause == "power":
        cap_w = power_cap_w(gpu, conditions) / gpu.package_gpus
        return (
            f"{head}GPUs draw {metrics['power_mean_w']:.0f} W on average against a limit of {cap_w:.0f} W "
            f"({gpu.power_cap_w / gpu.package_gpus:.0f} W as delivered). To reduce it: raise --power-cap, if it is set."
        )
    if cause == "thermal":
        return (
            f"{head}the hottest GPU reaches {metrics['temperature_peak_c']:.0f} C, and above "
            f"{gpu.max_operating_temperature_c:g} C the clock falls. To reduce it: a cooler inlet (--inlet), more flow "
            f"(--set cluster.cooling.flow_fraction=1.2), or a lower --power-cap."
        )
    return f"{head}nodes {', '.join(map(str, conditions.braked_nodes[:6]))} are under a power brake."
