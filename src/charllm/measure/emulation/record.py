"""Play a rank under the sampler, and keep what was read as a result."""

import time
from pathlib import Path

from charllm import mark
from charllm.measure.emulation.player import Player
from charllm.measure.job import prepare_folder
from charllm.measure.launch import sampling
from charllm.measure.marks import read_marks
from charllm.measure.recording import read_recording
from charllm.measure.summary import Measured, summarise
from charllm.result.result import RunResult, to_json
from charllm.result.store import RESULT_FILE, write_text
from charllm.timeline.play import PlayTimeline, to_text


def emulate(timeline: PlayTimeline, folder: Path, telemetry: str, device: str, seconds_s: float) -> RunResult:
    """Play a timeline for a time and return the readings as a result with origin `emulated`."""
    prepare_folder(folder)
    write_text(to_text(timeline), folder / "timeline.json")
    player = Player(timeline, device)
    with sampling(folder, telemetry, 100.0):
        mark.record_to(str(folder))
        start_s = time.monotonic()
        steps = player.play(seconds_s)
        end_s = time.monotonic()
        time.sleep(0.2)
    measured = Measured(read_recording(folder), read_marks(folder), start_s, end_s)
    details = {
        "rank": timeline.rank,
        "steps_played": steps,
        "planned_communication_s": timeline.total_s("communication"),
        "planned_wait_s": timeline.total_s("wait"),
    }
    result = summarise(measured, "emulated", timeline.spec, details)
    write_text(to_json(result), folder / RESULT_FILE)
    return result
