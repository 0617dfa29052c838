"""The flags that say where a command runs, shared by the commands that run one."""

import argparse
from typing import Any

from charllm.measure.launchers.plan import LOCAL, NAMES

KEYWORDS = (
    "launcher", "nodes", "ranks_per_node", "gpus_per_node", "time_limit", "partition", "account", "time", "slurm_args",
    "setup", "prefix", "shared", "submit_only",
)  # fmt: skip


def add_launch_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where a command runs."""
    group = parser.add_argument_group("where it runs")
    group.add_argument(
        "--launcher",
        choices=NAMES,
        default=LOCAL,
        help="local: unchanged on this machine (default); torchrun: as ranks on this machine; slurm: on a cluster",
    )
    group.add_argument(
        "--nodes", type=int, metavar="N", help="nodes of the cluster (default 1, or all of an allocation)"
    )
    group.add_argument(
        "--ranks-per-node",
        type=int,
        metavar="N",
        help="processes on each node (default 1, or one for each requested GPU)",
    )
    group.add_argument("--gpus-per-node", type=int, metavar="N", help="GPUs to request from Slurm on each node")
    group.add_argument("--time-limit", type=float, metavar="S", help="end the command after this many seconds")
    group.add_argument("--partition", metavar="NAME", help="partition of the cluster")
    group.add_argument("--account", metavar="NAME", help="account that the job is charged to")
    group.add_argument("--time", metavar="HH:MM:SS", help="time limit of the Slurm job")
    group.add_argument("--slurm-args", default="", metavar="'WORDS'", help="further arguments of sbatch")
    group.add_argument(
        "--setup",
        action="append",
        default=[],
        metavar="'LINE'",
        help="shell command to run before the nodes start (module load ...); may be repeated",
    )
    group.add_argument(
        "--prefix", default="", metavar="'WORDS'", help="command prefix of each node's agent, e.g. a container runtime"
    )
    group.add_argument("--shared", action="store_true", help="let other jobs use the nodes at the same time")


def plan_keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags say, as keywords of the Python API."""
    return {name: value for name, value in vars(arguments).items() if name in KEYWORDS}
