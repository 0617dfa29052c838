"""Write a run as a launch script of Megatron-LM, a YAML of NeMo, a TOML of torchtitan, or a batch job of Slurm.

The run is a SPEC file, the folder of a stored run, flags, or all of them. `--from FILE` reads the file back as the
same run. A setting for which the program has no argument is refused. Conditions outside the program (power limits,
and with NeMo and torchtitan the placement) are listed as a comment and a warning. Exit codes: 0 done, 2 the request
is wrong or would train another run.
"""

import argparse
import sys
from pathlib import Path

from charllm.cli.spec_flags import add_spec_flags, keywords_from

EXAMPLES = (
    "charllm export --to megatron --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --layers-per-stage 19,21x2,19",
    "charllm export --to nemo --model mixtral-8x7b --cluster h200x32 --ep 8 --pp 4 -o run.yaml",
    "charllm export --to torchtitan --model llama3-8b --cluster h100x8 --fsdp",
    "charllm export --to sbatch --measure --model llama3-70b --cluster h200x32 --tp 8 -o job.sbatch",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.measure.adapters.adapter import DEFAULT_STEPS
    from charllm.spec.programs import TARGETS

    parser.add_argument("--to", required=True, metavar="|".join(TARGETS), help="format to write")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="file to write to (default: standard output)")
    group = parser.add_argument_group("the job (with megatron and sbatch)")
    group.add_argument("--script", metavar="FILE", help="training script of the program (default: its own)")
    group.add_argument("--steps", type=int, metavar="N", help=f"steps to train (default {DEFAULT_STEPS})")
    group.add_argument(
        "--measure", action="store_true", help="with sbatch: record the job (needs charllm on every node)"
    )
    add_spec_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Export, print or write, and say what is left out."""
    from charllm.api.export import export

    names = ("to", "out", "script", "steps", "measure")
    words = {name: getattr(arguments, name) for name in names}
    found = export(arguments.spec, **words, **keywords_from(arguments))
    if arguments.out is None:
        print(found.text, end="")
    for warning in found.warnings:
        print(f"charllm: {warning}", file=sys.stderr)
    return 0
