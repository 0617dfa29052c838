"""Show the step time, energy and cost of one run under power or clock caps, with the knee marked; needs no GPU.

The knee is the cap with the lowest energy x time of a step: beyond it, saving 1 % of energy costs more than 1 % of
time. With --per stage each pipeline stage gets its own cap: stages that wait for others run slower without making the
step longer. Every point is a full simulation. Exit codes: 0 done, 2 the request is wrong, 3 it does not fit in
memory.
"""

import argparse

from charllm.cli.economics_flags import add_tariff_flag, read_pairs
from charllm.cli.output import add_format_flags, print_as, show
from charllm.cli.plots import pen
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import SpecError
from charllm.spec.request import parse_value

EXAMPLES = (
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --clock --at 1980,1600,1400,1200 --plots",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --gbs 32 --at 700,600,500 --tariff gpu_per_hour=0 --csv",
    "charllm caps --model llama3-8b --cluster h200x8 --tp 2 --pp 2 --gbs 16 --clock --per stage",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.api.caps import PER

    add_spec_flags(parser)
    group = parser.add_argument_group("caps")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--power", action="store_true", help="power caps (default)")
    kind.add_argument("--clock", action="store_true", help="clock caps")
    group.add_argument(
        "--per", choices=PER, default="gpu", help="one cap for every GPU, or one for each pipeline stage"
    )
    group.add_argument("--at", metavar="W,W,...", help="caps to try, in W or MHz (default: over the GPU's range)")
    group.add_argument("--ignore-memory", action="store_true", help="continue even if the run does not fit in memory")
    add_tariff_flag(group)
    add_format_flags(parser, table="a row for each point")
    parser.add_argument("--plots", action="store_true", help="draw the points as text, instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Simulate every point, and print."""
    from charllm.api.caps import advise_caps
    from charllm.api.economics import build_economics
    from charllm.plan.caps import Judge
    from charllm.report.page.caps import caps_figure
    from charllm.report.plots.draw import draw_figure

    economics = build_economics(read_pairs(arguments.tariff, "--tariff"))
    found = advise_caps(
        request_from(arguments),
        Judge(economics, arguments.ignore_memory),
        power=arguments.power,
        clock=arguments.clock,
        per=arguments.per,
        at=_caps(arguments.at),
        track=track,
    )
    if arguments.plots and not (arguments.json or arguments.csv):
        show(draw_figure(caps_figure(found.table), pen()))
    else:
        print_as(arguments, found.table, lambda: repr(found), lambda: found.points)
    return 0


def _caps(text: str | None) -> list[float]:
    values = [parse_value(word) for word in text.split(",")] if text else []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError("--at", text, "numbers separated by commas, e.g. 700,600,500")
    return values
