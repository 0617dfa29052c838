"""What foreign files say, before it becomes a recording: readings by GPU and by what they mean."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.measure.telemetry.source import Reading

MOST_READINGS = 30_000_000
POWER = "power"
"""Board power of a source that does not say over how long it is a mean: the GPU's name decides (finish.py)."""


class GpuKey(NamedTuple):
    """What tells a GPU from the others: its node, empty where the file does not say, and its UUID or number."""

    node: str
    gpu: str


@dataclass(slots=True)
class GpuFacts:
    """What a file says of a GPU beside its readings."""

    number: int | None = None
    uuid: str = ""
    name: str = ""
    pci: str = ""


class Meaning(NamedTuple):
    """What a column, metric or field of a foreign format is."""

    quantity: str
    """A name of QUANTITIES, or POWER."""
    factor: float = 1.0
    """To SI; of a `reason`, the bit of NVML's clock event reasons that the column stands for."""
    how: str = "value"
    """value; rate: adds up to a counter; reasons: all of NVML's bits; reason: one of them."""
    rank: int = 0
    """Where two tell the same of one GPU, the lower one counts."""


class Track:
    """Readings of one meaning of one GPU, in the order of the file."""

    __slots__ = ("reasons", "times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")
        self.reasons: dict[int, str] = {}

    def add(self, time_s: float, reading: Reading) -> None:
        """Append one reading: a number, or why there is none."""
        if isinstance(reading, str):
            self.reasons[len(self.times)] = reading
            reading = float("nan")
        self.times.append(time_s)
        self.values.append(reading)


@dataclass(slots=True)
class Foreign:
    """What one or more files have told."""

    gpus: dict[GpuKey, GpuFacts] = field(default_factory=dict)
    tracks: dict[GpuKey, dict[Meaning, Track]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    """What a user should know, each once, in order."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Columns and metrics that are no quantity of ours: how many readings they had."""
    clocks: set[str] = field(default_factory=set)
    """Clocks that times were on: keys of CLOCKS."""
    readings: int = 0

    def add(self, key: GpuKey, meaning: Meaning, time_s: float, reading: Reading) -> None:
        """Add one reading of a GPU."""
        of_gpu = self.tracks.setdefault(key, {})
        track = of_gpu.get(meaning)
        if track is None:
            track = of_gpu[meaning] = Track()
        if not isinstance(reading, str) and meaning.factor != 1.0 and meaning.how != "reason":
            reading *= meaning.factor
        track.add(time_s, reading)
        self.readings += 1
        if self.readings > MOST_READINGS:
            raise SpecError("PATH", f"more than {MOST_READINGS} readings", "fewer at a time: --from and --to, --gpus")

    def know(self, key: GpuKey, **facts: str | int | None) -> None:
        """Note what is known of a GPU; what was known before stays."""
        known = self.gpus.setdefault(key, GpuFacts())
        for name, value in facts.items():
            if value not in (None, "") and not getattr(known, name) and getattr(known, name) != 0:
                setattr(known, name, value)

    def note(self, text: str) -> None:
        """Add a note for the user once."""
        self.notes.setdefault(text)


CLOCKS = {
    "utc": "wall clock, UTC",
    "local": "wall clock of the machine, its time zone not known",
    "relative": "seconds since the recording began",
    "counted": "counted from the period of the readings",
}


def join(parts: Iterable[tuple[str, Foreign]]) -> Foreign:
    """Put files together: GPUs that two files name alike but read at the same time stand in different nodes."""
    files = list(parts)
    crossing = _crossing(files)
    nodes = _distinct([name for name, _ in files])
    whole = Foreign()
    for name, part in files:
        names = {key: GpuKey(nodes[name], key.gpu) if name in crossing and not key.node else key for key in part.gpus}
        for key, facts in part.gpus.items():
            whole.know(names[key], number=facts.number, uuid=facts.uuid, name=facts.name, pci=facts.pci)
        for key, of_gpu in part.tracks.items():
            kept = whole.tracks.setdefault(names.get(key, key), {})
            for meaning, track in of_gpu.items():
                kept[meaning] = _joined(kept[meaning], track) if meaning in kept else track
        for note in part.notes:
            whole.note(note)
        whole.left_out += part.left_out
        whole.clocks |= part.clocks
        whole.readings += part.readings
    if len(whole.clocks) > 1:
        told = " and ".join(sorted(CLOCKS[clock] for clock in whole.clocks))
        if whole.clocks & {"relative", "counted"}:
            raise SpecError("PATH", f"files on different clocks: {told}", "files whose times are on one clock")
        whole.note(f"times are on {told}: taken as the same clock")
    return whole


def _distinct(names: list[str]) -> dict[str, str]:
    """Return the words in which names differ: of run_node0_gpu and run_node1_gpu, node0 and node1."""
    words = {name: re.split(r"[_\-. ]+", name) for name in names}
    for _ in range(2):
        while len({tuple(one) for one in words.values()}) > 1 and len({one[0] for one in words.values()}) == 1:
            words = {name: one[1:] for name, one in words.items()}
        words = {name: one[::-1] for name, one in words.items()}
    return {name: "_".join(one) or name for name, one in words.items()}


def _crossing(files: list[tuple[str, Foreign]]) -> set[str]:
    """Name the files that read the same quantity of a GPU, as they name it, in the same seconds as another file."""
    spans: dict[tuple[GpuKey, Meaning], list[tuple[float, float, str]]] = {}
    for name, part in files:
        for key, of_gpu in part.tracks.items():
            for meaning, track in of_gpu.items():
                if not key.node and len(track.times) and not part.gpus.get(key, GpuFacts()).uuid:
                    span = (min(track.times), max(track.times), name)
                    spans.setdefault((key, meaning), []).append(span)
    found: set[str] = set()
    for placed in spans.values():
        placed.sort()
        last_s, last_name = float("-inf"), ""
        for start_s, end_s, name in placed:
            if start_s < last_s and name != last_name:
                found |= {name, last_name}
            if end_s > last_s:
                last_s, last_name = end_s, name
    return found


def _joined(first: Track, second: Track) -> Track:
    """Return the readings of two tracks in order of time."""
    if first.times and second.times and second.times[0] < first.times[0]:
        first, second = second, first
    whole = Track()
    for track in (first, second):
        begin = len(whole.times)
        whole.times.extend(track.times)
        whole.values.extend(track.values)
        whole.reasons |= {begin + place: reason for place, reason in track.reasons.items()}
    return whole
