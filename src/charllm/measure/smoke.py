"""A ten-minute trial of a machine or cluster: every part of charllm that needs one, once, on a small run.

Each part is the command that a user would type, with its output kept beside what it stored.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import CharllmError
from charllm.measure.logs import read_log
from charllm.measure.logs.causes import find_cause
from charllm.result.metrics import selected
from charllm.result.store import load_run, write_text
from charllm.spec.run import RunSpec
from charllm.spec.writers.toml import write_toml

SPEC_NAME, SUMMARY_NAME, LOGS = "spec.toml", "smoke.json", "logs"
PASSED, FAILED = "pass", "fail"
LONGEST_S = 420.0
RENDEZVOUS_PORT = 29_400
COMPARED = selected("step_time_s", "tokens_per_s", "mfu", "power_mean_w", "temperature_peak_c", "memory_peak_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to try, and how long."""

    run: RunSpec
    folder: Path
    telemetry: str = "auto"
    device: str = "cuda"
    train_steps: int = 10
    measured_steps: int = 60
    bench_s: float = 120.0
    node_list: str = ""
    """The nodes of the Slurm allocation, as Slurm writes them."""
    rest_s: float = 5.0
    """Idle and cooling-down time of the measured run."""


class Step(NamedTuple):
    """One part of the trial."""

    name: str
    command: tuple[str, ...]
    judge: Callable[[str], str] = lambda _output: ""
    """What is wrong with the output of a command that ended well; nothing where all is."""
    shown: int = -1
    """The line of its output that sums it up."""


class Outcome(NamedTuple):
    """How a part went."""

    name: str
    state: str
    seconds_s: float
    words: str
    command: str


def try_everything(trial: Trial, tell: Callable[[str], None] = lambda _words: None) -> dict[str, Any]:
    """Run all parts, one after the other, whatever becomes of them; returns and stores the summary."""
    (trial.folder / LOGS).mkdir(parents=True, exist_ok=True)
    write_text(write_toml(trial.run.as_table()), trial.folder / SPEC_NAME)
    outcomes = []
    for step in list_steps(trial):
        tell(f"{step.name} ...")
        outcomes.append(_try(step, trial.folder))
        tell(f"{step.name}: {outcomes[-1].state}, {outcomes[-1].words}")
    summary = {
        "passed": all(outcome.state == PASSED for outcome in outcomes),
        "steps": [outcome._asdict() for outcome in outcomes],
        "compared": compare_predicted(trial.folder),
        "folder": str(trial.folder),
    }
    write_text(json.dumps(summary, indent=1), trial.folder / SUMMARY_NAME)
    return summary


def list_steps(trial: Trial) -> list[Step]:
    """Return the parts in order: each a command that can be typed again."""
    spec, folder = str(trial.folder / SPEC_NAME), trial.folder
    nodes, gpus = trial.run.cluster.nodes, trial.run.cluster.node.gpus
    charllm = (sys.executable, "-m", "charllm")
    device = ("--device", trial.device)
    measured, predicted = str(folder / "measured"), str(folder / "predicted")
    where = () if nodes == 1 else ("--launcher", "slurm", "--nodes", str(nodes), "--ranks-per-node", str(gpus))
    rest = ("--idle", f"{trial.rest_s:g}", "--cooldown", f"{trial.rest_s:g}")
    train = ("-m", "charllm", "train", spec, "--steps", str(trial.train_steps), *device)
    program = ("--adapter", "reference", "--spec", spec, "--steps", str(trial.measured_steps), "--")
    asked = () if trial.telemetry == "none" else (spec,)
    return [
        Step(
            "preflight", (*charllm, "preflight", *asked, "--telemetry", trial.telemetry, "--out", str(folder)), shown=0
        ),
        Step("bench nccl", (*_ranks(trial, bench=True), *_bench_words(trial))),
        Step("train", (*_ranks(trial), *train), judge_training),
        Step(
            "measure",
            (*charllm, "measure", "--out", measured, "--telemetry", trial.telemetry, *rest, *where, *program, *device),
            lambda _output: judge_measured(folder / "measured"),
        ),
        Step("simulate", (*charllm, "simulate", spec, "--out", predicted, "--ignore-memory"), shown=1),
        Step("compare", (*charllm, "compare", predicted, measured), shown=0),
        Step("doctor", (*charllm, "doctor", measured), shown=0),
    ]


def _bench_words(trial: Trial) -> tuple[str, ...]:
    spec = () if trial.device == "cpu" else (str(trial.folder / SPEC_NAME),)
    words = ("-m", "charllm", "bench", "nccl", *spec, "--out", str(trial.folder / "nccl"), "--device", trial.device)
    return (*words, "--seconds", f"{trial.bench_s:g}", "--sizes", "1KiB:1MiB" if trial.device == "cpu" else "1KiB:1GiB")


def _ranks(trial: Trial, *, bench: bool = False) -> tuple[str, ...]:
    """Return what starts a module once for each GPU: plain Python, torchrun, or torchrun on every node."""
    nodes, gpus = trial.run.cluster.nodes, trial.run.cluster.node.gpus
    torchrun = (sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={gpus}")
    if nodes > 1:
        rendezvous = (
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={_head(trial.node_list)}:{RENDEZVOUS_PORT}",
            "--rdzv-id=smoke",
        )
        return ("srun", f"--nodes={nodes}", "--ntasks-per-node=1", *torchrun, f"--nnodes={nodes}", *rendezvous)
    if gpus == 1 or bench:
        # The bench starts its own ranks on one machine, two of them on a CPU.
        return (sys.executable,)
    return (*torchrun, "--standalone")


def _head(node_list: str) -> str:
    """Return the first node of the allocation."""
    asked = ["scontrol", "show", "hostnames", node_list]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        found = []
    return found[0] if found else "localhost"


def _try(step: Step, folder: Path) -> Outcome:
    start_s = time.monotonic()
    try:
        done = subprocess.run(
            ("env", "OMP_NUM_THREADS=1", *step.command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_S,
            check=False,
        )
        output, code = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as error:
        output, code = (error.stdout or b"").decode(errors="replace"), 124
    except OSError as error:
        output, code = f"cannot run {step.command[0]}: {error.strerror or error}\n", 127
    (folder / LOGS / f"{step.name.replace(' ', '-')}.log").write_text(output, encoding="utf-8")
    wrong = _why(output, code) or step.judge(output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    words = wrong or (lines[min(step.shown, len(lines) - 1)] if lines else "done")
    took_s = time.monotonic() - start_s
    return Outcome(step.name, FAILED if wrong else PASSED, took_s, words[:200], " ".join(step.command))


def _why(output: str, code: int) -> str:
    if code == 124:
        return f"no end within {LONGEST_S:g} s"
    failure = find_cause([output], 128 - code if code < 0 else code)
    return "" if failure is None else f"{failure.kind}: {failure.words}"


def judge_training(output: str) -> str:
    """Say what is wrong with a training: it must report steps with a loss that is a number."""
    losses = [step.loss for step in read_log(output + "\n").steps if step.loss is not None]
    if not losses:
        return "the trainer reported no loss"
    return "" if all(math.isfinite(loss) for loss in losses) else f"the loss is {losses[-1]}"


def judge_measured(folder: Path) -> str:
    """Say what is missing in a measured run."""
    return "" if load_run(folder).metrics["step_time_s"] else "no step was measured"


def compare_predicted(folder: Path) -> list[dict[str, Any]]:
    """Return what was predicted beside what was measured."""
    try:
        predicted, measured = (load_run(folder / name).metrics for name in ("predicted", "measured"))
    except (CharllmError, OSError, ValueError):
        # A part that failed has left nothing to compare; its outcome says why.
        return []
    return [{"metric": name, "predicted": predicted[name], "measured": measured[name]} for name in COMPARED]
