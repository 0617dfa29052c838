"""Machines as people name them: a GPU and a number of it (``h100x512``, ``64xH100``), and networks in words.

Node, network and cooling of such a machine are what is usual for its GPU (`catalog/machines`).
"""

import re
from typing import Any, NamedTuple

from charllm.catalog.tables import Entry, entries, find, find_name, spell
from charllm.errors import SpecError, near_names
from charllm.spec.fields import normalise
from charllm.spec.request import Table

SIZED = re.compile(r"(?P<first>\d{1,7})-?x-?(?P<named>[a-z].*)|(?P<gpu>[a-z].*?)-?x(?P<last>\d{1,7})")
NETWORK = re.compile(r"(?:([a-z]+)-)?(?:(\d{1,4})-?x-?)?(\d{1,5}(?:\.\d+)?)-?g(?:b|bps|bit)?(?:-per-(node|gpu))?")
WORDS = {"infiniband": "ib", "ethernet": "roce"}
NETWORK_WORDS = ("8x400g", "400g-per-gpu", "100g-per-node", "ib", "roce", "efa", "none")
NETWORKS = f"{', '.join(NETWORK_WORDS)}, or a name of `charllm catalog fabrics`"
USUAL_GPUS = 8
"""GPUs of a node where a proposal needs a number."""


class Size(NamedTuple):
    """A number of GPUs of one kind."""

    gpu: str
    """As it was written, in small letters."""
    gpus: int


def read_size(asked: str) -> Size | None:
    """Read ``h100x512``, ``64xH100`` or ``a100-40gb-x8``; None where it is no number of a GPU of the catalog."""
    found = SIZED.fullmatch(spell(asked))
    if found is None:
        return None
    size = Size(found["named"] or found["gpu"], int(found["first"] or found["last"]))
    return size if size.gpus and find_name("gpus", size.gpu) in entries("machines") else None


def name_of(size: Size) -> str:
    """Return the name of a machine: ``h100x512``."""
    dash = "-" if "-" in size.gpu else ""
    return f"{size.gpu}{dash}x{size.gpus}"


def resized(name: str, gpus: int) -> str:
    """Return the name of a cluster whose number of nodes was changed."""
    size = read_size(name)
    return name if size is None or size.gpus == gpus else name_of(size._replace(gpus=gpus))


def find_cluster(asked: str, field: str) -> Entry:
    """Return a cluster of the catalog, or the usual machine of a GPU with as many of it as the name says."""
    known, size = find_name("clusters", asked), read_size(asked)
    known = known or (find_name("clusters", name_of(size)) if size else None)
    if known is not None:
        return entries("clusters")[known]
    if size is None:
        raise _unknown_cluster(asked, field)
    machine = usual_machine(size.gpu, field)
    node, nodes = _fitting_node(size, machine, asked, field)
    values = {"name": name_of(size), "node": node, "nodes": nodes}
    values |= {key: machine.values[key] for key in ("domain_nodes", "cooling") if key in machine.values}
    return Entry(name_of(size), values, {**machine.sources, "nodes": f"given: {asked}"})


def usual_machine(gpu: str, field: str) -> Entry:
    """Return the machine that is usual for a GPU, by any spelling of its name."""
    return entries("machines")[find("gpus", gpu, field).name]


def usual_network(gpu: str) -> str | None:
    """Return the network that is usual for nodes of a GPU; None where the catalog has no machine with it."""
    machine = entries("machines").get(gpu)
    return str(machine.values["networks"][0]) if machine else None


def node_gpus(machine: Entry) -> int:
    """Return how many GPUs the usual node of a machine holds."""
    return int(entries("nodes")[machine.values["node"]].values["gpus"])


def _fitting_node(size: Size, machine: Entry, asked: str, field: str) -> tuple[Any, int]:
    """Return node and number of nodes: one that holds exactly so many GPUs, whole usual ones, or a part of one."""
    usual, per_node = str(machine.values["node"]), node_gpus(machine)
    exact = [
        name
        for name, entry in entries("nodes").items()
        if (entry.values["gpu"], entry.values["gpus"]) == (machine.name, size.gpus) and name != usual
    ]
    if size.gpus % per_node == 0:
        return usual, size.gpus // per_node
    if exact:
        return exact[0], 1
    package = _package_gpus(machine)
    if size.gpus < per_node and size.gpus % package == 0:
        upstream = entries("nodes")[usual].values.get("upstream", [])[: size.gpus]
        return {
            "base": usual,
            "gpus": size.gpus,
            "upstream": [ahead if ahead < size.gpus else -1 for ahead in upstream],
        }, 1
    step = per_node if size.gpus > per_node else package
    low, high = (name_of(size._replace(gpus=step * (size.gpus // step + more))) for more in (0, 1))
    near = f"{low} or {high}" if size.gpus > step else high
    whole = f"whole nodes of {per_node} GPUs" if step == per_node else f"whole packages of {package} GPUs"
    raise SpecError(field, asked, f"{whole}: {near}")


def _unknown_cluster(asked: str, field: str) -> SpecError:
    """Name the right form of what was meant."""
    near = near_clusters(asked)
    possible = "GPU and number such as h100x512 or 64xH100, a name of `charllm catalog clusters`, or a file"
    return SpecError(field, asked, possible + (f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""))


def near_clusters(asked: str) -> list[str]:
    """Return machines that may have been meant: as many of the nearest GPUs in whole nodes, else the nearest names."""
    text, sized = spell(asked), SIZED.fullmatch(spell(asked))
    written = (sized["named"] or sized["gpu"]) if sized else text
    chips = {name.partition("-")[0] for name in entries("machines")}
    within = max((chip for chip in chips if chip in written), key=len, default=None)
    meant = [within] if within else near_names(written, chips) if sized else []
    number = (sized["first"] or sized["last"]) if sized else re.search(r"\d+", text.replace(within or " ", " ", 1))
    digits = number if isinstance(number, str) else number[0] if number else ""
    return [_whole_nodes(chip, digits) for chip in meant] or near_names(asked, entries("clusters"))


def _whole_nodes(chip: str, digits: str) -> str:
    """Return the name of at least so many GPUs: whole usual nodes, or a part of one; of one node without a number."""
    machine, short = usual_machine(chip, "cluster"), chip.removesuffix("x")
    per_node = node_gpus(machine)
    gpus = int(digits[:6]) if digits else per_node
    step = _package_gpus(machine) if gpus < per_node else per_node
    return name_of(Size(short if find_name("gpus", short) == chip else chip, max(1, -(-gpus // step)) * step))


def _package_gpus(machine: Entry) -> int:
    """Return how many GPUs a package of a machine holds: no part of a node has less."""
    return int(entries("gpus")[machine.name].values.get("package_gpus", 1))


def read_network(asked: str, gpu: str, gpus: int, field: str) -> str | Table:
    """Return the fabric that words mean for nodes of so many GPUs: a name of the catalog, or a table.

    ``roce`` and ``efa`` alone have the adapters that are usual for the GPU.
    """
    text = spell(asked)
    if name := next((name for name in (text, f"ib-{text}") if find_name("fabrics", name)), None):
        return name
    machine = entries("machines").get(gpu)
    known = list(machine.values["networks"]) if machine else []
    kind = WORDS.get(text, text)
    if named := [name for name in known if name.startswith(f"{kind}-")]:
        return str(named[0])
    if kind in ("ib", "roce") and known:
        return read_network(f"{kind}-{known[0].partition('-')[2]}", gpu, gpus, field)
    found = NETWORK.fullmatch(text)
    if found is None or (found[2] and found[4]) or not (found[2] or found[4]) or float(found[3]) <= 0:
        raise SpecError(field, asked, f"{NETWORKS}{f'; usual for {gpu}: {known[0]}' if known else ''}")
    nics = int(found[2]) if found[2] else gpus if found[4] == "gpu" else 1
    kind = WORDS.get(found[1] or "", found[1] or "ib")
    name = f"{kind}-{nics}x{float(found[3]):g}g"
    if name in entries("fabrics"):
        return name
    rail = nics >= gpus and kind != "efa"
    return dict(
        normalise({"name": name, "nics_per_node": nics, "nic_bandwidth_gbit_per_s": float(found[3]), "rail": rail})
    )
