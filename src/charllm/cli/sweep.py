"""Simulate every case of a study: a name from `charllm catalog studies`, or a TOML file.

With --out each case is stored as it ends. A sweep that was interrupted or killed goes on with --resume and ends with
the same table as an undisturbed one. `charllm show DIR` prints the table again.
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path

from charllm.cli import INTERRUPTED
from charllm.cli.output import show
from charllm.cli.progress import track
from charllm.errors import CharllmError, SpecError
from charllm.report.study import render_study
from charllm.report.tables import to_csv
from charllm.sweep.folder import read_cases
from charllm.sweep.outcome import StudyResult
from charllm.sweep.run import run_study
from charllm.sweep.study import Study, load_study

EXAMPLES = (
    "charllm catalog studies",
    "charllm sweep charllm-ppt-parallelism",
    "charllm sweep my_study.toml --workers 2 --out runs/my_study",
    "charllm sweep my_study.toml --out runs/my_study --resume",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("study", metavar="STUDY", help="name of a study in the catalog, or FILE.toml")
    parser.add_argument("--runner", choices=["local"], default="local", help="where the cases run")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes to use (default 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="store every case in this folder as it ends")
    parser.add_argument("--resume", action="store_true", help="continue the sweep in --out")
    parser.add_argument(
        "--signals", action="store_true", help="store power, temperature and clock over time of every case, too"
    )
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
    return shlex.join(words)
