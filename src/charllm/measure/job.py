"""Measure a command on this machine: idle, run, cool down, as often as asked, one result."""

import json
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.errors import SpecError
from charllm.measure.launch import (
    describe_command,
    describe_environment,
    run_command,
    sampling,
    visible_gpus,
    wait_idle,
)
from charllm.measure.marks import read_marks
from charllm.measure.recording import read_recording
from charllm.measure.sampler import SELF_FILE
from charllm.measure.steady import interval
from charllm.measure.summary import Measured, summarise
from charllm.measure.telemetry import open_source
from charllm.measure.window import look
from charllm.result.result import RunResult, to_json
from charllm.result.store import RESULT_FILE, write_text
from charllm.units import MEGA

WATCH_S = 1.0
SPEC_FILE = "spec.json"
"""Written into the marks folder by a job that knows its own spec (`charllm train` does)."""


class Job(NamedTuple):
    """What to measure, and how."""

    command: tuple[str, ...]
    folder: Path
    rate_hz: float = 100.0
    telemetry: str = "auto"
    idle_s: float = 2.0
    cooldown_s: float = 0.0
    repeats: int = 1
    watch: bool = False


def measure_job(job: Job, environment: Mapping[str, str]) -> tuple[RunResult, int]:
    """Run the command under the sampler and return the result and the command's exit code."""
    prepare_folder(job.folder)
    source = open_source(job.telemetry)
    gpus = visible_gpus(environment, [identity.uuid for identity in source.facts.gpus])
    source.close()
    results, code = [], 0
    for repeat in range(job.repeats):
        folder = job.folder if job.repeats == 1 else job.folder / f"repeat-{repeat}"
        folder.mkdir(exist_ok=True)
        result, code = _measure_once(job, folder, gpus, environment)
        results.append(result)
        if code:
            break
    combined = results[0] if len(results) == 1 else _combine(results)
    write_text(to_json(combined), job.folder / RESULT_FILE)
    return combined, code


def prepare_folder(folder: Path) -> None:
    """Make an empty folder for a record, or say why it cannot be."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError("--out", str(folder), "a folder that does not exist yet, or an empty one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        raise SpecError("--out", str(folder), f"a folder that can be written ({error.strerror or error})") from None
    if free_bytes < 1 << 20:
        raise SpecError("--out", str(folder), "a disk with room: less than 1 MiB is free")


def _measure_once(job: Job, folder: Path, gpus: list[str], environment: Mapping[str, str]) -> tuple[RunResult, int]:
    with sampling(folder, job.telemetry, job.rate_hz, gpus):
        idle = wait_idle(job.idle_s)
        start_s = time.monotonic()
        with _watching(folder) if job.watch else nullcontext():
            code = run_command(job.command, folder, environment)
        end_s = time.monotonic()
        wait_idle(job.cooldown_s)
    recording = read_recording(folder)
    measured = Measured(recording, read_marks(folder), start_s, end_s)
    details: dict[str, Any] = {
        "command": describe_command(job.command),
        "environment": describe_environment(environment),
        "exit_code": code,
        "sampler": _read_json(folder / SELF_FILE),
        "idle": {identity.uuid: _idle(recording, gpu, idle) for gpu, identity in enumerate(recording.facts.gpus)},
    }
    spec = _read_json(folder / SPEC_FILE) or {"command": describe_command(job.command)}
    result = summarise(measured, "measured", spec, details)
    write_text(to_json(result), folder / RESULT_FILE)
    return result, code


def _idle(recording: Any, gpu: int, window: tuple[float, float]) -> dict[str, float | None]:
    seen = look(recording, gpu, *window)
    return {"power_mean_w": seen.power_mean_w, "temperature_end_c": seen.temperature_end_c}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _combine(results: list[RunResult]) -> RunResult:
    """Average the repeats, with the interval over them and their largest difference as the A/A noise floor."""
    first = results[0]
    metrics: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}
    spread: dict[str, float] = {}
    for name, value in first.metrics.items():
        values = [result.metrics[name] for result in results]
        if isinstance(value, float) and all(isinstance(found, float) for found in values):
            metrics[name] = statistics.fmean(values)
            found = interval(np.array(values))
            intervals[name] = [found.low, found.high]
            spread[name] = (max(values) - min(values)) / abs(metrics[name]) if metrics[name] else 0.0
        else:
            metrics[name] = value
    measurement = {**first.provenance["measurement"], "repeats": len(results), "intervals": intervals}
    measurement["repeat_difference_fraction"] = spread
    return RunResult(
        origin=first.origin,
        spec=first.spec,
        metrics=metrics,
        gpus=first.gpus,
        nodes=first.nodes,
        provenance={**first.provenance, "measurement": measurement},
        warnings=list(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )


@contextmanager
def _watching(folder: Path) -> Iterator[None]:
    """Show the newest readings on stderr once a second."""
    stop = threading.Event()

    def show() -> None:
        while not stop.wait(WATCH_S):
            recording = read_recording(folder)
            for gpu in recording.series:
                series = recording.fast(gpu)
                if len(series.times_s):
                    watts, degrees, hertz = (
                        series.columns[name][-1] for name in ("power_instant_w", "temperature_c", "clock_hz")
                    )
                    print(f"GPU {gpu}: {watts:6.0f} W {degrees:4.0f} C {hertz / MEGA:6.0f} MHz", file=sys.stderr)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WATCH_S * 2)
