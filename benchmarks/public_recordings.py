"""Convert real public recordings, and compare energy with a trapezoid over the same file.

    python -m benchmarks.public_recordings FOLDER

FOLDER holds recordings as owner+name/path; they are not part of this repository. For each: right (energy within 0.5 %
of the trapezoid), refused (with its reason), wrong (energy differs, nothing said) or said (differs, and a note names
why). The trapezoid is made here, apart from charllm's readers: the first column that parses as a time, the columns
whose heading names a power, GPUs by index, uuid or column. A file whose power it does not find must be refused, or be
recorded without energy.
"""

import argparse
import csv
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charllm.api.conversion import convert
from charllm.errors import CharllmError

POWER = re.compile(r"(?i)power|watt|^gpu ?\d+$")
NOT_POWER = re.compile(r"(?i)limit|cpu|ram|total|cap|mgmt|energy|soc|ddr|max|min|avg.*sampled|instance|percent")
GPU = re.compile(r"(?i)^(?:index|uuid|gpu|gpu_id|pci\.bus_id|device|card)$")
TIME = re.compile(r"(?i)time|date|^t$|^t_s$")
FORMS = ("%Y/%m/%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S")
NUMBER = re.compile(r"^\s*(-?\d*\.?\d+(?:e-?\d+)?)\s*(m?W)?\s*$", re.IGNORECASE)
UNITS = ((r"\bms\b|_ms|milli", 1e-3), (r"\bns\b|_ns|nano", 1e-9), (r"\bus\b|_us|micro", 1e-6))
TOLERANCE = 0.005


class Verdict(NamedTuple):
    """What became of one file."""

    kind: str
    told: str


def trapezoid_j(text: str) -> float | None:
    """Return the joules of all GPUs of a table; None where it has no times and powers."""
    lines = [line for line in text.split("\n") if line.strip()]
    divider = max(",\t;|", key=lines[0].count)
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=divider, skipinitialspace=True)]
    head = rows[0]
    of_time = next((at for at, name in enumerate(head) if TIME.search(name)), None)
    of_power = [at for at, name in enumerate(head) if POWER.search(name) and not NOT_POWER.search(name)]
    of_gpu = next((at for at, name in enumerate(head) if GPU.match(name)), None)
    if of_time is None or not of_power:
        return None
    milli = {at: 1e-3 if re.search(r"(?i)mw|milli", head[at]) else 1.0 for at in of_power}
    scale = next((by for unit, by in UNITS if re.search(unit, head[of_time], re.IGNORECASE)), 1.0)
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in rows[1:]:
        time_s = seconds_of(row[of_time]) if len(row) == len(head) else None
        for at in of_power if time_s is not None else ():
            watts = NUMBER.match(row[at])
            if watts and time_s is not None:
                gpu = row[of_gpu] if of_gpu is not None else ""
                factor = 1e-3 if (watts[2] or "").lower() == "mw" else milli[at]
                found.setdefault((gpu, at), []).append((time_s * scale, float(watts[1]) * factor))
    if not found:
        return None
    sums = 0.0
    for readings in found.values():
        times, values = np.array(sorted(readings)).T
        sums += float(np.trapezoid(values, times))
    return sums


def seconds_of(cell: str) -> float | None:
    """Read a time as seconds."""
    try:
        return float(cell)
    except ValueError:
        pass
    for form in FORMS:
        try:
            return datetime.strptime(cell, form).timestamp()
        except ValueError:
            continue
    try:
        return datetime.fromisoformat(cell).timestamp()
    except ValueError:
        return None


def judge(path: Path, folder: Path) -> Verdict:
    """Convert one file, and compare."""
    text = path.read_text(encoding="utf-8-sig", errors="replace").replace("\r\n", "\n")
    wanted_j = trapezoid_j(text)
    try:
        run = convert("auto", path, folder / "run")
    except CharllmError as error:
        return Verdict("refused", str(error)[:160])
    notes = "; ".join(run.provenance["measurement"]["notes"])[:300]
    table = run.table("energy") or {"part": []}
    at = table["part"].index("whole recording") if "whole recording" in table["part"] else None
    found_j, unread = (None, 0.0) if at is None else (table["energy_j"][at], table["unread_fraction"][at])
    if found_j is None:
        return Verdict("right" if wanted_j is None else "missed", f"no energy of {wanted_j}; {notes}")
    if wanted_j is None:
        return Verdict("unjudged", f"{found_j:.6g} J, {len(run.gpus)} GPUs; {notes}")
    apart = found_j / wanted_j - 1 if wanted_j else float("inf")
    told = f"{found_j:.6g} J against {wanted_j:.6g} ({apart:+.2%}), {len(run.gpus)} GPUs"
    if abs(apart) <= TOLERANCE:
        return Verdict("right", told)
    return Verdict("said" if unread else "wrong", f"{told}, {unread:.1%} not read; {notes}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each file, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for path in sorted(path for path in asked.folder.rglob("*") if path.is_file()):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = judge(path, Path(folder))
            except Exception as error:
                found = Verdict("traceback", f"{type(error).__name__}: {error}")
        counts[found.kind] += 1
        print(f"{found.kind:10} {str(path.relative_to(asked.folder))[-70:]:70} {found.told}")
    print(dict(counts))


if __name__ == "__main__":
    main()
