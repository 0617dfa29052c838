"""What a script asks of Slurm: the words of its #SBATCH lines, and the counts in them."""

import re

from charllm.spec.readers.shell.script import Script

_HEADER = re.compile(r"^[ \t]*#SBATCH[ \t]+(.*?)(?:[ \t]#.*)?$", re.MULTILINE)
_SLURM = {
    "nodes": re.compile(r"(?:^|\s)(?:--nodes[= ]|-N\s*=?)(\d{1,6})(?=\s|$)", re.ASCII),
    "tasks": re.compile(r"(?:^|\s)--n?tasks-per-node[= ](\d{1,4})(?=\s|$)", re.ASCII),
    "gpus": re.compile(
        r"(?:^|\s)(?:--gpus-per-node|--gres)[= ](?:gpu:)?(?:[a-zA-Z]\w*:)?(\d{1,4})(?=\s|$|\()", re.ASCII
    ),
    "all_tasks": re.compile(r"(?:^|\s)(?:--ntasks[= ]|-n\s*)(\d{1,7})(?=\s|$)", re.ASCII),
}  # fmt: skip


def read_headers(script: Script, content: str) -> None:
    """Keep the words of #SBATCH lines, and what Slurm makes of them in the environment."""
    for line in _HEADER.findall(content):
        script.headers += line.split()
    found = slurm_counts(script.headers)
    names = {"nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "gpus": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
             "tasks": ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")}  # fmt: skip
    for key, variables in names.items():
        for name in variables if key in found else ():
            script.variables.setdefault(name, str(found[key]))
    if {"nodes", "tasks"} <= found.keys():
        script.variables.setdefault("SLURM_NTASKS", str(found["nodes"] * found["tasks"]))


def slurm_counts(words: list[str]) -> dict[str, int]:
    """Return nodes, tasks and GPUs of a node that words for sbatch or srun ask for."""
    line = " ".join(words)
    found = {key: pattern.findall(line) for key, pattern in _SLURM.items()}
    return {key: int(values[-1]) for key, values in found.items() if values}
