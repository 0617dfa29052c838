"""The parts of a run, a node each, on one time line: one for a flat folder, and one for each folder in `nodes/`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from charllm.measure.clock import Clock, read_clock
from charllm.measure.host.record import HostRecording, read_host
from charllm.measure.marks import Mark, read_marks
from charllm.measure.record import NODES, JobRecord, read_job
from charllm.measure.recording import Recording, Series, read_recording
from charllm.measure.sampling import Restart, read_restarts
from charllm.measure.telemetry.source import SourceFacts
from charllm.result.files import HEADER_FILE
from charllm.units import whole_number


class Part(NamedTuple):
    """What one node recorded, on the head's clock."""

    name: str
    """Empty for a run on this machine alone."""
    folder: Path
    job: JobRecord
    clock: Clock
    recording: Recording
    marks: dict[str, list[Mark]]
    host: HostRecording | None = None

    @property
    def last_s(self) -> float:
        """The last reading, on the head's clock."""
        ends = [float(end) for gpu in self.recording.sampled for end in self.recording.fast(gpu).times_s[-1:]]
        return max(ends, default=0.0)


class Place(NamedTuple):
    """Where a GPU is, and which rank works on it."""

    node: int
    rank: int | None


class Whole(NamedTuple):
    """All parts as one."""

    job: JobRecord
    recording: Recording
    marks: dict[str, list[Mark]]
    places: dict[int, Place]
    """By the GPU's number in the recording."""


def is_on_nodes(folder: Path) -> bool:
    """Tell whether a folder is that of a run on nodes of a cluster."""
    return (folder / NODES).is_dir()


def is_recording(folder: Path) -> bool:
    """Tell whether a folder is that of a measured run: recorded here, or on nodes of a cluster."""
    return (folder / HEADER_FILE).is_file() or is_on_nodes(folder)


def part_folders(folder: Path) -> list[Path]:
    """Return the folders of the nodes that have begun to record, the head's first."""
    found = [place for place in (folder / NODES).iterdir() if place.is_dir()]
    return sorted(found, key=lambda place: (read_job(place).details.get("node_rank", len(found)), place.name))


def read_parts(folder: Path, job: JobRecord) -> list[Part]:
    """Read a run's parts, each shifted to the head's clock."""
    if not is_on_nodes(folder):
        recording = read_sampled(folder, job.gpus)
        return [Part("", folder, job, Clock(), recording, read_marks(folder), read_host(folder))]
    return [_read_node(place) for place in part_folders(folder)]


def _read_node(folder: Path) -> Part:
    job, clock = read_job(folder), read_clock(folder)
    recording = read_sampled(folder, job.gpus) if (folder / HEADER_FILE).exists() else EMPTY
    windows_s = {name: [clock.moment(time_s) for time_s in window] for name, window in job.windows_s.items()}
    series = {gpu: {beat: _shift(one, clock) for beat, one in beats.items()} for gpu, beats in recording.series.items()}
    marks = {
        name: [mark._replace(time_s=clock.moment(mark.time_s)) for mark in found]
        for name, found in read_marks(folder).items()
    }
    recording, host = replace(recording, series=series), read_host(folder)
    host = None if host is None else replace(host, times_s=clock.to_head(host.times_s))
    return Part(folder.name, folder, replace(job, windows_s=windows_s), clock, recording, marks, host)


def _shift(series: Series, clock: Clock) -> Series:
    wall_s = clock.to_head_wall(series.wall_s, series.times_s)
    return replace(series, times_s=clock.to_head(series.times_s), wall_s=wall_s)


EMPTY = Recording(SourceFacts("none", ()), {})


def read_sampled(folder: Path, gpus: Sequence[str] | None) -> Recording:
    """Read a recording back, without the GPUs that were only listed."""
    recording = read_recording(folder)
    identities = recording.facts.gpus
    series = {gpu: found for gpu, found in recording.series.items() if gpus is None or identities[gpu].uuid in gpus}
    return Recording(recording.facts, series)


def merge(job: JobRecord, parts: Sequence[Part]) -> Whole:
    """Put parts together: GPUs are numbered on from node to node, and times are the head's."""
    if len(parts) == 1 and not parts[0].name:
        recording = parts[0].recording
        return Whole(job, recording, parts[0].marks, {gpu: Place(0, gpu) for gpu in recording.series})
    facts = [part.recording.facts for part in parts]
    merged = SourceFacts(
        next((fact.name for fact in facts if fact.gpus), facts[0].name if facts else "none"),
        tuple(identity for fact in facts for identity in fact.gpus),
        {uuid: table for fact in facts for uuid, table in fact.capabilities.items()},
        {name: value for fact in reversed(facts) for name, value in fact.details.items()},
    )
    series, places, first = {}, {}, 0
    for node, part in enumerate(parts):
        series.update({first + gpu: beats for gpu, beats in part.recording.series.items()})
        ranks = _ranks(part)
        places.update({first + gpu: Place(node, ranks.get(gpu)) for gpu in part.recording.series})
        first += len(part.recording.facts.gpus)
    marks = {f"{part.name}/{name}": found for part in parts for name, found in part.marks.items()}
    ended = bool(parts) and any(part.job.ended for part in parts)
    return Whole(replace(job, windows_s=_windows(parts), ended=ended), Recording(merged, series), marks, places)


def _ranks(part: Part) -> dict[int, int]:
    """Return the rank on each GPU of a node: in the order of the GPUs that its ranks may see, where each has one."""
    return ranks_of([identity.uuid for identity in part.recording.facts.gpus], part.job, list(part.marks))


def ranks_of(uuids: Sequence[str], job: JobRecord, marks: Sequence[str]) -> dict[int, int]:
    """Return the rank on each GPU of a node, by place, from the names of its marks or from its ranks' number."""
    gpus = [uuids.index(uuid) for uuid in job.gpus or uuids if uuid in uuids]
    marked = {rank for name in marks if (rank := whole_number(name.split("-")[0])) is not None}
    if len(marked) == len(gpus):
        return dict(zip(gpus, sorted(marked), strict=True))
    per_node = job.details.get("ranks_per_node")
    if per_node != len(gpus):
        return {}
    first = int(job.details.get("node_rank", 0)) * per_node
    return {gpu: first + number for number, gpu in enumerate(gpus)}


def _windows(parts: Sequence[Part]) -> dict[str, list[float]]:
    """Return the command from its first start to its last end; idle and cooldown, where all nodes were in them."""
    found: dict[str, list[float]] = {}
    starts = [part.job.windows_s["command"][0] for part in parts if part.job.windows_s.get("command")]
    ends = [window[1] for part in parts if len(window := part.job.windows_s.get("command", [])) == 2]
    if starts:
        found["command"] = [min(starts), *([max(ends)] if ends else [])]
    for name in ("idle", "cooldown"):
        windows = [window for part in parts if len(window := part.job.windows_s.get(name, [])) == 2]
        if windows and max(start for start, _ in windows) < min(end for _, end in windows):
            found[name] = [max(start for start, _ in windows), min(end for _, end in windows)]
    return found


def describe_parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return what a result tells of each node: how its part ended, its clock, its sampler."""
    return [
        {
            "name": part.name,
            "exit_code": part.job.details.get("exit_code"),
            "clock": {**part.clock.as_table(), "uncertainty_s": part.clock.uncertainty_s(_own_last_s(part))},
            "sampler_restarts": [restart._asdict() for restart in read_restarts(part.folder)],
        }
        for part in parts
    ]


def _own_last_s(part: Part) -> float:
    offset_s = 0.0 if part.clock.start is None else part.clock.start.monotonic_s
    return part.last_s - offset_s


def part_warnings(parts: Sequence[Part], job: JobRecord) -> list[str]:
    """Name nodes without a record, samplers that were started again, and clocks that were compared only once."""
    told = [f"node {part.name}: nothing was recorded" for part in parts if part.name and not _has_times(part)]
    for part in parts:
        told += [_describe_restart(part, restart) for restart in read_restarts(part.folder)]
        told += _describe_processes(part)
    expected = job.details.get("nodes")
    if isinstance(expected, int) and any(part.name for part in parts) and len(parts) < expected:
        told.append(f"{expected - len(parts)} of {expected} nodes left no record")
    return told


def _has_times(part: Part) -> bool:
    return (part.folder / HEADER_FILE).exists()


def _describe_processes(part: Part) -> list[str]:
    """Name what a command that was ended had started elsewhere."""
    where = f"node {part.name}: " if part.name else ""
    said = {
        "ended_processes": "the command had started processes in other process groups, which were ended after it",
        "left_processes": "the command had started processes that could not be ended",
    }
    found = {words: part.job.details.get(name) for name, words in said.items()}
    return [f"{where}{words}: {names}" for words, names in found.items() if names]


def _describe_restart(part: Part, restart: Restart) -> str:
    at_s = part.clock.moment(restart.at_s)
    times = [part.recording.fast(gpu).times_s for gpu in part.recording.sampled]
    before = [float(found[found <= at_s][-1]) for found in times if (found <= at_s).any()]
    after = [float(found[found > at_s][0]) for found in times if (found > at_s).any()]
    where = f"node {part.name}: " if part.name else ""
    said = f"{where}{restart.why}"
    command = part.job.windows_s.get("command", [])
    if not before or not after or not command:
        return said
    gap_s = max(after) - min(before)
    return f"{said}: no readings for {gap_s:.2f} s, from {min(before) - command[0]:.1f} s into the command"
