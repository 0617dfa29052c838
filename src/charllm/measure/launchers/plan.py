"""Where a command runs: which launcher, how many nodes and ranks, and what is asked of Slurm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from charllm.errors import SpecError, unknown_name

LOCAL, TORCHRUN, SLURM = "local", "torchrun", "slurm"
NAMES = (LOCAL, TORCHRUN, SLURM)
MOST_NODES, MOST_RANKS_PER_NODE = 65_536, 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """How a command is started, and on what."""

    launcher: str = LOCAL
    nodes: int | None = None
    """None: one, or all nodes of the allocation that we are in."""
    ranks_per_node: int = 1
    gpus_per_node: int | None = None
    """GPUs to ask of Slurm for each node; None asks for none."""
    time_limit_s: float | None = None
    """The command is ended after this long."""
    gpu: str | None = None
    """Name in the catalog of the GPU that every node must have."""
    partition: str | None = None
    account: str | None = None
    time: str | None = None
    """Time limit of the Slurm job, as Slurm writes it."""
    slurm_args: tuple[str, ...] = ()
    """More words for sbatch."""
    setup: tuple[str, ...] = ()
    """Lines of shell that prepare the environment of a job: module load ..."""
    prefix: tuple[str, ...] = ()
    """Words in front of each node's agent, such as those of a container runtime."""
    shared: bool = False
    """Whether other jobs may use the nodes; what is read of a node would then be theirs, too."""
    submit_only: bool = False

    def __post_init__(self) -> None:
        if self.launcher not in NAMES:
            raise unknown_name("--launcher", self.launcher, NAMES)
        for flag, number, most in (
            ("--nodes", self.nodes, MOST_NODES),
            ("--ranks-per-node", self.ranks_per_node, MOST_RANKS_PER_NODE),
            ("--gpus-per-node", self.gpus_per_node, MOST_RANKS_PER_NODE),
        ):
            if number is not None and (not isinstance(number, int) or not 1 <= number <= most):
                raise SpecError(flag, number, f"a whole number from 1 to {most}")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise SpecError("--time-limit", self.time_limit_s, "more than 0 seconds")
        if self.launcher != SLURM:
            self._refuse_slurm_flags()

    def _refuse_slurm_flags(self) -> None:
        asked = {
            "--partition": self.partition,
            "--account": self.account,
            "--time": self.time,
            "--slurm-args": self.slurm_args,
            "--setup": self.setup,
            "--prefix": self.prefix,
            "--shared": self.shared,
            "--submit-only": self.submit_only,
        }
        for flag, value in asked.items():
            if value:
                raise SpecError(flag, self.launcher, "--launcher slurm with this flag")
        if self.nodes not in (None, 1):
            raise SpecError("--nodes", self.nodes, f"1 with --launcher {self.launcher}; several need --launcher slurm")
        if self.launcher == LOCAL and self.ranks_per_node != 1:
            raise SpecError("--ranks-per-node", self.ranks_per_node, "1 with --launcher local, or --launcher torchrun")

    @property
    def ranks(self) -> int:
        """Ranks of the whole job."""
        return (self.nodes or 1) * self.ranks_per_node


def read_plan(table: dict[str, Any]) -> Plan:
    """Read a plan back."""
    lists = {name: tuple(value) for name, value in table.items() if isinstance(value, list)}
    return Plan(**{**table, **lists})


PLACEHOLDERS = ("node_rank", "nodes", "head", "port", "ranks_per_node", "ranks")


def fill_template(command: Sequence[str], values: dict[str, Any]) -> list[str]:
    """Put values into the placeholders of a command; other braces stay as they are."""
    words = []
    for word in command:
        for name in values:
            word = word.replace(f"{{{name}}}", str(values[name]))
        words.append(word)
    return words


def has_placeholder(command: Sequence[str]) -> bool:
    """Tell whether a command is a template for nodes."""
    return any(f"{{{name}}}" in word for word in command for name in PLACEHOLDERS)
