"""Checks over the facts of all nodes: each says what was found, what is expected and what to do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from charllm.catalog.tables import find_name
from charllm.gpu.limits import LIMITS
from charllm.measure.preflight.facts import NOT_ASKED
from charllm.spec.run import RunSpec
from charllm.units import GIGA, KILO, MEGA, format_bytes

Facts = Mapping[str, Any]
OK, WARNING, FAILURE, NOT_READABLE = "ok", "warning", "failure", "not readable"
IDLE_FRACTION, IDLE_BYTES, COOL_C = 0.05, 2 * GIGA, 65.0
"""A GPU at rest is less busy, holds less and is cooler than this."""
LEAST_DISK_BYTES, LEAST_MEMORY_FRACTION, LEAST_SHARED_BYTES = 10 * GIGA, 0.25, GIGA
CLOCK_ERROR_S = 0.1


class Check(NamedTuple):
    """One answer."""

    name: str
    state: str
    """ok, warning, failure or not readable."""
    node: str
    """Empty where it is about all nodes."""
    found: str
    expected: str = ""
    advice: str = ""


def check_all(nodes: Sequence[Facts], run: RunSpec | None = None) -> list[Check]:
    """Check every node, then what has to be equal on all."""
    found = [check for node in nodes for rule in NODE_RULES for check in rule(node, run)]
    return [*found, *(check for rule in JOB_RULES for check in rule(nodes, run))]


def _judge(name: str, node: Facts, good: bool, found: str, expected: str, advice: str, bad: str = WARNING) -> Check:
    state = OK if good else bad
    return Check(name, state, str(node["node"]), found, *(("", "") if good else (expected, advice)))


def _unread(name: str, node: Facts, reason: str) -> Check:
    return Check(name, NOT_READABLE, str(node["node"]), reason)


def _gpu_names(gpus: Sequence[Facts]) -> str:
    return ", ".join(f"GPU {gpu['number']}" for gpu in gpus)


def _over_gpus(
    node: Facts, name: str, value: Callable[[Facts], Any], good: Callable[[Any], bool], words: Callable[[Any], str],
    expected: str, advice: str, bad: str = WARNING,
) -> Iterator[Check]:  # fmt: skip
    """Judge one fact of every GPU of a node."""
    gpus = node["gpus"]
    known = [(gpu, value(gpu)) for gpu in gpus if value(gpu) is not None]
    if gpus and not known:
        yield _unread(name, node, f"the driver of {gpus[0]['name']} does not tell")
    if known:
        wrong = [(gpu, found) for gpu, found in known if not good(found)]
        shown = wrong or known[:1]
        told = "; ".join(f"{_gpu_names([gpu])}: {words(found)}" for gpu, found in shown[:8])
        yield _judge(
            name,
            node,
            not wrong,
            told if wrong else f"{words(known[0][1])} on {len(known)} GPUs",
            expected,
            advice,
            bad,
        )


def check_gpus(node: Facts, run: RunSpec | None) -> Iterator[Check]:
    """GPUs of the asked type and number."""
    names = sorted({str(gpu["name"]) for gpu in node["gpus"]})
    told = (
        f"{len(node['gpus'])} x {', '.join(names)}" if names else f"no GPU ({node.get('why_no_gpu') or 'none found'})"
    )
    if node.get("why_no_gpu") == NOT_ASKED:
        yield _unread("GPUs", node, "--telemetry is none")
        return
    advice = "check the driver, CUDA_VISIBLE_DEVICES and what Slurm gave the job (--gpus-per-node)"
    if run is None:
        good = len(names) == 1
        yield _judge("GPUs", node, good, told, "GPUs of one type", advice, FAILURE)
        return
    asked = run.cluster.node
    known = {find_name("gpus", name) for name in names}
    good = known == {asked.gpu.name} and len(node["gpus"]) == asked.gpus
    yield _judge(
        "GPUs", node, good, told, f"{asked.gpus} x {asked.gpu.name}, as {run.cluster.name} has", advice, FAILURE
    )


def check_idle(node: Facts, _run: RunSpec | None) -> Iterator[Check]:
    """GPUs that nobody else uses."""
    advice = "end other jobs, or ask Slurm for the whole node (--exclusive)"
    yield from _over_gpus(
        node, "idle GPUs", lambda gpu: gpu.get("utilization_fraction"), lambda found: found <= IDLE_FRACTION,
        lambda found: f"{found:.0%} busy", f"at most {IDLE_FRACTION:.0%} busy", advice, FAILURE,
    )  # fmt: skip
    yield from _over_gpus(
        node, "other processes", lambda gpu: gpu.get("processes"), lambda found: found == 0,
        lambda found: f"{found} processes", "no process on the GPU", advice, FAILURE,
    )  # fmt: skip
    yield from _over_gpus(
        node, "GPU memory", lambda gpu: gpu.get("memory_used_bytes"), lambda found: found <= IDLE_BYTES,
        lambda found: f"{format_bytes(found)} in use", f"at most {format_bytes(IDLE_BYTES)} in use", advice,
    )  # fmt: skip


def check_thermal(node: Facts, _run: RunSpec | None) -> Iterator[Check]:
    """GPUs that are cool, and that nothing slows down at rest."""
    yield from _over_gpus(
        node, "temperature", lambda gpu: gpu.get("temperature_c"), lambda found: found <= COOL_C,
        lambda found: f"{found:.0f} C", f"at most {COOL_C:.0f} C at rest",
        "let the GPUs cool down; check fans and inlet air",
    )  # fmt: skip
    held = LIMITS["thermal"] | LIMITS["brake"]
    yield from _over_gpus(
        node, "slowdown", lambda gpu: gpu.get("limits"), lambda found: not int(found) & held,
        lambda found: _limit_names(int(found)), "no thermal or hardware slowdown at rest",
        "check cooling and power supplies; drain the node if it stays", FAILURE,
    )  # fmt: skip


def _limit_names(bits: int) -> str:
    return ", ".join(name for name, bit in LIMITS.items() if bits & bit) or "no limit"


def check_clocks(node: Facts, run: RunSpec | None) -> Iterator[Check]:
    """Clocks that nobody has capped, unless the run asks for it."""
    cap_hz = None if run is None else run.conditions.clock_cap_hz
    if cap_hz is not None:
        yield from _over_gpus(
            node, "clocks", lambda gpu: gpu.get("clock_set_hz"), lambda found: abs(found - cap_hz) < MEGA * 15,
            lambda found: f"{found / MEGA:.0f} MHz", f"{cap_hz / MEGA:.0f} MHz, as the run asks",
            f"nvidia-smi -lgc {cap_hz / MEGA:.0f}", FAILURE,
        )  # fmt: skip
        return
    yield from _over_gpus(
        node, "clocks", lambda gpu: gpu.get("clock_capped"), lambda found: not found,
        lambda found: "capped by a user setting" if found else "not capped", "clocks as delivered",
        "nvidia-smi -rgc and nvidia-smi -rac, or set clock_cap in the run", FAILURE,
    )  # fmt: skip


def check_power(node: Facts, run: RunSpec | None) -> Iterator[Check]:
    """Power limits as delivered, or as the run asks."""
    cap_w = None if run is None else run.conditions.power_cap_w
    wanted = "the default" if cap_w is None else f"{cap_w:g} W, as the run asks"

    def excess(gpu: Facts) -> tuple[float, float] | None:
        limit, usual = gpu.get("power_limit_w"), cap_w if cap_w is not None else gpu.get("power_default_w")
        return None if limit is None or usual is None else (limit, usual)

    yield from _over_gpus(
        node, "power limit", excess, lambda found: abs(found[0] - found[1]) < 1, lambda found: f"{found[0]:.0f} W",
        wanted, "nvidia-smi -pl WATTS, or set power_cap in the run", FAILURE,
    )  # fmt: skip
    yield from _over_gpus(
        node, "persistence", lambda gpu: gpu.get("persistence"), bool, lambda found: "on" if found else "off", "on",
        "nvidia-smi -pm 1: otherwise the driver unloads between jobs, and its counters start again",
    )  # fmt: skip


def check_memory_errors(node: Facts, _run: RunSpec | None) -> Iterator[Check]:
    """GPU memory without uncorrected errors and without repairs that wait for a reset."""
    yield from _over_gpus(
        node, "ECC errors", lambda gpu: gpu.get("ecc_errors"), lambda found: found == 0,
        lambda found: f"{found:.0f} uncorrected", "none since the driver was loaded",
        "reset the GPU; drain the node if they return",
        FAILURE,
    )  # fmt: skip
    yield from _over_gpus(
        node, "row remapping", lambda gpu: gpu.get("rows_pending"), lambda found: not found,
        lambda found: "pending" if found else "none pending", "none pending",
        "reset the GPU, so that the row is replaced", FAILURE,
    )  # fmt: skip
    yield from _over_gpus(
        node, "row remapping failures", lambda gpu: gpu.get("rows_failed"), lambda found: not found,
        lambda found: "failed" if found else "none", "none", "have the GPU replaced", FAILURE,
    )  # fmt: skip
    yield from _over_gpus(
        node, "faults", lambda gpu: gpu.get("faults"), lambda found: found == 0, lambda found: f"{found:.0f} Xid",
        "none", "see dmesg for the Xid and drain the node", FAILURE,
    )  # fmt: skip


def check_links(node: Facts, _run: RunSpec | None) -> Iterator[Check]:
    """NVLinks that are up, and PCIe links of full width."""
    yield from _over_gpus(
        node, "NVLink", lambda gpu: (gpu["links_up"], gpu["links_down"]) if "links_up" in gpu else None,
        lambda found: found[1] == 0, lambda found: f"{found[0]} up, {found[1]} down", "all links up",
        "nvidia-smi nvlink --status; reset the GPU or the fabric manager, else drain the node", FAILURE,
    )  # fmt: skip
    yield from _over_gpus(
        node, "PCIe", lambda gpu: (gpu["pcie_width"], gpu["pcie_width_max"]) if "pcie_width_max" in gpu else None,
        lambda found: found[0] == found[1], lambda found: f"x{found[0]} of x{found[1]}", "full width",
        "reseat the GPU or its riser", FAILURE,
    )  # fmt: skip


def check_network(node: Facts, run: RunSpec | None) -> Iterator[Check]:
    """RDMA ports and network interfaces that are up, with one rate."""
    several = run is not None and run.cluster.nodes > 1
    ports = node["ports"]
    if not ports:
        yield _unread("RDMA ports", node, "none in /sys/class/infiniband")
    else:
        down = [port for port in ports if port["state"] != "ACTIVE"]
        rates = sorted({port["rate_bit_per_s"] or 0 for port in ports})
        told = ", ".join(f"{port['name']} {port['state'] or 'unknown'}" for port in (down or ports)[:8])
        rate = " and ".join(f"{rate / GIGA:g}" for rate in rates)
        yield _judge(
            "RDMA ports", node, not down and len(rates) == 1, f"{told} ({rate} Gbit/s)",
            "all ports ACTIVE, at one rate",
            "check cables and the subnet manager (ibstat); keep unused ports out by NCCL_IB_HCA",
            FAILURE if several and len(down) == len(ports) else WARNING,
        )  # fmt: skip
    up = [one for one in node["interfaces"] if one["state"] == "up"]
    told = ", ".join(f"{one['name']} {_rate(one['rate_bit_per_s'])}" for one in up)
    yield _judge(
        "network",
        node,
        bool(up) or not several,
        told or "no interface is up",
        "an interface that is up",
        "ip link set DEV up",
        FAILURE,
    )


def _rate(bit_per_s: float | None) -> str:
    return "(rate unknown)" if bit_per_s is None else f"{bit_per_s / GIGA:g} Gbit/s"


def check_host(node: Facts, _run: RunSpec | None) -> Iterator[Check]:
    """Memory, disk, processors and clock of the host."""
    total, free = node.get("memory_bytes"), node.get("memory_available_bytes")
    if total and free is not None:
        good = free >= LEAST_MEMORY_FRACTION * total
        told = f"{format_bytes(free)} of {format_bytes(total)} free"
        yield _judge("host memory", node, good, told, f"at least {LEAST_MEMORY_FRACTION:.0%} free", "end other jobs")
    else:
        yield _unread("host memory", node, "no /proc/meminfo")
    shared = node.get("shared_memory_bytes")
    if shared is not None:
        yield _judge(
            "/dev/shm", node, shared >= LEAST_SHARED_BYTES, f"{format_bytes(shared)} free",
            f"at least {format_bytes(LEAST_SHARED_BYTES)}", "start the container with --shm-size or --ipc=host",
        )  # fmt: skip
    disk = node["disk"]
    room = disk["free_bytes"] or 0.0
    yield _judge(
        "disk", node, room >= LEAST_DISK_BYTES and disk["writable"],
        f"{format_bytes(room)} free in {disk['folder']}{'' if disk['writable'] else ', not writable'}",
        f"at least {format_bytes(LEAST_DISK_BYTES)}, writable", "choose another folder by --out",
        WARNING if disk["writable"] and room > GIGA else FAILURE,
    )  # fmt: skip
    governors = node["governors"]
    if governors:
        yield _judge(
            "CPU governor", node, governors == ["performance"], ", ".join(governors), "performance",
            "cpupower frequency-set -g performance: a slow host delays kernel launches",
        )  # fmt: skip
    else:
        yield _unread("CPU governor", node, "no cpufreq in /sys (a virtual machine, or managed by firmware)")
    load, processors = node.get("load"), node.get("processors")
    if load is not None and processors:
        yield _judge(
            "CPU load", node, load <= 0.25 * processors, f"{load:g} on {processors} processors",
            f"at most {0.25 * processors:g}", "end other jobs: they delay kernel launches",
        )  # fmt: skip
    if node.get("huge_pages") is not None:
        yield Check("huge pages", OK, str(node["node"]), f"{node['huge_pages']} reserved")


def check_clock(node: Facts, _run: RunSpec | None) -> Iterator[Check]:
    """A clock that a time service holds."""
    clock = node.get("clock")
    if clock is None:
        yield _unread("clock", node, "adjtimex is not available")
        return
    good = clock["synchronised"] and clock["error_s"] <= CLOCK_ERROR_S
    told = (
        f"synchronised, estimated error {clock['error_s'] * KILO:.3g} ms"
        if clock["synchronised"]
        else "not synchronised"
    )
    yield _judge(
        "clock",
        node,
        good,
        told,
        "synchronised within 100 ms",
        "start chronyd or ntpd: logs of nodes are compared by time",
    )


def check_nodes(nodes: Sequence[Facts], run: RunSpec | None) -> Iterator[Check]:
    """As many nodes as the run has."""
    if run is None:
        return
    good = len(nodes) == run.cluster.nodes
    expected = f"{run.cluster.nodes}, as {run.cluster.name} has"
    advice = "--nodes N within a Slurm allocation, or another --cluster"
    yield Check("nodes", OK if good else FAILURE, "", str(len(nodes)), *(("", "") if good else (expected, advice)))


def check_equal(nodes: Sequence[Facts], _run: RunSpec | None) -> Iterator[Check]:
    """Software, GPUs, power limits and memory that are the same on all nodes."""
    if len(nodes) < 2:
        return
    software = sorted({name for node in nodes for name in node["software"]})
    facts: dict[str, Callable[[Facts], Any]] = {
        "driver": lambda node: (node.get("driver") or {}).get("driver"),
        **{f"{name} version": lambda node, name=name: node["software"].get(name) for name in software},  # type: ignore[misc]
        "GPUs of a node": lambda node: (
            f"{len(node['gpus'])} x {', '.join(sorted({gpu['name'] for gpu in node['gpus']}))}"
        ),
        "power limits": lambda node: ", ".join(
            sorted({f"{gpu['power_limit_w']:.0f} W" for gpu in node["gpus"] if "power_limit_w" in gpu})
        ),
        "RDMA ports of a node": lambda node: len(node["ports"]),
    }
    for name, fact in facts.items():
        values: dict[str, list[str]] = {}
        for node in nodes:
            values.setdefault(str(fact(node)), []).append(str(node["node"]))
        good = len(values) == 1
        told = (
            next(iter(values))
            if good
            else "; ".join(f"{value} on {', '.join(names[:4])}" for value, names in values.items())
        )
        if told not in ("None", ""):
            yield Check(
                f"equal: {name}",
                OK if good else FAILURE,
                "",
                told,
                "" if good else "the same on all nodes",
                "" if good else "update or drain the nodes that differ",
            )


NODE_RULES: tuple[Callable[[Facts, RunSpec | None], Iterator[Check]], ...] = (
    check_gpus, check_idle, check_thermal, check_clocks, check_power, check_memory_errors, check_links, check_network,
    check_host, check_clock,
)  # fmt: skip
JOB_RULES: tuple[Callable[[Sequence[Facts], RunSpec | None], Iterator[Check]], ...] = (check_nodes, check_equal)
"""Adding a check: a function, and its name here."""
