"""A script that starts a program on one node: a process for each GPU, in order or where a rank map puts it.

torchrun numbers ranks in the order of nodes and GPUs. Another placement needs the rank of each process beside the GPU
that it takes, so the script then starts the processes itself. `MASTER_ADDR` is the node of rank 0 in both cases.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

RANK_MAP = "RANK_OF_GPU"
"""Array of the script with the rank of each GPU, node by node, which the reader of scripts takes for the placement."""
PORT = 29500


class Launch(NamedTuple):
    """What a node runs."""

    command: tuple[str, ...]
    """Interpreter, program (a file, or -m and a module) and its arguments."""
    environment: Mapping[str, str]
    nodes: int
    gpus_per_node: int
    gpu_of_rank: tuple[int, ...] = ()
    """Empty: rank i on GPU i."""

    @property
    def master_node(self) -> int:
        """The node of rank 0, to whose address the others connect."""
        return self.gpu_of_rank[0] // self.gpus_per_node if self.gpu_of_rank else 0


def write_launch(launch: Launch, comments: Sequence[str]) -> str:
    """Return the script; arguments given to it are passed on to the program."""
    words = launch.command[1:]
    split = 2 if words[0] == "-m" else 1
    program = shlex.join(words[:split])
    lines = ["#!/usr/bin/env bash", *(f"# {line}" for line in comments), *_exports(launch.environment), ""]
    lines += ["ARGS=(", *(f"    {line}" for line in _one_flag_a_line(words[split:])), ")"]
    start = _start_mapped if launch.gpu_of_rank else _start_in_order
    return "\n".join([*lines, *start(launch, f'{program} "${{ARGS[@]}}" "$@"'), ""])


def _exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def _one_flag_a_line(words: Sequence[str]) -> list[str]:
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not lines:
            lines.append([])
        lines[-1].append(word)
    return [shlex.join(line) for line in lines]


def _start_in_order(launch: Launch, program: str) -> list[str]:
    return [
        f"torchrun --nnodes={launch.nodes} --nproc-per-node={launch.gpus_per_node} "
        f'--node-rank="${{NODE_RANK:-${{SLURM_NODEID:-0}}}}" \\',
        f'    --master-addr="${{MASTER_ADDR:-localhost}}" --master-port="${{MASTER_PORT:-{PORT}}}" \\',
        f"    {program}",
    ]


def _start_mapped(launch: Launch, program: str) -> list[str]:
    """Start the processes of a node one by one; the first that fails ends the others."""
    rank_of_gpu = {gpu: rank for rank, gpu in enumerate(launch.gpu_of_rank)}
    ranks = [str(rank_of_gpu[gpu]) for gpu in sorted(rank_of_gpu)]
    gpus = launch.gpus_per_node
    return [
        "# Rank that runs on each GPU, node by node.",
        f"{RANK_MAP}=(",
        *(f"    {' '.join(ranks[start : start + gpus])}" for start in range(0, len(ranks), gpus)),
        ")",
        "NODE_RANK=${NODE_RANK:-${SLURM_NODEID:-0}}",
        f"export WORLD_SIZE={len(ranks)} LOCAL_WORLD_SIZE={gpus} GROUP_RANK=$NODE_RANK",
        f"export MASTER_ADDR=${{MASTER_ADDR:-localhost}} MASTER_PORT=${{MASTER_PORT:-{PORT}}}",
        "# Lightning takes RANK and LOCAL_RANK only from a launcher that gives its job a name.",
        "export TORCHELASTIC_RUN_ID=${TORCHELASTIC_RUN_ID:-charllm}",
        f"for LOCAL_RANK in {{0..{gpus - 1}}}; do",
        f"    RANK=${{{RANK_MAP}[$((NODE_RANK * {gpus} + LOCAL_RANK))]}} LOCAL_RANK=$LOCAL_RANK \\",
        f"        python {program} &",
        "done",
        f"for _ in {{1..{gpus}}}; do",
        "    wait -n || { code=$?; kill $(jobs -p); exit $code; }",
        "done",
    ]
