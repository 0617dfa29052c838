"""Read what was recorded of power and temperature: a run's folder, or a table in any of three layouts.

What cannot be scored is refused.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from charllm.arrays import Floats
from charllm.errors import SpecError
from charllm.gpu.sensor import HOPPER
from charllm.measure.parts import is_on_nodes, part_folders
from charllm.measure.recording import Recording, read_recording
from charllm.result.files import HEADER_FILE
from charllm.spec.request import read_bytes, unpacked_limit
from charllm.units import MEGA, MIB, MILLI, format_bytes

Columns = Mapping[str, Sequence[str]]

MAX_FILE_BYTES = int(64 * MIB)
MIN_LENGTH_S = 5.0
MIN_READINGS = 10
PLAUSIBLE = {"power": (0.0, 1e5), "temperature": (-50.0, 200.0), "clock": (0.0, 1e11)}
GAP_S = 60.0
"""Longest time without a reading: power is not known in it."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Readings of the GPUs of one node: times [n], the rest [n, GPUs]."""

    times_s: Floats
    power_w: Floats
    temperature_c: Floats
    clock_hz: Floats | None
    gpus: tuple[int, ...]
    past_power_w: Floats | None
    """Mean power before the first reading, where the file tells."""
    average_s: float
    """Length over which a power reading is a mean."""


def read_trace(path: str) -> Trace:
    """Read a recording: the folder of a run on one node, or a table, plain or gzipped."""
    if Path(path).is_dir():
        found = read_recorded(Path(path))
        if not found:
            raise SpecError("file", path, "a CSV file, or the folder of a recording")
        if len(found) > 1:
            raise SpecError("file", path, f"one node at a time, such as {path}/nodes/{next(iter(found))}")
        return next(iter(found.values()))
    columns = _read_columns(path)
    for needed, reader in LAYOUTS.items():
        if set(needed) <= set(columns):
            return _checked(reader(columns))
    layouts = " or ".join(",".join(needed) for needed in LAYOUTS)
    raise SpecError("file", ",".join(columns), f"columns {layouts}")


def read_recorded(folder: Path) -> dict[str, Trace]:
    """Read the recording of a run, measured or converted: a trace of each node, by its name."""
    places = part_folders(folder) if is_on_nodes(folder) else [folder]
    return {
        place.name: _trace_of(read_recording(place), str(place)) for place in places if (place / HEADER_FILE).is_file()
    }


def _trace_of(recording: Recording, where: str) -> Trace:
    """Return the GPUs whose power and temperature were read, at the times of the first one's power."""
    read = {gpu: (recording.power(gpu), recording.known(gpu, "temperature_c")) for gpu in recording.sampled}
    gpus = [gpu for gpu, (power, degrees) in read.items() if len(power[0]) > 1 and len(degrees[0]) > 1]
    if not gpus:
        raise SpecError("RUN", where, "a recording in which power and temperature were read")
    starts, ends = zip(*((times[0], times[-1]) for gpu in gpus for times, _ in read[gpu]), strict=True)
    times = np.unique(read[gpus[0]][0][0])
    times = times[(times >= max(starts)) & (times <= min(ends))]
    if len(times) < 2:
        raise SpecError("RUN", where, "power and temperature of all GPUs read at the same time")
    clocks = {gpu: recording.known(gpu, "clock_hz") for gpu in gpus}
    power, degrees = (_table(times, [read[gpu][part] for gpu in gpus]) for part in (0, 1))
    clock = _table(times, list(clocks.values())) if all(len(at_s) > 1 for at_s, _ in clocks.values()) else None
    average_s = 0.0 if recording.power_quantity(gpus[0]) == "power_instant_w" else HOPPER.average_s
    return Trace(times - times[0], power, degrees, clock, tuple(gpus), None, average_s)


def _table(times_s: Floats, series: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return the values of every GPU at given times."""
    return np.stack([np.interp(times_s, at_s, values) for at_s, values in series], axis=1)


def one_by_one(trace: Trace) -> list[Trace]:
    """Return a trace for each GPU of a node."""
    return [
        replace(
            trace, power_w=trace.power_w[:, [place]], temperature_c=trace.temperature_c[:, [place]], gpus=(gpu,),
            clock_hz=None if trace.clock_hz is None else trace.clock_hz[:, [place]],
            past_power_w=None if trace.past_power_w is None else trace.past_power_w[[place]],
        )
        for place, gpu in enumerate(trace.gpus)
    ]  # fmt: skip


def _read_columns(path: str) -> Columns:
    """Read a CSV file as columns of texts."""
    raw = read_bytes(path, "file", MAX_FILE_BYTES)
    most_bytes = min(MAX_FILE_BYTES, unpacked_limit(len(raw)))
    try:
        if path.endswith(".gz"):
            with gzip.open(io.BytesIO(raw), "rb") as file:
                raw = file.read(most_bytes + 1)
        if len(raw) > most_bytes:
            raise SpecError("file", path, f"at most {format_bytes(most_bytes)} unpacked")
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"))))
    except UnicodeDecodeError:
        raise SpecError("file", path, "a CSV file in UTF-8") from None
    except csv.Error as error:
        raise SpecError("file", path, f"a CSV file ({error})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError("file", path, f"a readable CSV file ({error})") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise SpecError("file", path, "a header and readings below it")
    header = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise SpecError(f"row {number}", ",".join(row), f"{len(header)} values, as the header names")
    return {name: [row[index] for row in rows[1:]] for index, name in enumerate(header)}


def _numbers(columns: Columns, name: str) -> Floats:
    values = np.empty(len(columns[name]))
    for index, text in enumerate(columns[name]):
        try:
            values[index] = float(text)
        except ValueError:
            raise SpecError(f"{name}, reading {index + 1}", text, "a number") from None
        if not math.isfinite(values[index]):
            raise SpecError(f"{name}, reading {index + 1}", text, "a finite number")
    return values


def _read_plain(columns: Columns) -> Trace:
    """Read one GPU: t_s, power_w, temperature_c and, where given, sm_mhz."""
    clock = _numbers(columns, "sm_mhz")[:, None] * MEGA if "sm_mhz" in columns else None
    power, temperature = _numbers(columns, "power_w")[:, None], _numbers(columns, "temperature_c")[:, None]
    return Trace(_numbers(columns, "t_s"), power, temperature, clock, (0,), None, 0.0)


def _read_counters(columns: Columns) -> Trace:
    """Read one GPU's NVML counters; the mean over the second before the first reading tells its past."""
    past = _numbers(columns, "p_average_mw")[:1] * MILLI if "p_average_mw" in columns else None
    clock = _numbers(columns, "sm_mhz")[:, None] * MEGA if "sm_mhz" in columns else None
    power, temperature = _numbers(columns, "p_instant_mw")[:, None] * MILLI, _numbers(columns, "temp_c")[:, None]
    return Trace(_numbers(columns, "t"), power, temperature, clock, (0,), past, 0.0)


def _read_node(columns: Columns) -> Trace:
    """Read the GPUs of a node below each other; moments at which one of them is missing are left out."""
    moments = [_moment(text, index) for index, text in enumerate(columns["timestamp"])]
    gpus = _numbers(columns, "gpu_index")
    power, temperature = _numbers(columns, "power_W"), _numbers(columns, "temperature_C")
    if (gpus != np.floor(gpus)).any() or gpus.min() < 0:
        raise SpecError("gpu_index", str(gpus.min()), "whole numbers from 0")
    names = tuple(int(gpu) for gpu in np.unique(gpus))
    found: dict[float, dict[int, tuple[float, float]]] = {}
    for moment, gpu, watts, degrees in zip(moments, gpus, power, temperature, strict=True):
        found.setdefault(moment, {})[int(gpu)] = (watts, degrees)
    whole = {moment: row for moment, row in found.items() if len(row) == len(names)}
    if not whole:
        raise SpecError("gpu_index", len(names), "moments at which every GPU was read")
    table = np.array([[row[gpu] for gpu in names] for row in whole.values()])
    # Without `.instant`, NVML's power is the mean over the last second.
    return Trace(np.array(list(whole)), table[:, :, 0], table[:, :, 1], None, names, None, 1.0)


def _moment(text: str, index: int) -> float:
    try:
        return datetime.fromisoformat(text.strip().replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise SpecError(f"timestamp, reading {index + 1}", text, "a moment such as 2025-09-24T03:41:43.487Z") from None


LAYOUTS: dict[tuple[str, ...], Callable[[Columns], Trace]] = {
    ("t_s", "power_w", "temperature_c"): _read_plain,
    ("t", "p_instant_mw", "temp_c"): _read_counters,
    ("timestamp", "gpu_index", "temperature_C", "power_W"): _read_node,
}
"""Columns a layout needs: what reads it."""


def _checked(trace: Trace) -> Trace:
    """Refuse what cannot be scored."""
    times = trace.times_s
    steps = np.diff(times)
    if (steps <= 0).any():
        at = int(np.argmax(steps <= 0))
        raise SpecError("time", f"{times[at + 1]:g} after {times[at]:g}", "times that grow from reading to reading")
    if len(times) < MIN_READINGS or times[-1] - times[0] < MIN_LENGTH_S:
        asked = f"{len(times)} readings over {times[-1] - times[0]:.3g} s"
        raise SpecError("time", asked, f"at least {MIN_READINGS} readings over {MIN_LENGTH_S:g} s")
    if steps.max() > GAP_S:
        at = int(np.argmax(steps))
        raise SpecError("time", f"{steps.max():.3g} s without a reading after {times[at]:g}", f"at most {GAP_S:g} s")
    clock = np.zeros(1) if trace.clock_hz is None else trace.clock_hz
    for name, values in (("power", trace.power_w), ("temperature", trace.temperature_c), ("clock", clock)):
        low, high = PLAUSIBLE[name]
        if values.min() < low or values.max() > high:
            wrong = values.min() if values.min() < low else values.max()
            raise SpecError(name, float(wrong), f"from {low:g} to {high:g}, in the unit its column names")
    return trace
