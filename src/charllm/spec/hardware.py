"""The machine: GPU, node, fabric, cooling, cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from charllm.errors import SpecError
from charllm.spec.board import Governor, Heat, Kernels, Power
from charllm.spec.cooling import Cooling
from charllm.spec.fields import check_fields, choice, count, counts, flag, number, read, rules, text
from charllm.spec.grades import HOST_GRADES, NOT_STATED
from charllm.spec.request import as_table

MOST_16BIT_FLOP, MOST_FP32_FLOP = 16_384, 512
"""Most that one multiprocessor does in a cycle, in matrix units and outside them: twice the largest ever built."""
FORMAT_MULTIPLES = {"fp8": 2, "fp4": 8, "tf32": 0.5}
"""Format: most that matrix units do in it over what they do in 16 bits."""
LEAST_BANDWIDTH_BYTES_PER_S, LEAST_FLOP_PER_S = 1e6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device that holds one rank (an MI250 package holds two)."""

    name: str = text("Name of the GPU.")
    power: Power
    governor: Governor
    kernels: Kernels
    heat: Heat
    vendor: str = choice("Manufacturer.", ("nvidia", "amd"))
    memory_bytes: float = number("Memory reported by the driver.", 1e8, 1e13)
    memory_bandwidth_bytes_per_s: float = number("Peak memory bandwidth.", 1e9, 1e14)
    peak_bf16_flop_per_s: float = number("Dense bf16 peak.", 0, 1e17)
    peak_fp16_flop_per_s: float = number("Dense fp16 peak.", 0, 1e17)
    peak_fp8_flop_per_s: float = number("Dense fp8 peak; 0: not supported.", 0, 1e17, 0.0)
    peak_fp4_flop_per_s: float = number("Dense fp4 peak; 0: not supported.", 0, 1e17, 0.0)
    peak_fp32_flop_per_s: float = number("Dense fp32 peak outside the matrix units.", 0, 1e17)
    peak_tf32_flop_per_s: float = number(
        "Dense peak of the matrix units on fp32 operands, as TF32 or whole; 0: they take none.", 0, 1e17, 0.0
    )
    multiprocessors: int = count("Streaming multiprocessors or compute units.", 1, 4096)
    l2_bytes: float = number("Last-level cache.", 1e5, 1e11)
    clock_max_hz: float = number("Highest multiprocessor clock.", 1e8, 1e10)
    clock_idle_hz: float = number("Clock when idle.", 1e7, 1e10)
    power_cap_w: float = number(
        "Default power limit of the board, or of the package if it holds several GPUs.", 10, 2e4
    )
    power_cap_min_w: float = number("Lowest power limit that can be set.", 0, 2e4)
    slowdown_temperature_c: float = number("Temperature at which the hardware halves the clock.", 40, 150)
    shutdown_temperature_c: float | None = number(
        "Temperature at which the hardware turns itself off; none: not known, never.", 40, 160, None
    )
    max_operating_temperature_c: float = number("Temperature above which software lowers the clock.", 30, 150)
    memory_operating_temperature_c: float | None = number(
        "Temperature of memory above which software lowers the clock; none: not known, never.", 30, 150, None
    )
    package_gpus: int = count("GPUs in one package that share its power limit.", 1, 16, 1)
    context_bytes: float = number("Memory of a process before its first tensor (CUDA context).", 0, 1e11)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rates(self, tuple(name for name in rules(Gpu) if name.startswith("peak_")), LEAST_FLOP_PER_S)
        if not self.peak_16bit_flop_per_s:
            raise SpecError("peak_bf16_flop_per_s", 0, "more than 0, unless peak_fp16_flop_per_s is")
        _check_units(self)
        for low, high in (
            ("power_cap_min_w", "power_cap_w"),
            ("clock_idle_hz", "clock_max_hz"),
            ("max_operating_temperature_c", "slowdown_temperature_c"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise SpecError(low, getattr(self, low), f"at most {high} ({getattr(self, high):g})")
        if self.shutdown_temperature_c is not None and self.shutdown_temperature_c < self.slowdown_temperature_c:
            least = f"at least slowdown_temperature_c ({self.slowdown_temperature_c:g})"
            raise SpecError("shutdown_temperature_c", self.shutdown_temperature_c, least)
        if self.idle_draw_w >= self.power_cap_w:
            raise SpecError("power_cap_w", self.power_cap_w, f"more than the {self.idle_draw_w:.0f} W it draws idle")

    @property
    def idle_draw_w(self) -> float:
        """What a package draws at its lowest clock with a context on each GPU, at the reference temperature."""
        power = self.power
        return self.package_gpus * (power.static_w + power.context_w * self.clock_idle_hz / self.clock_max_hz)

    @property
    def peak_16bit_flop_per_s(self) -> float:
        """The dense peak in 16 bits, in whichever of the two formats the GPU has."""
        return self.peak_bf16_flop_per_s or self.peak_fp16_flop_per_s

    @property
    def burst_clock_hz(self) -> float:
        """The highest clock of full matrix units."""
        return self.governor.burst_clock_fraction * self.clock_max_hz

    def peak_flop_per_s(self, precision: str) -> float:
        """Return the dense datasheet peak for a training precision; 0 when the GPU cannot do it."""
        return {
            "bf16": self.peak_bf16_flop_per_s,
            "fp16": self.peak_fp16_flop_per_s,
            "fp8": self.peak_fp8_flop_per_s,
            "mxfp8": self.peak_fp8_flop_per_s,
            "nvfp4": self.peak_fp4_flop_per_s,
            "fp32": self.peak_fp32_flop_per_s,
        }[precision]


def _check_units(gpu: Gpu) -> None:
    """Refuse rates that the GPU's units cannot have."""
    cycles_per_s, wide = gpu.multiprocessors * gpu.clock_max_hz, gpu.peak_16bit_flop_per_s
    units = f"its {gpu.multiprocessors} multiprocessors at clock_max_hz ({gpu.clock_max_hz:g})"
    most = {
        "bf16": (MOST_16BIT_FLOP * cycles_per_s, units),
        "fp16": (MOST_16BIT_FLOP * cycles_per_s, units),
        "fp32": (MOST_FP32_FLOP * cycles_per_s, units),
        **{name: (multiple * wide, f"{multiple:g} times the 16-bit rate")
           for name, multiple in FORMAT_MULTIPLES.items()},
    }  # fmt: skip
    for name, (limit, why) in most.items():
        field = f"peak_{name}_flop_per_s"
        # Datasheets round.
        if getattr(gpu, field) > 1.02 * limit:
            raise SpecError(field, getattr(gpu, field), f"at most {limit:.3g}: {why}")


def _check_rates(settings: object, names: tuple[str, ...], least: float) -> None:
    """Refuse what is slower than anything that was ever built; 0 means that there is none."""
    for name in names:
        if 0 < getattr(settings, name) < least:
            raise SpecError(name, getattr(settings, name), f"0 (none), or at least {least:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What joins nodes: NICs of a node, and the switches behind them."""

    name: str = text("Name of the fabric.")
    nics_per_node: int = count("Network adapters of a node; 0: a single machine.", 0, 1024)
    nic_bandwidth_bytes_per_s: float = number("Bandwidth of one adapter, each way.", 0, 1e13)
    port_bandwidth_bytes_per_s: float | None = number(
        "Bandwidth of the switch port that an adapter plugs into, each way; none: as the adapter.", 0, 1e13, None
    )
    rail: bool = flag("Rail-optimised: whether the adapters of one slot share a switch.", True)
    nodes_per_pod: int = count("Nodes under one switch level; 0: all.", 0, 1_048_576, 0)
    oversubscription: float = number("Bandwidth below the pod's switches divided by that above them.", 1.0, 64.0, 1.0)
    nic_fraction: float | None = number(
        "Share of NIC bandwidth that a collective reaches; none: the default of network/constants.py.", 1e-6, 4, None
    )
    send_fraction: float | None = number(
        "Share of NIC bandwidth that a send between two ranks reaches; none: that of a collective.", 1e-6, 4, None
    )
    exchange_s: float | None = number(
        "Time of a dispatch or combine by DeepEP or HybridEP beyond its bytes, longer where hosts forward messages; "
        "none: the default.", 0, 1, None,
    )  # fmt: skip
    nic_hop_s: float | None = number("Latency of a hop between nodes; none: the default.", 0, 1, None)
    tree_fraction: float | None = number(
        "Bandwidth of a tree divided by that of a ring; none: the default.", 1e-3, 4, None
    )

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rates(self, ("nic_bandwidth_bytes_per_s",), LEAST_BANDWIDTH_BYTES_PER_S)
        if self.nics_per_node and not self.nic_bandwidth_bytes_per_s:
            raise SpecError("nic_bandwidth_bytes_per_s", 0, f"more than 0 with {self.nics_per_node} NICs per node")
        port = self.port_bandwidth_bytes_per_s
        if port is not None and self.nic_bandwidth_bytes_per_s > port:
            possible = f"at most port_bandwidth_bytes_per_s ({port:g})"
            raise SpecError("nic_bandwidth_bytes_per_s", self.nic_bandwidth_bytes_per_s, possible)

    @property
    def node_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of all adapters of a node together, each way."""
        return self.nics_per_node * self.nic_bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One chassis: its slots, the links between them, and the order in which air passes them."""

    name: str = text("Name of the node.")
    gpu: Gpu
    gpus: int = count("GPUs in the chassis.", 1, 1024)
    link_bandwidth_bytes_per_s: float = number(
        "Scale-up bandwidth of one GPU, each way; 0: no scale-up links.", 0, 1e13
    )
    package_bandwidth_bytes_per_s: float = number(
        "Bandwidth inside a package, each way; 0: that of the scale-up links.", 0, 1e13, 0.0
    )
    direct_links: bool = flag(
        "Whether links join GPUs pair by pair, without a switch: some of a node's GPUs have those between them alone.",
        False,
    )
    pcie_bandwidth_bytes_per_s: float = number("Host bandwidth of one GPU, each way.", 1e8, 1e13)
    in_switch_reduction: bool = flag("Whether the scale-up switch can reduce (NVLS).", False)
    collective_latency_s: float | None = number(
        "Latency of a collective apart from its hops; none, here and below: the default of network/constants.py.",
        0,
        1,
        None,
    )
    link_hop_s: float | None = number(
        "Latency of a hop over a scale-up link, and of the handshake for one piece.", 0, 1, None
    )
    link_fraction: float | None = number("Share of link bandwidth that a collective reaches.", 1e-6, 4, None)
    own_block_fraction: float | None = number(
        "Cost of a rank's own block relative to a block it passes on.", 0, 100, None
    )
    switch_fraction: float | None = number(
        "Share of link bandwidth that a reduction in the switch reaches.", 1e-6, 4, None
    )
    upstream: tuple[int, ...] = counts("For each slot, the slot directly upstream in the airflow, or -1.", -1, 1023)
    preheat_k_per_w: float = number("Temperature rise of a slot's air per watt of each slot upstream.", 0, 0.2, 0.0)
    rear_sink_fraction: float = number(
        "Sink resistance of a slot with upstream slots, relative to one without.", 0.1, 10, 1.0
    )
    package_skew_fraction: float = number(
        "Difference in sink resistance between the last and the first GPU of a package, relative to their mean.",
        0,
        1,
        0.0,
    )
    base_resistance_k_per_w: float | None = number(
        "Thermal resistance from base to sink in this node; none: the GPU's own figure.", 0, 2, None
    )
    base_time_s: float | None = number("Time constant of the base; none: the GPU's own figure.", 1e-3, 1e4, None)
    sink_resistance_k_per_w: float | None = number(
        "Thermal resistance from a front slot's sink to its air; none: the GPU's own figure.", 1e-4, 2, None
    )
    sink_time_s: float | None = number("Time constant of the sink; none: the GPU's own figure.", 0.1, 1e5, None)
    host_speed_fraction: float = number(
        "Launch speed of the host relative to a tuned host (CPU binding, synchronised garbage collection).",
        0.01, 100, 1.0,
    )  # fmt: skip
    host_grade: str = choice(
        "How the host is set up: tuned (CPU binding, synchronised garbage collection), usual (library defaults) or "
        "slow. Where it is not stated it counts as tuned, and intervals hold for untuned ones, too.",
        tuple(HOST_GRADES),
        NOT_STATED,
    )
    processor_speed_fraction: float = number(
        "Speed at which the node's processors launch kernels, over the x86 processors beside H100 and H200.",
        0.01, 100, 1.0,
    )  # fmt: skip
    host_memory_bytes_per_s: float = number(
        "Host memory bandwidth of a node that an optimizer on the CPUs reaches.", 1e9, 1e14, 1.1e11
    )
    host_cores: int = count("Cores of a node that update what lies in host memory; 0: enough of them.", 0, 100_000, 0)
    overhead_w: float = number("Power of CPUs, adapters, drives and boards beside the GPUs.", 0, 1e5, 0.0)
    fan_w: float = number("Power of the fans at normal speed, with air cooling.", 0, 1e5, 0.0)
    supply_fraction: float = number("Efficiency of the power supplies.", 0.5, 1, 0.94)

    def __post_init__(self) -> None:
        check_fields(self)
        links = ("link_bandwidth_bytes_per_s", "package_bandwidth_bytes_per_s")
        _check_rates(self, links, LEAST_BANDWIDTH_BYTES_PER_S)
        if self.upstream and len(self.upstream) != self.gpus:
            raise SpecError("upstream", self.upstream, f"one entry for each of the {self.gpus} slots")
        if any(entry >= self.gpus or entry == slot for slot, entry in enumerate(self.upstream)):
            raise SpecError("upstream", self.upstream, f"other slots, 0 to {self.gpus - 1}, or -1")
        if self.gpus % self.gpu.package_gpus:
            raise SpecError("gpus", self.gpus, f"a multiple of the {self.gpu.package_gpus} GPUs in a package")

    @property
    def launch_speed_fraction(self) -> float:
        """Speed at which kernels are launched, over a tuned host with x86 processors."""
        return self.host_speed_fraction * HOST_GRADES[self.host_grade] * self.processor_speed_fraction

    def upstream_slots(self, slot: int) -> tuple[int, ...]:
        """List the slots whose heat reaches this one, nearest first."""
        chain: list[int] = []
        ahead = self.upstream[slot] if self.upstream else -1
        while ahead >= 0 and ahead not in chain:
            chain.append(ahead)
            ahead = self.upstream[ahead]
        return tuple(chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNodes:
    """Nodes of a cluster that differ from its usual ones."""

    node: Node
    nodes: tuple[int, ...] = counts("Numbers of these nodes in the cluster.", 0, 1_048_575)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes under one fabric: all equal, but for those in `mixed`."""

    name: str = text("Name of the cluster.")
    node: Node
    fabric: Fabric
    cooling: Cooling
    nodes: int = count("Number of nodes.", 1, 1_048_576)
    domain_nodes: int = count("Nodes that share one scale-up domain (18 in an NVL72).", 1, 4096, 1)
    mixed: tuple[OtherNodes, ...] = ()
    """Nodes of other kinds; their slots are as many."""

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_mixed()
        self._check_racks()
        if self.nodes > self.domain_nodes and self.fabric.nics_per_node == 0:
            raise SpecError("fabric", self.fabric.name, f"a fabric with NICs, to join {self.nodes} nodes")

    def _check_racks(self) -> None:
        """Air enters each rack; fans that follow GPUs speed up before these slow down."""
        cooling = self.cooling
        racks = -(-self.nodes // cooling.rack_nodes)
        each = (
            f"{racks} racks of {cooling.rack_nodes} nodes (rack_nodes)" if cooling.rack_nodes > 1 else f"{racks} nodes"
        )
        for name in ("inlet_c", "flow_fraction"):
            values = getattr(cooling, name)
            if isinstance(values, tuple) and len(values) != racks:
                raise SpecError(f"cooling.{name}", f"{len(values)} entries", f"a number, or one for each of {each}")
        limit_c = min(node.gpu.max_operating_temperature_c for node in self.kinds)
        if cooling.fans != "fixed" and cooling.fan_start_c >= limit_c:
            possible = f"less than {limit_c:g} C, above which a {self.gpu.name} lowers its clock"
            raise SpecError("cooling.fan_start_c", cooling.fan_start_c, possible)

    def _check_mixed(self) -> None:
        """Other kinds of nodes must fit the ranks' grid and the clock of the simulation."""
        taken: set[int] = set()
        for place, other in enumerate(self.mixed):
            field = f"mixed[{place}]"
            for name, found, usual in (
                ("node.gpus", other.node.gpus, self.node.gpus),
                ("node.gpu.package_gpus", other.node.gpu.package_gpus, self.gpu.package_gpus),
                ("node.gpu.governor.tick_s", other.node.gpu.governor.tick_s, self.gpu.governor.tick_s),
            ):
                if found != usual:
                    possible = f"{usual}, as in {self.node.name}: only nodes of equal size can be mixed"
                    raise SpecError(f"{field}.{name}", found, possible)
            if not other.nodes or max(other.nodes) >= self.nodes or taken & {*other.nodes}:
                raise SpecError(f"{field}.nodes", list(other.nodes), f"nodes 0 to {self.nodes - 1}, each once")
            taken |= {*other.nodes}

    @property
    def kinds(self) -> tuple[Node, ...]:
        """The kinds of its nodes, the usual one first."""
        return (self.node, *(other.node for other in self.mixed))

    def uniform(self, kind: int) -> "Cluster":
        """Return a cluster of nodes of one kind alone, on links as fast as the slowest: a collective waits for it."""
        links = {
            name: min(getattr(node, name) for node in self.kinds)
            for name in ("link_bandwidth_bytes_per_s", "package_bandwidth_bytes_per_s", "pcie_bandwidth_bytes_per_s")
        }
        reduces = all(node.in_switch_reduction for node in self.kinds)
        node = replace(self.kinds[kind], in_switch_reduction=reduces, **links)
        return replace(self, node=node, mixed=())

    @property
    def gpu(self) -> Gpu:
        """The GPU of its usual nodes."""
        return self.node.gpu

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.node.gpus


BOARD_PARTS: dict[str, Any] = {"power": Power, "governor": Governor, "kernels": Kernels, "heat": Heat}
"""Tables inside that of a GPU."""


def read_cluster(table: Mapping[str, Any], where: str = "cluster") -> Cluster:
    """Build a cluster from a table that leaves nothing open, as a stored run has it."""
    values = dict(table)
    mixed = []
    for place, other in enumerate(values.pop("mixed", ())):
        field, rest = f"{where}.mixed[{place}]", dict(other)
        mixed.append(read(OtherNodes, rest, field, node=_read_node(rest.pop("node"), f"{field}.node")))
    parts = {
        "node": _read_node(values.pop("node"), f"{where}.node"),
        "fabric": read(Fabric, values.pop("fabric"), f"{where}.fabric"),
        "cooling": read(Cooling, as_table(values.pop("cooling", {}), f"{where}.cooling"), f"{where}.cooling"),
        "mixed": tuple(mixed),
    }
    return read(Cluster, values, where, **parts)


def _read_node(table: Mapping[str, Any], where: str) -> Node:
    values = dict(table)
    gpu_values = dict(values.pop("gpu"))
    parts = {part: read(cls, gpu_values.pop(part), f"{where}.gpu.{part}") for part, cls in BOARD_PARTS.items()}
    return read(Node, values, where, gpu=read(Gpu, gpu_values, f"{where}.gpu", **parts))
