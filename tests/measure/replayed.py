"""The real capture of an H200, and ways to spoil it: cut, with another GPU beside it, without a quantity."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from charllm.measure.marks import Mark, read_marks
from charllm.measure.recording import HEADER_FILE, SAMPLES_FILE, Recording, read_recording

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
    rows = samples().decode().splitlines()
    warmer = [_warmer(row.split(","), warmer_k) for row in rows] if second_is_read else []
    both = "".join(f"{row}\n" for row in rows + warmer)
    write_copy(folder, both.encode(), gpus=[first, second])
    for file in CAPTURE.glob("marks-*.csv"):
        shutil.copy(file, folder)
    return folder


def _warmer(cells: list[str], warmer_k: float) -> str:
    """Give a row to GPU 1; temperature is the third quantity of the fast beat."""
    cells[1] = "1"
    if cells[0] == "fast":
        cells[7] = str(float(cells[7]) + warmer_k)
    return ",".join(cells)
