"""The machine of a published row: GPU, node and fabric from texts such as ``NVIDIA H100 SXM5 80GB`` and
``NVLink4 + 8x400 Gb/s IB per node``. Interconnects are read by their numbers.
"""

import re
from collections.abc import Mapping
from math import gcd
from typing import Any, NamedTuple

from charllm.catalog.sizes import node_gpus, usual_machine
from charllm.catalog.tables import Entry, entries, find_name
from charllm.evaluate.spellings import Row, find_pattern, needed, read_whole, unresolved
from charllm.spec.request import Table
from charllm.units import BITS_PER_BYTE, GIGA, MEGA, TERA

CHIP = re.compile(r"(mi\d{3}[a-z]?|gb[23]00|gh200|b[123]00|h[12]00|h800|h20|a100|a800|v100)(?![\d.])")
CLASSES = {"hopper": "h100", "ampere": "a100", "blackwell ultra": "b300", "blackwell": "b200", "volta": "v100"}
"""Architecture: the GPU taken where only its class is named."""
RACKS = {"gb200": 18, "gb300": 18}
"""GPU: nodes (trays of four) of one NVLink domain."""

GENERATIONS = {"hdr100": 100, "fdr": 56, "edr": 100, "hdr200": 200, "hdr": 200, "ndr200": 200, "ndr": 400, "xdr": 800,
               "connectx-5": 100, "connectx-6": 200, "connectx-7": 400, "connectx-8": 800, "cx5": 100, "cx6": 200,
               "cx7": 400, "cx-7": 400, "cx8": 800, "cx-8": 800, "ainic": 400, "pollara": 400, "thor2": 400,
               "thor 2": 400, "quantum-2": 400, "bluefield-3": 400, "bf3": 400}  # fmt: skip
"""Names of adapters and links that mean a rate in Gb/s."""
NETWORK = (
    r"\bib\b|infiniband|roce|rdma|\befa|ethernet|slingshot|omni-?path|\bnics?\b|inter-?node|between nodes|per node"
    r"|/node|spectrum-?x|\btcp|socket|\blan\b"
)
INSIDE = r"nvlink|nvswitch|nvl\d|infinity fabric|xgmi|pcie|intra|in node|single node"
KNOWN_MACHINE = (
    rf"{NETWORK}|{INSIDE}|dgx|hgx|superpod|selene|\beos\b|cloud|azure|\baws\b|\boci\b|\bgcp\b|coreweave|jureca|fabric"
    r"|unknown|not (stated|given|printed|named)|unstated|^ *(n/?a|none|-+|\?+) *$"
)
"""Words of what is known, or said not to be: the usual network of the GPU is taken."""
KINDS = {"efa": r"\befa", "roce": r"roce|ethernet|spectrum-?x", "ib": r"\bib\b|infiniband|quantum"}
"""Kind of network in the catalog's names: the words that mean it."""
EXPECTED_FABRIC = 'adapters and rates, such as "8x400 Gb/s IB per node" or "400 Gb/s per GPU"'


class Network(NamedTuple):
    """Adapters of one node."""

    nics: int
    gbit_per_s: float
    rail: bool


def read_gpu(text: str) -> str:
    """Return the GPU of a text, of the catalog or of spellings.toml, or raise Unresolved."""
    lowered = text.lower()
    found = CHIP.search(lowered)
    chip = found[1] if found else next((gpu for word, gpu in CLASSES.items() if word in lowered), "")
    chip = {"mi300": "mi300x", "mi325": "mi325x", "mi350": "mi350x", "mi355": "mi355x"}.get(chip, chip)
    members = [name for name in entries("gpus") if name == chip or name.startswith(f"{chip}-")] if chip else []
    exact = find_name("gpus", text) if text.strip() else None
    if exact or not members:
        if exact:
            return exact
        raise unresolved("gpu", text.strip(), f"a GPU of the catalog ({', '.join(entries('gpus'))})")
    words = set(re.findall(r"[a-z]+\d*[a-z]?|\d+(?:\.\d+)?(?= ?gi?b)|\d+w", lowered))

    def unlike(name: str) -> tuple[int, int]:
        marks = [mark.removesuffix("gb") for mark in name.removeprefix(chip).split("-") if mark]
        return sum(mark not in words for mark in marks), -sum(mark in words for mark in marks)

    # Of equal matches the plain GPU, else the one with more memory (80 GB rather than 40).
    memory = {name: float(entries("gpus")[name].values.get("memory_bytes", 0)) for name in members}
    return min(members, key=lambda name: (*unlike(name), name != chip, -memory[name]))


def read_cluster(row: Row, gpu: str) -> Table:
    """Return the cluster of a row as a request, or raise Unresolved."""
    text, said = row.get("interconnect", ""), f"{row.get('interconnect', '')} {row.get('source', '')}"
    known = _known_machine(f"{row.get('gpu', '')} {said}", gpu)
    shape, nodes = _nodes_of(row, str(known.get("node") or _node_of(gpu, read_whole(row, "gpus_per_node"))))
    if grade := find_pattern("hosts", f"{text} {gpu}"):
        shape["host_grade"] = grade
    per_node = int(shape.get("gpus") or entries("nodes")[shape["base"]].values["gpus"])
    fabric: Table = {"base": "none"}
    if nodes > 1:
        fabric = {"base": known["fabric"]} if known else read_fabric(text, gpu, per_node)
        if exchange_us := find_pattern("exchange_us", f"{row.get('framework', '')} {text}"):
            fabric["exchange_us"] = exchange_us
    rack = re.search(r"nvl(\d{2,3})\b", text.lower()) if gpu in RACKS else None
    domain = max(1, int(rack[1]) // per_node) if rack else RACKS.get(gpu, 1)
    cooling = find_pattern("cooling", row.get("source", "")) or known.get("cooling")
    return {
        "name": f"{gpu}x{nodes * per_node}",
        "node": shape,
        "nodes": nodes,
        "fabric": fabric,
        "domain_nodes": min(domain, nodes),
        **({"cooling": cooling} if cooling else {}),
    }


def _known_machine(text: str, gpu: str) -> Mapping[str, Any]:
    """Return the catalog's cluster that a text names, where its nodes hold this GPU; else an empty table."""
    name = find_pattern("machines", text)
    values: Mapping[str, Any] = entries("clusters")[name].values if name else {}
    return values if values and entries("nodes")[values["node"]].values["gpu"] == gpu else {}


def _nodes_of(row: Row, node: str) -> tuple[Table, int]:
    """Return the node as a request, with as many GPUs as a row says, and the number of nodes."""
    gpus, usual = needed(row, "n_gpus"), int(entries("nodes")[node].values["gpus"])
    package = int(entries("gpus")[entries("nodes")[node].values["gpu"]].values.get("package_gpus", 1))
    per_node = min(gpus, read_whole(row, "gpus_per_node") or usual)
    if gpus % per_node:
        # Nodes of a size that is not said: equal ones.
        per_node = gcd(gpus, per_node) if gcd(gpus, per_node) > 1 else 0
    if not per_node or per_node % package:
        raise unresolved("n_gpus", str(gpus), f"a multiple of the {usual} GPUs of {node}")
    return {"base": node, **({} if per_node == usual else {"gpus": per_node, "upstream": []})}, gpus // per_node


def _node_of(gpu: str, gpus_per_node: int | None) -> str:
    """Return the catalog's node with this GPU: of the asked size, else its usual one (the largest)."""
    fitting = {name: entry.values for name, entry in entries("nodes").items() if entry.values.get("gpu") == gpu}
    if not fitting:
        raise unresolved("gpu", gpu, "a GPU that a node of the catalog holds")
    asked = [name for name, values in fitting.items() if values["gpus"] == gpus_per_node]
    return asked[0] if asked else max(fitting, key=lambda name: int(fitting[name]["gpus"]))


def usual_fabric(gpu: str, text: str = "") -> Entry:
    """Return the network that is usual for nodes of a GPU, of the kind that a text names."""
    networks = usual_machine(gpu, "gpu").values["networks"]
    kind = next((kind for kind, words in KINDS.items() if re.search(words, text)), "")
    return entries("fabrics")[next((name for name in networks if name.startswith(kind)), networks[0])]


def nic_gbit(gpu: str) -> float:
    """Return the rate of an adapter in usual machines with this GPU."""
    return float(usual_fabric(gpu).values["nic_bandwidth_bytes_per_s"]) * BITS_PER_BYTE / GIGA


def read_fabric(text: str, gpu: str, gpus_per_node: int) -> Table:
    """Return the fabric of a text as a request: by its numbers, else that of the machine it names or the usual one."""
    lowered = in_bits(text).lower().replace("\N{MULTIPLICATION SIGN}", "x")
    if special := find_pattern("fabrics", lowered):
        return {"base": special}
    network = read_network(lowered, gpu, gpus_per_node)
    if network is None:
        if named := find_pattern("networks", lowered):
            return {"base": named}
        if lowered.strip() and not re.search(KNOWN_MACHINE, lowered):
            raise unresolved("interconnect", text, EXPECTED_FABRIC)
        usual, machine = usual_fabric(gpu, lowered), usual_machine(gpu, "gpu")
        nics = usual.values["nics_per_node"] * gpus_per_node // node_gpus(machine)
        return {"base": usual.name, "nics_per_node": max(1, nics)}
    if over := re.search(r"1:(\d+)[- ]over|(\d+):1[- ]over", lowered):
        more: Table = {"oversubscription": float(over[1] or over[2])}
    else:
        more = {}
    return {
        "name": f"{network.nics}x{network.gbit_per_s:g}g",
        "nics_per_node": network.nics,
        "nic_bandwidth_gbit_per_s": network.gbit_per_s,
        "rail": network.rail,
        **more,
    }


def in_bits(text: str) -> str:
    """Write rates in bytes, in Mb/s and of Ethernet in Gb/s: ``50 GB/s`` is ``400 Gb/s``, ``10GbE`` ``10 Gb/s``."""
    text = re.sub(
        r"(\d+(?:\.\d+)?) ?(M|G|T)B(?=/s|ps)", lambda rate: f"{float(rate[1]) * BITS_PER_BYTE:g} {rate[2]}b", text
    )
    text = re.sub(
        r"(?i)(\d+(?:\.\d+)?) ?mb(?:it)?(?:/s|ps)\b", lambda rate: f"{float(rate[1]) * MEGA / GIGA:g} Gb/s", text
    )
    return re.sub(r"(?i)(\d+) ?(?:gbe\b|gig\w*(?: ethernet)?\b|gbase-\w+)", r"\1 Gb/s Ethernet", text)


def read_network(text: str, gpu: str, gpus_per_node: int) -> Network | None:
    """Read adapters and rates from a lower-case text; None where it has no number of the network.

    ``8x400 Gb/s`` is eight adapters, ``400 Gb/s per GPU`` one for each GPU, ``1.6 Tb/s per node`` a node's total. A
    bare rate is an adapter for each GPU where reference machines of this GPU have that rate, else a node's total.
    """
    usual = nic_gbit(gpu)
    flat = bool(re.search(r"slingshot|omni-?path|dragonfly", text))
    for clause in _network_clauses(text):
        counted = _counted_adapters(clause, usual)
        if counted:
            nics, rate = counted
            return Network(nics, rate, nics >= gpus_per_node and not flat)
        rate_found = _rate_gbit(clause, usual)
        if rate_found is None:
            continue
        each = re.search(r"(per|/|each|for each|a) ?(gpu|gcd|accelerator|rank|port|nic)|gpu each", clause)
        total = re.search(r"(per|/|each|a) ?(node|server|host|machine|instance)|inter-?node|total", clause)
        if each or (not total and rate_found == usual):
            slots = node_gpus(usual_machine(gpu, "gpu"))
            usual_nics = int(usual_fabric(gpu).values["nics_per_node"]) * gpus_per_node // slots
            return Network(gpus_per_node if each else max(1, usual_nics), rate_found, not flat)
        nics = max(1, round(rate_found / usual)) if rate_found > usual else 1
        return Network(nics, rate_found / nics, nics >= gpus_per_node and not flat)
    return None


def _network_clauses(text: str) -> list[str]:
    """Split a text into clauses, and keep those that speak of what joins nodes, the clearest first."""
    clauses = [part.strip() for part in re.split(r"[+,;()]|\band\b", text) if part.strip()]
    named = [part for part in clauses if re.search(NETWORK, part) and not re.search(r"nvlink|infinity|xgmi", part)]
    rest = [part for part in clauses if part not in named and not re.search(INSIDE, part)]
    return named + rest


def _counted_adapters(clause: str, usual: float) -> tuple[int, float] | None:
    """Read ``4x200G``, ``8x 400Gb/s``, ``4x Omni-Path 100 Gb/s``, ``8 x NDR``, ``8 NICs of 200 Gb/s``."""
    found = re.search(r"\b(\d+) ?(?:x|\*) ?(?:[a-z/-]+ ){0,2}(?=\d)", clause)
    if found and (rate := _rate_gbit(clause[found.end() :], usual, bare=True)):
        return int(found[1]), rate
    found = re.search(r"\b(\d+) ?(?:x |x|\* ?)?(?:[a-z0-9-]+ ){0,2}?(?:nics?|adapters|hcas|ports|rails)\b", clause)
    found = found or re.search(r"\b(\d+) ?x ?(?=[a-z])", clause) or re.search(r"ainic (\d+) per node", clause)
    if found:
        rate = _rate_gbit(clause.replace(found[0], " ", 1), usual) or _named_gbit(clause)
        return (int(found[1]), rate) if rate else None
    return None


def _rate_gbit(text: str, usual: float, *, bare: bool = False) -> float | None:
    """Return the first rate of a text in Gb/s; GB/s are bytes; ``400/800 Gb/s`` is the usual one of the two.

    With `bare` the text begins with the rate, whose unit may be cut to ``200G``.
    """
    unit = r"(t|g)(bit|b)?(?:/s|ps|it/s|/sec)?"
    found = re.match(rf"(\d+(?:\.\d+)?)()()? ?{unit}\b", text) if bare else None
    found = found or re.search(r"(\d+(?:\.\d+)?)(?:/(\d+))? ?()(t|g)(bit|b)?(?:/s|ps|it/s|/sec)\b", text)
    if not found:
        return None if bare else _named_gbit(text)
    values = [float(value) for value in (found[1], found[2]) if value]
    value = usual if usual in values else values[0]
    return float(value) * (TERA / GIGA if found[4] == "t" else 1)


def _named_gbit(text: str) -> float | None:
    """Return the rate that a generation's name means: HDR is 200 Gb/s, NDR 400."""
    squeezed = re.sub(r"connectx ?-?(\d)", r"connectx-\1", text)
    return next((float(rate) for name, rate in GENERATIONS.items() if re.search(rf"\b{name}\b", squeezed)), None)
