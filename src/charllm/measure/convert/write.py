"""Write what was converted as the folder of a run: whole, or not at all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from charllm.errors import SpecError
from charllm.measure.convert.settle import NodeReadings, Settled
from charllm.measure.convert.steps import StepEnd, write_marks
from charllm.measure.finish import finish_record
from charllm.measure.quantities import BEATS, QUANTITIES
from charllm.measure.record import NODES, JobRecord
from charllm.measure.recording import RecordingWriter
from charllm.measure.telemetry.source import Capability, Reading, SourceFacts
from charllm.result.result import RunResult
from charllm.result.store import drafted, load_run
from charllm.units import NANO

NOT_RECORDED = "not_recorded"
MOST_ROWS = 3_000_000


def write_run(
    folder: Path, nodes: Sequence[NodeReadings], stretches: Sequence[Sequence[StepEnd]], job: JobRecord, source: str
) -> RunResult:
    """Write the folder beside its final place, summarise it there, and move it."""
    with drafted(folder) as draft:
        _write_all(draft, nodes, stretches, job, source)
        finish_record(draft)
    return load_run(folder)


def _write_all(
    draft: Path, nodes: Sequence[NodeReadings], stretches: Sequence[Sequence[StepEnd]], job: JobRecord, source: str
) -> None:
    job.write(draft)
    if len(nodes) <= 1:
        _write_node(draft, nodes[0] if nodes else NodeReadings("", (), ()), source)
        write_marks(stretches, draft)
        return
    for place, node in enumerate(nodes):
        part = draft / NODES / _folder_name(node.name, place)
        part.mkdir(parents=True)
        _write_node(part, node, source)
        details = {"node_rank": place, "ranks_per_node": len(node.gpus)}
        replace(job, gpus=None, details=details).write(part)
        if place == 0:
            write_marks(stretches, part)


def _folder_name(name: str, place: int) -> str:
    clean = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip(".-")
    return clean[:100] or f"node{place}"


def _write_node(folder: Path, node: NodeReadings, source: str) -> None:
    """Write the readings of a node's GPUs in order of time."""
    capabilities = {
        gpu.uuid: {name: Capability(True) if name in series else Capability(False, NOT_RECORDED) for name in QUANTITIES}
        for gpu, series in zip(node.gpus, node.series, strict=True)
    }
    details = {"node": node.name} if node.name else {}
    writer = RecordingWriter(folder, SourceFacts(source, node.gpus, capabilities, details), {})
    try:
        for time_s, gpu, beat, readings in _rows(node):
            time_ns = round(time_s / NANO)
            writer.write(beat, gpu, (time_ns, time_ns, 0), readings)
    finally:
        writer.close()


def _rows(node: NodeReadings) -> list[tuple[float, int, str, list[Reading]]]:
    rows = []
    for gpu, series in enumerate(node.series):
        for beat, names in BEATS.items():
            read = {name: series[name] for name in names if name in series}
            times = np.unique(np.concatenate([one.times_s for one in read.values()])) if read else np.empty(0)
            columns = {name: _at(one, times) for name, one in read.items()}
            rows += [
                (
                    float(time_s),
                    gpu,
                    beat,
                    [columns[name][place] if name in columns else NOT_RECORDED for name in names],
                )
                for place, time_s in enumerate(times)
            ]
    if len(rows) > MOST_ROWS:
        raise SpecError("PATH", f"{len(rows)} moments and GPUs", f"at most {MOST_ROWS}: --from and --to, or --gpus")
    rows.sort(key=lambda row: (row[0], row[1]))
    return rows


def _at(series: Settled, times_s: Any) -> list[Reading]:
    """Return the readings at given times; where there is none then, that is its reason."""
    found: list[Reading] = [NOT_RECORDED] * len(times_s)
    for place, at in enumerate(np.searchsorted(times_s, series.times_s)):
        value = float(series.values[place])
        found[int(at)] = value if np.isfinite(value) else series.reasons.get(place, "not_finite")
    return found
