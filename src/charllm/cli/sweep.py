"""Simulate or measure every case of a study: a name from `charllm catalog studies`, or a TOML file.

With --out each case is stored as it ends. --resume continues an interrupted or killed sweep, on any runner, and ends
with the same table as an uninterrupted one. `charllm show DIR` prints the table again, `charllm query DIR` runs SQL
over it. Cases are simulated by processes of this machine, by Slurm array jobs (--runner slurm) or by Ray (--runner
ray).

With --measure every case is run and measured, one after another, on this machine or on nodes of a Slurm cluster, by
the reference trainer or by a --command in which {spec}, {case}, {number} and {steps} are filled in.
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path

from charllm.api.study import MEASURING, build_engine, refine_study
from charllm.cli import INTERRUPTED
from charllm.cli.launch_flags import KEYWORDS as PLAN
from charllm.cli.launch_flags import add_launch_flags, plan_keywords
from charllm.cli.output import show
from charllm.cli.plots import add_plot_flags, draw_study, wants_plots
from charllm.cli.progress import track
from charllm.errors import CharllmError, SpecError
from charllm.measure.adapters import ADAPTERS
from charllm.measure.launch import AFTER_S
from charllm.report.study import render_study
from charllm.report.tables import to_csv
from charllm.sweep.folder import read_cases
from charllm.sweep.measured import DEFAULT_STEPS, TRAINER, Measuring
from charllm.sweep.outcome import StudyResult
from charllm.sweep.run import run_study
from charllm.sweep.runners import RUNNERS
from charllm.sweep.runners.slurm import DEFAULT_WORKERS
from charllm.sweep.runners.work import Engine
from charllm.sweep.sampling import METHODS
from charllm.sweep.study import Study, read_study

SELECTING = ("where", "repeats", "sample", "sample_method", "sample_seed")
RUNNING = ("runner", "workers", "address")
"""Keywords of `charllm.sweep`: which cases are run, and where they are simulated."""

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
    parser.add_argument("study", metavar="STUDY", help="name of a study in the catalog, or FILE.toml")
    parser.add_argument(
        "--runner",
        choices=list(RUNNERS),
        default="local",
        help="where cases are simulated: processes of this machine (default), Slurm array jobs, or Ray",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help=f"cases to run at the same time (default: local 1, slurm {DEFAULT_WORKERS}, ray all CPUs)",
    )
    parser.add_argument("--address", metavar="ADDRESS", help="Ray cluster to join (default: start Ray on this machine)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="store every case in this folder as it ends")
    parser.add_argument("--resume", action="store_true", help="continue the sweep in --out")
    parser.add_argument(
        "--signals", action="store_true", help="also store power, temperature and clock over time of every case"
    )
    group = parser.add_argument_group("which cases")
    group.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="'TEXT'",
        help="keep only cases that meet this constraint, such as 'tp*pp <= 32'",
    )
    group.add_argument("--sample", type=int, metavar="N", help="draw a sample of N cases")
    group.add_argument("--sample-method", choices=list(METHODS), help="sampling method (default random)")
    group.add_argument("--sample-seed", type=int, metavar="N", help="seed of the sample (default 0)")
    group.add_argument("--repeats", type=int, metavar="N", help="run each case with N seeds")
    group = parser.add_argument_group("measured cases")
    group.add_argument("--measure", action="store_true", help="run and measure every case instead of simulating it")
    group.add_argument("--command", metavar="'WORDS'", help=f"command to run for each case (default {TRAINER!r})")
    programs = ", ".join(ADAPTERS)
    group.add_argument(
        "--adapter", choices=list(ADAPTERS), metavar="NAME", help=f"training program to run instead: {programs}"
    )
    group.add_argument("--script", metavar="FILE", help="the training script of that program")
    group.add_argument("--steps", type=int, metavar="N", help=f"steps of a case (default {DEFAULT_STEPS})")
    group.add_argument("--telemetry", metavar="SOURCE", help="source of the readings, as in charllm measure")
    group.add_argument("--rate", type=float, metavar="HZ", help="readings per second (default 100)")
    group.add_argument("--idle", type=float, metavar="S", help="idle seconds recorded before each case (default 2)")
    group.add_argument(
        "--cooldown", type=float, metavar="S", help=f"seconds recorded after each case (default {AFTER_S:g})"
    )
    add_launch_flags(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the outcomes as JSON, one case per line")
    form.add_argument("--csv", action="store_true", help="print every column of the table as CSV")
    add_plot_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the study and print the outcome of each case; exit 1 where cases failed, 130 when interrupted."""
    study = refine_study(*read_study(arguments.study), **{name: getattr(arguments, name) for name in SELECTING})
    engine, measuring = _engine(arguments)
    # A batch system ends a job by SIGTERM: the same as an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = run_study(
            study,
            engine=engine,
            out=arguments.out,
            resume=arguments.resume,
            signals=arguments.signals,
            measuring=measuring,
            progress=track,
            show=lambda text: print(f"charllm: {text}", file=sys.stderr),
        )
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


def _engine(arguments: argparse.Namespace) -> tuple[Engine, Measuring | None]:
    where = plan_keywords(arguments)
    how = {name: getattr(arguments, name) for name in (*MEASURING, *RUNNING)}
    return build_engine(measure=arguments.measure, **where, **how)


def print_outcomes(result: StudyResult, arguments: argparse.Namespace, folder: Path | None) -> None:
    """Print the cases of a study, stored in a folder or not: a table, figures, lines of JSON or CSV."""
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
    if arguments.out is None:
        return "nothing is stored without --out DIR"
    stored = len(read_cases(arguments.out, study))
    return f"{stored} of {len(study.cases)} cases are stored in {arguments.out}; continue with: {_resume(arguments)}"


def _resume(arguments: argparse.Namespace) -> str:
    words = ["charllm", "sweep", arguments.study, "--out", str(arguments.out), "--resume"]
    words += ["--signals"] if arguments.signals else []
    words += ["--measure"] if arguments.measure else []
    for name in (*SELECTING, *RUNNING, *PLAN, *MEASURING):
        value = getattr(arguments, name, None)
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [word for line in value for word in (flag, line)]
        elif value not in (None, False, "", "local"):
            words += [flag, str(value)]
    return shlex.join(words)
