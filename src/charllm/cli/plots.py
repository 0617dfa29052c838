"""Plots in the terminal: the figures of the HTML report, drawn in characters.

Pages are imported where they are asked for: a command that prints tables does not wait for them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from charllm.cli.output import has_colour
from charllm.cli.progress import track
from charllm.errors import unknown_name
from charllm.report.tables import terminal_columns

if TYPE_CHECKING:
    from charllm.report.figure import Figure, Page
    from charllm.report.plots.pen import Pen
    from charllm.result.result import RunResult
    from charllm.simulate.predict import Simulation
    from charllm.sweep.outcome import StudyResult

RUN_PLOTS = ("seconds", "when", "heat", "memory")
STUDY_PLOTS = ("strategies", "pareto")
COMPARED_PLOTS = ("sides",)
"""Figures that --plots draws: the first ones a reader asks for, and quick to compute."""
EVERY = "all"


def add_plot_flags(parser: argparse.ArgumentParser) -> None:
    """Add --plots, and --plot for single figures."""
    group = parser.add_argument_group("plots")
    group.add_argument("--plots", action="store_true", help="draw the main figures as text, instead of tables")
    group.add_argument(
        "--plot",
        action="append",
        metavar="NAME",
        help="draw this figure of the HTML report as text (may be repeated; all: every figure)",
    )


def wants_plots(arguments: argparse.Namespace) -> bool:
    """Tell whether figures were asked for."""
    return bool(arguments.plots or arguments.plot)


def draw_simulation(arguments: argparse.Namespace, found: Simulation) -> str:
    """Return the figures of a fresh simulation."""
    from charllm.analysis.comment import ask_what_if
    from charllm.api.report import page_of
    from charllm.report.page.run import run_page
    from charllm.report.page.view import RunView

    quick = partial(run_page, RunView(found.result))
    return _draw(arguments, RUN_PLOTS, quick, lambda: page_of(ask_what_if(found, track)))


def draw_stored(arguments: argparse.Namespace, result: RunResult, folder: Path) -> str:
    """Return the figures of a stored run; the main ones of a simulated run need no simulation."""
    from charllm.api.report import page_of, view_run
    from charllm.report.page.run import run_page
    from charllm.report.page.view import RunView

    def quick() -> Page:
        return run_page(RunView(result) if result.origin == "simulated" else view_run(result, folder))

    return _draw(arguments, RUN_PLOTS, quick, lambda: page_of(folder, track))


def draw_study(arguments: argparse.Namespace, found: StudyResult, folder: Path | None) -> str:
    """Return the figures of a study, stored in a folder or not."""
    from charllm.api.report import page_of
    from charllm.api.report_study import sweep_page
    from charllm.api.study import Sweep

    swept = Sweep(found.study, found.outcomes)
    return _draw(arguments, STUDY_PLOTS, lambda: sweep_page(swept), lambda: page_of(folder or swept, track))


def draw_comparison(arguments: argparse.Namespace, folders: Sequence[Path]) -> str:
    """Return the figures of runs side by side."""
    from charllm.api.report import page_of

    return _draw(arguments, COMPARED_PLOTS, lambda: page_of(folders), lambda: page_of(folders))


def _draw(
    arguments: argparse.Namespace, main: Sequence[str], quick: Callable[[], Page], whole: Callable[[], Page]
) -> str:
    """Return the figures that were asked for: the main ones of a page that is quick to make, or any of a whole one."""
    from charllm.report.plots.draw import draw_figure

    page = whole() if arguments.plot else quick()
    figures = {figure.name: figure for section in page.sections for figure in section.figures}
    return "\n\n".join(draw_figure(figures[name], pen()) for name in _names(arguments, main, figures))


def _names(arguments: argparse.Namespace, main: Sequence[str], figures: dict[str, Figure]) -> list[str]:
    if EVERY in (arguments.plot or ()):
        return list(figures)
    for name in arguments.plot or ():
        if name not in figures:
            raise unknown_name("--plot", name, (*figures, EVERY))
    wanted = [*(main if arguments.plots else ()), *(arguments.plot or ())]
    return [name for name in dict.fromkeys(wanted) if name in figures]


def pen() -> Pen:
    """Return what standard output can show."""
    from charllm.report.plots.pen import Pen, can_show_blocks

    return Pen(terminal_columns(), can_show_blocks(sys.stdout.encoding), has_colour())
