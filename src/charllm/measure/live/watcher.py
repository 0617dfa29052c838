"""Look at a run again and again while it is recorded.

Only the ends of files are read, so that a look costs the same after a minute and after a week. What is not known is
missing with its reason; nothing is guessed from older readings.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path

from charllm.errors import SpecError
from charllm.measure.finish import REPEATS
from charllm.measure.live.marks import MarksReader
from charllm.measure.live.node import FLAT_NAME, NodeReader
from charllm.measure.live.snapshot import GpuNow, NodeNow, Snapshot
from charllm.measure.parts import is_on_nodes, part_folders
from charllm.measure.record import JOB_FILE, NODES, read_job
from charllm.result.files import SAMPLES_FILE

SILENT_S = 10.0
"""Readings that are older mean that nobody samples any more."""


class Watcher:
    """Looks at a run again and again; remembers only how far its marks were counted and what does not change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: dict[Path, NodeReader] = {}
        self._marks = MarksReader()

    def look(self) -> Snapshot:
        """Return the run as it is now."""
        folder = newest_repeat(self._folder)
        places = node_folders(folder)
        for place in places:
            self._nodes.setdefault(place, NodeReader(place, place.name if place != folder else FLAT_NAME))
        looks = [self._nodes[place].look() for place in places]
        nodes = tuple(node for node, _elapsed in looks)
        gpus = [gpu for node in nodes for gpu in node.gpus]
        missing: dict[str, str] = {}
        power_w = _total("power_w", [gpu.power_w for gpu in gpus], missing)
        energy_j = _total("energy_used_j", [gpu.energy_used_j for gpu in gpus], missing)
        drawn = [_drawn_w(gpu) for gpu in gpus]
        job = self._marks.look(places, None if None in drawn or not drawn else math.fsum(each or 0.0 for each in drawn))
        ended = [read_job(place).ended for place in (self._folder, folder)]
        if not any(ended) and len(nodes) > 1:
            late = {f"node {node.name}": f"no new readings for {node.age_s:.0f} s" for node in nodes if is_silent(node)}
            missing |= late
        elapsed = max((found for _node, found in looks if found is not None), default=None)
        state = "ended" if any(ended) else _state(nodes)
        return Snapshot(str(self._folder), time.time(), state, elapsed, nodes, power_w, energy_j, job, missing)

    def look_back(self, every_s: float = 1.0) -> list[tuple[float, list[GpuNow]]]:
        """Return time and GPUs of past moments, oldest first: those at which every node was read."""
        folder = newest_repeat(self._folder)
        places = node_folders(folder)
        nodes = [NodeReader(place, place.name if place != folder else FLAT_NAME).look_back(every_s) for place in places]
        common = sorted(set.intersection(*(set(node) for node in nodes)))
        # The newest moment is not over yet.
        return [((at + 1) * every_s, [gpu for node in nodes for gpu in node[at]]) for at in common[:-1]]


def newest_repeat(folder: Path) -> Path:
    """Return the folder that is being recorded: that of the newest repeat, where a command is run several times."""
    if (folder / SAMPLES_FILE).exists() or (folder / NODES).is_dir():
        return folder
    repeats = [place for place in folder.glob(REPEATS) if place.is_dir()]
    return max(repeats, key=lambda place: int(place.name.rpartition("-")[2] or 0), default=folder)


def node_folders(folder: Path) -> list[Path]:
    """Return the folder of each node: those under nodes/, or the run's own."""
    return (part_folders(folder) if is_on_nodes(folder) else []) or [folder]


def check_run(folder: Path) -> None:
    """Refuse a folder that is no run."""
    if not folder.is_dir():
        raise SpecError("RUN", str(folder), "the folder of a run, as `charllm measure --out` makes")
    if not any((newest_repeat(folder) / name).exists() for name in (SAMPLES_FILE, JOB_FILE, NODES)):
        raise SpecError("RUN", str(folder), f"a folder with {SAMPLES_FILE}, {JOB_FILE} or {NODES}/")


def _drawn_w(gpu: GpuNow) -> float | None:
    """Return the power of the last second, or of this moment where the board has no such mean."""
    values = gpu.readings.values
    return values.get("power_average_w", values.get("power_instant_w"))


def _total(name: str, values: Sequence[float | None], missing: dict[str, str]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) == len(values) and values:
        return math.fsum(known)
    missing[name] = f"not known of {len(values) - len(known)} of {len(values)} GPUs" if values else "no GPU is read"
    return None


def is_silent(node: NodeNow) -> bool:
    """Tell whether nobody renews the readings of a node."""
    return node.age_s is not None and node.age_s > SILENT_S


def _state(nodes: Sequence[NodeNow]) -> str:
    known = [node for node in nodes if node.age_s is not None]
    if not known:
        return "waiting"
    return "silent" if all(map(is_silent, known)) else "running"
