"""Measure a command on this machine: idle, run, cool down, as often as asked, one result."""

import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError
from charllm.measure.device import telemetry_gpus
from charllm.measure.launch import (
    AFTER_S,
    Ended,
    cool_down,
    describe_command,
    describe_environment,
    run_command,
    sampling,
    wait_idle,
)
from charllm.measure.marks import read_marks
from charllm.measure.parquet import write_signals
from charllm.measure.quantities import BEATS
from charllm.measure.recording import SAMPLES_FILE, Recording, read_recording
from charllm.measure.sampler import SELF_FILE
from charllm.measure.steady import interval
from charllm.measure.summary import Measured, summarise
from charllm.measure.window import look
from charllm.result.metrics import Metrics
from charllm.result.result import RunResult, all_finite, to_json
from charllm.result.store import RESULT_FILE, with_tables, write_text
from charllm.units import MEGA
from charllm.workload.model_flop import model_flop, model_flop_utilization
from charllm.workload.parameters import count_active_parameters, count_parameters

WATCH_S, WATCH_BYTES = 1.0, 1 << 14
EARLY_S, STOPPED = 1.0, "sampling stopped"
"""Readings that end this long before the command mean that sampling has stopped; the warning's first words."""
SHORTEST_REST_S = 1e-2
"""A window of rest that is shorter was not asked for."""
SMALLEST_DISK_BYTES = 1 << 20
SPEC_FILE = "spec.json"
"""Written into the marks folder by a job that knows its own spec (`charllm train` does)."""

Window = tuple[float, float]


class Job(NamedTuple):
    """What to measure, and how."""

    command: tuple[str, ...]
    folder: Path
    rate_hz: float = 100.0
    telemetry: str = "auto"
    idle_s: float = 2.0
    cooldown_s: float = AFTER_S
    repeats: int = 1
    watch: bool = False


class Windows(NamedTuple):
    """When a record was idle, at work and cooling down, in monotonic seconds."""

    idle: Window
    command: Window
    cooldown: Window


def measure_job(job: Job, environment: Mapping[str, str]) -> tuple[RunResult, int]:
    """Run the command under the sampler and return the result and the command's exit code."""
    prepare_folder(job.folder)
    gpus = telemetry_gpus(job.telemetry, environment)
    results: list[RunResult] = []
    ended = Ended(0)
    for repeat in range(job.repeats):
        folder = job.folder if job.repeats == 1 else job.folder / f"repeat-{repeat}"
        folder.mkdir(exist_ok=True)
        result, ended = _measure_once(job, folder, gpus, environment)
        if ended.exit_code and results:
            results[-1].warnings.append(f"repeat {repeat} ended with exit code {ended.exit_code} and is left out")
        else:
            results.append(result)
        if ended.exit_code or ended.interrupted:
            break
    combined = results[0] if len(results) == 1 else _combine(results)
    _store(combined, job.folder)
    return combined, ended.exit_code


def prepare_folder(folder: Path) -> None:
    """Make an empty folder for a record, or say why it cannot be."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SpecError("--out", str(folder), "a folder that does not exist yet, or an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        raise SpecError("--out", str(folder), f"a folder that can be written ({error.strerror or error})") from None
    if free_bytes < SMALLEST_DISK_BYTES:
        raise SpecError("--out", str(folder), "a disk with room: less than 1 MiB is free")


def _measure_once(job: Job, folder: Path, gpus: list[str], environment: Mapping[str, str]) -> tuple[RunResult, Ended]:
    with sampling(folder, job.telemetry, job.rate_hz, gpus):
        idle = wait_idle(job.idle_s)
        start_s = time.monotonic()
        with watching(folder) if job.watch else nullcontext():
            ended = run_command(job.command, folder, environment)
        end_s = time.monotonic()
        cooldown, cut_short = cool_down(job.cooldown_s)
    windows = Windows(idle, (start_s, end_s), cooldown)
    result = conclude(folder, gpus, job.rate_hz, windows, job.command, ended.exit_code, environment)
    return result, ended._replace(interrupted=ended.interrupted or cut_short)


def conclude(
    folder: Path,
    gpus: Sequence[str],
    rate_hz: float,
    windows: Windows,
    command: Sequence[str],
    exit_code: int,
    environment: Mapping[str, str],
) -> RunResult:
    """Summarise what was recorded in a folder and store it there: result.json, and the readings as parquet."""
    recording = read_sampled(folder, gpus)
    shown = describe_command(command, environment)
    details: dict[str, Any] = {
        "command": shown,
        "environment": describe_environment(environment),
        "exit_code": exit_code,
        "sampler": _read_json(folder / SELF_FILE),
        "windows_s": {name: list(window) for name, window in windows._asdict().items()},
        "idle": _at_rest(recording, windows.idle),
        "cooldown": _at_rest(recording, windows.cooldown),
    }
    left = _read_json(folder / SPEC_FILE)
    spec = left if isinstance(left, dict) and all_finite(left) else {"command": shown}
    measured, warnings = until_last_reading(Measured(recording, read_marks(folder), *windows.command), rate_hz)
    result = summarise(measured, "measured", spec, details)
    result = _with_model_metrics(replace(result, warnings=[*warnings, *result.warnings]))
    _store(result, folder)
    try:
        write_signals(recording, folder)
    except CharllmError as error:
        print(f"charllm: {error}", file=sys.stderr)
    return with_tables(result, folder)


def read_sampled(folder: Path, gpus: Sequence[str]) -> Recording:
    """Read a recording back, without the GPUs that were only listed."""
    recording = read_recording(folder)
    identities = recording.facts.gpus
    series = {gpu: found for gpu, found in recording.series.items() if identities[gpu].uuid in gpus}
    return Recording(recording.facts, series)


def until_last_reading(measured: Measured, rate_hz: float) -> tuple[Measured, list[str]]:
    """Where readings end before the command did, keep the part that they describe, with a warning."""
    times = [measured.recording.fast(gpu).times_s for gpu in measured.recording.series]
    last_s = min((float(found[-1]) if len(found) else 0.0 for found in times), default=measured.end_s)
    if measured.end_s - last_s < EARLY_S + 2 / rate_hz:
        return measured, []
    if last_s <= measured.start_s:
        return measured, [f"{STOPPED} before the command began; see sampler.log"]
    marks = {name: [mark for mark in found if mark.time_s <= last_s] for name, found in measured.marks.items()}
    gap_s = measured.end_s - last_s
    told = f"{STOPPED} {gap_s:.1f} s before the command ended; metrics describe the time until then"
    return measured._replace(marks=marks, end_s=last_s), [told]


def stopped_early(warnings: Sequence[str]) -> list[str]:
    """Return those of a result's warnings that a user should see at once."""
    return [warning for warning in warnings if warning.startswith(STOPPED)]


def _at_rest(recording: Recording, window: Window) -> dict[str, dict[str, float | None]]:
    """Describe every GPU in a window without work; nothing where there was no such window."""
    found: dict[str, dict[str, float | None]] = {}
    if window[1] - window[0] < SHORTEST_REST_S:
        return found
    for gpu in recording.series:
        seen = look(recording, gpu, *window)
        uuid = recording.facts.gpus[gpu].uuid
        found[uuid] = {"power_mean_w": seen.power_mean_w, "temperature_end_c": seen.temperature_end_c}
    return found


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _store(result: RunResult, folder: Path) -> None:
    """Write a result; a disk that has filled up meanwhile must not hide how the command ended."""
    try:
        write_text(to_json(result), folder / RESULT_FILE)
    except OSError as error:
        print(f"charllm: {RESULT_FILE} could not be written ({error.strerror or error})", file=sys.stderr)


def _with_model_metrics(result: RunResult) -> RunResult:
    """Add what follows from the model, where the job left its spec; MFU is over the peak of the spec's own GPU."""
    try:
        run = resolve_run(result.spec)
    except CharllmError:
        return result
    step_time_s = result.metrics["step_time_s"]
    known = {
        "mfu": model_flop_utilization(run, step_time_s) if step_time_s else None,
        "parameters": count_parameters(run.model, with_mtp=True),
        "active_parameters": count_active_parameters(run.model),
        "model_flop": model_flop(run),
        "microbatches": run.microbatches,
    }
    warnings = [warning for warning in result.warnings if warning.split(":")[0] not in known]
    if known["mfu"] is None:
        warnings.append("mfu: no steps were marked")
    return replace(result, metrics=Metrics({**result.metrics, **known}), warnings=warnings)


def _combine(results: list[RunResult]) -> RunResult:
    """Average the repeats, with the interval over them and their largest difference as the A/A noise floor."""
    first = results[0]
    metrics: dict[str, Any] = {}
    intervals: dict[str, list[float | None]] = {}
    spread: dict[str, float] = {}
    for name, value in first.metrics.items():
        values = [result.metrics[name] for result in results]
        if isinstance(value, float) and all(isinstance(found, float) for found in values):
            metrics[name] = statistics.fmean(values)
            found = interval(np.array(values))
            intervals[name] = found.bounds
            spread[name] = (max(values) - min(values)) / abs(metrics[name]) if metrics[name] else 0.0
        else:
            metrics[name] = value
    measurement = {**first.provenance["measurement"], "repeats": len(results), "intervals": intervals}
    measurement["repeat_difference_fraction"] = spread
    return replace(
        first,
        metrics=Metrics(metrics),
        provenance={**first.provenance, "measurement": measurement},
        warnings=list(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )


@contextmanager
def watching(folder: Path) -> Iterator[None]:
    """Show the newest readings on stderr once a second."""
    stop = threading.Event()

    def show() -> None:
        while not stop.wait(WATCH_S):
            for gpu, cells in sorted(_newest_rows(folder).items()):
                watts, degrees, hertz = (cells[name] for name in ("power_instant_w", "temperature_c", "clock_hz"))
                print(f"GPU {gpu}: {watts:6.0f} W {degrees:4.0f} C {hertz / MEGA:6.0f} MHz", file=sys.stderr)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WATCH_S * 2)


def _newest_rows(folder: Path) -> dict[int, dict[str, float]]:
    """Return the last fast readings of every GPU, from the end of the file alone, for a record may be long."""
    with (folder / SAMPLES_FILE).open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - WATCH_BYTES))
        lines = file.read().decode(errors="replace").split("\n")[:-1]
    rows = (line.split(",") for line in lines)
    columns = BEATS["fast"]
    return {
        int(row[1]): {name: _number(cell) for name, cell in zip(columns, row[5:], strict=True)}
        for row in rows
        if row[0] == "fast" and len(row) == 5 + len(columns)
    }


def _number(cell: str) -> float:
    return float("nan") if cell.startswith("!") else float(cell)
