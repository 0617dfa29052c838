"""Tell what each run given to calibration is, and read it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charllm.errors import SpecError
from charllm.evaluate.heat_trace import MAX_FILE_BYTES, Trace, read_trace
from charllm.evaluate.ops_table import OpRow, read_ops
from charllm.measure.recording import HEADER_FILE, read_recording
from charllm.spec.request import read_bytes

OPS_FILE = "ops.csv"


class OpsTable(NamedTuple):
    """One board's ops."""

    name: str
    rows: list[OpRow]


class NamedTrace(NamedTuple):
    """One board's power and temperature over time."""

    name: str
    trace: Trace


def read_runs(paths: Sequence[str]) -> tuple[list[OpsTable], list[NamedTrace]]:
    """Read folders of the op bench, tables of ops, and recordings of power and temperature."""
    tables, traces = [], []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            if not (path / OPS_FILE).is_file() and not (path / HEADER_FILE).is_file():
                raise SpecError(
                    "RUN", text, f"a folder with {OPS_FILE} or a recording, as `charllm bench ops --out` makes"
                )
            if (path / OPS_FILE).is_file():
                tables.append(OpsTable(path.name, read_ops(str(path / OPS_FILE))[0]))
            if (path / HEADER_FILE).is_file():
                traces.append(NamedTrace(path.name, _recorded(path)))
        elif _is_ops_table(path):
            tables.append(OpsTable(path.name, read_ops(text)[0]))
        else:
            traces.append(NamedTrace(path.name, read_trace(text)))
    return tables, traces


def _is_ops_table(path: Path) -> bool:
    header = read_bytes(path, "RUN", MAX_FILE_BYTES).decode(errors="replace").partition("\n")[0]
    return {"kind", "dtype"} <= {name.strip() for name in header.split(",")}


def _recorded(folder: Path) -> Trace:
    """Return the first GPU of a recording as a trace."""
    recording = read_recording(folder)
    if not recording.sampled:
        raise SpecError("RUN", str(folder), "a recording with readings of a GPU")
    gpu = recording.sampled[0]
    times, power = recording.known(gpu, "power_instant_w")
    warm_times, warm = recording.known(gpu, "temperature_c")
    clock_times, clock = recording.known(gpu, "clock_hz")
    if len(times) < 2 or len(warm_times) < 2:
        raise SpecError("RUN", str(folder), "a recording in which power and temperature were read")
    times, kept = np.unique(times, return_index=True)
    shown = np.interp(times, warm_times, warm)[:, None]
    clocks = np.interp(times, clock_times, clock)[:, None] if len(clock_times) else None
    return Trace(times - times[0], power[kept][:, None], shown, clocks, (gpu,), None, 0.0)
