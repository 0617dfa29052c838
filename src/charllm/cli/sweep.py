"""Simulate or measure every case of a study: a name from `charllm catalog studies`, or a TOML file.

With --out each case is stored as it ends. --resume continues an interrupted or killed sweep, on any runner, and ends
with the same table as an uninterrupted one. `charllm show DIR` prints the table again, `charllm query DIR` runs SQL
over it. Cases are simulated by processes of this machine, by Slurm array jobs (--runner slurm) or by Ray (--runner
ray).

With --measure every case is run and measured, one after another, on this machine or on nodes of a Slurm cluster, by
the reference trainer or by a --command in which {spec}, {case}, {number} and {steps} are filled in.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from charllm.cli import INTERRUPTED
from charllm.cli.flags import add_flags, given, spell
from charllm.cli.output import show
from charllm.cli.plots import add_plot_flags, draw_study, wants_plots
from charllm.cli.progress import track
from charllm.errors import CharllmError, SpecError
from charllm.measure.launchers.plan import Plan
from charllm.measure.settings import MeasureSettings
from charllm.report.tables import to_csv
from charllm.sweep.settings import Selection, SweepSettings

if TYPE_CHECKING:
    from charllm.sweep.outcome import StudyResult
    from charllm.sweep.study import Study

EXAMPLES = (
    "charllm catalog studies",
    "charllm sweep charllm-ppt-parallelism",
    "charllm sweep my_study.toml --workers 2 --out runs/my_study",
    "charllm sweep my_study.toml --out runs/my_study --resume --plots",
    "charllm sweep my_study.toml --where 'cap < 700' --sample 4 --sample-method latin",
    "charllm sweep my_study.toml --runner slurm --partition cpu --workers 64 --out runs/my_study --resume",
    "charllm sweep my_study.toml --measure --launcher slurm --gpus-per-node 8 --out runs/measured",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.sweep.measured import Measuring
    from charllm.sweep.runners.work import Engine

    parser.add_argument("study", metavar="STUDY", help="name of a study in the catalog, or FILE.toml")
    add_flags(parser, SweepSettings)
    add_flags(parser, Engine)
    add_flags(parser.add_argument_group("which cases"), Selection)
    group = parser.add_argument_group("measured cases")
    add_flags(group, Measuring)
    add_flags(group, MeasureSettings)
    add_flags(parser.add_argument_group("where they run"), Plan, without=("submit_only",))
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the outcomes as JSON, one case per line")
    form.add_argument("--csv", action="store_true", help="print every column of the table as CSV")
    add_plot_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the study and print the outcome of each case; exit 1 where cases failed, 130 when interrupted."""
    from charllm.api.study import SETTINGS, read_sweep
    from charllm.sweep.study import read_study

    sweeping = read_sweep(given(arguments, *SETTINGS))
    study = sweeping.selection.select(*read_study(arguments.study))
    # A batch system ends a job by SIGTERM: the same as an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = sweeping.run(study, progress=track, show=lambda text: print(f"charllm: {text}", file=sys.stderr))
    except KeyboardInterrupt:
        print(f"charllm: interrupted; {_stored(study, arguments)}", file=sys.stderr)
        return INTERRUPTED
    except CharllmError as error:
        if not isinstance(error, SpecError):
            print(f"charllm: stopped; {_stored(study, arguments)}", file=sys.stderr)
        raise
    print_outcomes(result, arguments, arguments.out)
    rejected = sum(outcome.exit_code != 0 for outcome in result.outcomes) - len(result.failed)
    print(f"charllm: {len(result.outcomes)} cases, {rejected} rejected", file=sys.stderr)
    if result.failed:
        again = f"; try again with: {_resume(arguments)}" if arguments.out else ""
        print(f"charllm: {len(result.failed)} of them failed{again}", file=sys.stderr)
    return 1 if result.failed else 0


def print_outcomes(result: StudyResult, arguments: argparse.Namespace, folder: Path | None) -> None:
    """Print the cases of a study, stored in a folder or not: a table, figures, lines of JSON or CSV."""
    from charllm.report.study import render_study

    if arguments.json:
        print("\n".join(outcome.to_line() for outcome in result.outcomes))
    elif arguments.csv:
        print(to_csv(result.rows))
    elif wants_plots(arguments):
        show(draw_study(arguments, result, folder))
    else:
        show(render_study(result.study, result.outcomes))
    sys.stdout.flush()


def _stored(study: Study, arguments: argparse.Namespace) -> str:
    from charllm.sweep.folder import read_cases

    if arguments.out is None:
        return "nothing is stored without --out DIR"
    stored = len(read_cases(arguments.out, study))
    return f"{stored} of {len(study.cases)} cases are stored in {arguments.out}; continue with: {_resume(arguments)}"


def _resume(arguments: argparse.Namespace) -> str:
    from charllm.api.study import SETTINGS

    words = {**given(arguments, *SETTINGS), "resume": True}
    return shlex.join(["charllm", "sweep", arguments.study, *spell(words, *SETTINGS)])
