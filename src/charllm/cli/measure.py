"""Run a command and record power, clocks and temperature of its GPUs, on this machine or on nodes of a cluster.

On this machine the command's output, signals and exit code pass through. With --launcher slurm each node keeps its
output in DIR/nodes/NODE/command.log, and that of each rank in logs/ beside it. A Python script or module is started
there by torchrun, any other command once for each node, with {node_rank} {nodes} {head} {port} {ranks_per_node}
{ranks} in it filled in.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from charllm.cli.flags import add_flags, given
from charllm.cli.spec_flags import add_spec_flags, given_keywords
from charllm.measure.adapters.settings import ProgramSettings
from charllm.measure.launchers.plan import LOCAL, Plan
from charllm.measure.settings import CommandSettings, MeasureSettings

if TYPE_CHECKING:
    from charllm.measure.job import Job
    from charllm.result.result import RunResult

EXAMPLES = (
    "charllm measure --out runs/mine -- torchrun train.py",
    "charllm measure --repeats 3 --watch -- python train.py --steps 100",
    "charllm measure --telemetry none --idle 0 -- sleep 1",
    "charllm measure --profile 3@20 --out runs/mine -- charllm train --model gpt2 --gbs 32 --steps 60",
    "charllm measure --launcher torchrun --ranks-per-node 8 -- train.py",
    "charllm measure --launcher slurm --nodes 2 --gpus-per-node 8 --time 00:30:00 --out runs/mine -- train.py",
    "charllm measure --adapter megatron --script Megatron-LM/pretrain_gpt.py --model llama3-8b --cluster h100x8 --tp 2",
)


SETTINGS = (MeasureSettings, CommandSettings, Plan, ProgramSettings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the recording (default charllm-runs/TIME)")
    add_flags(parser, MeasureSettings)
    add_flags(parser, CommandSettings)
    add_flags(parser.add_argument_group("where it runs"), Plan)
    add_flags(parser.add_argument_group("the program"), ProgramSettings)
    add_spec_flags(parser, spec_flag=True, own_nodes=True)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print what was found to stderr, and return the command's own exit code."""
    from charllm.api.measurement import build_job, run_job
    from charllm.measure.finish import urgent_warnings

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    words = {**given(arguments, *SETTINGS), **given_keywords(arguments)}
    job = build_job(command, arguments.out, words, arguments.spec)
    if job.plan.submit_only:
        return _submit(job)
    result, code = run_job(job)
    failure = result.provenance["measurement"].get("failure")
    if failure is not None and job.plan.launcher != LOCAL:
        print(f"charllm: {failure['message']}", file=sys.stderr)
    for warning in urgent_warnings(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    print(_headline(result, job.folder), file=sys.stderr)
    return code


def _submit(job: Job) -> int:
    from charllm.api.measurement import submit_job

    print(submit_job(job).removeprefix("job "))
    print(f"charllm: submitted; when it has ended: charllm show {job.folder}", file=sys.stderr)
    return 0


def _headline(result: RunResult, folder: Path) -> str:
    from charllm.result.answers import answer_in_brief

    return f"charllm: {answer_in_brief(result) or 'nothing was read'}; recorded in {folder}"
