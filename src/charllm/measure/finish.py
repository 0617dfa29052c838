"""Turn a record on disk into a result: right after the job, or later where the job or its recording was killed.

Everything is read from the folder: the readings, the marks, and ``job.json``, which is written before the job starts
and again whenever more is known of it.
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError
from charllm.measure.energy import step_energies
from charllm.measure.failure import Failure, judge
from charllm.measure.launchers.slurm import is_alive, settle
from charllm.measure.marked import tabulate_marks
from charllm.measure.marks import FEWEST_STEPS, Mark, compare_with_log, find_steps, leading_marks
from charllm.measure.measured import Measured
from charllm.measure.parquet import write_signals
from charllm.measure.parts import Part, Whole, describe_parts, is_on_nodes, merge, part_warnings, read_parts
from charllm.measure.record import JOB_FILE, PREDICTED_FILE, SPEC_FILE, JobRecord, read_job, read_json
from charllm.measure.recording import Recording, cut_torn_row, is_growing
from charllm.measure.sampler import SELF_FILE
from charllm.measure.sampling import read_restarts
from charllm.measure.steady import interval
from charllm.measure.summary import summarise
from charllm.measure.unread import GAPS
from charllm.measure.window import look
from charllm.profile import TRACE_FILES
from charllm.result.columns import columns_of
from charllm.result.description import tabulate_description
from charllm.result.files import HEADER_FILE, SAMPLES_FILE
from charllm.result.metrics import Metrics
from charllm.result.result import Columns, RunResult, all_finite, to_stored
from charllm.result.shape import check_spec
from charllm.result.store import RESULT_FILE, load_run, with_tables, write_text
from charllm.workload.model_flop import model_flop, model_flop_utilization
from charllm.workload.parameters import count_active_parameters, count_parameters

REPEATS, MARKED = "repeat-*", ("steps", "phases")
EARLY_S, STOPPED = 1.0, "sampling stopped"
"""Readings that end this long before the command mean that sampling has stopped; the warning's first words."""
URGENT = (STOPPED, f"{GAPS}:", "the sampler was ", "the command had started ")
"""Words of warnings that are printed when a run has ended."""


def finish_record(folder: Path, job: JobRecord | None = None) -> RunResult:
    """Summarise a record and store the result beside it; one that is still growing is only looked at."""
    if not _is_one_run(folder):
        return _finish_repeats(folder)
    job = settle(folder, job or read_job(folder))
    parts = read_parts(folder, job)
    whole = merge(job, parts)
    growing = is_alive(job) or any(is_growing(part.folder) for part in parts)
    measured, warnings = put_together(whole, parts)
    if growing:
        warnings = ["still recording: metrics describe the time until now"]
    failure = None if growing else judge(folder, job, parts)
    result = summarise(measured, job.origin, _spec(parts, job), _details(whole.job, parts, failure))
    told = [
        *warnings,
        *([failure.message] if failure else []),
        *part_warnings(parts, job),
        *_profile_warnings(parts, job),
        *_step_warnings(parts, whole.marks),
        *job.details.get("notes", []),
    ]
    result = replace(
        result,
        warnings=[*told, *result.warnings],
        tables={**result.tables, **_tables(folder, whole, measured, result.spec)},
    )
    result = _with_model_metrics(result) if job.origin == "measured" else result
    if not growing:
        _keep(result, whole.recording, folder, parts, ended=job.ended)
    return with_tables(result, folder)


def read_measured(folder: Path) -> Measured:
    """Read what was recorded of a run that has ended."""
    job = read_job(folder)
    parts = read_parts(folder, job)
    return put_together(merge(job, parts), parts)[0]


def put_together(whole: Whole, parts: Sequence[Part]) -> tuple[Measured, list[str]]:
    """Return the parts of a run as one, in the time that figures can describe, with warnings about it."""
    names, hosts = tuple(part.name for part in parts), tuple(part.host for part in parts)
    return _span(whole.job, Measured(whole.recording, whole.marks, 0.0, 0.0, whole.places, names, hosts))


def _tables(
    folder: Path, whole: Whole, measured: Measured, spec: Mapping[str, Any]
) -> dict[str, Callable[[], Columns]]:
    """Return the tables of a measured run: conditions, marked steps, what was predicted of an emulated rank."""
    tables = tabulate_marks(whole.recording, whole.marks)
    # A job may outlive its sampler: its steps are all there, those after the last reading without energy.
    if "steps" in tables and (energies := step_energies(measured, find_steps(leading_marks(whole.marks)))) is not None:
        tables["steps"] = {**tables["steps"], "energy_j": energies}
    # The spec of a measured run is whatever its job left behind.
    with suppress(CharllmError):
        tables["description"] = tabulate_description(resolve_run(spec))
    predicted = read_json(folder / PREDICTED_FILE)
    if isinstance(predicted, dict) and all_finite(predicted):
        rows = [(name, value) for name, value in predicted.items() if isinstance(value, int | float)]
        tables["predicted"] = columns_of(("metric", "value"), rows)
    return {name: partial(dict, columns) for name, columns in tables.items()}


def _profile_warnings(parts: Sequence[Part], job: JobRecord) -> list[str]:
    """Say where a trace was asked for and none was written."""
    asked = job.details.get("profile")
    if not asked or any(any(part.folder.glob(TRACE_FILES)) for part in parts):
        return []
    why = "the command marked too few steps (charllm.mark.step), or does not use torch"
    return [f"profile: no trace of {asked} (steps@first) was written: {why}"]


def _step_warnings(parts: Sequence[Part], marks: Mapping[str, list[Mark]]) -> list[str]:
    """Say where two sources of the step time disagree, and where it rests on next to nothing."""
    steps = len(find_steps(leading_marks(marks)))
    count = "one step" if steps == 1 else f"{steps} steps"
    few = [f"step_time_s: rests on {count} alone: no others were marked or logged"] if 0 < steps < FEWEST_STEPS else []
    return [*few, *(told for part in parts[:1] if (told := compare_with_log(part.folder, marks)))]


def _spec(parts: Sequence[Part], job: JobRecord) -> dict[str, Any]:
    """Return the spec that a measured job has left with one of its parts, or what was asked for."""
    for part in parts if job.origin == "measured" else ():
        left = read_json(part.folder / SPEC_FILE)
        if isinstance(left, dict) and all_finite(left):
            return _whole_spec(left) or job.spec
    return job.spec


def _whole_spec(left: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with all its parts, of one that may be a request; nothing for what is neither."""
    with suppress(SpecError):
        check_spec(left, SPEC_FILE)
        return left
    with suppress(CharllmError):
        return resolve_run(left).as_table()
    return {}


def _details(job: JobRecord, parts: Sequence[Part], failure: Failure | None) -> dict[str, Any]:
    """Return what a result tells of how it was measured."""
    details = {
        **job.details,
        "failure": None if failure is None else asdict(failure),
        "sampler": read_json(parts[0].folder / SELF_FILE) if parts else None,
        "windows_s": job.windows_s,
        **{name: _at_rest(parts, name) for name in ("idle", "cooldown")},
    }
    if any(not part.name for part in parts):
        return {**details, "sampler_restarts": [restart._asdict() for restart in read_restarts(parts[0].folder)]}
    code = None if not job.ended else 0 if failure is None else failure.code
    return {**details, "exit_code": code, "nodes": describe_parts(parts)}


def _keep(result: RunResult, recording: Recording, folder: Path, parts: Sequence[Part], *, ended: bool) -> None:
    """Store a result, the file that makes a record whole at last.

    A disk that has filled up meanwhile must not hide how the command ended.
    """
    try:
        write_signals(recording, folder)
        for part in parts if not ended else ():
            cut_torn_row(part.folder / SAMPLES_FILE)
    except OSError as error:
        print(f"charllm: {folder}: {error.strerror or error}", file=sys.stderr)
    except CharllmError as error:
        print(f"charllm: {error}", file=sys.stderr)
    store_result(result, folder)


def store_result(result: RunResult, folder: Path) -> None:
    """Write a result, or say on stderr why it cannot be written."""
    try:
        write_text(to_stored(result), folder / RESULT_FILE)
    except OSError as error:
        print(f"charllm: {RESULT_FILE} could not be written ({error.strerror or error})", file=sys.stderr)


def is_record(folder: Path) -> bool:
    """Tell whether a folder holds a recording, or repeats of one."""
    return _is_one_run(folder) or any(_is_one_run(place) for place in folder.glob(REPEATS))


def _is_one_run(folder: Path) -> bool:
    return (folder / HEADER_FILE).exists() or is_on_nodes(folder)


def _finish_repeats(folder: Path) -> RunResult:
    """Finish those repeats of a job that have no result yet, and combine those that did not fail."""
    places = sorted(folder.glob(REPEATS), key=lambda place: (len(place.name), place.name))
    places = [place for place in places if _is_one_run(place)]
    if not places:
        raise SpecError("RUN", str(folder), f"a folder with {HEADER_FILE}, or with repeats that have one")
    results = [load_run(place) if (place / RESULT_FILE).exists() else finish_record(place) for place in places]
    counted = [one for one in results if not one.provenance["measurement"].get("failure")] or results[:1]
    combined = counted[0] if len(counted) == 1 else combine(counted)
    if len(counted) < len(results):
        combined.warnings.append(f"{len(results) - len(counted)} of {len(results)} repeats failed and are left out")
    if not any(is_growing(place) for place in places):
        store_result(combined, folder)
    return combined


def _span(job: JobRecord, measured: Measured) -> tuple[Measured, list[str]]:
    """Set the time that a result describes: the command, or as much of it as was recorded."""
    recording, marks = measured.recording, measured.marks
    window = job.windows_s.get("command", [])
    if job.ended and len(window) == 2:
        return until_last_reading(measured._replace(start_s=window[0], end_s=window[1]), job.rate_hz)
    read_s = [recording.fast(gpu).times_s for gpu in recording.sampled]
    first_s = min((float(times[0]) for times in read_s), default=0.0)
    start_s = window[0] if window else first_s
    marked_s = [mark.time_s for found in marks.values() for mark in found]
    end_s = max((float(times[-1]) for times in read_s), default=max(marked_s, default=start_s))
    kept = {name: [mark for mark in found if mark.time_s <= end_s] for name, found in marks.items()}
    told = f"interrupted: metrics describe the {end_s - start_s:.1f} s of the job that were recorded"
    if not window:
        told = f"no {JOB_FILE}: when the job began and ended is not known; metrics describe all that was recorded"
    if job.details and (not window or end_s <= start_s):
        start_s, told = min(first_s, end_s), "interrupted before the job began; metrics describe the idle machine"
    return measured._replace(marks=kept, start_s=start_s, end_s=end_s), [told]


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


def urgent_warnings(warnings: Sequence[str]) -> list[str]:
    """Return those of a result's warnings that a user should see at once."""
    return [warning for warning in warnings if any(words in warning for words in URGENT)]


def _at_rest(parts: Sequence[Part], name: str) -> dict[str, dict[str, float | None]]:
    """Describe every GPU in a window without work, where there was one long enough to read anything."""
    found: dict[str, dict[str, float | None]] = {}
    for part in parts:
        window = part.job.windows_s.get(name, [0.0, 0.0])
        if len(window) < 2 or window[1] - window[0] < 1 / part.job.rate_hz:
            continue
        for gpu in part.recording.series:
            seen = look(part.recording, gpu, *window)
            uuid = part.recording.facts.gpus[gpu].uuid
            told = {"power_mean_w": seen.power_mean_w, "temperature_end_c": seen.temperature_end_c}
            found[f"{part.name}/{uuid}" if part.name else uuid] = told
    return found


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


def _unread(gaps: Mapping[str, float]) -> float:
    return gaps.get("unread_fraction", 0.0)


def combine(results: list[RunResult]) -> RunResult:
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
    measurement["gaps"] = max((one.provenance["measurement"].get("gaps", {}) for one in results), key=_unread)
    return replace(
        first,
        metrics=Metrics(metrics),
        # Marked steps are those of one repeat.
        tables={name: table for name, table in first.tables.items() if name not in MARKED},
        provenance={**first.provenance, "measurement": measurement},
        warnings=list(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )
