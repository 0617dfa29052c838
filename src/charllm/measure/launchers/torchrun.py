"""The words that start the ranks of a Python script or module on one node by torchrun."""

import importlib.util
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from charllm.errors import SpecError

INTERPRETER = re.compile(r"^python[\d.]*$")
LOGS = "logs"


def python_part(command: Sequence[str]) -> list[str] | None:
    """Return what torchrun can start of a command: `SCRIPT.py ...` or `-m MODULE ...`; None for another program."""
    words = list(command)
    if words and INTERPRETER.match(Path(words[0]).name):
        words = words[1:]
    elif words and Path(words[0]).name == "charllm":
        return ["-m", *("charllm", *words[1:])]
    if len(words) >= 2 and words[0] == "-m":
        return words
    return words if words and words[0].endswith(".py") else None


def torchrun(
    command: Sequence[str], ranks: int, rendezvous: Sequence[str], logs: Path | None, *, shown: bool = False
) -> list[str]:
    """Return the command that runs a script or module as the ranks of this node; their output is kept in `logs`."""
    part = python_part(command)
    if part is None:
        raise SpecError("COMMAND", " ".join(command[:3]), "a Python script or `-m MODULE`, which torchrun can start")
    kept = [] if logs is None else ["--log_dir", str(logs), "--tee" if shown else "--redirects", "3"]
    return [*_program(), f"--nproc_per_node={ranks}", *rendezvous, *kept, *part]


def alone() -> list[str]:
    """Return how the ranks of one node meet."""
    return ["--standalone"]


def around(head: str, port: int, nodes: int, node_rank: int) -> list[str]:
    """Return how the ranks of several nodes meet at the head; ranks are numbered in the order of the nodes."""
    return [f"--nnodes={nodes}", f"--node_rank={node_rank}", f"--master_addr={head}", f"--master_port={port}"]


def _program() -> list[str]:
    if importlib.util.find_spec("torch") is not None:
        return [sys.executable, "-m", "torch.distributed.run"]
    found = shutil.which("torchrun")
    if found is None:
        raise SpecError("--launcher", "torchrun", "torch, which is not installed here: pip install 'charllm[torch]'")
    return [found]


def rank_logs(folder: Path, first_rank: int) -> dict[int, list[Path]]:
    """Return the log files of each rank of a node, by its number in the whole job."""
    found: dict[int, list[Path]] = {}
    for path in sorted((folder / LOGS).glob("*/attempt_*/*/std*.log")):
        if path.parent.name.isdecimal():
            found.setdefault(first_rank + int(path.parent.name), []).append(path)
    return found
