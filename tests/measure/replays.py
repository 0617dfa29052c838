"""The real capture of an H200, cut and copied: what stands for GPUs in tests of whole commands."""

import csv
import json
import os
import sys
import time
from pathlib import Path

import pytest

from charllm.result.files import HEADER_FILE, SAMPLES_FILE
from charllm.units import NANO

CAPTURE = Path(__file__).parent / "captures" / "h200-train"
LOADED_S = 18.0
"""Seconds into the capture at which the GPU is at work."""
REPLAY = f"replay:{CAPTURE}"


def uuid(gpu: int) -> str:
    return f"GPU-{gpu:08x}-0000-0000-0000-000000000200"


def make_replay(folder: Path, *, gpus: int = 1, from_s: float = LOADED_S, lost_after_s: float | None = None) -> str:
    """Copy the capture from some second on, for several GPUs, its driver lost after a while; return its name."""
    folder.mkdir()
    header = json.loads((CAPTURE / HEADER_FILE).read_text())
    (identity,), (capabilities,) = header["gpus"], header["capabilities"].values()
    header["gpus"] = [{**identity, "uuid": uuid(gpu), "number": gpu} for gpu in range(gpus)]
    header["capabilities"] = {uuid(gpu): capabilities for gpu in range(gpus)}
    (folder / HEADER_FILE).write_text(json.dumps(header))
    with (CAPTURE / SAMPLES_FILE).open() as capture, (folder / SAMPLES_FILE).open("w") as file:
        rows = list(csv.DictReader(capture))
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        first_ns = int(rows[0]["monotonic_ns"])
        for row in rows:
            at_s = (int(row["monotonic_ns"]) - first_ns) * NANO - from_s
            if lost_after_s is not None and at_s >= lost_after_s:
                names = header["beats"][row["beat"]]
                row |= {**dict.fromkeys(names, ""), "missing": " ".join(f"{name}=lost" for name in names)}
            for gpu in range(gpus if at_s >= 0 else 0):
                writer.writerow({**row, "gpu": gpu})
    return f"replay:{folder}"


NO_DRIVER = """
class NVMLError(Exception):
    pass

def nvmlInit():
    raise NVMLError("Driver Not Loaded")
"""


def hide_driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and those it starts find no NVIDIA driver, whatever machine they run on."""
    place = folder / "no-driver"
    place.mkdir()
    (place / "pynvml.py").write_text(NO_DRIVER)
    monkeypatch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)


def find_sampler(folder: Path) -> int | None:
    """Return the process that samples into a folder."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"charllm.measure.sampler" in words and str(folder).encode() in words:
            return int(place.name)
    return None


def is_gone(process: int) -> bool:
    """Tell whether a process has ended, whether or not somebody has taken note of it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def await_file(path: Path, timeout_s: float = 60.0) -> None:
    """Wait until a file is there."""
    end_s = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < end_s, path
        time.sleep(0.01)


def quiet_environment(**changes: str) -> dict[str, str]:
    """Return an environment in which torch does not fight other tests for cores."""
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**kept, "OMP_NUM_THREADS": "1", **changes}
