"""Folders of runs as they look while they are recorded: rows of the H200 capture that end now, on one node or two."""

import json
import time
from pathlib import Path
from typing import Any

from charllm.result.files import HEADER_FILE, SAMPLES_FILE
from charllm.units import NANO
from tests.measure.replayed import columns, header, samples

STEP_S = 0.5
START_S = 1000.0


def write_node(
    folder: Path, gpus: int = 1, seconds: int = 4, *, age_s: float = 0.0, first_uuid: int = 0, **job: Any
) -> Path:
    """Write a recording of the capture's first rows, which end `age_s` ago, and its job."""
    folder.mkdir(parents=True, exist_ok=True)
    (identity,), (capabilities,) = header()["gpus"], header()["capabilities"].values()
    identities = [{**identity, "uuid": f"GPU-{first_uuid + gpu}", "number": gpu} for gpu in range(gpus)]
    details = {**header()["details"], "sampled": ",".join(map(str, range(gpus)))}
    capable = {each["uuid"]: capabilities for each in identities}
    changed = {**header(), "gpus": identities, "details": details, "capabilities": capable}
    (folder / HEADER_FILE).write_text(json.dumps(changed))
    names, *lines = samples().decode().splitlines()
    first_ns = int(lines[0].split(",")[2])
    kept = [line for line in lines if int(line.split(",")[2]) - first_ns <= seconds / NANO]
    last_ns, wall_ns = int(kept[-1].split(",")[2]), round((time.time() - age_s) / NANO)
    rows = [names]
    for line in kept:
        cells = line.split(",")
        moment_ns = int(cells[2])
        for gpu in range(gpus):
            cells[1:4] = [
                str(gpu), str(round(START_S / NANO) + moment_ns - first_ns), str(wall_ns - last_ns + moment_ns)
            ]  # fmt: skip
            rows.append(",".join(cells))
    (folder / SAMPLES_FILE).write_text("".join(f"{row}\n" for row in rows))
    record = {"gpus": [each["uuid"] for each in identities], "windows_s": {"command": [START_S + 1.0]}, **job}
    (folder / "job.json").write_text(json.dumps(record))
    return folder


def write_marks(
    folder: Path, steps: int, *, rank: int = 0, tokens: int | None = 1000, loss: float | None = None
) -> Path:
    """Write the marks of a rank: a first one, then a step each `STEP_S`."""
    path = folder / f"marks-{rank}-77.csv"
    lines = ["monotonic_ns,wall_ns,kind,name,value"]
    for number in range(steps + 1):
        moment_ns = round((START_S + number * STEP_S) / NANO)
        if loss is not None:
            lines.append(f"{moment_ns},1,point,train loss,{loss + number}")
        lines.append(f"{moment_ns},1,step,{number},{'' if tokens is None else tokens}")
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def append_rows(folder: Path, *rows: dict[str, Any]) -> None:
    """Add rows to a recording; a row names its cells."""
    with (folder / SAMPLES_FILE).open("a") as file:
        for row in rows:
            file.write(",".join(str(row.get(name, "")) for name in columns()) + "\n")


HOST = (
    "monotonic_ns,wall_ns,duration_ns,cpu_load_fraction,memory_used_bytes,nic_sent_bytes:mlx5_0/1,"
    "nic_received_bytes:mlx5_0/1,cpu_energy_j:0,inlet_c:front,system_power_w:dcmi,missing\n"
    "1000000000,1,1,0.25,4e9,1e9,2e9,100.0,21.0,,system_power_w:dcmi=no_permission\n"
    "2000000000,1,1,0.50,8e9,3e9,2.5e9,350.0,22.0,,system_power_w:dcmi=no_permission\n"
)
"""Two seconds of a host: 2 GB/s out, 0.5 GB/s in, 250 W."""
