"""A batch job of Slurm that runs a launch script once on each node."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from charllm.spec.writers.launch import PORT, Launch, write_launch

NODE_SCRIPT = "node.sh"
END = "END_OF_FILE"


def write_sbatch(
    launch: Launch, folder: PurePath, comments: Sequence[str], files: Mapping[PurePath, str], *, measured: bool = False
) -> str:
    """Return the batch script: what Slurm is asked for, the files of the program, and the start on every node.

    Files go to `folder`, below the folder that the job is submitted from, which every node has to see.
    """
    asked = {
        "job-name": folder.name,
        "nodes": launch.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": launch.gpus_per_node,
        "output": "%x-%j.log",
    }
    node = folder / NODE_SCRIPT
    lines = ["#!/bin/bash", *(f"#SBATCH --{key}={shlex.quote(str(value))}" for key, value in asked.items())]
    lines += ["#SBATCH --exclusive", *(f"# {line}" for line in comments), "set -e"]
    for file, text in {**files, node: write_launch(launch, ["Run once on each node."])}.items():
        lines += ["", f"mkdir -p {shlex.quote(str(file.parent))}"]
        lines += [f"cat > {shlex.quote(str(file))} <<'{END}'", text.rstrip("\n"), END]
    head = f'scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n {launch.master_node + 1}p'
    lines += ["", f"export MASTER_ADDR=$({head}) MASTER_PORT={PORT}"]
    return "\n".join([*lines, _start(launch, node, measured), ""])


def _start(launch: Launch, node: PurePath, measured: bool) -> str:
    script = f"bash {shlex.quote(str(node))}"
    if not measured:
        return f"srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit {script}"
    # Recorded GPUs are given ranks in the order of nodes and GPUs, which a rank map changes.
    ranks = "" if launch.gpu_of_rank else f" --ranks-per-node {launch.gpus_per_node}"
    out = f"{shlex.quote(str(node.parent))}/run-$SLURM_JOB_ID"
    # The agents of a measured job name the first node as address; the ranks may meet at another.
    address = "MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT"
    return f"charllm measure --launcher slurm{ranks} --out {out} -- env {address} {script}"
