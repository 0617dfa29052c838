"""Run a command and record power, clocks and temperature of its GPUs, on this machine or on nodes of a cluster.

On this machine the command's output, signals and exit code pass through. With --launcher slurm each node keeps its
output in DIR/nodes/NODE/command.log, and that of each rank in logs/ beside it. A Python script or module is started
there by torchrun, any other command once for each node, with {node_rank} {nodes} {head} {port} {ranks_per_node}
{ranks} in it filled in.
"""

import argparse
import sys
from pathlib import Path

from charllm.api.measurement import build_program_job, require_fit, run_folder, run_job, submit_job
from charllm.api.programs import build_program
from charllm.cli.launch_flags import add_launch_flags, plan_keywords
from charllm.cli.program_flags import add_program_flags, program_keywords
from charllm.measure.finish import stopped_early
from charllm.measure.job import Job
from charllm.measure.launch import AFTER_S
from charllm.measure.launchers.plan import LOCAL
from charllm.profile import DEFAULT_FIRST
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the recording (default charllm-runs/TIME)")
    parser.add_argument("--rate", type=float, default=100.0, metavar="HZ", help="readings per second (default 100)")
    sources = "auto|nvml|amdsmi|replay:FOLDER|none"
    parser.add_argument("--telemetry", default="auto", metavar=sources, help="source of the readings")
    parser.add_argument(
        "--host",
        default="auto",
        metavar="auto|none|redfish:FILE",
        help="readings of CPUs, memory, NICs, disks and sensors of the machine, once per second (default auto)",
    )
    parser.add_argument(
        "--idle", type=float, default=2.0, metavar="S", help="idle seconds recorded before the command (default 2)"
    )
    parser.add_argument(
        "--cooldown",
        type=float,
        default=AFTER_S,
        metavar="S",
        help=f"seconds recorded after the command (default {AFTER_S:g})",
    )
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="number of times to run the command (default 1)"
    )
    parser.add_argument("--watch", action="store_true", help="show power, clock and temperature while it runs")
    parser.add_argument(
        "--prometheus",
        metavar="[HOST:]PORT",
        help="serve metrics for Prometheus while it runs (default host 127.0.0.1)",
    )
    parser.add_argument(
        "--profile",
        metavar="STEPS[@FIRST]",
        help="record a Kineto trace of this many steps that the command marks (charllm.mark.step), after the first "
        f"FIRST (default {DEFAULT_FIRST}); counters are then read at each of their steps",
    )
    parser.add_argument(
        "--preflight", action="store_true", help="check the machine first; run nothing if a check fails"
    )
    add_launch_flags(parser)
    parser.add_argument(
        "--submit-only",
        action="store_true",
        help="with slurm: submit, print the job's number and exit; complete the run with charllm show",
    )
    add_program_flags(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print what was found to stderr, and return the command's own exit code."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    folder = run_folder(arguments.out)
    names = ("rate", "telemetry", "host", "idle", "cooldown", "repeats", "watch", "prometheus", "profile")
    settings = {name: getattr(arguments, name) for name in names}
    program = build_program(command, folder, **program_keywords(arguments))
    job = build_program_job(program, folder, plan_keywords(arguments), **settings)
    if arguments.preflight:
        require_fit(job)
    if job.plan.submit_only:
        return _submit(job)
    result, code = run_job(job)
    failure = result.provenance["measurement"].get("failure")
    if failure is not None and job.plan.launcher != LOCAL:
        print(f"charllm: {failure['message']}", file=sys.stderr)
    for warning in stopped_early(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    print(_headline(result, job.folder), file=sys.stderr)
    return code


def _submit(job: Job) -> int:
    print(submit_job(job).removeprefix("job "))
    print(f"charllm: submitted; when it has ended: charllm show {job.folder}", file=sys.stderr)
    return 0


def _headline(result: RunResult, folder: Path) -> str:
    metrics = result.metrics
    parts = [
        f"{metrics[name]:.4g} {unit}"
        for name, unit in (
            ("step_time_s", "s per step"),
            ("power_mean_w", "W"),
            ("temperature_peak_c", "C peak"),
            ("tokens_per_j", "tokens per joule"),
            ("node_power_mean_w", "W per node"),
        )
        if metrics[name] is not None
    ]
    return f"charllm: {', '.join(parts) or 'nothing was read'}; recorded in {folder}"
