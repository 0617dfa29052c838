"""A store with a run, a study, measurements, and folders that are not what they seem."""

import json
import os
from pathlib import Path

from charllm.api.simulation import simulate
from charllm.api.study import sweep
from tests.measure.live.runs import write_marks, write_node

SMALL = {"model": "llama3-8b", "cluster": "h200x8", "tp": 2, "gbs": 32}

LONG = {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "nodes": 64, "tp": 8, "pp": 8, "gbs": 2048}
"""Takes a second or so to simulate, in several rounds."""
PLANNED = {
    **SMALL,
    "pp": 1,
    "cp": 1,
    "mbs": 1,
    "zero": 1,
    "recompute": "none",
    "overlap": "dp",
    "power_cap": 700,
    "clock_cap": 1980,
}
"""Leaves a plan few strategies to search."""
HUGE = {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "nodes": 100_000}
"""Takes too long for the explorer."""


def write_store(folder: Path) -> Path:
    """Write one of each kind."""
    simulate(**SMALL, out=folder / "runs" / "two")  # type: ignore[arg-type]
    simulate(**{**SMALL, "tp": 4}, out=folder / "runs" / "four")  # type: ignore[arg-type]
    sweep(axes={"mbs": [1, 2]}, base=SMALL, out=folder / "study")
    write_marks(write_node(folder / "running"), 4)
    write_node(folder / "killed", age_s=100.0)
    return folder


def write_broken(folder: Path) -> Path:
    """Write what a store may hold besides: half-written, foreign and hostile folders."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "result.json").write_text('{"secret": true}')
    (outside / "spec.toml").write_text("secret = true")
    for name, text in {
        "half": '{"origin": "simul',
        "empty": "",
        "foreign": "[1, 2, 3]",
        "deep": "[" * 100_000,
        "future": '{"origin": "simulated", "schema_version": 99}',
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "result.json").write_text(text)
    (folder / "link").mkdir()
    (folder / "link" / "result.json").symlink_to(outside / "result.json")
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "result.json")
    (folder / "elsewhere").symlink_to(outside)
    (folder / "notes").mkdir()
    (folder / "notes" / "README.md").write_text("nothing of ours")
    (folder / "file").write_text("not a folder")
    return folder


def point_outside(run: Path, outside: Path) -> None:
    """Let the spec of a stored run rest on a file outside of the store."""
    table = json.loads((run / "result.json").read_text())
    table["spec"]["model"] = {"base": str(outside / "spec.toml")}
    (run / "result.json").write_text(json.dumps(table))
