"""Run the cases of a study for real, one after another, each a measured run in the folder of its case.

A case is recorded beside its place (`runs/.0003`) and moved there when it has ended. One that failed for a reason that
lies outside it (a lost node, a crash, a time-out) stays where it was recorded until the study is continued.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.errors import CharllmError, DoesNotFit, SpecError
from charllm.measure.adapters.programs import ADAPTERS
from charllm.measure.launchers.plan import LOCAL, LOCALLY, SLURM, TORCHRUN, Plan, fill_template
from charllm.measure.redaction import redact_shell_words
from charllm.measure.settings import AS_USUAL, MOST_STEPS, MeasureSettings
from charllm.result.files import CASE_FILE
from charllm.result.metrics import Metrics
from charllm.result.result import RunResult
from charllm.result.store import explain, save_folder, write_text
from charllm.spec.fields import choice, count, line
from charllm.spec.flags import check_flags
from charllm.spec.request import Table
from charllm.spec.run import RunSpec
from charllm.sweep.case import Task
from charllm.sweep.outcome import FAILED, Outcome, summarise

if TYPE_CHECKING:
    from charllm.measure.adapters.adapter import Program
    from charllm.measure.job import Job

TRAINER = "charllm train {spec} --steps {steps}"
"""The reference trainer on the case's spec."""
SPEC_FILE = "case.toml"
INVALID = SpecError.exit_code
VERDICTS = {"out_of_memory": DoesNotFit.exit_code, "refused": INVALID}
"""Kind of failure that lies in the case itself: its exit code."""
BARE_KEY = re.compile(r"^[A-Za-z0-9_-]+$")


@dataclass(frozen=True, slots=True)
class Measuring:
    """How the cases of a study are measured."""

    command: str = line(
        "command to run for each case, in which {spec}, {case}, {number} and {steps} are filled in",
        TRAINER, flag="--command 'WORDS'",
    )  # fmt: skip
    adapter: str | None = choice(
        f"training program to run instead: {', '.join(ADAPTERS)}", tuple(ADAPTERS), None, flag="--adapter NAME"
    )
    script: str | None = line("the training script of that program", None, flag="--script FILE")
    steps: int = count("steps of a case", 1, MOST_STEPS, 50)
    plan: Plan = LOCALLY
    settings: MeasureSettings = AS_USUAL
    environment: Mapping[str, str] = field(default_factory=dict)
    """What commands are started with."""

    def __post_init__(self) -> None:
        check_flags(self)
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise SpecError("--command", self.command, f"words as of a shell ({error})") from None
        if not words:
            raise SpecError("--command", "nothing", f"the words of a command, such as {TRAINER!r}")

    def as_table(self) -> dict[str, Any]:
        """Return what the outcomes of a study depend on."""
        command = redact_shell_words(self.command, self.environment)
        return {
            "launcher": self.plan.launcher,
            "ranks_per_node": self.plan.ranks_per_node,
            "command": command if self.adapter is None else f"{self.adapter} {self.script or ''}".strip(),
            "steps": self.steps,
        }


def prepare(out: Path) -> None:
    """End what a sweep that was killed has left running: its jobs would write where the next ones do."""
    from charllm.measure.launchers.slurm import cancel_left
    from charllm.measure.record import read_job

    for place in (out / "runs").glob(".*/job.json"):
        cancel_left(read_job(place.parent))


def measure_case(task: Task, number: int, measuring: Measuring) -> Outcome:
    """Measure a case and store it; only what goes wrong with the storing is an error."""
    from charllm.catalog.resolve import resolve_run
    from charllm.measure.adapters.programs import with_program, write_files
    from charllm.measure.job import Job

    if task.folder is None:
        raise SpecError("--measure", "no folder", "--out DIR")
    case, adapter = task.case, measuring.adapter
    draft = task.folder.with_name(f".{task.folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        run = resolve_run(case.request if adapter is None else with_program(adapter, case.request))
        plan = place_ranks(run, measuring.plan)
        program = None if adapter is None else _program(run, draft, measuring)
    except CharllmError as error:
        outcome = Outcome(case.name, error.exit_code, str(error), summarise(case, None))
        save_folder(task.folder, {CASE_FILE: outcome.to_line()}, {})
        return outcome
    spec = draft.with_suffix(".toml")
    try:
        write_text(to_toml(case.request), spec)
        values = {"spec": spec.absolute(), "case": case.name, "number": number, "steps": measuring.steps}
        words = tuple(fill_template(shlex.split(measuring.command), values))
        if program is not None:
            write_files(program)
        job = Job(
            words if program is None else program.command,
            draft,
            measuring.settings,
            plan,
            spec=run.as_table(),
            program=program,
        )
        outcome = _judge(task, *_measure(job, measuring.environment))
        if outcome.exit_code == FAILED:
            return outcome
        spec.replace(draft / SPEC_FILE)
        write_text(outcome.to_line(), draft / CASE_FILE)
        draft.rename(task.folder)
    except OSError as error:
        raise explain(task.folder, error) from None
    return outcome


def _program(run: RunSpec, folder: Path, measuring: Measuring) -> Program:
    """Return the program that trains a case."""
    from charllm.measure.adapters.adapter import Request
    from charllm.measure.adapters.programs import beside, prepare_program

    request = Request(
        run=run, script=measuring.script, steps=measuring.steps, config=beside(folder), python=sys.executable
    )
    return prepare_program(measuring.adapter or "", request)


def _measure(job: Job, environment: Mapping[str, str]) -> tuple[RunResult | None, str, int]:
    """Return the run, or why there is none, and the exit code."""
    from charllm.measure.job import measure_job

    try:
        more = {} if job.program is None else job.program.environment
        result, code = measure_job(job, {**environment, **more})
    except CharllmError as error:
        job.folder.mkdir(exist_ok=True)
        return None, str(error), error.exit_code
    return result, "", code


def _judge(task: Task, result: RunResult | None, why: str, code: int) -> Outcome:
    """Return the outcome of a measured case; an interrupt is for the whole sweep."""
    case = task.case
    if result is None:
        return Outcome(case.name, _own_verdict(code), why, summarise(case, None))
    told = result.provenance["measurement"]
    failure = told.get("failure")
    # A trainer that saves its weights when it is asked to end may well report success.
    if told.get("interrupted"):
        raise KeyboardInterrupt
    if failure is None:
        return Outcome(case.name, 0, "; ".join(result.warnings), summarise(case, result))
    if failure["kind"] == "cancelled":
        raise KeyboardInterrupt
    verdict = _own_verdict(failure["code"]) if failure["kind"] == "crash" else VERDICTS.get(failure["kind"], FAILED)
    unmeasured = replace(result, metrics=Metrics({}))
    return Outcome(case.name, verdict, failure["message"], summarise(case, unmeasured))


def _own_verdict(code: int) -> int:
    """Return what an exit code says of a case: the reference trainer tells one that is wrong or does not fit."""
    return code if code in (INVALID, DoesNotFit.exit_code) else FAILED


def place_ranks(run: RunSpec, plan: Plan) -> Plan:
    """Return the plan of one case: as many nodes as its ranks take, each with as many ranks as the plan allows."""
    ranks, most = run.parallelism.world, plan.ranks_per_node
    gpu = run.cluster.node.gpu.name
    if plan.launcher == LOCAL:
        if ranks != 1:
            raise SpecError("parallelism", f"{ranks} ranks", "1 rank with --launcher local")
        return replace(plan, gpu=gpu)
    if plan.launcher == TORCHRUN:
        if most not in (1, ranks) and ranks > most:
            raise SpecError("parallelism", f"{ranks} ranks", f"at most {most} ranks (--ranks-per-node)")
        return replace(plan, ranks_per_node=ranks, gpu=gpu)
    per_node = min(ranks, most)
    nodes, rest = divmod(ranks, per_node)
    if rest:
        raise SpecError("parallelism", f"{ranks} ranks", f"a multiple of {most} (--ranks-per-node)")
    if plan.nodes is not None and nodes > plan.nodes:
        said = f"at most {plan.nodes * most}: {plan.nodes} nodes (--nodes) with {most} ranks each"
        raise SpecError("parallelism", f"{ranks} ranks", said)
    gpus = None if plan.gpus_per_node is None else min(plan.gpus_per_node, per_node)
    return replace(plan, nodes=nodes, ranks_per_node=per_node, gpus_per_node=gpus, gpu=gpu)


def to_toml(request: Table) -> str:
    """Write a request as a TOML file that `charllm train` and `charllm simulate` read."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in request.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if BARE_KEY.match(name) else json.dumps(name)


def check_measuring(measuring: Measuring, *, workers: int, signals: bool) -> None:
    """Refuse what a measured study cannot have."""
    if workers != 1:
        raise SpecError("--workers", workers, "1 with --measure: a case has the machines for itself")
    if signals:
        raise SpecError("--signals", "--measure", "no --signals: a measured case always has its signals")
    if measuring.plan.launcher != SLURM and measuring.plan.nodes not in (None, 1):
        raise SpecError("--nodes", measuring.plan.nodes, "--launcher slurm for several nodes")
