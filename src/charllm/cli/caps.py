"""Show the step time, energy and cost of one run under power or clock caps, with the knee marked; needs no GPU.

The knee is the cap with the lowest energy x time of a step: beyond it, saving 1 % of energy costs more than 1 % of
time. With --per stage each pipeline stage gets its own cap: stages that wait for others run slower without making the
step longer. Every point is a full simulation. Exit codes: 0 done, 2 the request is wrong, 3 it does not fit in
memory.
"""

import argparse

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as, show
from charllm.cli.plots import pen
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.spec.flags import read_keywords

EXAMPLES = (
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --clock --at 1980,1600,1400,1200 --plots",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --at 700,600,500 --tariff gpu_per_hour=0 --csv",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --pp 2 --gbs 16 --clock --per stage",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.plan.settings import CapsSettings

    add_spec_flags(parser)
    add_flags(parser.add_argument_group("caps"), CapsSettings)
    add_format_flags(parser, table="a row for each point")
    parser.add_argument("--plots", action="store_true", help="draw the points as text, instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Simulate every point, and print."""
    from charllm.api.caps import advise_caps
    from charllm.plan.settings import CapsSettings
    from charllm.report.page.caps import caps_figure
    from charllm.report.plots.draw import draw_figure

    settings = read_keywords(CapsSettings, given(arguments, CapsSettings))
    found = advise_caps(request_from(arguments), settings, track)
    if arguments.plots and not (arguments.json or arguments.csv):
        show(draw_figure(caps_figure(found.table), pen()))
    else:
        print_as(arguments, found.table, lambda: str(found), lambda: found.points)
    return 0
