"""Simulate or measure every case of a study: a name from `charllm catalog studies`, or a TOML file.

With --out each case is stored as it ends. A sweep that was interrupted or killed goes on with --resume and ends with
the same table as an undisturbed one. `charllm show DIR` prints the table again.

With --measure every case is run for real, one after another, on this machine or on nodes of a Slurm cluster, by the
reference trainer or by a --command in which {spec}, {case}, {number} and {steps} are filled in.
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path

from charllm.api.study import MEASURING, build_measuring
from charllm.cli import INTERRUPTED
from charllm.cli.launch_flags import KEYWORDS as PLAN
from charllm.cli.launch_flags import add_launch_flags, plan_keywords
from charllm.cli.output import show
from charllm.cli.progress import track
from charllm.errors import CharllmError, SpecError
from charllm.measure.launch import AFTER_S
from charllm.report.study import render_study
from charllm.report.tables import to_csv
from charllm.sweep.folder import read_cases
from charllm.sweep.measured import DEFAULT_STEPS, TRAINER, Measuring
from charllm.sweep.outcome import StudyResult
from charllm.sweep.run import run_study
from charllm.sweep.study import Study, load_study

EXAMPLES = (
    "charllm catalog studies",
    "charllm sweep charllm-ppt-parallelism",
    "charllm sweep my_study.toml --workers 2 --out runs/my_study",
    "charllm sweep my_study.toml --out runs/my_study --resume",
    "charllm sweep my_study.toml --measure --launcher slurm --gpus-per-node 8 --out runs/measured",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("study", metavar="STUDY", help="name of a study in the catalog, or FILE.toml")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes to use (default 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="store every case in this folder as it ends")
    parser.add_argument("--resume", action="store_true", help="continue the sweep in --out")
    parser.add_argument(
        "--signals", action="store_true", help="store power, temperature and clock over time of every case, too"
    )
    group = parser.add_argument_group("measured cases")
    group.add_argument("--measure", action="store_true", help="run every case for real instead of simulating it")
    group.add_argument("--command", metavar="'WORDS'", help=f"what to run for a case (default {TRAINER!r})")
    group.add_argument("--steps", type=int, metavar="N", help=f"steps of a case (default {DEFAULT_STEPS})")
    group.add_argument("--telemetry", metavar="SOURCE", help="source of the readings, as of charllm measure")
    group.add_argument("--rate", type=float, metavar="HZ", help="readings per second (default 100)")
    group.add_argument("--idle", type=float, metavar="S", help="idle seconds recorded before each case (default 2)")
    group.add_argument(
        "--cooldown", type=float, metavar="S", help=f"seconds recorded after each case (default {AFTER_S:g})"
    )
    add_launch_flags(parser, "--launcher", "--runner")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the outcomes as JSON, one case per line")
    form.add_argument("--csv", action="store_true", help="print every column of the table as CSV")


def run(arguments: argparse.Namespace) -> int:
    """Run the study and print the outcome of each case; exit 1 where cases failed, 130 when interrupted."""
    study = load_study(arguments.study)
    # A batch system ends a job by SIGTERM: the same as an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = run_study(
            study,
            workers=arguments.workers,
            out=arguments.out,
            resume=arguments.resume,
            signals=arguments.signals,
            measuring=_measuring(arguments),
            progress=track,
        )
    except KeyboardInterrupt:
        print(f"charllm: interrupted; {_stored(study, arguments)}", file=sys.stderr)
        return INTERRUPTED
    except CharllmError as error:
        if not isinstance(error, SpecError):
            print(f"charllm: stopped; {_stored(study, arguments)}", file=sys.stderr)
        raise
    print_outcomes(result, arguments)
    rejected = sum(outcome.exit_code != 0 for outcome in result.outcomes) - len(result.failed)
    print(f"charllm: {len(result.outcomes)} cases, {rejected} rejected", file=sys.stderr)
    if result.failed:
        again = f"; try again with: {_resume(arguments)}" if arguments.out else ""
        print(f"charllm: {len(result.failed)} of them failed{again}", file=sys.stderr)
    return 1 if result.failed else 0


def _measuring(arguments: argparse.Namespace) -> Measuring | None:
    where = plan_keywords(arguments)
    how = {name: getattr(arguments, name) for name in MEASURING}
    return build_measuring(measure=arguments.measure, **where, **how)


def print_outcomes(result: StudyResult, arguments: argparse.Namespace) -> None:
    """Print the cases as a table, as lines of JSON or as CSV."""
    if arguments.json:
        print("\n".join(outcome.to_line() for outcome in result.outcomes))
    elif arguments.csv:
        print(to_csv(result.rows))
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
    words += ["--workers", str(arguments.workers)] if arguments.workers > 1 else []
    words += ["--signals"] if arguments.signals else []
    words += ["--measure"] if arguments.measure else []
    for name in (*PLAN, *MEASURING) if arguments.measure else ():
        value = getattr(arguments, name, None)
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [word for line in value for word in (flag, line)]
        elif value not in (None, False, "", "local"):
            words += [flag, str(value)]
    return shlex.join(words)
