"""Emulate a rank under the sampler, and keep what was read as a result."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from charllm import mark
from charllm.measure.emulation.emulator import Emulator, require_emulable
from charllm.measure.finish import finish_record
from charllm.measure.job import prepare_folder
from charllm.measure.launch import wait_idle
from charllm.measure.record import PREDICTED_FILE, JobRecord
from charllm.measure.sampling import sampling
from charllm.measure.settings import AFTER_S, MeasureSettings
from charllm.result.result import RunResult
from charllm.result.store import write_text
from charllm.timeline.rank_timeline import RankTimeline, to_text


def emulate(
    timeline: RankTimeline,
    folder: Path,
    telemetry: str,
    device: str,
    seconds_s: float,
    gpus: Sequence[str],
    predicted: Mapping[str, float],
) -> RunResult:
    """Play a timeline for a time and return the readings of `gpus` as a result with origin `emulated`.

    What was predicted is written before anything is emulated.
    """
    require_emulable(timeline)
    settings = MeasureSettings(telemetry=telemetry)
    prepare_folder(folder)
    write_text(to_text(timeline), folder / "timeline.json")
    write_text(json.dumps(dict(predicted), indent=1), folder / PREDICTED_FILE)
    emulator = Emulator(timeline, device)
    details = {
        "rank": timeline.rank,
        "steps_emulated": None,
        "planned_communication_s": timeline.total_s("communication"),
        "planned_wait_s": timeline.total_s("wait"),
    }
    record = JobRecord("emulated", timeline.spec, list(gpus), settings.rate_hz, details).write(folder)
    with sampling(folder, settings, gpus):
        mark.record_to(str(folder))
        start_s = time.monotonic()
        record = replace(record, windows_s={"command": [start_s]}).write(folder)
        steps = emulator.run(seconds_s)
        end_s = time.monotonic()
        wait_idle(AFTER_S)
    emulated = {**details, "steps_emulated": steps}
    record = replace(record, windows_s={"command": [start_s, end_s]}, details=emulated, ended=True).write(folder)
    return finish_record(folder, record)
