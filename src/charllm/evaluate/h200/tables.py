"""Tables of what H200 boards read (readings/README.md says what each holds)."""

import csv
from importlib import resources
from pathlib import Path

HERE = Path(str(resources.files("charllm.evaluate") / "h200"))
READINGS = HERE / "readings"
TIMELINES = HERE / "timelines"
"""Timelines of emulated ranks, as the board played them."""


def read_table(file: str, key: str = "name") -> dict[str, dict[str, str]]:
    """Read the rows of a table by their names; those that failed on the board are left out."""
    with (READINGS / file).open(newline="", encoding="utf-8") as lines:
        return {row[key]: row for row in csv.DictReader(lines) if not row.get("error")}
