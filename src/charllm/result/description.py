"""What was simulated, in words: the job, its parallelism, the conditions of its GPUs, defaults that were taken."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from charllm.result.columns import Columns, columns_of
from charllm.units import BITS_PER_BYTE, GIGA, MEGA, format_percent

if TYPE_CHECKING:
    from charllm.spec.run import RunSpec

MANY = 6
BATCH_FLAGS = {"global_batch_size": "--gbs", "seq_length": "--seq-length"}
"""Fields of a batch, with the flag that sets each."""
JOB, PARALLELISM, CONDITION, DEFAULT = "job", "parallelism", "condition", "default"
"""Parts of a description."""


def tabulate_description(run: "RunSpec") -> Columns:
    """Return a row for each part of the description: the job, its parallelism, conditions, defaults of the profile."""
    rows = [(JOB, describe_job(run)), (PARALLELISM, _parallelism(run))]
    rows += [(CONDITION, text) for text in conditions(run)]
    rows += [(DEFAULT, text) for text in run.defaults_taken]
    return columns_of(("part", "text"), rows)


def texts_of(columns: Columns, part: str) -> list[str]:
    """Return the texts of one part of a description."""
    return [text for found, text in zip(columns["part"], columns["text"], strict=True) if found == part]


def describe_job(run: "RunSpec") -> str:
    """Name the model, the machine with its network, the software and the precision."""
    machine = describe_machine(run.as_table()["cluster"])
    return f"{run.model.name} on {run.cluster.name} ({machine}), {run.framework.name}, {run.training.precision}"


def describe_batch(run: "RunSpec", defaulted: Sequence[str] = ()) -> str:
    """Say how many sequences of how many tokens a step takes; `defaulted` names the fields that nothing stated."""
    counts = {"global_batch_size": "sequences", "seq_length": "tokens"}
    notes = {name: f" (default; {BATCH_FLAGS[name]} sets it)" for name in defaulted}
    words = [f"{getattr(run.training, name):,} {what}{notes.get(name, '')}" for name, what in counts.items()]
    return f"batch of {' of '.join(words)}"


def describe_machine(cluster: Mapping[str, Any]) -> str:
    """Name the GPUs of a cluster by node, and the network that joins the nodes; `cluster` is a table of a spec."""
    node, nodes, fabric = cluster["node"], cluster["nodes"], cluster.get("fabric", {})
    if nodes == 1:
        return f"{node['gpus']} x {node['gpu']['name']}"
    others = [(len(other["nodes"]), other["node"]) for other in cluster.get("mixed", ())]
    kinds = [(nodes - sum(count for count, _ in others), node), *others]
    gpus = " + ".join(
        f"{count} node{'s' if count > 1 else ''} x {kind['gpus']} {kind['gpu']['name']}"
        + (f" in {kind['name']}" if others else "")
        for count, kind in kinds
    )
    domain = f" in NVLink domains of {cluster['domain_nodes']} nodes" if cluster.get("domain_nodes", 1) > 1 else ""
    return f"{gpus}{domain}; {describe_network(fabric)}"


def describe_network(fabric: Mapping[str, Any]) -> str:
    """Name a network, and say what each node has of it."""
    if not fabric.get("nics_per_node"):
        return "no network"
    rate = fabric["nic_bandwidth_bytes_per_s"] * BITS_PER_BYTE / GIGA
    return f"{fabric['name']}: {fabric['nics_per_node']} x {rate:g} Gb/s per node"


def _generated(run: "RunSpec", cut: str) -> str:
    """Say what a generation is made of."""
    asked = run.generation
    if asked is None:
        return ""
    batch = run.training.global_batch_size
    return (
        f"{cut}; {batch} sequences of {asked.prompt_tokens} prompt + {asked.new_tokens} new tokens, "
        f"{batch // run.parallelism.dp} on each replica; key-value cache {asked.cache_precision}"
    )


def _parallelism(run: "RunSpec") -> str:
    degrees, training = run.parallelism, run.training
    axes = ("tp", "cp", "pp", "dp", "ep")
    cut = " x ".join(
        f"{axis} {getattr(degrees, axis)}" for axis in axes if axis in ("tp", "pp", "dp") or getattr(degrees, axis) > 1
    )
    if run.generation is not None:
        return _generated(run, cut)
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


def conditions(run: "RunSpec") -> list[str]:
    """Say what the GPUs are subjected to: limits, cooling, placement, weak GPUs, braked nodes, length of the run."""
    asked, gpu, cooling = run.conditions, run.cluster.gpu, run.cluster.cooling
    found = [
        f"power limit {asked.power_cap_w:g} of {gpu.power_cap_w:g} W"
        if asked.power_cap_w is not None
        else f"power limit {gpu.power_cap_w:g} W (default)",
        f"clock capped at {asked.clock_cap_hz / MEGA:.0f} of {gpu.clock_max_hz / MEGA:.0f} MHz"
        if asked.clock_cap_hz is not None
        else f"clock up to {gpu.clock_max_hz / MEGA:.0f} MHz",
        f"{cooling.kind} cooling, inlet {_by_rack(run, cooling.inlet_c, 'C')}",
    ]
    if cooling.flow_fraction != 1:
        found.append(f"flow {_by_rack(run, cooling.flow_fraction, 'times normal')}")
    if cooling.fans != "fixed":
        ends = f"from {cooling.fan_start_c:g} C, up to {cooling.fan_most_fraction:g} times normal flow"
        found.append(f"fans follow the hottest GPU of their node {ends}")
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


def _faults(run: "RunSpec") -> list[str]:
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


def _caps(run: "RunSpec") -> list[str]:
    """Name the GPUs that have a power or clock cap of their own, by cap."""
    words: dict[str, list[int]] = {}
    for gpu, (power_w, clock_hz) in run.caps.items():
        limits = [] if power_w is None else [f"power limit {power_w:g} W"]
        limits += [] if clock_hz is None else [f"clock limit {clock_hz / MEGA:.0f} MHz"]
        words.setdefault(", ".join(limits), []).append(gpu)
    return [f"{limits} on GPUs {_listed(gpus)}" for limits, gpus in words.items()]


def _by_rack(run: "RunSpec", values: float | tuple[float, ...], unit: str) -> str:
    """Write what enters the racks: one number for all, or the range and each."""
    if not isinstance(values, tuple):
        return f"{values:g} {unit}"
    nodes = run.cluster.cooling.rack_nodes
    where = "node" if nodes == 1 else f"rack of {nodes} nodes"
    return f"{min(values):g} to {max(values):g} {unit} by {where} ({_listed([f'{value:g}' for value in values])})"


def _listed(numbers: Sequence[object]) -> str:
    more = f" and {len(numbers) - MANY} more" if len(numbers) > MANY else ""
    return ", ".join(map(str, numbers[:MANY])) + more
