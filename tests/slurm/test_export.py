"""An exported batch job starts each rank on the node and GPU of its placement, on a real Slurm cluster of two nodes."""

import json
import subprocess
import sys
from pathlib import Path

import charllm as public
from tests.slurm.cluster import GPUS, NODES
from tests.slurm.test_slurm import END_S, Charllm, charllm

__all__ = ["charllm"]
STUB = """
import os, pathlib
names = ("SLURMD_NODENAME", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
pathlib.Path("ranks", os.environ["RANK"]).write_text(" ".join(os.environ[name] for name in names))
"""
PLACED = [3, 1, 0, 2]
"""The GPU of each rank: rank 0 is on the second node."""


def test_an_exported_job_starts_every_rank_where_the_placement_puts_it(charllm: Charllm) -> None:
    (charllm.place / "ranks").mkdir()
    (charllm.place / "gpus.json").write_text(json.dumps(PLACED))
    node = {"base": "hgx-h200", "gpus": GPUS, "upstream": [-1, 0]}
    public.export(
        to="sbatch",
        out=charllm.place / "job.sbatch",
        script=charllm.script("stub.py", STUB),
        model="gpt2",
        cluster={"base": "charllm-ppt-h200", "nodes": len(NODES), "node": node},
        pp=2,
        gbs=8,
        placement=charllm.place / "gpus.json",
    )
    path = f"{Path(sys.executable).parent}:{charllm.environment['PATH']}"
    done = subprocess.run(
        ["sbatch", "--wait", "job.sbatch"],
        cwd=charllm.place,
        env={**charllm.environment, "PATH": path},
        check=False,
        timeout=END_S,
    )
    logs = "".join(log.read_text() for log in charllm.place.glob("*.log"))
    assert done.returncode == 0, logs
    found = [(charllm.place / "ranks" / str(rank)).read_text() for rank in range(len(PLACED))]
    assert found == [f"{NODES[gpu // GPUS]} {gpu % GPUS} {len(PLACED)} {NODES[1]}" for gpu in PLACED]
