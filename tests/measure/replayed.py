"""The real capture of an H200, and ways to spoil it: cut, with another GPU beside it, without a quantity."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from charllm.measure.marks import Mark, read_marks
from charllm.measure.recording import Recording, read_recording
from charllm.result.files import HEADER_FILE, SAMPLES_FILE
from charllm.units import NANO

CAPTURE = Path(__file__).parent / "captures" / "h200-train"
JOB_S = (36.0, 50.2)
"""The job's process held the GPU: its clock was up."""
STEPS_S = (45.3, 47.9)
"""Its steps ran, at the power limit."""
IDLE_S = (28.5, 34.5)
"""Before the job."""


@cache
def recording() -> Recording:
    return read_recording(CAPTURE)


@cache
def marks() -> dict[str, list[Mark]]:
    return read_marks(CAPTURE)


@cache
def header() -> Any:
    return json.loads((CAPTURE / HEADER_FILE).read_text())


@cache
def samples() -> bytes:
    return (CAPTURE / SAMPLES_FILE).read_bytes()


def write_copy(folder: Path, samples: bytes, **changes: Any) -> Path:
    """Write a recording with the capture's header, but for changes to it, and with other rows."""
    folder.mkdir(exist_ok=True)
    (folder / HEADER_FILE).write_text(json.dumps({**header(), **changes}))
    (folder / SAMPLES_FILE).write_bytes(samples)
    return folder


def write_two_gpus(folder: Path, warmer_k: float, *, second_is_read: bool = True) -> Path:
    """Write the capture with a second GPU that is as busy and some kelvins warmer, or was not sampled."""
    (first,) = header()["gpus"]
    second = {**first, "uuid": "GPU-00000000-0000-0000-0000-000000000201", "number": 1}
    names, *rows = samples().decode().splitlines()
    warmer = [_warmer(row.split(","), names.split(","), warmer_k) for row in rows] if second_is_read else []
    both = "".join(f"{row}\n" for row in [names, *rows, *warmer])
    write_copy(folder, both.encode(), gpus=[first, second])
    for file in CAPTURE.glob("marks-*.csv"):
        shutil.copy(file, folder)
    return folder


def _warmer(cells: list[str], names: list[str], warmer_k: float) -> str:
    """Give a row to GPU 1."""
    cells[1] = "1"
    if cells[0] == "fast":
        place = names.index("temperature_c")
        cells[place] = str(float(cells[place]) + warmer_k)
    return ",".join(cells)


def unread(row: str, quantities: list[str], reason: str) -> str:
    """Return a row in which these quantities could not be read."""
    cells = dict(zip(columns(), row.split(","), strict=True))
    missing = " ".join(f"{name}={reason}" for name in quantities)
    return ",".join({**cells, **dict.fromkeys(quantities, ""), "missing": missing}.values())


def columns() -> list[str]:
    return samples().decode().split("\n", 1)[0].split(",")


def one_row(beat: str, time_s: float, **readings: float | str) -> str:
    """Return a row of GPU 0 under the capture's header."""
    names = columns()
    cells = {"beat": beat, "gpu": 0, "monotonic_ns": round(time_s / NANO), "wall_ns": 1, "duration_ns": 1, **readings}
    return ",".join(str(cells.get(name, "")) for name in names)
