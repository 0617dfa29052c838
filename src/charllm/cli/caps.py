"""Show the step time, energy and cost of one run under power or clock caps, with the knee marked; needs no GPU.

The knee is the cap with the lowest energy x time of a step: beyond it, saving 1 % of energy costs more than 1 % of
time. With --per stage each pipeline stage gets its own cap: stages that wait for others run slower without making the
step longer. Every point is a full simulation.

With --apply the command behind -- then runs on this machine with its GPUs at the knee, as by `charllm apply`: limits
are put back at its end, and at once where it is slower than the table promises. The table goes to stderr.

Exit codes: 0 done, 2 the request is wrong, 3 it does not fit in memory; with --apply those of the command.
"""

import argparse
import sys
from contextlib import redirect_stdout

from charllm.cli.apply import add_job_flags, check_job, run_job
from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as, show
from charllm.cli.plots import pen
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import SpecError, Words
from charllm.spec.flags import read_keywords

EXAMPLES = (
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --clock --at 1980,1600,1400,1200 --plots",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --at 700,600,500 --tariff gpu_per_hour=0 --csv",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --pp 2 --gbs 16 --clock --per stage",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --apply --dry-run",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --apply -- torchrun train.py",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.plan.settings import CapsSettings

    add_spec_flags(parser)
    add_flags(parser.add_argument_group("caps"), CapsSettings)
    add_format_flags(parser, table="a row for each point")
    parser.add_argument("--plots", action="store_true", help="draw the points as text, instead of a table")
    parser.add_argument("--apply", action="store_true", help="run the command behind -- with GPUs at the knee")
    add_job_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Simulate every point, and print; run a command at the knee where that was asked for."""
    from charllm.api.caps import advise_caps
    from charllm.api.limits import take_knee
    from charllm.plan.settings import CapsSettings
    from charllm.report.page.caps import caps_figure
    from charllm.report.plots.draw import draw_figure

    settings = read_keywords(CapsSettings, given(arguments, CapsSettings))
    _check_apply(arguments, settings.per)
    found = advise_caps(request_from(arguments), settings, track)
    # The standard output of --apply is that of the command, or of --dry-run.
    with redirect_stdout(sys.stderr if arguments.apply else sys.stdout):
        if arguments.plots and not (arguments.json or arguments.csv):
            show(draw_figure(caps_figure(found.table), pen()))
        else:
            print_as(arguments, found.table, lambda: str(found), lambda: found.points)
    if not arguments.apply:
        return 0
    limits, promised = take_knee(found.table, arguments.knee, "caps")
    if len(found.points) > 1 and found.table["knees"][arguments.knee] == 0:
        told = Words(f"{arguments.knee} at the highest cap, which saves nothing")
        raise SpecError("--apply", told, "a knee below it; --at with a single cap applies that one")
    return run_job(arguments, limits, promised)


def _check_apply(arguments: argparse.Namespace, per: str) -> None:
    """Refuse what cannot be applied before anything is simulated."""
    from charllm.api.limits import ALIKE
    from charllm.plan.settings import PER_STAGE

    if not arguments.apply:
        if arguments.behind or arguments.dry_run or arguments.out:
            raise SpecError("--apply", Words("nothing"), "--apply where a command, --dry-run or --out is given")
        return
    if per == PER_STAGE:
        raise SpecError("--apply", "--per stage", ALIKE)
    if arguments.json or arguments.csv:
        raise SpecError("--apply", "--json" if arguments.json else "--csv", "no format: stdout is the command's")
    check_job(arguments)
