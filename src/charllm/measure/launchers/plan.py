"""Where a command runs: which launcher, how many nodes and ranks, and what is asked of Slurm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from charllm.errors import SpecError
from charllm.spec.fields import choice, count, flag, line, lines, number, shell_words
from charllm.spec.flags import check_flags, flags_of, read_keywords

LOCAL, TORCHRUN, SLURM = "local", "torchrun", "slurm"
NAMES = (LOCAL, TORCHRUN, SLURM)
MOST_NODES, MOST_RANKS_PER_NODE, LONGEST_S = 65_536, 1024, 366 * 86_400.0
SLURM_WORDS = ("partition", "account", "time", "slurm_args", "setup", "prefix", "shared", "submit_only")
"""Settings that only a Slurm job has."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a command is started, and on what."""

    launcher: str = choice(
        f"{LOCAL}: unchanged on this machine; {TORCHRUN}: as ranks on this machine; {SLURM}: on a cluster",
        NAMES, LOCAL,
    )  # fmt: skip
    nodes: int | None = count("nodes of the cluster (default 1, or all of an allocation)", 1, MOST_NODES, None)
    ranks_per_node: int = count("processes on each node, or one for each requested GPU", 1, MOST_RANKS_PER_NODE, 1)
    gpus_per_node: int | None = count("GPUs to request from Slurm on each node", 1, MOST_RANKS_PER_NODE, None)
    time_limit_s: float | None = number("end the command after this many seconds", 0.001, LONGEST_S, None)
    gpu: str | None = None
    """Name in the catalog of the GPU that every node must have."""
    partition: str | None = line("partition of the cluster", None, flag="--partition NAME")
    account: str | None = line("account that the job is charged to", None, flag="--account NAME")
    time: str | None = line("time limit of the Slurm job", None, flag="--time HH:MM:SS")
    slurm_args: tuple[str, ...] = shell_words("further arguments of sbatch")
    setup: tuple[str, ...] = lines(
        "shell command to run before the nodes start (module load ...); may be repeated", flag="--setup 'LINE'"
    )
    prefix: tuple[str, ...] = shell_words(
        "command prefix of each node's agent; behind a container runtime the agent is the image's python3 -m charllm"
    )
    shared: bool = flag("let other jobs use the nodes at the same time", False)
    submit_only: bool = flag(
        "with slurm: submit, print the job's number and exit; complete the run with charllm show", False
    )

    def __post_init__(self) -> None:
        check_flags(self)
        if self.launcher != SLURM:
            self._refuse_slurm_flags()

    def _refuse_slurm_flags(self) -> None:
        for word in SLURM_WORDS:
            if getattr(self, word):
                raise SpecError(flags_of(Plan)[word].name, self.launcher, "--launcher slurm with this flag")
        if self.nodes not in (None, 1):
            raise SpecError("--nodes", self.nodes, f"1 with --launcher {self.launcher}; several need --launcher slurm")
        if self.launcher == LOCAL and self.ranks_per_node != 1:
            raise SpecError("--ranks-per-node", self.ranks_per_node, "1 with --launcher local, or --launcher torchrun")

    @property
    def ranks(self) -> int:
        """Ranks of the whole job."""
        return (self.nodes or 1) * self.ranks_per_node


LOCALLY = Plan()


class PlanKeywords(TypedDict, total=False):
    """Keywords of `Plan`, with the types of their values."""

    launcher: str
    nodes: int | str | None
    ranks_per_node: int | None
    gpus_per_node: int | None
    time_limit: float | None
    partition: str | None
    account: str | None
    time: str | None
    slurm_args: str
    setup: Sequence[str]
    prefix: str
    shared: bool


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


def build_plan(words: Mapping[str, Any]) -> Plan:
    """Return where a command runs; a rank for each GPU, where only these are counted."""
    return read_keywords(Plan, {"ranks_per_node": words.get("gpus_per_node"), **words})
