"""A measured run as it was recorded, and the part of it that figures describe."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from charllm.measure.host.record import HostRecording
from charllm.measure.host.window import HostWindow, look_host
from charllm.measure.marks import FEWEST_STEPS, Mark, Step, find_steps, leading_marks
from charllm.measure.parts import Place
from charllm.measure.profiled import Profiled, part_profiled
from charllm.measure.recording import Recording
from charllm.measure.steady import settled_from

FEWEST_READINGS = 3
"""Of temperature, to tell whether it has settled."""


class Measured(NamedTuple):
    """What was recorded of one run of a command."""

    recording: Recording
    marks: dict[str, list[Mark]]
    start_s: float
    end_s: float
    places: Mapping[int, Place] = {}
    """Node and rank of each GPU; none for the GPUs of this machine alone."""
    nodes: tuple[str, ...] = ("",)
    hosts: tuple[HostRecording | None, ...] = ()
    """What was read of each node beside its GPUs."""

    def place(self, gpu: int) -> Place:
        """Return where a GPU is."""
        return self.places.get(gpu, Place(0, gpu))

    def by_node(self) -> list[list[int]]:
        """Return the GPUs that were read on each node."""
        sampled = self.recording.sampled
        return [[gpu for gpu in sampled if self.place(gpu).node == node] for node in range(len(self.nodes))]

    def look_hosts(self, start_s: float, end_s: float) -> list[HostWindow | None]:
        """Describe the host of each node in a window."""
        hosts = self.hosts or (None,) * len(self.nodes)
        return [look_host(host, start_s, end_s) if host else None for host in hosts]


class Chosen(NamedTuple):
    """The part of a run that is described: whole steps, with settled temperatures."""

    start_s: float
    end_s: float
    steps: list[Step]
    profiled: Profiled
    """Steps under a profiler, and the others."""
    settled: bool
    """Whether temperatures had settled; if not, the window is the second half."""


def choose_window(measured: Measured) -> Chosen:
    """Return the part of a run that every figure describes.

    Of the steps that no profiler slowed, those after the temperature of every GPU has settled.
    """
    marks = leading_marks(measured.marks)
    steps = find_steps(marks)
    profiled = part_profiled(steps, marks)
    steps = profiled.longest if len(profiled.longest) >= FEWEST_STEPS else steps
    start_s, end_s = (steps[0].start_s, steps[-1].end_s) if steps else (measured.start_s, measured.end_s)
    settled_s = _settled_from(measured.recording, start_s, end_s)
    start_s = (start_s + end_s) / 2 if settled_s is None else settled_s
    inside = [step for step in steps if step.start_s >= start_s and step.end_s <= end_s] or steps
    if inside:
        start_s, end_s = inside[0].start_s, inside[-1].end_s
    return Chosen(start_s, end_s, inside, profiled, settled_s is not None)


def _settled_from(recording: Recording, start_s: float, end_s: float) -> float | None:
    """Return when the last GPU has settled; the start where no temperature is known, None where one never does."""
    starts: list[float] = [start_s]
    for gpu in recording.sampled:
        times, temperature = recording.known(gpu, "temperature_c")
        inside = (times >= start_s) & (times <= end_s)
        if np.count_nonzero(inside) >= FEWEST_READINGS:
            found = settled_from(times[inside], temperature[inside])
            if found is None:
                return None
            starts.append(found)
    return max(starts)
