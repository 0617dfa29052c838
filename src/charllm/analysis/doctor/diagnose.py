"""Name what is weak in a run, and why, from what was observed of it alone.

In a job whose ranks meet every step all of them take equally long: the culprit is the one that does not wait. It shows
by its own readings: a clock below its peers' (and what holds it), a GPU without kernels (its host), ports of others
that cannot send to a node (its adapters).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from charllm.analysis.doctor import peers
from charllm.analysis.doctor.observation import Observation
from charllm.analysis.doctor.peers import Deviation, deviate, peers_of
from charllm.analysis.unlike import USUAL_K_PER_W, Outlier, at_equal_power, find_outliers
from charllm.arrays import Floats, Ints
from charllm.simulate.telemetry import PortUse

LEAST_EFFECT_FRACTION = 0.01
"""Smaller differences are not worth a finding, however certain."""
CAP_FRACTION = 0.02
"""A power limit that much below its peers' is a lower limit."""
SAME_POWER_FRACTION = 0.03
"""Power that differs by less is equal: sensors differ by as much."""
MOSTLY_HELD_FRACTION = 0.5
"""What holds a clock for more of the time is why it is low, though it holds the clocks of its peers as well."""
RATE_FRACTION = 0.01
"""Rates of ports that differ by more are different rates."""
SHORTEST_FRACTION = 1e-6
"""Waits shorter than this share of time are not told apart."""
WARM_NODE_K = 4.0
"""A node whose other GPUs are that much warmer than those in the same slots elsewhere is warm as a whole."""


HOT_K = peers.SLOT_SPREAD_K
"""A GPU that is that much hotter than its peers leaks more, and pays for it in clock before its silicon is to blame."""


class Evidence(NamedTuple):
    """One quantity that speaks for a finding."""

    quantity: str
    value: float
    peers: float
    z: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One weak GPU, node, host or link."""

    kind: str
    """gpu, node, host or link: what is weak."""
    cause: str
    """silicon, cooling, power limit, power brake, clock limit, thermal, host or network."""
    gpus: tuple[int, ...]
    """Its GPUs, as places in the observation."""
    node: int
    effect_fraction: float
    """How far it lies behind its peers: clock lost, time idle, or bandwidth lost."""
    evidence: tuple[Evidence, ...]
    z: float
    """Of the test that accused it."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a healthy run would show of each GPU and node, where the spec of the run is known."""

    gpus: Mapping[str, Floats]
    ports: PortUse | None
    """What the adapters of each node do; None in a run on one node."""


def diagnose(seen: Observation, healthy: Expectation | None = None) -> list[Finding]:
    """Return what is weak in a run, the surest finding first."""
    held = _held_nodes(seen)
    found = _whole_nodes(seen, _beyond_nodes(_slow_gpus(seen, healthy), held))
    for more in (_slow_nodes(seen, healthy), held):
        taken = {finding.node for finding in found}
        found += [one for one in more if one.node not in taken]
    named = {finding.node for finding in found if finding.kind == "node"}
    found += [one for one in _slow_hosts(seen, healthy) if one.node not in named]
    links = _slow_links(seen, healthy)
    found += [*links, *(one for one in _slow_ports(seen) if one.node not in {link.node for link in links})]
    return sorted(found, key=lambda finding: -finding.z)


HOLDS = {"thermal": "thermal_fraction", "power brake": "brake_fraction"}
"""What may hold a clock beside the power limit, and the share of time it does."""


def _slow_gpus(seen: Observation, healthy: Expectation | None) -> list[Finding]:
    """Find GPUs that run below the clock of their peers, or that something holds which does not hold their peers."""
    clock = seen.mean("clock_hz")
    if clock is None or len(clock) < 2:
        return []
    ratios, level = np.log(clock), peers.threshold(len(clock))
    expected = healthy.gpus.get("clock_hz") if healthy else None
    if expected is not None:
        ratios = ratios - np.log(expected)
    error = seen.error("clock_hz") / clock
    found = []
    for gpu in range(len(clock)):
        same, alike = peers_of(seen, gpu)
        prior = peers.CLOCK_SPREAD if alike or expected is not None else peers.ROLE_SPREAD
        behind = deviate(ratios, gpu, same, prior, float(error[gpu]))
        lost = 1 - float(np.exp(behind.value - behind.peers)) if np.isfinite(behind.peers) else 0.0
        held = _held(seen, gpu, same)
        if lost < LEAST_EFFECT_FRACTION or (behind.z > -level and max(held.values(), default=0.0) < level):
            continue
        cause = _cause(seen, gpu, same, held, level)
        found.append(
            Finding(
                "gpu",
                cause,
                (gpu,),
                int(seen.node[gpu]),
                lost,
                _evidence(seen, gpu, same),
                max(-behind.z, *held.values(), 0.0),
            )
        )
    return found


def _held(seen: Observation, gpu: int, same: Ints) -> dict[str, float]:
    """Return by z how much longer heat or a brake holds a GPU's clock than its peers'."""
    found = {"thermal": 0.0, "power brake": 0.0}
    for cause, quantity in HOLDS.items():
        share = seen.mean(quantity)
        if share is not None:
            found[cause] = deviate(share, gpu, same, peers.LIMIT_SPREAD, float(seen.error(quantity)[gpu])).z
    if found["thermal"] > 0:
        # Two sensors that know nothing of each other: the counter and the thermometer.
        found["thermal"] = float(np.hypot(found["thermal"], max(0.0, _warmer(seen, gpu).z)))
    return found


def _warmer(seen: Observation, gpu: int) -> Deviation:
    """Compare the temperature of a GPU with those in the same slot of other nodes, or else of its own node."""
    degrees = seen.mean("temperature_c")
    if degrees is None:
        return Deviation(float("nan"), float("nan"), 0.0)
    alike = np.flatnonzero(seen.slot == seen.slot[gpu])
    if len(alike) < peers.LEAST_PEERS:
        return deviate(degrees, gpu, np.flatnonzero(seen.node == seen.node[gpu]), peers.SLOT_SPREAD_K)
    return deviate(degrees, gpu, alike, peers.TEMPERATURE_SPREAD_K)


def _cause(seen: Observation, gpu: int, same: Ints, held: Mapping[str, float], level: float) -> str:
    """Tell why a GPU is slow: what holds its clock, or what it draws for it."""
    cause = max(held, key=lambda name: held[name])
    if held[cause] >= level:
        return cause
    for name, quantity in HOLDS.items():
        share = seen.mean(quantity)
        if share is not None and share[gpu] > MOSTLY_HELD_FRACTION:
            return name
    limit_w, power_w = seen.mean("power_limit_w"), seen.mean("power_w")
    if limit_w is not None and limit_w[gpu] < (1 - CAP_FRACTION) * np.nanmedian(limit_w[same]):
        return "power limit"
    if power_w is None:
        return "not known without power"
    if power_w[gpu] < (1 - SAME_POWER_FRACTION) * np.nanmedian(power_w[same[same != gpu]]):
        return "clock limit"
    warmer = _warmer(seen, gpu)
    return "cooling" if warmer.value - warmer.peers > HOT_K else "silicon"


EVIDENCE = ("clock_hz", "power_w", "temperature_c", "power_limit_w", "power_fraction", "thermal_fraction",
            "brake_fraction", "sm_active_fraction")  # fmt: skip
PRIORS = {"clock_hz": peers.CLOCK_SPREAD, "power_w": peers.POWER_SPREAD, "power_limit_w": 0.01}
"""Spread of a quantity between healthy GPUs, over its value; others are in PRIOR_UNITS."""
PRIOR_UNITS = {"temperature_c": 3.0, "power_fraction": 0.1, "thermal_fraction": peers.LIMIT_SPREAD,
               "brake_fraction": peers.LIMIT_SPREAD, "sm_active_fraction": 0.01}  # fmt: skip


def _evidence(seen: Observation, gpu: int, same: Ints) -> tuple[Evidence, ...]:
    """List what was read of a GPU beside its peers."""
    rows = []
    for quantity in EVIDENCE:
        values = seen.mean(quantity)
        if values is None or not np.isfinite(values[gpu]):
            continue
        prior = PRIORS[quantity] * float(np.nanmedian(values)) if quantity in PRIORS else PRIOR_UNITS[quantity]
        found = deviate(values, gpu, same, prior, float(seen.error(quantity)[gpu]))
        if np.isfinite(found.peers):
            rows.append(Evidence(quantity, *found))
    return tuple(rows)


def find_unusual(seen: Observation, found: Sequence[Finding]) -> list[tuple[int, Evidence]]:
    """List readings of GPUs that lie far from those of their peers without making anything slow."""
    taken = {gpu for finding in found for gpu in finding.gpus}
    level, rows = peers.threshold(len(seen.node)), []
    for gpu in range(len(seen.node)):
        same, alike = peers_of(seen, gpu)
        if gpu in taken or len(same) < 2:
            continue
        power_w = seen.mean("power_w")
        if power_w is not None:
            prior = (peers.POWER_SPREAD if alike else peers.ROLE_SPREAD) * float(np.nanmedian(power_w))
            found_w = deviate(power_w, gpu, same, prior, float(seen.error("power_w")[gpu]))
            rows += [(gpu, Evidence("power_w", *found_w))] if abs(found_w.z) > level else []
        warmer = _warmer(seen, gpu)
        if warmer.z > level:
            rows.append((gpu, Evidence("temperature_c", *warmer)))
    told = {gpu for gpu, row in rows if row.quantity == "temperature_c"} | taken
    return rows + [(one.gpu, _as_evidence(one)) for one in _hot(seen) if one.gpu not in told]


def _hot(seen: Observation) -> list[Outlier]:
    """List GPUs that are hotter than all others of their node at equal power, by the rule that `show` goes by."""
    degrees, power_w = seen.mean("temperature_c"), seen.mean("power_w")
    if degrees is None or power_w is None:
        return []
    found: list[Outlier] = []
    for node in range(len(seen.node_names)):
        gpus = [gpu for gpu in np.flatnonzero(seen.node == node).tolist() if np.isfinite(degrees[gpu] + power_w[gpu])]
        level = at_equal_power({gpu: degrees[gpu] for gpu in gpus}, {gpu: power_w[gpu] for gpu in gpus}, USUAL_K_PER_W)
        found += [one for one in find_outliers(level, "temperature_c", "load") if one.value > one.others]
    return found


def _as_evidence(one: Outlier) -> Evidence:
    return Evidence(one.quantity, one.value, one.others, one.score)


def _beyond_nodes(found: Sequence[Finding], held: Sequence[Finding]) -> list[Finding]:
    """Leave out GPUs that what holds their whole node makes slow, unless they lose more than it does."""
    losses = {(node.node, node.cause): node.effect_fraction for node in held}
    return [one for one in found if one.effect_fraction >= losses.get((one.node, one.cause), 0.0)]


def _whole_nodes(seen: Observation, found: Sequence[Finding]) -> list[Finding]:
    """Join the slow GPUs of a node to one finding where the node is what they have in common."""
    kept: list[Finding] = []
    for node in dict.fromkeys(finding.node for finding in found):
        mine = [finding for finding in found if finding.node == node]
        cause = max({one.cause for one in mine}, key=lambda name: sum(one.cause == name for one in mine))
        alike = [one for one in mine if one.cause == cause]
        size = int(np.sum(seen.node == node))
        whole = 2 * len(alike) >= size > 1 or (cause == "thermal" and len(alike) > 1 and _warm(seen, node, alike))
        kept += [one for one in mine if one not in alike] if whole else mine
        if whole:
            worst = max(alike, key=lambda one: one.effect_fraction)
            gpus = tuple(gpu for one in alike for gpu in one.gpus)
            kept.append(replace(worst, kind="node", gpus=gpus, z=max(one.z for one in alike)))
    return kept


def _warm(seen: Observation, node: int, hot: Sequence[Finding]) -> bool:
    """Tell whether the other GPUs of a node are warmer than those in the same slots of other nodes."""
    degrees = seen.mean("temperature_c")
    taken = {gpu for one in hot for gpu in one.gpus}
    if degrees is None:
        return False
    above = []
    for gpu in np.flatnonzero(seen.node == node):
        others = (seen.slot == seen.slot[gpu]) & (seen.node != node)
        if gpu not in taken and others.any():
            above.append(degrees[gpu] - np.nanmedian(degrees[others]))
    return bool(above) and float(np.median(above)) > WARM_NODE_K


def _slow_nodes(seen: Observation, healthy: Expectation | None) -> list[Finding]:
    """Find nodes all of whose GPUs are slow, which a comparison inside the node cannot show."""
    clock, nodes = seen.mean("clock_hz"), np.arange(len(seen.node_names))
    if clock is None or len(nodes) < 3:
        return []
    expected = healthy.gpus.get("clock_hz") if healthy else None
    if expected is None and (seen.stage is None or len(np.unique(seen.stage)) > 1):
        prior = peers.ROLE_SPREAD
    else:
        prior = peers.CLOCK_SPREAD
    ratios = peers.by_node(seen, np.log(clock) - (np.log(expected) if expected is not None else 0.0))
    found = []
    for node in nodes:
        behind = deviate(ratios, int(node), nodes, prior)
        lost = 1 - float(np.exp(behind.value - behind.peers))
        if behind.z > -peers.threshold(len(nodes)):
            continue
        gpus = np.flatnonzero(seen.node == node)
        others = np.flatnonzero(seen.node != node)
        held = {
            name: max(_held(seen, int(gpu), np.append(others, gpu))[name] for gpu in gpus)
            for name in ("thermal", "power brake")
        }
        worst = int(gpus[np.nanargmin(clock[gpus])])
        compared = np.append(others, worst)
        cause = _cause(seen, worst, compared, held, peers.threshold(len(clock)))
        found.append(
            Finding("node", cause, tuple(gpus.tolist()), int(node), lost, _evidence(seen, worst, compared), -behind.z)
        )
    return found


def _held_nodes(seen: Observation) -> list[Finding]:
    """Find nodes whose GPUs are mostly held by heat or a brake, which no healthy node is, whatever the others do."""
    clock, found = seen.mean("clock_hz"), []
    for cause, quantity in HOLDS.items():
        share = seen.mean(quantity)
        if share is None or clock is None:
            continue
        highest_hz = seen.run.cluster.gpu.clock_max_hz if seen.run else float(np.nanmax(clock))
        reached = clock / highest_hz
        for node, held in enumerate(peers.by_node(seen, share).tolist()):
            gpus = np.flatnonzero(seen.node == node)
            z = held / peers.LIMIT_SPREAD
            if z > peers.threshold(len(seen.node_names)):
                evidence = (Evidence(quantity, held, 0.0, z),)
                lost = max(0.0, 1 - float(np.nanmedian(reached[gpus])))
                found.append(Finding("node", cause, tuple(gpus.tolist()), node, lost, evidence, z))
    return found


def _slow_hosts(seen: Observation, healthy: Expectation | None) -> list[Finding]:
    """Find nodes whose GPUs have no kernel to run while those of other nodes have: their host launches too slowly."""
    resident, nodes = seen.mean("utilization_fraction"), np.arange(len(seen.node_names))
    if resident is None or len(nodes) < 2:
        return []
    expected = healthy.gpus.get("utilization_fraction") if healthy else None
    idle = peers.by_node(seen, 1 - resident)
    beyond = idle - (peers.by_node(seen, 1 - expected) if expected is not None else 0.0)
    prior = peers.IDLE_SPREAD + peers.IDLE_SPREAD_FRACTION * float(np.nanmedian(idle))
    error = seen.error("utilization_fraction")
    found = []
    for node in nodes:
        gpus = np.flatnonzero(seen.node == node)
        behind = deviate(beyond, int(node), nodes, prior, float(np.median(error[gpus])))
        more = behind.value - behind.peers
        # A node without readings compares as false.
        if not (behind.z >= peers.threshold(len(nodes)) and more >= LEAST_EFFECT_FRACTION):
            continue
        others = float(np.nanmedian(np.delete(idle, node)))
        rows = [Evidence("utilization_fraction", 1 - float(idle[node]), 1 - others, -behind.z)]
        rows += _node_evidence(seen, "sm_active_fraction", int(node), 0.01)
        load = seen.node_mean("host_load_fraction")
        if load is not None:
            rows.append(Evidence("host_load_fraction", *deviate(load, int(node), nodes, 0.1)))
        found.append(Finding("host", "host", tuple(gpus.tolist()), int(node), more, tuple(rows), behind.z))
    return found


def _node_evidence(seen: Observation, quantity: str, node: int, prior: float) -> list[Evidence]:
    values = seen.mean(quantity)
    if values is None:
        return []
    return [Evidence(quantity, *deviate(peers.by_node(seen, values), node, np.arange(len(seen.node_names)), prior))]


def _slow_links(seen: Observation, healthy: Expectation | None) -> list[Finding]:
    """Find a node that others cannot send to as fast as to the rest.

    Equation: a port of node j waits sum_k busy[j, k] s_k, where s_k = usual bandwidth / bandwidth - 1 of node k. The
    node whose s alone explains the waits best is named, if no healthy one could.
    """
    waits, ports = seen.node_mean("nic_wait_fraction"), healthy.ports if healthy else None
    if waits is None or ports is None or len(waits) < 2:
        return []
    found: list[Finding] = []
    nodes, receives = np.arange(len(waits)), ports.waits_for
    sigma = np.maximum(peers.PORT_SPREAD * ports.sends, SHORTEST_FRACTION)
    left = waits - peers.PORT_WAIT * ports.sends
    while len(found) < len(nodes):
        slowness = np.array([_slowness(left / sigma, receives[:, node] / sigma) for node in nodes])
        misfits = np.square((left[:, None] - slowness * receives) / sigma[:, None]).sum(axis=0)
        node = int(np.argmin(misfits))
        held = slowness[node] * receives[:, node]
        z = float(np.linalg.norm(held / sigma))
        if z < peers.threshold(len(nodes)) or held.max() < LEAST_EFFECT_FRACTION:
            break
        evidence = tuple(
            Evidence(f"nic_wait_fraction of {seen.node_name(sender)}", *deviate(waits, sender, nodes, sigma[sender]))
            for sender in np.flatnonzero(held > held.max() / 2).tolist()
        )
        gpus, evidence = tuple(np.flatnonzero(seen.node == node).tolist()), (*evidence, *_retries(seen, node))
        found.append(Finding("link", "network", gpus, node, 1 - 1 / (1 + float(slowness[node])), evidence, z))
        left = left - held
    return found


def _slow_ports(seen: Observation) -> list[Finding]:
    """Find nodes whose adapters have agreed on a lower rate than those of the others."""
    rate, nodes = seen.node_mean("nic_rate_bytes_per_s"), np.arange(len(seen.node_names))
    if rate is None or len(nodes) < 2:
        return []
    found = []
    for node in nodes:
        usual = float(np.nanmax(rate))
        deviation = deviate(rate, int(node), nodes, RATE_FRACTION * usual)
        if deviation.z < -peers.threshold(len(nodes)):
            gpus = tuple(np.flatnonzero(seen.node == node).tolist())
            rows = (Evidence("nic_rate_bytes_per_s", *deviation), *_retries(seen, int(node)))
            lost = 1 - deviation.value / deviation.peers
            found.append(Finding("link", "network", gpus, int(node), lost, rows, -deviation.z))
    return found


def _retries(seen: Observation, node: int) -> tuple[Evidence, ...]:
    retries = seen.node_mean("nic_retries_per_s")
    if retries is None:
        return ()
    spread = 1.0 + float(np.nanmedian(retries))
    return (Evidence("nic_retries_per_s", *deviate(retries, node, np.arange(len(retries)), spread)),)


def _slowness(waits: Floats, sends: Floats) -> float:
    """Return the s of one node that explains the waits of those who send to it, by least squares; both over sigma."""
    return max(0.0, float(sends @ waits) / max(SHORTEST_FRACTION**2, float(sends @ sends)))
