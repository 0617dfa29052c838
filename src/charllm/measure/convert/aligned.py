"""The table that ``amd-smi monitor`` prints for people: columns apart by two spaces, numbers with their units."""

import csv
import io
import re

from charllm.measure.convert import table
from charllm.measure.convert.foreign import Foreign
from charllm.measure.convert.source import ForeignFile, Hints

HEADER = re.compile(r"(?m)^\s*(?:TIMESTAMP\s{2,})?GPU\s{2,}(?:XCP\s{2,})?[A-Z][A-Z_]*(?:\s{2,}[A-Z][A-Z_]*)+\s*$")
NAMES = {"power": "power_usage", "gpu_t": "gpu_temp", "pwr_cap": "power_cap"}
APART = re.compile(r"\s{2,}")


def looks_like(head: str) -> bool:
    """Tell whether a text holds the heading of such a table."""
    return HEADER.search(head) is not None


def read(file: ForeignFile, hints: Hints) -> Foreign:
    """Read it as the table of ``amd-smi monitor --csv``; lines of another length, such as processes, are left out."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    width = 0
    for line in file.text.split("\n"):
        cells = APART.split(line.strip())
        if HEADER.match(line):
            width = len(cells)
            writer.writerow([NAMES.get(cell.lower(), cell.lower()) for cell in cells])
        elif width and len(cells) == width and cells[0].isdecimal():
            writer.writerow(cells)
    return table.read(file._replace(text=text.getvalue()), hints)
